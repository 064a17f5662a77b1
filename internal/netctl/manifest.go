package netctl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/api"
)

// endpointKind is the kind of documents that create endpoints.
const endpointKind = "endpoint"

// document is one object of the files that a user gives.
type document struct {
	file   string
	number int // in the file, from 1
	kind   string
	key    string
	fields map[string]any // with "kind"
	// manifest: it is an object of Kubernetes, for plans.
	manifest bool
}

// where names a document for messages.
func (d document) where() string { return fmt.Sprintf("%s: document %d", d.file, d.number) }

func (d document) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", d.where(), fmt.Errorf(format, args...))
}

// readDocuments reads files, the *.yaml, *.yml and *.json of directories, and
// standard input ("-"). Without manifests, those of Kubernetes are refused.
func readDocuments(stdin io.Reader, paths []string, manifests bool) ([]document, error) {
	var all []document
	var faults []error // of all files
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			docs, err := readFile(stdin, file, manifests)
			if err != nil {
				faults = append(faults, err)
			}
			all = append(all, docs...)
		}
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	if len(all) == 0 { // an export that failed at the other end of a pipe, a file that was cut
		return nil, fmt.Errorf("%s: has no documents: there is nothing to do", strings.Join(paths, ", "))
	}
	first := map[string]document{}
	for _, d := range all {
		id := d.kind + " " + d.key
		if other, ok := first[id]; ok {
			return nil, d.errorf("%s is also in %s", id, other.where())
		}
		first[id] = d
	}
	return all, nil
}

func filesOf(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, pathError(err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, pathError(err)
	}
	var files []string
	for _, e := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		name := filepath.Join(path, e.Name())
		info, err := os.Stat(name) // of what a link leads to
		switch {
		case err != nil:
			return nil, pathError(err)
		case info.IsDir():
		case !info.Mode().IsRegular(): // a pipe would be waited for
			return nil, fmt.Errorf("%s: is not a regular file, and is read only when it is named: -f %s", name, name)
		default:
			files = append(files, name)
		}
	}
	if files == nil {
		return nil, fmt.Errorf("%s: holds no *.yaml, *.yml or *.json", path)
	}
	return files, nil
}

func pathError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Path, e.Err)
	}
	return err
}

func readFile(stdin io.Reader, path string, manifests bool) ([]document, error) {
	if path == "-" {
		return parseDocuments("standard input", stdin, manifests)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, pathError(err)
	}
	docs, err := parseDocuments(path, f, manifests)
	return docs, errors.Join(err, f.Close())
}

// maxFaults is the largest number of faults that is reported for a file; netmaster reports as many for a list.
const maxFaults = 100

// parseDocuments reads YAML (of which JSON is a part) from r; empty documents
// count but hold nothing. Its error has the first fault of each document.
func parseDocuments(file string, r io.Reader, manifests bool) ([]document, error) {
	var docs []document
	var faults []error
	dec := yaml.NewDecoder(r)
	for number := 1; ; number++ {
		d := document{file: file, number: number}
		var n yaml.Node
		err := dec.Decode(&n)
		switch {
		case errors.Is(err, io.EOF):
			return docs, errors.Join(faults...)
		case err != nil: // what follows cannot be read
			return nil, errors.Join(append(faults, d.errorf("%s", strings.TrimPrefix(err.Error(), "yaml: ")))...)
		case n.Kind != yaml.DocumentNode || len(n.Content) != 1 || n.Content[0].Tag == "!!null":
			continue
		}
		roots := n.Content
		if roots[0].Kind == yaml.SequenceNode { // as export --json writes
			roots = roots[0].Content
		} else if items := listItems(roots[0]); manifests && items != nil {
			roots = items.Content
		}
		for _, root := range roots {
			d := d // documents of a list have its number
			if err := d.parse(root, manifests); err != nil {
				if last := len(faults) - 1; last >= 0 && faults[last].Error() == err.Error() {
					continue // several on one line
				}
				if faults = append(faults, err); len(faults) == maxFaults {
					return nil, errors.Join(faults...)
				}
				continue
			}
			docs = append(docs, d)
		}
	}
}

// member returns a field of an object; nil = it has none.
func member(root *yaml.Node, name string) *yaml.Node {
	if root.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == name {
			return root.Content[i+1]
		}
	}
	return nil
}

// listItems returns the objects of a list as kubectl writes it; nil = it is none.
func listItems(root *yaml.Node) *yaml.Node {
	kind, items := member(root, "kind"), member(root, "items")
	if member(root, "apiVersion") == nil || kind == nil || !strings.HasSuffix(kind.Value, "List") || items == nil || items.Kind != yaml.SequenceNode {
		return nil
	}
	return items
}

// parse takes a document's root node apart.
func (d *document) parse(root *yaml.Node, manifests bool) error {
	if root.Kind != yaml.MappingNode {
		return d.errorf("line %d: must be an object with a kind", root.Line)
	}
	if kind := member(root, "kind"); kind != nil {
		d.kind = kind.Value
	}
	switch version := member(root, "apiVersion"); {
	case version == nil:
	case manifests:
		return d.parseManifest(root)
	default:
		return d.errorf("is a manifest of Kubernetes (apiVersion %s): give it to 'kubectl apply -f', or to 'netctl plan -f'; documents of netctl have a kind and that object's fields, as 'netctl export' writes them", version.Value)
	}
	if d.kind == "" {
		return d.errorf("line %d: field \"kind\" is missing", root.Line)
	}
	typ, key, err := documentType(d.kind)
	if err != nil {
		return d.errorf("line %d: %w", root.Line, err)
	}
	v, err := fromYAML(root, typ)
	if err != nil {
		return d.errorf("%w", err)
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return d.errorf("line %d: must be an object with a kind", root.Line)
	}
	d.kind = key.name
	fields["kind"] = key.name
	d.fields = fields
	d.key = key.of(fields)
	return nil
}

// parseManifest reads an object of Kubernetes, to which netmaster gives a meaning.
func (d *document) parseManifest(root *yaml.Node) error {
	v, err := fromYAML(root, nil)
	if err != nil {
		return d.errorf("%w", err)
	}
	d.fields, _ = v.(map[string]any) // which a mapping becomes
	metadata, _ := d.fields["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)
	d.manifest, d.key = true, strings.TrimPrefix(namespace+"/"+name, "/")
	return nil
}

// inNamespace puts a manifest that names no namespace into one.
func (d *document) inNamespace(namespace string) {
	metadata, ok := d.fields["metadata"].(map[string]any)
	if _, has := metadata["namespace"]; d.manifest && ok && !has && namespace != "" {
		metadata["namespace"] = namespace
	}
}

// keyFields says which fields make up the key of a kind of document.
type keyFields struct {
	name   string // the kind
	fields []string
}

func (k keyFields) of(fields map[string]any) string {
	var parts []string
	for _, f := range k.fields {
		part := "?" // the field is missing or holds no name; netmaster says so
		switch v := fields[f].(type) {
		case nil, map[string]any, []any:
		default:
			part = cmp.Or(strings.TrimSpace(fmt.Sprint(v)), part)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ":")
}

// endpointDocument is the key of documents that create endpoints.
var endpointDocument = keyFields{endpointKind, []string{"TenantName", "NetworkName", "EndpointID"}}

// leftOut are kinds that former versions exported and this one does not have.
var leftOut = []keyFields{
	{"volume", []string{"tenantName", "volumeName"}},
	{"volumeProfile", []string{"tenantName", "volumeProfileName"}},
}

// isLeftOut reports whether a document is of a kind that this version does not have.
func (d document) isLeftOut() bool {
	return slices.ContainsFunc(leftOut, func(k keyFields) bool { return k.name == d.kind })
}

// documentType returns the wire type of a kind of document and its key.
func documentType(name string) (reflect.Type, keyFields, error) {
	if name == endpointKind {
		return reflect.TypeFor[api.CreateEndpointRequest](), endpointDocument, nil
	}
	for _, k := range leftOut {
		if k.name == name {
			return reflect.TypeFor[struct{}](), k, nil
		}
	}
	k, err := findKind(name)
	if err != nil {
		return nil, keyFields{}, fmt.Errorf("%s, %s", err.Error(), endpointKind) // no error of the command line
	}
	return k.typ, keyFields{k.name, k.keyFields}, nil
}

// decimal is the spelling of whole numbers that everybody reads alike.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// fromYAML turns a node into what JSON can carry. Where the wire has text,
// what looks like a number or a truth value is taken as it is written.
func fromYAML(n *yaml.Node, t reflect.Type) (any, error) {
	if n.Anchor != "" {
		return nil, errAnchor(n)
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if n.Content[i].Anchor != "" || n.Content[i].Kind == yaml.AliasNode {
				return nil, errAnchor(n.Content[i])
			}
			if _, twice := out[name]; twice {
				return nil, fmt.Errorf("line %d: field %q occurs twice", n.Content[i].Line, name)
			}
			v, err := fromYAML(n.Content[i+1], memberType(t, name))
			if err != nil {
				return nil, err
			}
			out[name] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := []any{}
		for _, c := range n.Content {
			v, err := fromYAML(c, memberType(t, ""))
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.AliasNode:
		return nil, errAnchor(n)
	case yaml.DocumentNode: // the reader has taken it apart
	case yaml.ScalarNode:
		if t != nil && t.Kind() == reflect.String && n.Tag != "!!null" {
			return n.Value, nil
		}
		if number := n.Tag == "!!int" || n.Tag == "!!float"; number && !decimal.MatchString(n.Value) {
			return nil, fmt.Errorf("line %d: number %q: must be written in decimal digits alone: YAML's other spellings mean other numbers (0443 is 291)", n.Line, n.Value)
		}
		if n.Tag == "!!int" || n.Tag == "!!float" {
			return json.Number(n.Value), nil // however big: netmaster's refusal repeats it
		}
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: %s", n.Line, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		return v, nil
	}
	return nil, fmt.Errorf("line %d: cannot be read", n.Line)
}

func errAnchor(n *yaml.Node) error {
	return fmt.Errorf("line %d: anchors and aliases are not supported", n.Line)
}

// memberType returns the type of a struct's field by its JSON name, or of the
// elements of a map or list; nil = unknown.
func memberType(t reflect.Type, name string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Pointer:
		return memberType(t.Elem(), name)
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			if jsonName(f) == name {
				return f.Type
			}
		}
		return nil
	case t.Kind() == reflect.Map, t.Kind() == reflect.Slice:
		return t.Elem()
	}
	return nil
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
