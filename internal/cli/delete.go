package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

func newDelete(f *factory, run func(context.Context, *applyOptions) error) *command {
	c := &command{
		name:  "delete",
		short: "Delete the objects that YAML documents name, those first that refer to others; objects that are not there are no error",
		examples: []string{
			"netctl delete -f blue.yaml",
			"netctl delete -f cluster.d/ --dry-run",
		},
	}
	o := newApplyOptions(f, &c.flags)
	c.flags.boolVar(&o.dryRun, "dry-run, n", "say what would be deleted, change nothing")
	o.changeFlags(&c.flags, "json, j", "print a JSON array of kind, key and action")
	c.run = bindRun(o, orDefault(run, runDelete), nil)
	return c
}

func runDelete(ctx context.Context, o *applyOptions) error {
	docs, err := o.documents(ctx)
	if err != nil {
		return err
	}
	objects := make([]api.ObjectName, len(docs))
	for i, d := range docs {
		if objects[i] = (api.ObjectName{Kind: d.kind, Key: d.key}); strings.Contains(d.key, "?") {
			return d.errorf("the fields that name the %s are missing: %s", d.kind, strings.Join(namedBy(d.kind), ", "))
		}
	}
	results, err := o.deleteAll(ctx, objects)
	return errors.Join(o.showResults(results), err)
}

func namedBy(kind string) []string {
	_, key, _ := documentType(kind)
	return key.fields
}

// What deleting did to an object, beside api's Apply constants.
const (
	actionDeleted = "deleted"
	actionMissing = "missing" // it was not there
	actionKept    = "kept"    // it is always there
)

// alwaysThere are the objects that no cluster is without.
var alwaysThere = []api.ObjectName{{Kind: "global", Key: globalKey}, {Kind: "tenant", Key: "default"}}

// deleteAll deletes objects, those first that may refer to others. What cannot be
// deleted does not keep the rest.
func (o *applyOptions) deleteAll(ctx context.Context, objects []api.ObjectName) (results []api.ApplyResult, err error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(objects, func(a, b api.ObjectName) int { return deletionOrder(b.Kind) - deletionOrder(a.Kind) })
	var failed []error
	for _, name := range objects {
		r := api.ApplyResult{Kind: name.Kind, Key: name.Key, Action: actionDeleted}
		if slices.Contains(alwaysThere, name) {
			r.Action = actionKept
			results = append(results, r)
			continue
		}
		switch err := o.deleteOne(ctx, client, name); {
		case api.IsNotFound(err):
			r.Action = actionMissing
		case api.IsUnavailable(err) || ctx.Err() != nil:
			return results, err
		case err != nil:
			failed = append(failed, fmt.Errorf("%s %s: %w", name.Kind, name.Key, err))
			continue
		}
		results = append(results, r)
	}
	return results, errors.Join(failed...)
}

// deletionOrder is higher for what may refer to kinds of a lower one.
func deletionOrder(kind string) int {
	if k, err := findShown(kind); err == nil {
		return k.order
	}
	return 0
}

// deleteOne deletes an object; in a dry run it only looks whether it is there.
func (o *applyOptions) deleteOne(ctx context.Context, client *api.Client, name api.ObjectName) error {
	k, err := findShown(name.Kind)
	if err != nil {
		return err
	}
	if o.dryRun {
		_, err := k.get(ctx, client, name.Key)
		return err
	}
	return k.remove(ctx, client, name.Key)
}
