package keeper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/kube/mirror"
	"github.com/contiv/netplugin/v2/internal/model"
)

// step remembers which objects the store was seen to have as they are, so that the
// question costs little where nothing has changed.
type step struct {
	mu   sync.Mutex
	turn uint64 // of the view
	kept map[Object]metav1.Object
}

// await waits until the store has all policies and namespaces that there were at a
// moment, for a pod of a namespace. The error is model.ErrUnavailable and names what
// lags.
func (k *Keeper) await(ctx context.Context, moment, namespace string) error {
	if err := k.mirror.Await(ctx, moment); err != nil {
		return err
	}
	for {
		turn, changed := k.config.Control.Current().PolicyTurn()
		behind := k.behind(turn, namespace)
		if len(behind) == 0 {
			return nil
		}
		timer := time.NewTimer(100 * time.Millisecond) // of what the mirror gets nobody tells here
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return model.Errorf(model.ErrUnavailable, "the store is not in step with Kubernetes: behind with %s", summary(behind))
		}
	}
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

// behind returns what the store does not have as the mirror has it. A NetworkPolicy
// that no store could have holds up the pods of its own namespace only, which are all
// that it could select.
func (k *Keeper) behind(turn uint64, namespace string) (out []Object) {
	s := &k.step
	s.mu.Lock()
	defer s.mu.Unlock()
	v := k.config.Control.Current()
	if s.kept == nil || s.turn != turn || k.config.Choices.Tenant { // pods' labels say in which tenants policies are
		s.kept, s.turn = map[Object]metav1.Object{}, turn
	}
	p := k.round(v)
	for name, now := range k.mirror.All(mirror.Namespaces) {
		o := Object{mirror.Namespaces, name}
		if s.kept[o] == now {
			continue
		}
		s.kept = map[Object]metav1.Object{} // it may say in which tenants policies are
		if !p.namespaceKept(now) {
			out = append(out, o)
		}
	}
	if len(out) > 0 {
		return out
	}
	for name, now := range k.mirror.All(mirror.Namespaces) {
		s.kept[Object{mirror.Namespaces, name}] = now
	}
	for _, kind := range []string{mirror.NetworkPolicies, mirror.ClusterNetworkPolicies} {
		for name, now := range k.mirror.All(kind) {
			o := Object{kind, name}
			if s.kept[o] == now {
				continue
			}
			kept, possible := p.policyKept(o, now)
			switch {
			case kept:
				s.kept[o] = now
			case possible || kind != mirror.NetworkPolicies || name.Namespace == namespace:
				out = append(out, o)
			}
		}
	}
	named := p.names()
	for _, old := range v.NetworkPolicies("") {
		if old.Policy.Owner == model.OwnerKubernetes && !named[old.Policy.Key.Name] {
			out = append(out, Object{mirror.NetworkPolicies, mirror.Name{Name: "(deleted) " + string(old.Policy.Key.Name)}})
		}
	}
	return out
}

// round is a look by a view.
func (k *Keeper) round(v *control.View) *round {
	p := &round{k: k, view: v}
	if g, ok := v.Global(); ok {
		p.cluster.Labels = g.Filter()
	}
	return p
}

// namespaceKept tells whether the store has a namespace as it is.
func (p *round) namespaceKept(now metav1.Object) bool {
	ns, ok := now.(*corev1.Namespace)
	if !ok {
		return false
	}
	want, _, err := namespaceLabels(ns)
	if err != nil {
		return false
	}
	have, there := p.view.Namespace(want.Value().Name)
	return there && maps.Equal(have.Labels, want.Value().Labels)
}

// policyKept tells whether the store has a policy, in all tenants, as it is, and if
// not whether it could.
func (p *round) policyKept(o Object, now metav1.Object) (kept, possible bool) {
	name, in, mean := p.meaning(o, now)
	if mean == nil {
		return false, true
	}
	kept, possible = true, true
	for _, t := range p.view.Tenants() {
		have, there := p.view.NetworkPolicy(model.PolicyKey{Tenant: t.Name, Name: name})
		var want *model.NetworkPolicy
		if slices.Contains(in, t.Name) {
			want, _ = mean(t.Name)
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
