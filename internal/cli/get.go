package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

type getOptions struct {
	common
	stderr     io.Writer
	kind, name string
	all        bool
	output     string
	watch      bool
	interval   time.Duration
}

func newGet(f *factory, run func(context.Context, *getOptions) error) *command {
	o := &getOptions{common: newCommon(f), stderr: f.stderr, interval: 2 * time.Second}
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
	c.flags.boolVar(&o.all, "all, a", "those of all tenants")
	c.flags.stringVar(&o.output, "output, o", "yaml|json|wide", "yaml as apply takes it, json with links, or a table with more columns; else a table")
	c.flags.boolVar(&o.json, "json, j", "the same as -o json")
	c.flags.boolVar(&o.quiet, "quiet, q", "print names only")
	c.flags.boolVar(&o.watch, "watch, w", "go on and show what changes, until interrupted")
	c.flags.durationVar(&o.interval, "interval", "how often --watch looks")
	c.run = func(ctx context.Context, args []string) error {
		o.kind = args[0]
		if len(args) > 1 {
			o.name = args[1]
		}
		return orDefault(run, runGet)(ctx, o)
	}
	return c
}

func runGet(ctx context.Context, o *getOptions) error {
	k, err := findShown(o.kind)
	if err != nil {
		return err
	}
	switch {
	case o.json && o.output == "":
		o.output = "json"
	case o.output != "" && o.output != "yaml" && o.output != "json" && o.output != "wide":
		return usageErrorf("flag --output %q: must be yaml, json or wide", o.output)
	case o.output == "yaml" && k.seen:
		return usageErrorf("flag --output yaml: apply takes no document of kind %s; -o json shows it whole", k.name)
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	found, err := o.fetch(ctx, client, k)
	if err != nil {
		return err
	}
	if err := o.show(o.out, k, found, true); err != nil || !o.watch {
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
		list, err := k.list(ctx, client)
		if err != nil {
			return nil, err
		}
		for _, object := range list {
			if !k.perTenant || o.all || k.tenant(object) == o.tenant {
				found = append(found, object)
			}
		}
	}
	if k.learn != nil && o.output != "yaml" && o.output != "json" && !o.quiet {
		if err := k.learn(ctx, client, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// show prints objects; first is set for what the command asked for, not for a change
// that --watch saw, which JSON shows by itself, in no array.
func (o *getOptions) show(w io.Writer, k *objectKind, found []any, first bool) error {
	switch {
	case o.quiet:
		for _, object := range found {
			if err := printLines(w, []string{k.shortName(object)}); err != nil {
				return err
			}
		}
		return nil
	case o.output == "json" && (o.name != "" || k.single != "" || !first):
		for _, object := range found {
			if err := printJSON(w, object); err != nil {
				return err
			}
		}
		return nil
	case o.output == "json":
		return printJSON(w, append([]any{}, found...))
	case o.output == "yaml":
		for _, object := range found {
			if err := writeDocument(w, k.name, object); err != nil {
				return err
			}
		}
		return nil
	}
	header := k.header
	if o.output == "wide" {
		header = append(append([]string{}, header...), k.wideHeader...)
	}
	if o.watch {
		header = append([]string{"Event"}, header...)
	}
	var rows [][]string
	for _, object := range found {
		rows = append(rows, o.row(k, object, "now"))
	}
	return printTable(w, header, rows)
}

func (o *getOptions) row(k *objectKind, object any, event string) []string {
	row := k.row(object)
	if o.output == "wide" && k.wideRow != nil {
		row = append(append([]string{}, row...), k.wideRow(object)...)
	}
	if o.watch {
		row = append([]string{event}, row...)
	}
	return row
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
	if o.output == "yaml" || o.output == "json" || o.quiet {
		if event == "deleted" {
			return printLines(o.out, []string{"# deleted " + k.name + " " + k.key(object)})
		}
		return o.show(o.out, k, []any{object}, false)
	}
	return printRow(o.out, o.row(k, object, event))
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
