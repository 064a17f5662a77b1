package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
	"github.com/contiv/netplugin/v2/internal/store"
)

// objectSync is one look at objects in which intent is written.
type objectSync struct {
	s       *Objects
	leader  control.Leader
	view    *control.View
	last    store.Revision // of what was written
	outcome map[Object]objectOutcome
	leaving map[model.Owned]bool // see going; nil = not computed yet
}

// objectOutcome is what came of an object.
type objectOutcome struct {
	missing []string // what it refers to and is not there
	err     error
}

// applyAll makes what objects that stay stand for. Where something has come of it, those
// that lack something are looked at again: it may be that.
func (p *objectSync) applyAll(ctx context.Context, order []Object) error {
	for todo := order; len(todo) > 0; {
		before := p.last
		var left []Object
		for _, o := range todo {
			now := p.s.object(o)
			if now == nil || now.GetDeletionTimestamp() != nil && !p.isUnreferenced(o, now) {
				continue
			}
			missing, err := p.apply(ctx, now)
			if stopsRound(ctx, err) {
				return err
			}
			if now.GetDeletionTimestamp() != nil {
				continue // what came of it its end tells
			}
			p.outcome[o] = objectOutcome{missing, err}
			if err != nil || len(missing) > 0 {
				left = append(left, o)
			}
		}
		if p.last == before {
			return nil
		}
		if err := p.s.config.Control.WaitFor(ctx, p.last); err != nil {
			return err
		}
		todo = left
	}
	return nil
}

// isUnreferenced reports whether an object that is to go names what may be about to go too, and
// so cannot before this one has been made without it.
func (p *objectSync) isUnreferenced(o Object, now objects.Object) bool {
	return (o.Kind == objects.Policies || o.Kind == objects.Tenants) && p.ownedBy(objects.Owned(now), now.GetName())
}

// apply makes the store have what an object says, in one transaction, unless it has.
func (p *objectSync) apply(ctx context.Context, now objects.Object) (missing []string, err error) {
	w := p.want(now, p.known())
	if w.err != nil || w.same {
		return w.missing, w.err
	}
	done, err := p.s.config.Control.Put(ctx, p.leader.For(now.GetName(), objects.Adopts(now)), w.change)
	if err == nil {
		p.last = max(p.last, done.Revision)
	}
	return w.missing, err
}

// want is what the store is to have of an object.
type want struct {
	same    bool // it has
	change  control.Change
	missing []string // what it refers to and is not there
	err     error    // the store can have nothing like it
}

func (p *objectSync) want(now objects.Object, known objects.Known) (w want) {
	c, name := p.s.config.Control, now.GetName()
	switch now := now.(type) {
	case *objects.Tenant:
		var want model.Valid[model.Tenant]
		want, w.missing, w.err = objects.TranslateTenant(now, known)
		w.same = w.err == nil && sameTenant(p.view, want.Value(), name)
		w.change = control.ChangeTenant(want, true)
	case *objects.NetProfile:
		var want model.Valid[model.NetProfile]
		want, w.err = objects.TranslateNetProfile(now)
		w.same = w.err == nil && sameNetProfile(p.view, want.Value(), name)
		w.change = control.ChangeNetProfile(want)
	case *objects.Network:
		var want model.Valid[model.Network]
		want, w.err = objects.TranslateNetwork(now)
		w.same = w.err == nil && sameNetwork(p.view, want.Value(), name)
		w.change = c.Networks.ChangeNetwork(want)
	case *objects.Policy:
		var want model.Valid[model.PolicyWithRules]
		want, w.missing, w.err = objects.TranslatePolicy(now, known, p.isUnusedLeaving(now))
		w.same = w.err == nil && samePolicy(p.view, want.Value(), name)
		w.change = c.Policies.ReplaceContivPolicy(want)
	case *objects.EndpointGroup:
		var want model.Valid[model.Group]
		want, w.err = objects.TranslateGroup(now)
		w.same = w.err == nil && sameGroup(p.view, want.Value(), name)
		w.change = c.Tenants.ChangeGroup(want, true)
	default:
		w.same = true
	}
	return w
}

// known is what objects can refer to. A policy that names a group, and the group, could
// else not go together when the group has the policy.
func (p *objectSync) known() objects.Known { return p.knownExcept(p.leavingObjects()) }

// knownExcept is what there is, some of it about to go.
func (p *objectSync) knownExcept(going map[model.Owned]bool) objects.Known {
	presence := func(there bool, kind, key string) objects.Presence {
		switch {
		case !there:
			return objects.Absent
		case going[model.Owned{Kind: kind, Key: key}]:
			return objects.Leaving
		}
		return objects.Present
	}
	return objects.Known{
		Network: func(k model.NetworkKey) objects.Presence {
			_, there := p.view.Networks.Get(k)
			return presence(there, "network", k.String())
		},
		Group: func(k model.GroupKey) objects.Presence {
			_, there := p.view.Groups.Get(k)
			return presence(there, "endpointGroup", k.String())
		},
	}
}

// isUnusedLeaving reports whether a policy is to go and applies to no group: all groups that have it
// are about to go too.
func (p *objectSync) isUnusedLeaving(now *objects.Policy) bool {
	k, err := model.ParsePolicyKey(objects.Owned(now).Key)
	return err == nil && now.GetDeletionTimestamp() != nil && !slices.ContainsFunc(p.view.Groups.OfPolicy(k), func(g model.Group) bool {
		return !p.leavingObjects()[model.Owned{Kind: "endpointGroup", Key: g.Key.String()}]
	})
}

// leavingObjects are the networks and groups that are about to go, and have no endpoints.
func (p *objectSync) leavingObjects() map[model.Owned]bool {
	if p.leaving != nil {
		return p.leaving
	}
	out := map[model.Owned]bool{}
	p.leaving = out
	for _, kind := range []string{objects.Networks, objects.EndpointGroups} {
		for _, x := range p.s.mirror.All(kind) {
			o, ok := x.(objects.Object)
			if !ok || o.GetDeletionTimestamp() == nil {
				continue
			}
			k := objects.Owned(o)
			if n := p.view.Endpoints.EndpointsOf(k); n == 0 && p.ownedBy(k, o.GetName()) {
				out[k] = true
			}
		}
	}
	return out
}

// addReferrers adds the objects that may refer to a network or group that is about to go.
func (p *objectSync) addReferrers(todo map[Object]struct{}) {
	for o := range todo {
		if now := p.s.object(o); (o.Kind != objects.Networks && o.Kind != objects.EndpointGroups) || now == nil || now.GetDeletionTimestamp() == nil {
			continue
		}
		for _, kind := range []string{objects.Policies, objects.Tenants} {
			for name := range p.s.mirror.All(kind) {
				todo[Object{kind, name}] = struct{}{}
			}
		}
		return
	}
}

// removeAll deletes the rows of objects that are to go, or are gone; all = also rows of
// objects without an event.
func (p *objectSync) removeAll(ctx context.Context, order []Object, all bool) error {
	for _, o := range order {
		now := p.s.object(o)
		if now == nil || now.GetDeletionTimestamp() == nil {
			continue
		}
		k := objects.Owned(now)
		err := p.remove(ctx, k, now.GetName())
		if stopsRound(ctx, err) {
			return err
		}
		p.outcome[o] = objectOutcome{err: err}
	}
	gone := all || slices.ContainsFunc(order, func(o Object) bool { return p.s.object(o) == nil })
	if !gone {
		return nil
	}
	stale := p.view.Ownerships()
	slices.SortStableFunc(stale, func(a, b model.Ownership) int { return rankOf(pluralOf(b.Kind)) - rankOf(pluralOf(a.Kind)) })
	for _, own := range stale {
		o := Object{pluralOf(own.Kind), mirror.Name{Name: own.Object}}
		now := p.s.object(o)
		if now != nil && objects.Owned(now) == own.Owned || !p.s.mirror.Served(o.Kind) {
			continue
		}
		err := p.remove(ctx, own.Owned, own.Object)
		if stopsRound(ctx, err) {
			return err
		}
		if err != nil { // in use, mostly
			p.s.work.retryAllLater()
		}
	}
	return nil
}

// remove deletes what an object owns; what it does not own stays.
func (p *objectSync) remove(ctx context.Context, k model.Owned, object string) error {
	if !p.ownedBy(k, object) {
		return nil
	}
	rev, err := p.s.config.Control.Ownership.DeleteOwned(ctx, p.leader.For(object, false), k)
	p.last = max(p.last, rev) // the object's report is about the view at this revision
	if errors.Is(err, model.ErrNotFound) {
		return nil
	}
	return err
}

// ownedBy reports whether an object has what it stands for.
func (p *objectSync) ownedBy(k model.Owned, object string) bool {
	own, _ := p.view.OwnerOf(k)
	return own != "" && own == object
}

func pluralOf(kind string) string {
	for _, k := range objects.Kinds() {
		if k.Model == kind {
			return k.Plural
		}
	}
	return ""
}

// reportOf is what came of an object, with its status.
func (p *objectSync) reportOf(o Object, now objects.Object) Report {
	out := p.outcome[o]
	r := Report{Object: o, Live: now, Err: out.err}
	for _, text := range out.missing {
		r.Problems = append(r.Problems, translate.Problem{Field: "spec", Text: text})
	}
	r.WriteBack = p.writeBackOf(now, out)
	return r
}
