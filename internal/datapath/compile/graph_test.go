package compile

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// nodesOf returns the nodes of a Compiler, and fails when two of them have a pointer to each
// other, directly or not, or one has a pointer to the Compiler.
func nodesOf(t *testing.T, c *Compiler) (nodes []reflect.Value) {
	t.Helper()
	done := map[uintptr]bool{}
	var walk func(v reflect.Value, path []string, open []uintptr)
	walk = func(v reflect.Value, path []string, open []uintptr) {
		switch {
		case v.Kind() == reflect.Interface:
			walk(v.Elem(), path, open)
			return
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Interface:
			for i := range v.Len() {
				walk(v.Index(i), path, open)
			}
			return
		case v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct:
			return
		}
		for _, p := range open {
			if p == v.Pointer() {
				t.Fatalf("nodes have pointers to each other: %s", strings.Join(path, " > "))
			}
		}
		if done[v.Pointer()] {
			return
		}
		done[v.Pointer()] = true
		nodes = append(nodes, v.Elem())
		for i := range v.Elem().NumField() {
			walk(v.Elem().Field(i), append(slices.Clip(path), v.Elem().Type().Field(i).Name), append(slices.Clip(open), v.Pointer()))
		}
	}
	walk(reflect.ValueOf(c), []string{"Compiler"}, nil)
	return nodes
}

func TestNodesHaveNoCycle(t *testing.T) {
	if got := len(nodesOf(t, New("h1"))); got < 20 {
		t.Fatalf("%d nodes found, want all", got)
	}
}

// left names the maps of a Compiler's nodes that are not empty, but for the problems.
func left(t *testing.T, c *Compiler) (out []string) {
	t.Helper()
	for _, n := range nodesOf(t, c) {
		if n.Type() == reflect.TypeFor[problems]() {
			continue
		}
		for i := range n.NumField() {
			if f := n.Field(i); f.Kind() == reflect.Map && f.Len() > 0 {
				out = append(out, fmt.Sprintf("%d in %s.%s", f.Len(), n.Type().Name(), n.Type().Field(i).Name))
			}
		}
	}
	return out
}

func TestPageHasTheOrder(t *testing.T) {
	page, err := os.ReadFile("../../../docs/design/compile.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, n := range New("h1").order {
		want = append(want, fmt.Sprintf("| %d | `%s` |", i+1, reflect.TypeOf(n).Elem().Name()))
	}
	got := regexp.MustCompile("(?m)^\\| \\d+ \\| `\\w+` \\|").FindAllString(string(page), -1)
	if !slices.Equal(got, want) {
		t.Errorf("steps on docs/design/compile.md: %q, want %q", got, want)
	}
}
