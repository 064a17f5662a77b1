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
	ch := changeOf(rankSettings, tables.Policies, p.Key, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		return ps.putPolicy(tx, p.General())
	})
	inContivWords[model.Policy, model.ContivPolicy](&ch)
	return ch.of(ownPolicy(p.Key))
}

// DeletePolicy deletes a Contiv policy and its rules; attached to a group it is
// model.ErrInUse.
func DeletePolicy(k model.PolicyKey) Deletion {
	return deletePolicy(k, model.KindContiv, model.OwnerUser)
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
