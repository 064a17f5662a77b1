package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// policySync is one look at what has changed.
type policySync struct {
	k       *PolicySyncer
	leader  control.Leader
	view    *control.View
	cluster translate.Cluster
	tenants map[string][]model.TenantName // by namespace; nil = not computed yet
	every   []model.TenantName            // that any namespace has

	namespaces []translate.NamespaceTenants // see namespaceTenants

	planned map[mirror.Name]*corev1.Namespace // that a plan has beside the mirror's, or instead; nil = it is no plan
}

// allNamespaces returns the API server's namespaces with the planned ones.
func (p *policySync) allNamespaces() map[mirror.Name]metav1.Object {
	all := p.k.mirror.All(mirror.Namespaces)
	for name, ns := range p.planned {
		all[name] = ns
	}
	return all
}

// everything is all that the mirror has and policy is made of, and the pods that have
// endpoints.
func (p *policySync) everything() map[Object]struct{} {
	out := map[Object]struct{}{}
	for _, kind := range []string{mirror.Namespaces, mirror.NetworkPolicies, mirror.ClusterNetworkPolicies} {
		for name := range p.k.mirror.All(kind) {
			out[Object{kind, name}] = struct{}{}
		}
	}
	for _, e := range p.view.Pods.PodEndpoints() {
		out[podOf(e)] = struct{}{}
	}
	return out
}

// rank is the sequence in which objects are looked at.
func (p *policySync) rank(o Object) int {
	if o.Kind == mirror.Namespaces {
		return 0
	}
	return 1
}

// syncObject makes the store's rows what an object means; of one that is gone there are none.
func (p *policySync) syncObject(ctx context.Context, o Object, now metav1.Object) ([]translate.Problem, error) {
	switch now := now.(type) {
	case *corev1.Namespace:
		row, err := model.Check(translate.Namespace(now))
		if err != nil {
			return nil, fmt.Errorf("policies see the namespace's former labels, and its pods do not start: %w", err)
		}
		return nil, p.k.config.Control.Kubernetes.PutNamespace(ctx, p.leader, row)
	case *corev1.Pod:
		return p.pod(ctx, o, now)
	}
	if name, in, mean := p.translate(o, now); mean != nil {
		problems, err := p.policies(ctx, o, name, in, mean)
		if now, ok := now.(*policyv1beta1.ClusterNetworkPolicy); ok {
			problems = append(problems, p.cluster.AcrossTenants(now, p.namespaceTenants())...)
		}
		return problems, err
	}
	switch o.Kind {
	case mirror.NetworkPolicies:
		return p.policies(ctx, o, translate.NetworkPolicyName(o.Namespace, o.Name.Name), nil, nil)
	case mirror.ClusterNetworkPolicies:
		return p.policies(ctx, o, translate.ClusterNetworkPolicyName(o.Name.Name), nil, nil)
	}
	return nil, nil // a namespace that is gone is swept
}

// translate is what a policy means in each tenant: its rows' name, the tenants that have
// it, and what it is there; nil = now is no policy.
func (p *policySync) translate(o Object, now metav1.Object) (model.PolicyName, []model.TenantName, func(model.TenantName) (*model.NetworkPolicy, []translate.Problem)) {
	switch now := now.(type) {
	case *networkingv1.NetworkPolicy:
		return translate.NetworkPolicyName(o.Namespace, o.Name.Name), p.tenantsOf(o.Namespace), func(t model.TenantName) (*model.NetworkPolicy, []translate.Problem) {
			return p.cluster.NetworkPolicy(t, now)
		}
	case *policyv1beta1.ClusterNetworkPolicy:
		p.tenantsOf("")
		return translate.ClusterNetworkPolicyName(o.Name.Name), p.every, func(t model.TenantName) (*model.NetworkPolicy, []translate.Problem) {
			return p.cluster.ClusterNetworkPolicy(t, now)
		}
	}
	return "", nil, nil
}

// tenantsOf returns the tenants in which a namespace can have pods: the one that it names,
// else the default one. Where pods may choose, the tenants that its pods name are added.
func (p *policySync) tenantsOf(namespace string) []model.TenantName {
	if p.tenants == nil {
		p.tenants = map[string][]model.TenantName{}
		for name, o := range p.allNamespaces() {
			t := model.TenantName(o.GetLabels()[translate.LabelTenant])
			if t == "" {
				t = model.DefaultTenant
			}
			p.tenants[name.Name] = []model.TenantName{t}
		}
		if p.k.config.Choices.Tenant {
			for name, o := range p.k.mirror.All(mirror.Pods) {
				ns := p.k.mirror.Get(mirror.Namespaces, mirror.Name{Name: name.Namespace})
				if t := tenantLabel(o); t != "" && tenantLabel(ns) == "" {
					p.tenants[name.Namespace] = append(p.tenants[name.Namespace], model.TenantName(t))
				}
			}
		}
		for _, ts := range p.tenants {
			p.every = append(p.every, ts...)
		}
	}
	return p.tenants[namespace]
}

// namespaceTenants returns all namespaces with the tenants in which they can have pods; nil =
// there is only one such tenant.
func (p *policySync) namespaceTenants() []translate.NamespaceTenants {
	p.tenantsOf("")
	if p.namespaces == nil && slices.ContainsFunc(p.every, func(t model.TenantName) bool { return t != p.every[0] }) {
		for name, o := range p.allNamespaces() {
			labels := maps.Clone(o.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			labels[model.NamespaceNameLabel] = name.Name
			p.namespaces = append(p.namespaces, translate.NamespaceTenants{Labels: labels, Tenants: p.tenants[name.Name]})
		}
	}
	return p.namespaces
}

// addClusterPolicies adds all ClusterNetworkPolicies where a namespace is looked at: whether
// their rules are about several tenants depends on its labels.
func (p *policySync) addClusterPolicies(todo map[Object]struct{}) {
	for o := range todo {
		if o.Kind == mirror.Namespaces {
			for name := range p.k.mirror.All(mirror.ClusterNetworkPolicies) {
				todo[Object{mirror.ClusterNetworkPolicies, name}] = struct{}{}
			}
			return
		}
	}
}

// addTenantPolicies adds the policies of a pod's namespace to what is looked at when the pod
// came to a tenant that the namespace does not name: it was asked for before that changed.
func (p *policySync) addTenantPolicies(e model.Endpoint, todo map[Object]struct{}) {
	ns := p.k.mirror.Get(mirror.Namespaces, mirror.Name{Name: string(e.Namespace)})
	if e.Key.Network.Tenant == cmp.Or(model.TenantName(tenantLabel(ns)), model.DefaultTenant) {
		return
	}
	for name := range p.k.mirror.All(mirror.NetworkPolicies) {
		if name.Namespace == string(e.Namespace) {
			todo[Object{mirror.NetworkPolicies, name}] = struct{}{}
		}
	}
	for name := range p.k.mirror.All(mirror.ClusterNetworkPolicies) {
		todo[Object{mirror.ClusterNetworkPolicies, name}] = struct{}{}
	}
}

// isLingering reports whether a tenant that a policy's namespace does not name has the policy
// all the same: as long as pods are there that came when it did, and for a while after,
// in which one may still come that was asked for before.
func (p *policySync) isLingering(o Object, k model.PolicyKey) bool {
	if p.view.Pods.HasPods(k.Tenant, model.NamespaceName(o.Namespace)) {
		delete(p.k.idle, k)
		return true
	}
	if _, there := p.view.Policies.NetworkPolicy(k); !there {
		return false
	}
	since, known := p.k.idle[k]
	if !known {
		since = time.Now()
		p.k.idle[k] = since
	}
	return time.Since(since) < p.k.lingering
}

// policies makes the rows of a policy's name, in all tenants, what they are to be.
func (p *policySync) policies(
	ctx context.Context, o Object, name model.PolicyName, in []model.TenantName, mean func(model.TenantName) (*model.NetworkPolicy, []translate.Problem),
) (problems []translate.Problem, err error) {
	for _, t := range p.view.Tenants.List() {
		k := model.PolicyKey{Tenant: t.Name, Name: name}
		var want *model.NetworkPolicy
		switch {
		case mean == nil:
		case slices.Contains(in, t.Name):
			want, problems = mean(t.Name) // the same in all tenants
			if failed := p.count(ctx); failed != nil {
				return problems, errors.Join(err, failed)
			}
		case p.isLingering(o, k):
			want, _ = mean(t.Name)
			p.k.work.retryLater(o) // until it ends
		}
		if want == nil || slices.Contains(in, t.Name) {
			delete(p.k.idle, k)
		}
		unfit, failed := p.policy(ctx, k, want)
		if unfit != nil {
			problems = []translate.Problem{{Field: "spec", Text: fmt.Sprintf("%v: nothing is allowed", unfit)}}
			p.k.work.retryLater(o) // others may take less by then
		}
		err = errors.Join(err, failed)
	}
	return problems, err
}

// count has all labels by which the policy that was looked at selects count, as far as
// Kubernetes gives them. Until all endpoints have identities of that kind the policy waits:
// model.ErrUnavailable.
func (p *policySync) count(ctx context.Context) error {
	counted, waits := p.uncounted()
	if waits == nil {
		return nil
	}
	if err := p.k.config.Control.LabelFilter.CountLabels(ctx, p.leader, counted); err != nil {
		return err
	}
	return waits
}

// uncounted returns the labels that have to count for the policy that was looked at, and why it
// waits until they do; nil = it waits for none.
func (p *policySync) uncounted() (counted []string, waits error) {
	g, ok := p.view.Settings.Global()
	if !ok {
		return nil, nil
	}
	counted = slices.Clone(g.CountedLabels)
	for k := range p.cluster.Named {
		if !g.CanIdentify(k) {
			continue
		}
		if !slices.Contains(counted, k) {
			counted = append(counted, k)
		}
		if g.Filter().Covers(k) || g.FormerLabels.Covers(k) {
			waits = model.Errorf(model.ErrUnavailable, "pods are not distinguished by label %q yet", k)
		}
	}
	clear(p.cluster.Named)
	return counted, waits
}

// stopCounting has labels of the default list that no policy selects by any more count no more.
func (p *policySync) stopCounting(ctx context.Context) error {
	g, ok := p.view.Settings.Global()
	if !ok || len(g.CountedLabels) == 0 {
		return nil
	}
	clear(p.cluster.Named)
	for _, kind := range []string{mirror.NetworkPolicies, mirror.ClusterNetworkPolicies} {
		for name, now := range p.k.mirror.All(kind) {
			if _, _, mean := p.translate(Object{kind, name}, now); mean != nil {
				mean(model.DefaultTenant) // labels are the same in all tenants
			}
		}
	}
	left := slices.DeleteFunc(slices.Clone(g.CountedLabels), func(k string) bool { return !p.cluster.Named[k] })
	clear(p.cluster.Named)
	err := p.k.config.Control.LabelFilter.CountLabels(ctx, p.leader, left)
	if errors.Is(err, model.ErrInUse) || errors.Is(err, model.ErrConflict) { // the next look at all tries again
		return nil
	}
	return err
}

// fittingPart returns the part of a policy that hosts can hold. A NetworkPolicy that does
// not fit as a whole isolates its pods and allows nothing, since its rules only allow; the
// error says why.
func (p *policySync) fittingPart(want *model.NetworkPolicy) (some *model.NetworkPolicy, unfit error) {
	if want.Policy.Tier != model.TierKubernetes {
		return want, nil
	}
	if unfit = p.view.Policies.CheckNetworkPolicy(*want); unfit != nil {
		return &model.NetworkPolicy{Policy: want.Policy}, unfit
	}
	return want, nil
}

// policy makes a policy's rows what it is to be, or as much of it as hosts hold.
func (p *policySync) policy(ctx context.Context, k model.PolicyKey, want *model.NetworkPolicy) (unfit, err error) {
	change, unfit, err := p.change(k, want)
	switch {
	case err != nil:
	case change.Delete != nil:
		if _, err = p.k.config.Control.Delete(ctx, p.leader.Actor(), *change.Delete); errors.Is(err, model.ErrNotFound) {
			err = nil
		}
	case change.Put != nil:
		_, err = p.k.config.Control.Put(ctx, p.leader.Actor(), *change.Put)
	}
	return unfit, err
}

// change returns the change with which a policy's rows are what it is to be, or as much of it as
// hosts hold; zero = they are.
func (p *policySync) change(k model.PolicyKey, want *model.NetworkPolicy) (change control.Planned, unfit, err error) {
	have, there := p.view.Policies.NetworkPolicy(k)
	if want == nil {
		if there && have.Policy.Owner == model.OwnerKubernetes {
			d := control.DeleteNetworkPolicy(k, model.OwnerKubernetes)
			change.Delete = &d
		}
		return change, nil, nil
	}
	if there && same(have, want) {
		return change, nil, nil
	}
	want, unfit = p.fittingPart(want)
	if unfit != nil && there && same(have, want) {
		return change, unfit, nil
	}
	valid, err := model.Check(*want)
	if err == nil {
		ch := p.k.config.Control.Policies.ReplaceNetworkPolicy(valid)
		change.Put = &ch
	}
	return change, unfit, err
}

// same reports whether a row is what a policy is to be, whose rules it sorts.
func same(have model.NetworkPolicy, want *model.NetworkPolicy) bool {
	model.SortRules(want.Rules)
	return have.Policy.Equal(want.Policy) && slices.EqualFunc(have.Rules, want.Rules, model.PolicyRule.Equal)
}

// names are the names of the policies' rows that there are to be.
func (p *policySync) names() map[model.PolicyName]bool {
	named := map[model.PolicyName]bool{}
	for n := range p.k.mirror.All(mirror.NetworkPolicies) {
		named[translate.NetworkPolicyName(n.Namespace, n.Name)] = true
	}
	for n := range p.k.mirror.All(mirror.ClusterNetworkPolicies) {
		named[translate.ClusterNetworkPolicyName(n.Name)] = true
	}
	return named
}

// sweep takes away what stands for objects that are gone: policies, then namespaces.
func (p *policySync) sweep(ctx context.Context) error {
	named := p.names()
	for _, old := range p.view.Policies.NetworkPolicies("") {
		if k := old.Policy.Key; !named[k.Name] {
			if _, err := p.policy(ctx, k, nil); err != nil {
				return err
			}
		}
	}
	for _, ns := range p.view.Identities.Namespaces() {
		if p.k.mirror.Get(mirror.Namespaces, mirror.Name{Name: string(ns.Name)}) == nil {
			if err := p.k.config.Control.Kubernetes.DeleteNamespace(ctx, p.leader, ns.Name); err != nil {
				return err
			}
		}
	}
	return p.stopCounting(ctx)
}
