package netctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type getOptions struct {
	common
	name     string
	all      bool
	watch    bool
	interval time.Duration
}

func newGet(base common) *command {
	o := &getOptions{common: base, interval: 2 * time.Second}
	c := &command{
		name:  "get",
		short: "Show the objects of a kind, or one of them, as a table, YAML or JSON",
		examples: []string{
			"netctl get networks --all",
			"netctl get group web --tenant blue -o yaml",
			"netctl get rules -t blue -o wide --watch",
		},
		args:     []string{"KIND"},
		optional: []string{"NAME"},
	}
	o.tenantFlag(&c.flags)
	c.flags.Bool(&o.all, "all, a", "those of all tenants")
	o.listFlags(c, "names only")
	c.flags.Bool(&o.watch, "watch, w", "go on and show what changes, until interrupted")
	c.flags.Duration(&o.interval, "interval", "how often --watch looks")
	c.run = func(ctx context.Context, args []string) error {
		if len(args) > 1 {
			o.name = args[1]
		}
		k, err := findShown(args[0])
		if err != nil {
			return err
		}
		if o.all && o.name != "" {
			return flags.Usagef("flag --all shows those of all tenants, and %s names one object; give one of them", o.name)
		}
		if err := errors.Join(o.splitTenant(k, &c.flags, &o.name), o.checkTenantFlags(&c.flags)); err != nil {
			return err
		}
		return o.run(ctx, k)
	}
	return c
}

// checkTenantFlags refuses flags that say of different tenants that their objects are meant.
func (o *getOptions) checkTenantFlags(fs *flags.Set) error {
	if o.all && fs.Given("tenant") != "" {
		return flags.Usagef("flags --tenant and --all ask for different objects; give one of them")
	}
	return nil
}

// run shows the objects of a kind that the command names.
func (o *getOptions) run(ctx context.Context, k *objectKind) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	found, err := o.fetch(ctx, client, k)
	if err != nil {
		return err
	}
	l := o.items(k, found, "now")
	l.single = o.name != "" || k.single != ""
	if k.others != nil && !l.single {
		others, err := k.others(ctx, client, o)
		if err != nil {
			return err
		}
		l.all = append(l.all, others...)
	}
	if err := o.printItems(l); err != nil || !o.watch {
		return err
	}
	return o.follow(ctx, client, k, found)
}

// fetch returns the objects that the command names.
func (o *getOptions) fetch(ctx context.Context, client *api.Client, k *objectKind) ([]any, error) {
	var found []any
	switch {
	case o.name != "" || k.single != "":
		key := o.name
		if k.single != "" {
			key = k.single
		} else if k.perTenant {
			key = o.tenant + ":" + o.name
		}
		one, err := k.get(ctx, client, key)
		if err != nil {
			return nil, err
		}
		found = []any{one}
	default:
		if k.perTenant && !o.all { // a tenant that does not exist is an error, not an empty list
			if _, err := client.Tenants().Get(ctx, o.tenant); err != nil {
				return nil, err
			}
		}
		find := k.list
		if k.listTenant != nil && !o.all {
			find = func(ctx context.Context, c *api.Client) ([]any, error) { return k.listTenant(ctx, c, o.tenant) }
		}
		list, err := find(ctx, client)
		if err != nil {
			return nil, err
		}
		for _, object := range list {
			if !k.perTenant || o.all || k.tenant(object) == o.tenant {
				found = append(found, object)
			}
		}
	}
	if k.learn != nil && o.inTable() {
		if err := k.learn(ctx, client, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// items makes a list of objects, with what happened to them where that is watched.
func (o *getOptions) items(k *objectKind, found []any, event string) items {
	l := k.items(found...)
	if !k.seen {
		l.kind = k.name
	}
	if o.watch {
		l.header = append([]string{"Event"}, l.header...)
	}
	for i := range l.all {
		x := &l.all[i]
		if k.perTenant && (o.all || k.seen) { // an endpoint's id is one of its network
			x.name = k.key(x.object)
		}
		if o.watch {
			x.row = append([]string{event}, x.row...)
		}
	}
	return l
}

// follow looks again and again, and shows what has changed since, until ctx ends.
func (o *getOptions) follow(ctx context.Context, client *api.Client, k *objectKind, found []any) error {
	known, err := snapshot(k, found)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(o.interval)
	defer ticker.Stop()
	for away := false; ; {
		select {
		case <-ctx.Done():
			return nil // the way to end it
		case <-ticker.C:
		}
		found, err := o.fetch(ctx, client, k)
		if api.IsNotFound(err) && o.name != "" {
			found, err = nil, nil
		}
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if api.IsUnavailable(err) { // a restart; what has changed meanwhile is shown afterwards
			if !away {
				fmt.Fprintf(o.stderr, "warning: %s; trying again\n", message(err))
			}
			away = true
			continue
		}
		if err != nil {
			return err
		}
		if away {
			away = false
			fmt.Fprintln(o.stderr, "netmaster answers again")
		}
		now, err := snapshot(k, found)
		if err != nil {
			return err
		}
		for _, object := range found {
			before, was := known[k.key(object)]
			switch {
			case !was:
				err = o.event(k, object, "created")
			case before.text != now[k.key(object)].text:
				err = o.event(k, object, "changed")
			}
			if err != nil {
				return err
			}
		}
		for key, before := range known {
			if _, is := now[key]; !is {
				if err := o.event(k, before.object, "deleted"); err != nil {
					return err
				}
			}
		}
		known = now
	}
}

// event shows a change in the output's form.
func (o *getOptions) event(k *objectKind, object any, event string) error {
	l := o.items(k, []any{object}, event)
	l.single = true
	switch {
	case !o.inTable() && event == "deleted":
		return printLines(o.out, []string{"# deleted " + k.name + " " + k.key(object)})
	case !o.inTable():
		return o.printItems(l)
	case o.listForm() == formWide:
		return printRow(o.out, append(l.all[0].row, l.all[0].wide...))
	}
	return printRow(o.out, l.all[0].row)
}

type seenObject struct {
	object any
	text   string // as JSON, to compare
}

func snapshot(k *objectKind, list []any) (map[string]seenObject, error) {
	out := map[string]seenObject{}
	for _, object := range list {
		b, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		out[k.key(object)] = seenObject{object, string(b)}
	}
	return out, nil
}
