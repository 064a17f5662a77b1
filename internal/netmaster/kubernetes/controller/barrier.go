package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// barrier remembers which objects the store was seen to have as they are, so that the
// question costs little where nothing has changed.
type barrier struct {
	mu   sync.Mutex
	turn uint64 // of the view
	done map[Object]metav1.Object

	settled    bool     // at turn and mirrorTurn all was kept but what no store could have
	mirrorTurn uint64   // of the kinds that count
	impossible []Object // NetworkPolicies, and namespaces, that no store could have
}

// ofNamespace returns what holds up the pods of a namespace where all is settled.
func (s *barrier) ofNamespace(namespace string) (out []Object) {
	for _, o := range s.impossible {
		if o.Namespace == namespace || o.Kind == mirror.Namespaces && o.Name.Name == namespace {
			out = append(out, o)
		}
	}
	return out
}

// policyKinds are the kinds that policies' rows are made of; pods' labels may say in
// which tenants policies are.
var policyKinds = []string{mirror.Namespaces, mirror.NetworkPolicies, mirror.ClusterNetworkPolicies, mirror.Pods}

func (k *PolicySyncer) policyKinds() []string {
	if k.config.Choices.Tenant {
		return policyKinds
	}
	return policyKinds[:3]
}

// podResolution is what a pod's endpoint is to be as things are now.
type podResolution struct {
	pod      *corev1.Pod
	endpoint model.Endpoint
	problems []translate.Problem
	err      error    // why there can be none
	behind   []Object // what the store does not have yet, for which the pod waits
	refused  bool     // err stands where what is behind does not come
}

// await waits until the store has all that there was at a moment of which policies are
// made, and what the pod names, if it may come. The error is model.ErrUnavailable and
// names what lags.
func (k *PolicySyncer) await(ctx context.Context, moment string, name mirror.Name, uid string) (l podResolution, err error) {
	var g errgroup.Group
	g.Go(func() error { return k.mirror.Await(ctx, moment) })
	if in := k.config.Intent; in != nil {
		g.Go(func() error { return in.mirror.Await(ctx, moment, synced...) })
	}
	if err := g.Wait(); err != nil {
		return l, err
	}
	for fresh := false; ; {
		turn, changed := k.config.Control.Current().Revisions.PolicyGeneration()
		if l, err = k.resolve(ctx, name, uid, moment, turn); err != nil {
			return l, err
		}
		switch {
		case len(l.behind) == 0 && fresh:
			return l, nil
		case len(l.behind) == 0: // by a view that may be behind the store itself
			if _, err := k.config.Control.View(ctx); err != nil {
				return l, err
			}
			fresh = true
			continue
		}
		fresh = false
		timer := time.NewTimer(100 * time.Millisecond) // the mirror sends no event here
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		switch {
		case ctx.Err() == nil:
		case l.refused:
			return l, nil
		default:
			return l, model.Errorf(model.ErrUnavailable, "the store is not in sync with Kubernetes: behind with %s", summary(l.behind))
		}
	}
}

// resolve first says where the pod belongs, and then what is behind: so what is not is in
// force there, whatever changes meanwhile.
func (k *PolicySyncer) resolve(ctx context.Context, name mirror.Name, uid, moment string, turn uint64) (l podResolution, err error) {
	if l.pod = k.podByUID(name, uid); l.pod == nil {
		return l, model.Errorf(model.ErrUnavailable, "it was deleted meanwhile")
	}
	l.endpoint, l.problems, l.err = k.podEndpoint(k.config.Control.Current(), l.pod)
	in := k.config.Intent
	if l.behind = k.notSynced(turn, name.Namespace); len(l.behind) > 0 || in == nil {
		return l, nil
	}
	of := model.GroupKey{Tenant: l.endpoint.Key.Network.Tenant, Name: cmp.Or(l.endpoint.Group, translate.DefaultGroup)}
	if named, absent := missingName(l.endpoint, l.err); absent {
		if err := in.mirror.Await(ctx, moment); err != nil {
			return l, err
		}
		waits, why := in.isExpected(named)
		if why != "" {
			l.refused = true
			l.err = fmt.Errorf("%w; %s", l.err, why)
			l.problems[len(l.problems)-1].Text += "; " + why
		}
		l.behind, of = waits, model.GroupKey{}
	}
	l.behind = append(l.behind, in.notSynced(turn, of)...)
	return l, nil
}

func summary(all []Object) string {
	var text []string
	for _, o := range all[:min(len(all), 3)] {
		text = append(text, strings.TrimSpace(o.Kind+" "+strings.Trim(o.String(), "/")))
	}
	slices.Sort(text)
	if n := len(all) - len(text); n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(text, ", "), n)
	}
	return strings.Join(text, ", ")
}

// notSynced returns what the store does not have as the mirror has it. A NetworkPolicy
// that no store could have holds up the pods of its own namespace only, which are all
// that it could select; so does a namespace.
func (k *PolicySyncer) notSynced(turn uint64, namespace string) (out []Object) {
	s := &k.step
	s.mu.Lock()
	defer s.mu.Unlock()
	at := k.mirror.Generation(k.policyKinds()...) // before the look
	if s.settled && s.turn == turn && s.mirrorTurn == at {
		return s.ofNamespace(namespace)
	}
	s.settled, s.mirrorTurn, s.impossible = false, at, nil
	v := k.config.Control.Current()
	if s.done == nil || s.turn != turn || k.config.Choices.Tenant {
		s.done, s.turn = map[Object]metav1.Object{}, turn
	}
	p := k.round(v)
	for name, now := range k.mirror.All(mirror.Namespaces) {
		o := Object{mirror.Namespaces, name}
		if s.done[o] == now {
			continue
		}
		s.done = map[Object]metav1.Object{} // it may say in which tenants policies are
		switch kept, possible := p.namespaceSynced(now); {
		case kept:
		case possible:
			out = append(out, o)
		default:
			s.impossible = append(s.impossible, o)
		}
	}
	if len(out) > 0 {
		return out
	}
	for name, now := range k.mirror.All(mirror.Namespaces) {
		if o := (Object{mirror.Namespaces, name}); !slices.Contains(s.impossible, o) {
			s.done[o] = now
		}
	}
	for _, kind := range []string{mirror.NetworkPolicies, mirror.ClusterNetworkPolicies} {
		for name, now := range k.mirror.All(kind) {
			o := Object{kind, name}
			if s.done[o] == now {
				continue
			}
			kept, possible := p.policySynced(o, now)
			switch {
			case kept:
				s.done[o] = now
			case possible || kind != mirror.NetworkPolicies:
				out = append(out, o)
			default:
				s.impossible = append(s.impossible, o)
			}
		}
	}
	named := p.names()
	for _, old := range v.Policies.NetworkPolicies("") {
		if old.Policy.Owner == model.OwnerKubernetes && !named[old.Policy.Key.Name] {
			out = append(out, Object{mirror.NetworkPolicies, mirror.Name{Name: "(deleted) " + string(old.Policy.Key.Name)}})
		}
	}
	s.settled = len(out) == 0
	return append(out, s.ofNamespace(namespace)...)
}

// round is a look by a view.
func (k *PolicySyncer) round(v *control.View) *policySync {
	p := &policySync{k: k, view: v, cluster: translate.Cluster{Named: map[string]bool{}}}
	if g, ok := v.Settings.Global(); ok {
		p.cluster.Labels = g.Filter()
	}
	return p
}

// namespaceSynced reports whether the store has a namespace as it is, and if not whether it
// could.
func (p *policySync) namespaceSynced(now metav1.Object) (kept, possible bool) {
	ns, ok := now.(*corev1.Namespace)
	if !ok {
		return false, true
	}
	want, err := model.Check(translate.Namespace(ns))
	if err != nil {
		return false, false
	}
	have, there := p.view.Identities.Namespace(want.Value().Name)
	return there && maps.Equal(have.Labels, want.Value().Labels), true
}

// policySynced reports whether the store has a policy, in all tenants in which it could
// select pods, as it is, and if not whether it could.
func (p *policySync) policySynced(o Object, now metav1.Object) (kept, possible bool) {
	name, in, mean := p.translate(o, now)
	if mean == nil {
		return false, true
	}
	kept, possible = true, true
	for _, t := range p.view.Tenants.List() {
		have, there := p.view.Policies.NetworkPolicy(model.PolicyKey{Tenant: t.Name, Name: name})
		if !slices.Contains(in, t.Name) && !p.view.Pods.HasPods(t.Name, model.NamespaceName(o.Namespace)) {
			continue // one that is there selects no pod
		}
		want, _ := mean(t.Name)
		if want != nil && there && !same(have, want) {
			want, _ = p.fittingPart(want)
		}
		switch {
		case want == nil:
			kept = kept && (!there || have.Policy.Owner != model.OwnerKubernetes)
		case !there || !same(have, want):
			_, err := model.Check(*want)
			kept, possible = false, possible && err == nil
		}
	}
	return kept, possible
}
