package netctl

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// common are the options that most commands share, and what they work with.
type common struct {
	terminal
	*session
	tenant string
	json   bool
	quiet  bool
	form   string // of lists: listFlags
	// keeps is a command that keeps of an existing object what no flag gives, but for the
	// flags in together; nil = it does not. See keepRest.
	keeps    *command
	together []string
	replace  bool
	plan     bool // a change is shown, and not sent
}

func (o *common) tenantFlag(fs *flags.Set) {
	fs.String(&o.tenant, "tenant, t", "TENANT", "name of the tenant")
	fs.Lookup("tenant").Field = "tenantName"
}

// quietUsage is the help of --quiet where what is shown has no shorter form.
const quietUsage = "print nothing: the exit code says whether it exists"

// showJSON prints an answer unless --quiet wants none.
func (o *common) showJSON(v any) error {
	if o.quiet {
		return nil
	}
	return printJSON(o.out, v)
}

// changeFlags are the flags of commands that create or delete.
func (o *common) changeFlags(fs *flags.Set, jsonNames, jsonUsage string) {
	fs.Bool(&o.json, jsonNames, jsonUsage)
	fs.Bool(&o.quiet, "quiet, q", "print the name only")
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

// bindClient is bindRun for functions that begin by asking for the client.
func bindClient[O any, P interface {
	*O
	client() (*api.Client, error)
}](o P, run func(context.Context, *api.Client, P) error, fields []*string) func(context.Context, []string) error {
	return bindRun((*O)(o), func(ctx context.Context, o *O) error {
		client, err := P(o).client()
		if err != nil {
			return err
		}
		return run(ctx, client, o)
	}, fields)
}

// splitTenant takes a name that has its tenant in front, as -o name prints it with --all, apart.
func (o *common) splitTenant(k *objectKind, fs *flags.Set, name *string) error {
	tenant, within, _ := strings.Cut(*name, ":")
	switch {
	case !k.perTenant || strings.Count(*name, ":") < len(k.keyFields)-1:
		return nil
	case fs.Given("tenant") != "" && o.tenant != tenant:
		return flags.Usagef("flag --tenant %q: %q is of tenant %s", o.tenant, *name, tenant)
	}
	o.tenant, *name = tenant, within
	return nil
}

// nameOptions are the options of commands that take one name: inspect and rm.
type nameOptions struct {
	common
	name string
}

// newNamed makes a command for an object of a kind: the one that its arguments name, or
// the only one.
func newNamed(base common, k *objectKind, c *command, run func(ctx context.Context, o *nameOptions, client *api.Client, key string) error) (*command, *nameOptions) {
	o := &nameOptions{common: base}
	c.examples = []string{strings.TrimSpace("netctl " + k.noun + " " + c.name + " " + k.example)}
	if k.single == "" {
		c.args = []string{k.arg}
	}
	if k.perTenant {
		o.tenantFlag(&c.flags)
	}
	c.run = func(ctx context.Context, args []string) error {
		o.name = strings.Join(args, "")
		if err := o.splitTenant(k, &c.flags, &o.name); err != nil {
			return err
		}
		key := cmp.Or(k.single, o.name)
		if k.perTenant {
			key = o.tenant + ":" + o.name
		}
		client, err := o.client()
		if err != nil {
			return err
		}
		return run(ctx, o, client, key)
	}
	return c, o
}

func newInspect(base common, k *objectKind, short string) *command {
	c, o := newNamed(base, k, &command{name: "inspect", short: short + ", as JSON"}, func(ctx context.Context, o *nameOptions, client *api.Client, key string) error {
		got, err := k.inspect(ctx, client, key)
		if err != nil {
			return err
		}
		return o.showJSON(got)
	})
	c.flags.Bool(&o.json, "json, j", "accepted; the output is JSON anyway")
	c.flags.Bool(&o.quiet, "quiet, q", quietUsage)
	return c
}

func newRemove(base common, k *objectKind, short string) *command {
	c, o := newNamed(base, k, &command{name: "rm", aliases: []string{"delete"}, short: short}, func(ctx context.Context, o *nameOptions, _ *api.Client, key string) error {
		return remove(ctx, &o.common, k, o.name, key)
	})
	writeFlags(&c.flags, &o.common, "json, j", "print the deleted key as JSON")
	return c
}

// keepRest has a command keep of an existing object what no flag gives, unless --replace is
// given. Of flags that say one thing together none is kept.
func (o *common) keepRest(c *command, together ...string) {
	o.keeps, o.together = c, together
	c.flags.Bool(&o.replace, "replace", "remove from an existing object what no other flag gives; it is kept otherwise")
}

// put creates or updates an object and then says which of the two happened: it
// compares the object as stored before and after.
func put(ctx context.Context, o *common, k *objectKind, name string, object api.Object) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	object, before, err := o.completed(ctx, client, k, object)
	if err != nil {
		return err
	}
	after, err := k.create(ctx, client, object)
	if err != nil {
		return err
	}
	existed := before != nil
	if existed && k.single == "" { // the commands of single objects keep what no flag names
		if err := cmp.Or(o.noteCleared(before, after, object), o.warnAudited(before, after)); err != nil {
			return err
		}
	}
	return o.printResult(writeVerb(existed, reflect.DeepEqual(before, after))+" "+k.noun, name, object.ObjectKey(), after)
}

// completed returns an object as it is to be written, with what its command keeps of the
// stored one, and the stored one; nil = there is none.
func (o *common) completed(ctx context.Context, client *api.Client, k *objectKind, object api.Object) (full api.Object, before any, err error) {
	before, err = k.get(ctx, client, object.ObjectKey())
	switch {
	case api.IsNotFound(err) || api.IsForbidden(err): // a user who may not create gets an error of that
		return object, nil, nil
	case err != nil:
		return nil, nil, err
	case o.keeps == nil || o.replace:
		return object, before, nil
	}
	kept := map[any]bool{} // by pointers to fields
	for _, d := range o.keeps.flags.Flags {
		kept[d.To] = d.Given == "" && !slices.Contains(o.together, d.Names[0])
	}
	filled, merged := reflect.ValueOf(o.keeps.fills).Elem(), reflect.New(reflect.TypeOf(object)).Elem()
	merged.Set(reflect.ValueOf(object))
	for i := range filled.NumField() {
		if kept[filled.Field(i).Addr().Interface()] {
			merged.Field(i).Set(reflect.ValueOf(before).Field(i))
		}
	}
	full, _ = reflect.TypeAssert[api.Object](merged) // it is of the object's type
	return full, before, nil
}

// noteCleared names the fields that had a value before a write, and have none after it: the
// commands without keepRest, and --replace, replace all of an object. A list that was sent empty
// was given so.
func (o *common) noteCleared(before, after, sent any) error {
	names, was, err := fieldTexts(before)
	if err != nil {
		return err
	}
	_, is, err := fieldTexts(after)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	for f, v := range reflect.Indirect(reflect.ValueOf(sent)).Fields() {
		given[jsonName(f)] = v.Kind() == reflect.Slice && !v.IsNil() && v.Len() == 0
	}
	var cleared []string
	for _, n := range names {
		if was[n] != "" && is[n] == "" && !given[n] {
			cleared = append(cleared, n+" ("+was[n]+")")
		}
	}
	if len(cleared) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(o.stderr, "note: no longer set, since no flag gives it: %s\n", strings.Join(cleared, ", "))
	return err
}

// warnAudited warns that a write has put an enforced network policy out of force.
func (o *common) warnAudited(before, after any) error {
	if as[api.NetworkPolicy](before).Mode != "enforce" || as[api.NetworkPolicy](after).Mode != "audit" {
		return nil
	}
	_, err := fmt.Fprintln(o.stderr, "warning: the policy was enforced and is only audited now: create it again without --mode audit, and audit changes under another name")
	return err
}

// writeVerb says what a write did to an object.
func writeVerb(existed, same bool) string {
	switch {
	case !existed:
		return "Created"
	case same:
		return "Unchanged:"
	}
	return "Updated"
}

// remove deletes an object and then says so.
func remove(ctx context.Context, o *common, k *objectKind, name, key string) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	if err := k.remove(ctx, client, key); err != nil {
		return err
	}
	return o.printResult("Deleted "+k.noun, name, key, map[string]string{"key": key})
}

func (o *common) printResult(done, name, key string, object any) error {
	return o.result(object, name, "%s %s", done, key)
}

// result prints what a command did: as JSON, in short ("" = nothing), or in a sentence, as
// the flags ask.
func (o *common) result(object any, short, format string, args ...any) error {
	switch {
	case o.json:
		return printJSON(o.out, object)
	case o.quiet && short == "":
		return nil
	case o.quiet:
		return printLines(o.out, []string{short})
	}
	_, err := fmt.Fprintf(o.out, format+"\n", args...)
	return err
}
