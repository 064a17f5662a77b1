package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// LabelFilter decides which labels count as part of endpoints' identities, and has
// endpoints follow when that changes. Settings and the leader call it. It has no state:
// what is left to do is what the store says.
type LabelFilter struct {
	commits      *Committer
	endpointView *EndpointView
	settingsView *SettingsView
}

// maxPreviousLabels is how many entries of previous label filters are remembered; a further
// change before the endpoints have followed is refused with a request to wait.
const maxPreviousLabels = 4 * model.MaxLabelFilter

// identifying returns the labels that are part of the identity of an endpoint, by
// the label filter that is in force when the transaction commits.
func identifying(tx store.Tx, labels map[string]string) (map[string]string, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	g, err := tables.Globals.Find(tx, tables.GlobalKey{})
	return g.Value.Filter().Identifying(labels), err
}

// changeFilter completes a change of the settings that may change the label filter.
// Removing a label that a policy selects by is model.ErrInUse: identities that differ in
// that label only would become one, and a deny by the label would apply to no endpoint.
func (lf *LabelFilter) changeFilter(ctx context.Context, tx store.Tx, old model.Global, g *model.Global) error {
	if old.Filter().Equal(g.Filter()) {
		return nil
	}
	if g.FormerLabels = old.FormerLabels.And(old.Filter()); len(g.FormerLabels) > maxPreviousLabels {
		return model.Errorf(model.ErrConflict, "generatedLabels: changed too often at once: %d endpoints are not updated for the previous changes yet", lf.endpointView.CountOldIdentities())
	}
	// Transactions that commit a selector by labels after this read touch the scope;
	// earlier commits are in a view that is made fresh after it.
	if err := tx.Observe(tables.LabelSelectors); err != nil {
		return err
	}
	v, err := lf.commits.View(ctx)
	if err != nil {
		return err
	}
	if label, by := v.Policies.selectedBy(g.Filter()); len(by) > 0 {
		const few = 5
		more := ""
		if n := len(by) - few; n > 0 {
			by, more = by[:few], fmt.Sprintf(" and %d more", n)
		}
		return model.Errorf(model.ErrInUse, "generatedLabels: label %q must stay part of endpoints' identities, since policies select by it or by other labels in the list: %s%s", label, strings.Join(by, ", "), more)
	}
	return nil
}

// CountLabels makes labels that the default list covers part of endpoints' identities,
// and no others of it. Endpoints follow one after the other; until all have, a policy
// that selects by a label that came is model.ErrConflict.
func (lf *LabelFilter) CountLabels(ctx context.Context, l Leader, keys []string) error {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	_, err := lf.commits.update(ctx, l.Actor(), "count labels", func(tx store.Tx) error {
		old, err := tables.Globals.Get(tx, tables.GlobalKey{})
		if err != nil || slices.Equal(old.CountedLabels, keys) {
			return err
		}
		g := old
		g.CountedLabels = keys
		if err := lf.changeFilter(ctx, tx, old, &g); err != nil {
			return err
		}
		return tables.Globals.Put(tx, g)
	})
	return err
}

// selectByLabels checks and records that a policy selects by labels: all of them
// must be part of all endpoints' identities. One that is no part of identities at
// all is model.ErrInvalid; one that becomes a part now, but is not one of all
// endpoints' identities yet, model.ErrConflict: to a deny, or to a policy that
// applies by the label, the endpoints left would be without it.
func (ps *Policies) selectByLabels(tx store.Tx, selectors ...namedSelector) error {
	first := map[string]string{} // which field names a label first
	for _, s := range selectors {
		for _, k := range s.LabelKeys() {
			first[k] = cmp.Or(first[k], s.field)
		}
	}
	if len(first) == 0 {
		return nil
	}
	g, err := tables.Globals.Find(tx, tables.GlobalKey{})
	if err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(first)) {
		if g.Value.Filter().Covers(k) {
			return model.InvalidField(first[k], k, "must not be a label that runtimes generate: it is no part of an endpoint's identity, so nothing can be selected by it (generatedLabels of the cluster's settings has the list: netctl global info)")
		}
		if g.Value.FormerLabels.Covers(k) {
			return model.Errorf(model.ErrConflict, "%s %q: the cluster's settings use this label since a moment ago only, and %d endpoints are not updated yet: try again when netctl global info says that all are", first[k], k, ps.endpointView.CountOldIdentities())
		}
	}
	tx.Touch(tables.LabelSelectors)
	return nil
}

// namedSelector is a selector, and the field of a request that it is.
type namedSelector struct {
	field string
	model.Selector
}

// peerSelectors returns the selectors by which a rule names its peers; field is
// where a request has the rule, "" = the request is the rule.
func peerSelectors(field string, r model.PolicyRule) (out []namedSelector) {
	if field != "" {
		field += "."
	}
	for i, p := range r.Peers {
		if p.Selector != nil {
			out = append(out, namedSelector{fmt.Sprintf("%speers[%d].selector", field, i), *p.Selector})
		}
	}
	return out
}

// FollowLabelFilter is the leader's task of giving endpoints, one after the other,
// the identities that a changed label filter means, until ctx ends or the
// leadership is lost. What is left to do is what the store says, so that the next
// leader goes on.
func (lf *LabelFilter) FollowLabelFilter(ctx context.Context, l Leader) error {
	left := func() bool {
		g, ok := lf.settingsView.Global()
		return ok && len(g.FormerLabels) > 0
	}
	return runWhenNeeded(ctx, &lf.settingsView.settings, left, func() error { return lf.followOnce(ctx, l) }, func(err error) {
		lf.commits.log.Warn("not all endpoints have identities by the changed list of generated labels; trying again", "error", err)
	})
}

// followOnce gives all endpoints the identities that the label filter means and
// then forgets the former filters.
func (lf *LabelFilter) followOnce(ctx context.Context, l Leader) error {
	v, err := lf.commits.View(ctx)
	if err != nil {
		return err
	}
	g, _ := v.Settings.Global()
	var failed error
	left := v.Endpoints.withOldIdentity(g.Filter())
	for _, k := range left {
		if err := lf.reidentify(ctx, l, k); errors.Is(err, store.ErrFenced) || ctx.Err() != nil {
			return err
		} else if err != nil {
			failed = err // of one: the others follow
		}
	}
	if failed != nil {
		return failed
	}
	_, err = lf.commits.update(ctx, l.Actor(), "forget the former label filter", func(tx store.Tx) error {
		g, err := tables.Globals.Get(tx, tables.GlobalKey{})
		if err != nil {
			return err
		}
		// Endpoints that were written before the read of the settings are in a view
		// made fresh after it; later ones go by the filter that was read, or the
		// commit fails.
		v, err := lf.commits.View(ctx)
		if err != nil {
			return err
		}
		if n := len(v.Endpoints.withOldIdentity(g.Filter())); n > 0 {
			return model.Errorf(model.ErrConflict, "%d endpoints are left", n)
		}
		g.FormerLabels = nil
		return tables.Globals.Put(tx, g)
	})
	if err == nil {
		lf.commits.log.Info("all endpoints have identities by the changed list of generated labels", "changed", len(left))
	}
	return err
}

// reidentify gives an endpoint the identity that the label filter means.
func (lf *LabelFilter) reidentify(ctx context.Context, l Leader, k model.EndpointKey) error {
	cl := lf.commits.newAllocator(l.Actor())
	rev, err := lf.commits.update(ctx, l.Actor(), fmt.Sprintf("identify endpoint %q", k), func(tx store.Tx) error {
		cl.rewind()
		row, err := tables.Endpoints.Find(tx, k)
		if err != nil || !row.Exists() {
			return err
		}
		n, err := tables.Networks.Get(tx, k.Network)
		if err != nil {
			return err
		}
		e := row.Value
		if e.Identity, err = identify(ctx, tx, cl, n, e); err != nil || e.Identity == row.Value.Identity {
			return err
		}
		return tables.Endpoints.Put(tx, e)
	})
	cl.releaseAll(rev)
	return err
}
