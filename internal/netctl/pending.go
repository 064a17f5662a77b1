package netctl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type pendingOptions struct {
	common
	id string
}

var pendingChanges = columns[api.PendingChange]{
	header: []string{"Change", "Left", "Began", "Objects"},
	row: func(p api.PendingChange) []string {
		return []string{p.ID, seconds(p.Left), p.Began, pendingObjects(p)}
	},
	id: func(p api.PendingChange) string { return p.ID },
}

func newPending(base common) *command {
	o := &pendingOptions{common: base}
	c := &command{
		name:     "pending",
		short:    "List the changes that wait to be confirmed (--confirm-within)",
		examples: []string{"netctl pending"},
	}
	o.listFlags(c, "ids only")
	c.run = bindClient(o, runPending, nil)
	return c
}

func runPending(ctx context.Context, client *api.Client, o *pendingOptions) error {
	all, err := client.Pending(ctx)
	if err != nil {
		return err
	}
	return o.printItems(pendingChanges.items(all...))
}

func seconds(n int) string { return (time.Duration(n) * time.Second).String() }

func pendingObjects(p api.PendingChange) string {
	var names []string
	for _, obj := range p.Objects {
		names = append(names, obj.Kind+" "+obj.Key)
	}
	return strings.Join(names, ", ")
}

func newConfirm(base common) *command {
	return newPendingEnd(base, "confirm", "Confirm a change that waits: it is made for good", "Confirmed change", (*api.Client).Confirm)
}

func newRevert(base common) *command {
	return newPendingEnd(base, "revert", "Take a change that waits to be confirmed back: what was before is in force", "Took back change", (*api.Client).Revert)
}

func newPendingEnd(base common, name, short, done string, end func(*api.Client, context.Context, string) error) *command {
	o := &pendingOptions{common: base}
	c := &command{name: name, short: short, examples: []string{"netctl " + name + " k7q2m9xd"}, args: []string{"ID"}}
	o.changeFlags(&c.flags, "json, j", "print the change's id as JSON")
	if name == "confirm" {
		o.overrideFlag(&c.flags)
	}
	c.run = bindClient(o, func(ctx context.Context, client *api.Client, o *pendingOptions) error {
		if err := end(client, ctx, o.id); err != nil {
			return err
		}
		return o.printResult(done, o.id, o.id, api.PendingResponse{ID: o.id})
	}, []*string{&o.id})
	return c
}

// confirmFlag is the flag of commands whose change may wait to be confirmed.
func confirmFlag(fs *flags.Set, within *time.Duration) {
	fs.Duration(within, "confirm-within", "hosts roll the change back by themselves unless 'netctl confirm' follows within this time (10s to 1h)")
	d := fs.Lookup("confirm-within")
	d.Default, d.Field = "", "within"
}

// applyPending has objects wait to be confirmed, and says how to confirm them.
func (o *common) applyPending(ctx context.Context, within time.Duration, objects []json.RawMessage) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	p, err := client.ApplyPending(ctx, api.PendingRequest{Objects: objects, Within: within.String()})
	switch {
	case api.KindOf(err) == api.KindNoRoute:
		return fmt.Errorf("%w (earlier netmasters do not support --confirm-within)", err)
	case err != nil:
		return err
	}
	return o.result(p, p.ID, "Change %s is in force for %s, and then what was before, unless confirmed: netctl confirm %s", p.ID, seconds(p.Within), p.ID)
}

// putOrPend is put, or with a time has the object wait to be confirmed.
func putOrPend(ctx context.Context, o *common, within time.Duration, k *objectKind, name string, object api.Object) error {
	if within == 0 {
		return put(ctx, o, k, name, object)
	}
	if o.keeps != nil {
		client, err := o.client()
		if err != nil {
			return err
		}
		if object, _, err = o.completed(ctx, client, k, object); err != nil {
			return err
		}
	}
	one, err := ofKind(k.name, object)
	if err != nil {
		return err
	}
	return o.applyPending(ctx, within, []json.RawMessage{one})
}

// ofKind is an object as in a list to be applied.
func ofKind(kind string, object any) (json.RawMessage, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", kind, err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, fmt.Errorf("write %s: %w", kind, err)
	}
	if fields["kind"], err = json.Marshal(kind); err != nil {
		return nil, fmt.Errorf("write %s: %w", kind, err)
	}
	return json.Marshal(fields)
}
