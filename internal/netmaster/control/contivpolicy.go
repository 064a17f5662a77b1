package control

import (
	"cmp"
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.PolicyKey](kind{
	name:  "policy",
	empty: none(tables.Policies, tables.PoliciesOf, "policies", func(x model.Policy) string { return string(x.Key.Name) }),
})

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
func (pv *PolicyView) ListContiv(t model.TenantName) []model.ContivPolicy {
	return contivPolicies(pv.policyRows.list(t))
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
func (pv *PolicyView) GetContiv(k model.PolicyKey) (model.ContivPolicy, bool) {
	p, ok := pv.Get(k)
	out, contiv := p.Contiv()
	return out, ok && contiv
}

// AnyPolicies returns all policies of a tenant, of whatever kind; "" = of all.
func (pv *PolicyView) List(t model.TenantName) []model.Policy {
	return pv.policyRows.list(t)
}

// AnyPolicy finds a policy of whatever kind.
func (pv *PolicyView) Get(k model.PolicyKey) (model.Policy, bool) {
	return pv.policyRows.find(k)
}

// GroupsOfPolicy returns the groups that a policy is attached to.
func (gv *GroupView) OfPolicy(k model.PolicyKey) []model.Group {
	return gv.groupRows.those(func() map[model.GroupKey]struct{} { return gv.groupsOfPolicy[k] })
}

func (pv *PolicyView) enterPolicy(ch tables.Change) {
	if k, _, now := pv.policyRows.enter(ch); now == nil {
		delete(pv.policySizes.meters, unionOf(k.Tenant, k.Name))
	}
}
