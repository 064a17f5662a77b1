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
	c.flags.Enum(&o.form, "output, o", strings.Join(forms, "|"), "form of the list; wide has more columns, yaml is as apply takes it, where it does", forms...)
	c.flags.Bool(&o.json, "json, j", "the same as -o json")
	c.flags.Bool(&o.quiet, "quiet, q", "the same as -o name: "+names)
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

// columns say how lists show objects of a type, in all forms.
type columns[T any] struct {
	header []string
	row    func(T) []string
	// wideHeader and wideRow are the columns of -o wide beyond these; nil = none.
	wideHeader []string
	wideRow    func(T) []string
	id         func(T) string // what -o name prints
}

// items is a list of objects to be printed.
func (c columns[T]) items(objects ...T) items {
	l := items{header: c.header, wideHeader: c.wideHeader}
	for _, object := range objects {
		x := item{object: object, row: c.row(object)}
		if c.id != nil {
			x.name = c.id(object)
		}
		if c.wideRow != nil {
			x.wide = c.wideRow(object)
		}
		l.all = append(l.all, x)
	}
	return l
}

// untypedColumns are the same for objects that are of the type by construction.
func untypedColumns[T any](c columns[T]) columns[any] {
	u := columns[any]{header: c.header, wideHeader: c.wideHeader, row: func(o any) []string { return c.row(as[T](o)) }}
	if c.wideRow != nil {
		u.wideRow = func(o any) []string { return c.wideRow(as[T](o)) }
	}
	if c.id != nil {
		u.id = func(o any) string { return c.id(as[T](o)) }
	}
	return u
}

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
	// otherTenant: it is no object of the list's kind, so that it is no document.
	otherTenant bool
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
		if x.otherTenant {
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

// newList makes the ls command of a kind: get with the kind's name left out.
func newList(base common, k *objectKind, short string) *command {
	o := &getOptions{common: base}
	c := &command{
		name:     "ls",
		aliases:  []string{"list"},
		short:    short,
		examples: []string{"netctl " + k.noun + " ls -o json"},
	}
	if k.perTenant {
		c.examples = []string{"netctl " + k.noun + " ls --tenant blue", "netctl " + k.noun + " ls --all -o wide"}
		o.tenantFlag(&c.flags)
		c.flags.Bool(&o.all, "all, a", "list those of all tenants")
	}
	o.listFlags(c, "names only")
	c.run = func(ctx context.Context, _ []string) error {
		if err := o.checkTenantFlags(&c.flags); err != nil {
			return err
		}
		return o.run(ctx, k)
	}
	return c
}
