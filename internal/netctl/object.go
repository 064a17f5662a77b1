package netctl

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

// common are the options that most commands share.
type common struct {
	out    io.Writer
	client func() (*api.Client, error)
	tenant string
	json   bool
	quiet  bool
	form   string // of lists: listFlags
}

func newCommon(f *factory) common {
	return common{out: f.out, client: f.client, tenant: "default"}
}

func (o *common) tenantFlag(fs *flagSet) {
	fs.stringVar(&o.tenant, "tenant, t", "TENANT", "name of the tenant")
	fs.lookup("tenant").field = "tenantName"
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

// settle takes a name that has its tenant in front, as -o name prints it with --all, apart.
func (o *common) settle(k *objectKind, fs *flagSet, name *string) error {
	tenant, within, _ := strings.Cut(*name, ":")
	switch {
	case !k.perTenant || strings.Count(*name, ":") < len(k.keyFields)-1:
		return nil
	case fs.given("tenant") && o.tenant != tenant:
		return usageErrorf("flag --tenant %q: %q is of tenant %s", o.tenant, *name, tenant)
	}
	o.tenant, *name = tenant, within
	return nil
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

// bindName is bindRun for the name of an object of a type.
func bindName[T any](o *nameOptions, fs *flagSet, run func(context.Context, *nameOptions) error) func(context.Context, []string) error {
	return bindRun(o, func(ctx context.Context, o *nameOptions) error {
		if err := o.settle(kindFor[T](), fs, &o.name); err != nil {
			return err
		}
		return run(ctx, o)
	}, []*string{&o.name})
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
	c.run = bindName[T](o, &c.flags, orDefault(run, func(ctx context.Context, o *nameOptions) error {
		client, err := o.client()
		if err != nil {
			return err
		}
		got, err := k.collection(client).Inspect(ctx, o.key())
		if err != nil {
			return err
		}
		return o.showJSON(got)
	}))
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
	c.run = bindName[T](o, &c.flags, orDefault(run, func(ctx context.Context, o *nameOptions) error {
		return remove(ctx, &o.common, k, o.name, o.key())
	}))
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
	if err != nil && !api.IsNotFound(err) && !api.IsForbidden(err) { // below, a user who may not create gets an error
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
