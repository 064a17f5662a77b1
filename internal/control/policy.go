package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func putPolicy(tx store.Tx, p model.ContivPolicy) error {
	if err := tx.Prefetch(tables.Tenants.Key(p.Key.Tenant), tables.Policies.Key(p.Key)); err != nil {
		return err
	}
	if _, err := tables.Tenants.Get(tx, p.Key.Tenant); err != nil {
		return err
	}
	old, err := tables.Policies.Find(tx, p.Key)
	if err != nil || old.Exists() {
		return err
	}
	return tables.Policies.Create(tx, p)
}

// maxRefDeletes bounds the references that deleting a policy takes along; the
// rest is ignored by unreferenced and goes with its target.
const maxRefDeletes = 24

// DeletePolicy deletes a policy and its rules; attached to a group it is
// model.ErrInUse.
func (c *Controller) DeletePolicy(ctx context.Context, k model.PolicyKey) error {
	_, err := c.update(ctx, fmt.Sprintf("delete policy %q", k), func(tx store.Tx) error {
		if _, err := tables.Policies.Get(tx, k); err != nil {
			return err
		}
		if err := unreferenced(tx, tables.TargetPolicy(k)); err != nil {
			return err
		}
		rules, err := tables.Rules.List(tx, tables.RulesOf(k))
		if err != nil {
			return err
		}
		left := maxRefDeletes
		for _, r := range rules {
			for _, t := range ruleTargets(r) {
				if left--; left >= 0 {
					unrefer(tx, t, "rule", r.Key.String())
				}
			}
		}
		tables.Rules.DeleteScope(tx, tables.RulesOf(k))
		tables.References.DeleteScope(tx, tables.TargetPolicy(k).Scope())
		tables.Policies.Delete(tx, k)
		return nil
	})
	return err
}

func putRule(tx store.Tx, r model.Rule) error {
	group := model.GroupKey{Tenant: r.Key.Tenant, Name: r.Group}
	network := model.NetworkKey{Tenant: r.Key.Tenant, Name: r.Network}
	keys := []string{tables.Policies.Key(r.Key.PolicyKey()), tables.Rules.Key(r.Key)}
	if r.Group != "" {
		keys = append(keys, tables.Groups.Key(group))
	}
	if r.Network != "" {
		keys = append(keys, tables.Networks.Key(network))
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	if _, err := tables.Policies.Get(tx, r.Key.PolicyKey()); err != nil {
		return err
	}
	old, err := tables.Rules.Find(tx, r.Key)
	if err != nil {
		return err
	}
	if old.Exists() {
		return sameRule(old.Value, r)
	}
	if r.Group != "" {
		if _, err := tables.Groups.Get(tx, group); err != nil {
			return fmt.Errorf("%sEndpointGroup %q: %w", side(r), r.Group, err)
		}
	}
	if r.Network != "" {
		if _, err := tables.Networks.Get(tx, network); err != nil {
			return fmt.Errorf("%sNetwork %q: %w", side(r), r.Network, err)
		}
	}
	for _, t := range ruleTargets(r) {
		if err := refer(tx, t, "rule", r.Key.String()); err != nil {
			return err
		}
	}
	return tables.Rules.Create(tx, r)
}

// side is the prefix of the fields that name a rule's peer.
func side(r model.Rule) string {
	if r.Direction == model.Out {
		return "to"
	}
	return "from"
}

// sameRule checks that a request for an existing rule asks for what is there.
func sameRule(old, r model.Rule) (err error) {
	for _, f := range []struct {
		name     string
		old, new any
	}{
		{"direction", old.Direction, r.Direction},
		{"priority", old.Priority, r.Priority},
		{"action", old.Action, r.Action},
		{"protocol", old.Protocol, r.Protocol},
		{"port", old.Port, r.Port},
		{side(old) + "EndpointGroup", old.Group, r.Group},
		{side(old) + "Network", old.Network, r.Network},
		{side(old) + "IpAddress", old.Addr, r.Addr},
	} {
		if f.old != f.new {
			err = also(err, immutable(f.name, f.old, f.new))
		}
	}
	return err
}

// DeleteRule deletes a rule.
func (c *Controller) DeleteRule(ctx context.Context, k model.RuleKey) error {
	_, err := c.update(ctx, fmt.Sprintf("delete rule %q", k), func(tx store.Tx) error {
		r, err := tables.Rules.Get(tx, k)
		if err != nil {
			return err
		}
		for _, t := range ruleTargets(r) {
			unrefer(tx, t, "rule", k.String())
		}
		tables.Rules.Delete(tx, k)
		return nil
	})
	return err
}
