package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

func putPolicy(tx store.Tx, p model.ContivPolicy) error {
	if err := tx.Prefetch(store.Tenants.Key(p.Key.Tenant), store.Policies.Key(p.Key)); err != nil {
		return err
	}
	if _, err := store.Tenants.Get(tx, p.Key.Tenant); err != nil {
		return err
	}
	old, err := store.Policies.Find(tx, p.Key)
	if err != nil || old.Exists() {
		return err
	}
	return store.Policies.Create(tx, p)
}

// maxRefDeletes bounds the references that deleting a policy takes along; the
// rest is ignored by unreferenced and goes with its target.
const maxRefDeletes = 24

// DeletePolicy deletes a policy and its rules; attached to a group it is
// model.ErrInUse.
func (c *Controller) DeletePolicy(ctx context.Context, k model.PolicyKey) error {
	_, err := c.update(ctx, fmt.Sprintf("delete policy %q", k), func(tx store.Tx) error {
		if _, err := store.Policies.Get(tx, k); err != nil {
			return err
		}
		if err := unreferenced(tx, store.TargetPolicy(k)); err != nil {
			return err
		}
		rules, err := store.Rules.List(tx, store.RulesOf(k))
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
		store.Rules.DeleteScope(tx, store.RulesOf(k))
		store.References.DeleteScope(tx, store.TargetPolicy(k).Scope())
		store.Policies.Delete(tx, k)
		return nil
	})
	return err
}

func putRule(tx store.Tx, r model.Rule) error {
	group := model.GroupKey{Tenant: r.Key.Tenant, Name: r.Group}
	network := model.NetworkKey{Tenant: r.Key.Tenant, Name: r.Network}
	keys := []string{store.Policies.Key(r.Key.PolicyKey()), store.Rules.Key(r.Key)}
	if r.Group != "" {
		keys = append(keys, store.Groups.Key(group))
	}
	if r.Network != "" {
		keys = append(keys, store.Networks.Key(network))
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	if _, err := store.Policies.Get(tx, r.Key.PolicyKey()); err != nil {
		return err
	}
	old, err := store.Rules.Find(tx, r.Key)
	if err != nil {
		return err
	}
	if old.Exists() {
		return sameRule(old.Value, r)
	}
	if r.Group != "" {
		if _, err := store.Groups.Get(tx, group); err != nil {
			return fmt.Errorf("%sEndpointGroup %q: %w", side(r), r.Group, err)
		}
	}
	if r.Network != "" {
		if _, err := store.Networks.Get(tx, network); err != nil {
			return fmt.Errorf("%sNetwork %q: %w", side(r), r.Network, err)
		}
	}
	for _, t := range ruleTargets(r) {
		if err := refer(tx, t, "rule", r.Key.String()); err != nil {
			return err
		}
	}
	return store.Rules.Create(tx, r)
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
		r, err := store.Rules.Get(tx, k)
		if err != nil {
			return err
		}
		for _, t := range ruleTargets(r) {
			unrefer(tx, t, "rule", k.String())
		}
		store.Rules.Delete(tx, k)
		return nil
	})
	return err
}
