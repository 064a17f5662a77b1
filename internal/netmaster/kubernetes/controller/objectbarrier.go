package controller

import (
	"errors"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// synced are the kinds of objects that say what packets pass: pods wait for all of
// these that there are, and of the others for what their labels name.
var synced = []string{objects.Policies, objects.EndpointGroups}

// objectBarrier is step for objects that declare intent, if no pod has to wait for them.
type objectBarrier struct {
	mu   sync.Mutex
	turn uint64 // of the view
	done map[Object]metav1.Object

	settled    bool   // at turn and mirrorTurn no pod had to wait
	mirrorTurn uint64 // of the kinds synced
}

// podsWaiting is whom an object holds up that the store does not have as it is.
type podsWaiting int

const (
	noPods      podsWaiting = iota
	podsOfGroup             // pods of the group that it stands for, or of groups that have the policy
	allPods
)

// notSynced returns for which objects a pod of a group has to wait. What the cluster cannot
// have holds up the pods that it is about, and no others.
func (s *Objects) notSynced(turn uint64, of model.GroupKey) (out []Object) {
	s.step.mu.Lock()
	defer s.step.mu.Unlock()
	at := s.mirror.Generation(synced...) // before the look
	if s.step.settled && s.step.turn == turn && s.step.mirrorTurn == at {
		return nil
	}
	s.step.settled, s.step.mirrorTurn = true, at
	if s.step.done == nil || s.step.turn != turn {
		s.step.done, s.step.turn = map[Object]metav1.Object{}, turn
	}
	p := &objectSync{s: s, view: s.config.Control.Current()}
	for _, kind := range synced {
		for name, x := range s.mirror.All(kind) {
			o := Object{kind, name}
			now, ok := x.(objects.Object)
			if !ok || s.step.done[o] == x {
				continue
			}
			switch p.waitingPods(now) {
			case noPods:
				s.step.done[o] = x
			case allPods:
				s.step.settled = false
				out = append(out, o)
			case podsOfGroup:
				s.step.settled = false
				if p.isAboutGroup(objects.Owned(now), of) {
					out = append(out, o.withReason(now))
				}
			}
		}
	}
	return out
}

// waitingPods returns which pods wait for a policy or a group. An object that is to go delays no
// pod: it stays as it is until it goes.
func (p *objectSync) waitingPods(now objects.Object) podsWaiting {
	k := objects.Owned(now)
	owner, there := p.view.OwnerOf(k)
	mine := owner == now.GetName() || owner == "" && objects.Adopts(now)
	if now.GetDeletionTimestamp() != nil || there && !mine {
		return noPods
	}
	w := p.want(now, p.known())
	if w.err == nil && !w.same && len(p.leavingObjects()) > 0 { // what is about to go may be left out yet, or not
		w = p.want(now, p.knownExcept(nil))
	}
	switch {
	case w.err == nil && w.same:
		return noPods
	case w.err != nil, whyNotSynced(now) != "":
		return podsOfGroup
	case k.Kind == "endpointGroup" && !there: // it has no members
		return podsOfGroup
	}
	return allPods
}

// isAboutGroup reports whether something is a group, or a policy that it has.
func (p *objectSync) isAboutGroup(k model.Owned, of model.GroupKey) bool {
	if k.Kind == "endpointGroup" {
		return k.Key == of.String()
	}
	key, err := model.ParsePolicyKey(k.Key)
	return err == nil && slices.ContainsFunc(p.view.Groups.OfPolicy(key), func(g model.Group) bool { return g.Key == of })
}

// whyNotSynced is why an object as it is now cannot be kept; "" = it may be kept yet.
func whyNotSynced(now objects.Object) string {
	for _, c := range now.GetStatus().Conditions {
		if c.Type != objects.Ready || c.Status != metav1.ConditionFalse || c.ObservedGeneration != now.GetGeneration() {
			continue
		}
		switch c.Reason {
		case objects.ReasonMissing, objects.ReasonOwned, objects.ReasonRefused:
			return c.Reason
		}
	}
	return ""
}

// withReason adds to an object's name why it cannot be kept.
func (o Object) withReason(now objects.Object) Object {
	if why := whyNotSynced(now); why != "" {
		o.Name.Name += " (" + why + ")"
	}
	return o
}

// isExpected tells of something that a pod names and that does not exist for which object it
// has to wait, which may be kept yet; or why the one that stands for it is not. What
// lacks something (both) may be kept when that comes, or never.
func (s *Objects) isExpected(k model.Owned) (waits []Object, why string) {
	for name, x := range s.mirror.All(pluralOf(k.Kind)) {
		now, ok := x.(objects.Object)
		if !ok || now.GetDeletionTimestamp() != nil || objects.Owned(now) != k {
			continue
		}
		reason := whyNotSynced(now)
		if reason == "" || reason == objects.ReasonMissing {
			waits = append(waits, Object{pluralOf(k.Kind), name})
		}
		if reason != "" {
			why = model.Ownership{Owned: k, Object: name.Name}.Resource() + " replaces it and is not stored (" + reason + "): its status says why"
		}
	}
	return waits, why
}

// missingName is what a pod names that does not exist.
func missingName(e model.Endpoint, err error) (k model.Owned, ok bool) {
	r, ok := errors.AsType[translate.Refusal](err)
	if !ok || !r.Absent {
		return k, false
	}
	switch n := e.Key.Network; r.Label {
	case translate.LabelTenant:
		return model.Owned{Kind: "tenant", Key: string(n.Tenant)}, true
	case translate.LabelNetwork:
		return model.Owned{Kind: "network", Key: n.String()}, true
	case translate.LabelGroup:
		return model.Owned{Kind: "endpointGroup", Key: model.GroupKey{Tenant: n.Tenant, Name: e.Group}.String()}, true
	}
	return k, false
}
