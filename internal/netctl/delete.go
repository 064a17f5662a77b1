package netctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

func newDelete(base common) *command {
	c := &command{
		name:  "delete",
		short: "Delete the objects that YAML documents name, those first that refer to others; objects that are not there are no error",
		examples: []string{
			"netctl delete -f blue.yaml",
			"netctl delete -f cluster.d/ --dry-run",
			"netctl delete -f blue.yaml --plan",
		},
	}
	o := newApplyOptions(base, &c.flags)
	c.flags.Bool(&o.dryRun, "dry-run, n", "say what would be deleted, change nothing")
	o.changeFlags(&c.flags, "json, j", "print a JSON array of kind, key and action")
	planFlag(&c.flags, &o.planDelete)
	o.overrideFlag(&c.flags)
	c.run = bindRun(o, runDelete, nil)
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
			return d.errorf("the fields that name the %s are missing or empty: %s", d.kind, strings.Join(namedBy(d.kind), ", "))
		}
	}
	if err := checkDeleteRights(ctx, o, docs); err != nil {
		return err
	}
	if o.planDelete {
		var p savedPlan
		if err := p.addDeletions(ctx, o, objects, nil); err != nil {
			return err
		}
		if len(p.Request.Changes) == 0 {
			return p.show(&o.common)
		}
		return p.ask(ctx, &o.common)
	}
	results, err := o.deleteAll(ctx, objects, nil)
	return errors.Join(o.showResults(results), err)
}

// checkDeleteRights asks whether roles let all the documents' objects be changed, so that a list
// is refused before any of it is deleted.
func checkDeleteRights(ctx context.Context, o *applyOptions, docs []document) error {
	docs = slices.DeleteFunc(slices.Clone(docs), func(d document) bool {
		return slices.Contains(undeletable, api.ObjectName{Kind: d.kind, Key: d.key})
	})
	objects, err := objectsOf(docs)
	if err != nil || len(docs) == 0 {
		return err
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	_, err = client.Apply(ctx, api.ApplyRequest{Objects: objects, DryRun: true})
	if isForbidden(err) {
		return fmt.Errorf("nothing is deleted: %w", err)
	}
	return nil // other faults are of fields that do not matter here
}

func namedBy(kind string) []string {
	_, key, _ := documentType(kind)
	return key.fields
}

// What deleting did to an object, beside api's Apply constants.
const (
	actionDeleted = "deleted"
	actionMissing = "missing" // it was not there
	actionBuiltin = "kept"    // it is always there
)

// undeletable are the objects that no cluster is without.
var undeletable = []api.ObjectName{{Kind: "global", Key: globalKey}, {Kind: "tenant", Key: "default"}}

// deleteAll deletes objects, those first that may refer to others; rules go and stay with
// their policies, as a policy without its rules lets more through. after are the results
// of a dry run of an apply that would come before. What cannot be deleted does not keep
// the rest.
func (o *applyOptions) deleteAll(ctx context.Context, objects []api.ObjectName, after []api.ApplyResult) (results []api.ApplyResult, err error) {
	if len(objects) == 0 {
		return nil, nil
	}
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	f, err := forecastDeletion(ctx, client, objects, after)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(objects, func(a, b api.ObjectName) int { return deletionOrder(b.Kind) - deletionOrder(a.Kind) })
	gone := map[api.ObjectName]bool{}
	var final []error
	for pending, single := objects, false; ; {
		var failed []error
		var left []api.ObjectName
		for _, name := range pending {
			action, err := o.deleteOne(ctx, client, f, gone, name, single)
			if err == nil {
				gone[name] = true
				results = append(results, api.ApplyResult{Kind: name.Kind, Key: name.Key, Action: action})
				continue
			}
			if api.IsUnavailable(err) || isForbidden(err) || ctx.Err() != nil {
				return results, fmt.Errorf("%w\n%d of %d objects are deleted or did not exist", err, len(results), len(objects))
			}
			err = fmt.Errorf("%s %s: %w", name.Kind, name.Key, err)
			if f.remaining[name] != "" {
				final = append(final, err)
			} else {
				left, failed = append(left, name), append(failed, err)
			}
		}
		stuck := len(left) == len(pending)
		if len(left) == 0 || o.dryRun || stuck && single {
			return results, errors.Join(append(final, failed...)...)
		}
		if single = stuck; stuck { // a rule may name the group that applies it
			if f, err = forecastDeletion(ctx, client, objects, nil); err != nil {
				return results, errors.Join(append(final, append(failed, err)...)...)
			}
		}
		pending = left
	}
}

func isForbidden(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Status == http.StatusForbidden
}

// deletionOrder is higher for what is deleted before kinds of a lower one: for what may
// refer to them, and for policies before their rules.
func deletionOrder(kind string) int {
	k, err := findShown(kind)
	switch {
	case err != nil:
		return 0
	case kind == "rule":
		return deletionOrder("policy") - 1
	}
	return k.order
}

// deleteOne deletes an object, or says why it stays; in a dry run it changes nothing.
// single = rules go by themselves where a group that goes is named by them.
func (o *applyOptions) deleteOne(ctx context.Context, client *api.Client, f *deletionForecast, gone map[api.ObjectName]bool, name api.ObjectName, single bool) (action string, err error) {
	k, err := findShown(name.Kind)
	if err != nil {
		return "", err
	}
	why := f.remaining[name]
	policy := f.policyOf(name)
	switch {
	case slices.Contains(undeletable, name):
		return actionBuiltin, nil
	case !f.existing[name]:
		return actionMissing, nil
	case why != "" && (o.dryRun || protectedKinds[name.Kind]):
		return "", &api.Error{Status: http.StatusConflict, Message: "stays: " + why}
	case o.dryRun || gone[policy]:
		return actionDeleted, nil
	case f.listed[policy] && (!single || !f.namesGroup(name)):
		return "", &api.Error{Status: http.StatusConflict, Message: "stays: as its policy does"}
	}
	if name.Kind == endpointKind { // a container may have come by now
		if e, err := k.get(ctx, client, name.Key); err == nil && as[api.EndpointOper](e).HomingHost != "" {
			return "", &api.Error{Status: http.StatusConflict, Message: "stays: " + ownedByContainer}
		}
	}
	err = k.remove(ctx, client, name.Key)
	if api.IsNotFound(err) {
		return actionMissing, nil
	}
	return actionDeleted, err
}
