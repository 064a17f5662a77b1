package netctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/api"
)

// The forms in which lists are printed.
const (
	formTable = "table"
	formWide  = "wide"
	formJSON  = "json"
	formYAML  = "yaml"
	formName  = "name"
)

var forms = []string{formTable, formWide, formJSON, formYAML, formName}

// listFlags are the flags of all commands that print a list; names says what --quiet
// prints.
func (o *common) listFlags(c *command, names string) {
	c.lists = true
	o.form = formTable
	c.flags.add("output, o", strings.Join(forms, "|"), "form of the list; wide has more columns, yaml is as apply takes it, where it does", formTable, func(v string) error {
		if o.form = v; !slices.Contains(forms, v) {
			return usageErrorf("must be one of %s", strings.Join(forms, ", "))
		}
		return nil
	})
	c.flags.boolVar(&o.json, "json, j", "the same as -o json")
	c.flags.boolVar(&o.quiet, "quiet, q", "the same as -o name: "+names)
}

// listForm is the form that the flags ask for.
func (o *common) listForm() string {
	switch {
	case o.json:
		return formJSON
	case o.quiet:
		return formName
	}
	return cmp.Or(o.form, formTable)
}

// inTable reports whether the list is printed as a table.
func (o *common) inTable() bool { return o.listForm() == formTable || o.listForm() == formWide }

// items is a list to be printed.
type items struct {
	kind       string // of documents that apply takes; "" = it takes none of these
	header     []string
	wideHeader []string // beyond header
	all        []item
	// single: there is one, which JSON shows in no array.
	single bool
	// whole, if not nil, is what JSON and YAML show: the items, and what is beside them.
	whole any
}

// item is one of a list.
type item struct {
	object any
	name   string
	row    []string
	wide   []string // beyond row
	// foreign: it is no object of the list's kind, so that it is no document.
	foreign bool
}

// printItems prints a list in the form that the flags ask for.
func (o *common) printItems(l items) error {
	switch form := o.listForm(); form {
	case formName:
		var names []string
		for _, x := range l.all {
			names = append(names, x.name)
		}
		return printLines(o.out, names)
	case formJSON, formYAML:
		return o.printObjects(l, form)
	default:
		header := l.header
		if form == formWide {
			header = slices.Concat(header, l.wideHeader)
		}
		var rows [][]string
		for _, x := range l.all {
			row := x.row
			if form == formWide {
				row = slices.Concat(row, x.wide)
			}
			rows = append(rows, row)
		}
		return printTable(o.out, header, rows)
	}
}

// printObjects prints a list's objects in whole.
func (o *common) printObjects(l items, form string) error {
	all := []any{} // not nil: JSON shows []
	for _, x := range l.all {
		all = append(all, x.object)
	}
	var whole any = all
	switch {
	case l.whole != nil:
		whole = l.whole
	case l.single && len(all) == 1:
		whole = all[0]
	}
	if form == formJSON {
		return printJSON(o.out, whole)
	}
	if l.kind == "" {
		return printYAML(o.out, whole)
	}
	for _, x := range l.all {
		if x.foreign {
			continue
		}
		if err := writeDocument(o.out, l.kind, x.object); err != nil {
			return err
		}
	}
	return nil
}

// printYAML prints what is no document for apply, with the fields that it has as JSON.
func printYAML(w io.Writer, v any) error {
	b, err := json.Marshal(readable(v))
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil {
		return err
	}
	blockStyle(&n)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&n), e.Close()); err != nil {
		return err
	}
	_, err = io.WriteString(w, visibleYAML(out.String()))
	return err
}

// blockStyle writes what is there, as YAML is usually written. Empty objects and lists
// stay as they are.
func blockStyle(n *yaml.Node) {
	switch {
	case n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, hidden):
		n.Style = yaml.DoubleQuotedStyle // in which visibleYAML can write it
	case n.Kind == yaml.ScalarNode || len(n.Content) > 0:
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// listing says how a kind of object is listed.
type listing[T api.Object, O any] struct {
	kind   kind[T, O]
	tenant func(T) string // unused when the kind belongs to no tenant
	name   func(T) string
	header []string
	row    func(T) []string
	// learn, when set, looks up what rows show beyond the objects themselves.
	learn func(ctx context.Context, c *api.Client, list []T) error
	// others, when set, returns what is listed behind the objects and is none of the kind.
	others func(ctx context.Context, c *api.Client, o *getOptions) ([]item, error)
}

// newList makes the ls command of a kind: get with the kind's name left out.
func newList[T api.Object, O any](f *factory, l listing[T, O], short string) *command {
	o := &getOptions{common: newCommon(f), stderr: f.stderr}
	c := &command{
		name:     "ls",
		aliases:  []string{"list"},
		short:    short,
		examples: []string{"netctl " + l.kind.noun + " ls -o json"},
	}
	if l.kind.perTenant {
		c.examples = []string{"netctl " + l.kind.noun + " ls --tenant blue", "netctl " + l.kind.noun + " ls --all -o wide"}
		o.tenantFlag(&c.flags)
		c.flags.boolVar(&o.all, "all, a", "list those of all tenants")
	}
	o.listFlags(c, "names only")
	c.run = func(ctx context.Context, _ []string) error {
		if err := o.whose(&c.flags); err != nil {
			return err
		}
		return o.run(ctx, kindFor[T]())
	}
	return c
}
