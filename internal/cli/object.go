package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/contiv/netplugin/v2/api"
)

// common are the options that most commands share.
type common struct {
	out    io.Writer
	client func() (*api.Client, error)
	tenant string
	json   bool
	quiet  bool
}

func newCommon(f *factory) common {
	return common{out: f.out, client: f.client, tenant: "default"}
}

func (o *common) tenantFlag(fs *flagSet) {
	fs.stringVar(&o.tenant, "tenant, t", "TENANT", "name of the tenant")
}

// quietUsage is the help of --quiet where what is shown has no shorter form.
const quietUsage = "print nothing: the exit code tells whether it is there"

// showJSON prints an answer unless --quiet wants none.
func (o *common) showJSON(v any) error {
	if o.quiet {
		return nil
	}
	return printJSON(o.out, v)
}

// changeFlags are the flags of commands that create or delete.
func (o *common) changeFlags(fs *flagSet, jsonNames, jsonUsage string) {
	fs.boolVar(&o.json, jsonNames, jsonUsage)
	fs.boolVar(&o.quiet, "quiet, q", "print the name only")
}

// bindRun makes a command's run function of one that takes its options; the
// positional arguments go to the given fields, in order.
func bindRun[O any](o *O, run func(context.Context, *O) error, fields []*string) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		for i, p := range fields {
			*p = args[i]
		}
		return run(ctx, o)
	}
}

func orDefault[F any](f, def func(context.Context, F) error) func(context.Context, F) error {
	if f == nil {
		return def
	}
	return f
}

// kind is a collection of objects as commands name it.
type kind[T api.Object, O any] struct {
	noun       string // "network", in messages
	arg        string // "NETWORK", in help
	example    string // the arguments of an example: "--tenant blue backend"
	perTenant  bool
	collection func(*api.Client) api.Resource[T, O]
}

// nameOptions are the options of commands that take one name: inspect and rm.
type nameOptions struct {
	common
	name      string
	perTenant bool
}

// key is the object's key on the wire.
func (o *nameOptions) key() string {
	if o.perTenant {
		return o.tenant + ":" + o.name
	}
	return o.name
}

func newNameOptions[T api.Object, O any](f *factory, k kind[T, O], fs *flagSet) *nameOptions {
	o := &nameOptions{common: newCommon(f), perTenant: k.perTenant}
	if k.perTenant {
		o.tenantFlag(fs)
	}
	return o
}

func newInspect[T api.Object, O any](f *factory, k kind[T, O], short string, run func(context.Context, *nameOptions) error) *command {
	c := &command{
		name:     "inspect",
		short:    short + ", as JSON",
		examples: []string{"netctl " + k.noun + " inspect " + k.example},
		args:     []string{k.arg},
	}
	o := newNameOptions(f, k, &c.flags)
	c.flags.boolVar(&o.json, "json, j", "accepted; the output is JSON anyway")
	c.flags.boolVar(&o.quiet, "quiet, q", quietUsage)
	c.run = bindRun(o, orDefault(run, func(ctx context.Context, o *nameOptions) error {
		client, err := o.client()
		if err != nil {
			return err
		}
		got, err := k.collection(client).Inspect(ctx, o.key())
		if err != nil {
			return err
		}
		return o.showJSON(got)
	}), []*string{&o.name})
	return c
}

func newRemove[T api.Object, O any](f *factory, k kind[T, O], short string, run func(context.Context, *nameOptions) error) *command {
	c := &command{
		name:     "rm",
		aliases:  []string{"delete"},
		short:    short,
		examples: []string{"netctl " + k.noun + " rm " + k.example},
		args:     []string{k.arg},
	}
	o := newNameOptions(f, k, &c.flags)
	o.changeFlags(&c.flags, "json, j", "print the deleted key as JSON")
	c.run = bindRun(o, orDefault(run, func(ctx context.Context, o *nameOptions) error {
		return remove(ctx, &o.common, k, o.name, o.key())
	}), []*string{&o.name})
	return c
}

// put creates or updates an object and then says which of the two happened: it
// compares the object as stored before and after.
func put[T api.Object, O any](ctx context.Context, o *common, k kind[T, O], name string, object T) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	r := k.collection(client)
	before, err := r.Get(ctx, object.ObjectKey())
	existed := err == nil
	if err != nil && !api.IsNotFound(err) && !api.IsForbidden(err) { // who may not create is told so below
		return err
	}
	after, err := r.Create(ctx, object)
	if err != nil {
		return err
	}
	return o.say(written(existed, reflect.DeepEqual(before, after))+" "+k.noun, name, object.ObjectKey(), after)
}

// written says what a write did to an object.
func written(existed, same bool) string {
	switch {
	case !existed:
		return "Created"
	case same:
		return "Unchanged:"
	}
	return "Updated"
}

// remove deletes an object and then says so.
func remove[T api.Object, O any](ctx context.Context, o *common, k kind[T, O], name, key string) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	if err := k.collection(client).Delete(ctx, key); err != nil {
		return err
	}
	return o.say("Deleted "+k.noun, name, key, map[string]string{"key": key})
}

func (o *common) say(done, name, key string, object any) error {
	switch {
	case o.json:
		return printJSON(o.out, object)
	case o.quiet:
		return printLines(o.out, []string{name})
	}
	_, err := fmt.Fprintf(o.out, "%s %s\n", done, key)
	return err
}

// listOptions are the options of all `ls` commands.
type listOptions struct {
	common
	all bool
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
	others func(ctx context.Context, c *api.Client, o *listOptions) ([]other, error)
}

// other is what a list shows beside objects of its kind.
type other struct {
	object any // in JSON
	name   string
	row    []string
}

func newList[T api.Object, O any](f *factory, l listing[T, O], short string, run func(context.Context, *listOptions) error) *command {
	o := &listOptions{common: newCommon(f)}
	c := &command{
		name:     "ls",
		aliases:  []string{"list"},
		short:    short,
		examples: []string{"netctl " + l.kind.noun + " ls --json"},
	}
	if l.kind.perTenant {
		c.examples = []string{"netctl " + l.kind.noun + " ls --tenant blue", "netctl " + l.kind.noun + " ls --all --json"}
		o.tenantFlag(&c.flags)
		c.flags.boolVar(&o.all, "all, a", "list those of all tenants")
	}
	c.flags.boolVar(&o.json, "json, j", "print a JSON array")
	c.flags.boolVar(&o.quiet, "quiet, q", "print names only")
	c.run = bindRun(o, orDefault(run, func(ctx context.Context, o *listOptions) error { return list(ctx, o, l) }), nil)
	return c
}

// list prints the objects of one tenant or of all, ordered by key. A tenant
// that does not exist is an error, not an empty list.
func list[T api.Object, O any](ctx context.Context, o *listOptions, l listing[T, O]) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	ofTenant := l.kind.perTenant && !o.all
	if ofTenant {
		if _, err := client.Tenants().Get(ctx, o.tenant); err != nil {
			return err
		}
	}
	found, err := l.kind.collection(client).List(ctx)
	if err != nil {
		return err
	}
	var shown []T
	for _, t := range found {
		if !ofTenant || l.tenant(t) == o.tenant {
			shown = append(shown, t)
		}
	}
	slices.SortFunc(shown, func(a, b T) int { return cmp.Compare(a.ObjectKey(), b.ObjectKey()) })
	var others []other
	if l.others != nil {
		if others, err = l.others(ctx, client, o); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		all := []any{}
		for _, t := range shown {
			all = append(all, t)
		}
		for _, x := range others {
			all = append(all, x.object)
		}
		return printJSON(o.out, all)
	case o.quiet:
		var names []string
		for _, t := range shown {
			names = append(names, l.name(t))
		}
		for _, x := range others {
			names = append(names, x.name)
		}
		return printLines(o.out, names)
	}
	if l.learn != nil {
		if err := l.learn(ctx, client, shown); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, t := range shown {
		rows = append(rows, l.row(t))
	}
	for _, x := range others {
		rows = append(rows, x.row)
	}
	return printTable(o.out, l.header, rows)
}
