package netctl

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// serverOwned are the fields of an object that only the server sets. This is about
// the object's own fields: a selector inside of it may well have a "key".
var serverOwned = []string{"key", "link-sets", "links"}

// field is an object's field as a document writes it.
type field struct {
	name string
	node *yaml.Node
}

// fieldsOf returns an object's fields without empty ones and the server's own.
func fieldsOf(o any) []field {
	return slices.DeleteFunc(membersOf(reflect.Indirect(reflect.ValueOf(o))), func(f field) bool {
		return slices.Contains(serverOwned, f.name)
	})
}

// membersOf returns a struct's fields without empty ones.
func membersOf(v reflect.Value) []field {
	var out []field
	for f, member := range v.Fields() {
		if name := jsonName(f); name != "" && !isEmpty(member) {
			out = append(out, field{name, yamlOf(member)})
		}
	}
	return out
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() { //nolint:exhaustive // of all others the zero value is empty
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		return len(membersOf(v)) == 0
	}
	return v.IsZero()
}

func yamlOf(v reflect.Value) *yaml.Node {
	n := &yaml.Node{}
	switch v.Kind() {
	case reflect.Pointer:
		return yamlOf(v.Elem())
	case reflect.Struct:
		n.Kind = yaml.MappingNode
		for _, f := range membersOf(v) {
			n.Content = append(n.Content, textNode(f.name), f.node)
		}
	case reflect.Map:
		n.Kind = yaml.MappingNode
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int {
			if a.String() < b.String() {
				return -1
			}
			return 1
		})
		for _, k := range keys {
			n.Content = append(n.Content, textNode(k.String()), yamlOf(v.MapIndex(k)))
		}
	case reflect.Slice:
		n.Kind, n.Style = yaml.SequenceNode, yaml.FlowStyle
		for i := range v.Len() {
			n.Content = append(n.Content, yamlOf(v.Index(i)))
		}
	case reflect.String:
		return textNode(v.String())
	default:
		n.Kind, n.Value = yaml.ScalarNode, fmt.Sprint(v.Interface())
	}
	return n
}

func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if strings.ContainsFunc(s, hidden) {
		n.Style = yaml.DoubleQuotedStyle // in which visibleYAML can write it
	}
	return n
}

// writeDocument writes an object as one YAML document.
func writeDocument(w io.Writer, kind string, o any) error {
	n := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{textNode("kind"), textNode(kind)}}
	for _, f := range fieldsOf(o) {
		n.Content = append(n.Content, textNode(f.name), f.node)
	}
	var b strings.Builder
	b.WriteString("---\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(n), e.Close()); err != nil {
		return err
	}
	_, err := io.WriteString(w, visibleYAML(b.String()))
	return err
}

// fieldTexts returns an object's fields as text, in order.
func fieldTexts(o any) (names []string, texts map[string]string, err error) {
	texts = map[string]string{}
	for _, f := range fieldsOf(o) {
		if f.node.Kind == yaml.MappingNode {
			f.node.Style = yaml.FlowStyle
		}
		b, err := yaml.Marshal(f.node)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, f.name)
		texts[f.name] = visibleYAML(string(b[:len(b)-1])) // without its newline
	}
	return names, texts, nil
}

func number(n int) string { return strconv.Itoa(n) }
