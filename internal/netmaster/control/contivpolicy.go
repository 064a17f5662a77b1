package control

import (
	"cmp"
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var (
	policyRows = newRowsPart[model.PolicyKey, model.Policy](func(k model.PolicyKey) model.TenantName { return k.Tenant }, lessPolicy)

	_ = register(policyRows, func(v *View, k model.PolicyKey, _, now *model.Policy, _ store.Revision) {
		if now == nil {
			delete(policySizes.in(v).meters, unionOf(k.Tenant, k.Name))
		}
	}, kind{
		name:  "policy",
		empty: none(tables.Policies, tables.PoliciesOf, "policies", func(x model.Policy) string { return string(x.Key.Name) }),
	})
)

func lessPolicy(a, b model.PolicyKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
}

// ChangePolicy creates a policy; an existing one stays as it is.
func (ps *Policies) ChangePolicy(valid model.Valid[model.ContivPolicy]) Change {
	p := valid.Value()
	ch := changeOf(rankBeside, tables.Policies, p.Key, valid, func(_ context.Context, tx store.Tx, _ *claim) error {
		return ps.putPolicy(tx, p.General())
	})
	inContivWords[model.Policy, model.ContivPolicy](&ch)
	return ch.of(ownPolicy(p.Key))
}

// DeletePolicy deletes a Contiv policy and its rules; attached to a group it is
// model.ErrInUse.
func (ps *Policies) DeletePolicy(ctx context.Context, a Actor, k model.PolicyKey) error {
	return ps.deletePolicy(ctx, a, Author{}, k, model.KindContiv, model.OwnerUser)
}

// Policies returns the Contiv policies of a tenant, "" = of all.
func (v *View) Policies(t model.TenantName) []model.ContivPolicy {
	return contivPolicies(policyRows.list(v, t))
}

func contivPolicies(all []model.Policy) []model.ContivPolicy {
	out := make([]model.ContivPolicy, 0, len(all))
	for _, p := range all {
		if c, ok := p.Contiv(); ok {
			out = append(out, c)
		}
	}
	return out
}

// Policy finds a Contiv policy.
func (v *View) Policy(k model.PolicyKey) (model.ContivPolicy, bool) {
	p, ok := v.AnyPolicy(k)
	out, contiv := p.Contiv()
	return out, ok && contiv
}

// AnyPolicies returns all policies of a tenant, of whatever kind; "" = of all.
func (v *View) AnyPolicies(t model.TenantName) []model.Policy {
	return policyRows.list(v, t)
}

// AnyPolicy finds a policy of whatever kind.
func (v *View) AnyPolicy(k model.PolicyKey) (model.Policy, bool) {
	return policyRows.find(v, k)
}

// GroupsOfPolicy returns the groups that a policy is attached to.
func (v *View) GroupsOfPolicy(k model.PolicyKey) []model.Group {
	return groupRows.of(v, func() map[model.GroupKey]struct{} { return groupsOfPolicy.in(v)[k] })
}
