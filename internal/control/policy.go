package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// putPolicy creates a policy. One that is there stays as it is; of another kind,
// or another owner, it is model.ErrConflict.
func putPolicy(tx store.Tx, p model.Policy) error {
	if err := tx.Prefetch(tables.Tenants.Key(p.Key.Tenant), tables.Policies.Key(p.Key)); err != nil {
		return err
	}
	if _, err := tables.Tenants.Get(tx, p.Key.Tenant); err != nil {
		return err
	}
	old, err := tables.Policies.Find(tx, p.Key)
	if err != nil {
		return err
	}
	if old.Exists() {
		return mayChange(old.Value, p.Kind, p.Owner)
	}
	return tables.Policies.Create(tx, p)
}

// mayChange refuses a change of a policy in other words than those in which it was
// written, or by somebody else than its owner.
func mayChange(p model.Policy, kind model.PolicyKind, owner model.PolicyOwner) error {
	switch {
	case p.Owner != owner:
		return model.Errorf(model.ErrConflict, "policy %q belongs to %s, which alone may change it", p.Key, p.Owner)
	case p.Kind != kind:
		return model.Errorf(model.ErrConflict, "policy %q is a %s policy: change it as one", p.Key, p.Kind)
	}
	return nil
}

// maxRefDeletes bounds the references that deleting a policy takes along; the
// rest is ignored by unreferenced and goes with its target.
const maxRefDeletes = 24

// DeletePolicy deletes a policy and its rules; attached to a group it is
// model.ErrInUse.
func (c *Controller) DeletePolicy(ctx context.Context, k model.PolicyKey) error {
	_, err := c.update(ctx, fmt.Sprintf("delete policy %q", k), func(tx store.Tx) error {
		p, err := tables.Policies.Get(tx, k)
		if err != nil {
			return err
		}
		if err := mayChange(p, model.KindContiv, model.OwnerUser); err != nil {
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
					unrefer(tx, t.target, "rule", r.Key.String())
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

// putRule creates a rule of a policy of its kind and owner.
func putRule(tx store.Tx, r model.PolicyRule, kind model.PolicyKind, owner model.PolicyOwner) error {
	targets := ruleTargets(r)
	keys := []string{tables.Policies.Key(r.Key.PolicyKey()), tables.Rules.Key(r.Key)}
	for _, t := range targets {
		keys = append(keys, t.key)
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	p, err := tables.Policies.Get(tx, r.Key.PolicyKey())
	if err != nil {
		return err
	}
	if err := mayChange(p, kind, owner); err != nil {
		return err
	}
	old, err := tables.Rules.Find(tx, r.Key)
	if err != nil {
		return err
	}
	if old.Exists() {
		return sameRule(old.Value, r)
	}
	for _, t := range targets {
		if err := t.get(tx); err != nil {
			return fmt.Errorf("%s%s %q: %w", side(r.Direction), t.field, t.name, err)
		}
	}
	for _, t := range targets {
		if err := refer(tx, t.target, "rule", r.Key.String()); err != nil {
			return err
		}
	}
	return tables.Rules.Create(tx, r)
}

// side is the prefix of the fields that name a rule's peer.
func side(d model.Direction) string {
	if d == model.Out {
		return "to"
	}
	return "from"
}

// sameRule checks that a request for an existing rule asks for what is there.
func sameRule(was, want model.PolicyRule) (err error) {
	old, ok := was.Contiv()
	r, ok2 := want.Contiv()
	if !ok || !ok2 {
		if was.Equal(want) {
			return nil
		}
		return model.Errorf(model.ErrConflict, "rule %q is there with other fields", was.Key)
	}
	for _, f := range []struct {
		name     string
		old, new any
	}{
		{"direction", old.Direction, r.Direction},
		{"priority", old.Priority, r.Priority},
		{"action", old.Action, r.Action},
		{"protocol", old.Protocol, r.Protocol},
		{"port", old.Port, r.Port},
		{side(old.Direction) + "EndpointGroup", old.Group, r.Group},
		{side(old.Direction) + "Network", old.Network, r.Network},
		{side(old.Direction) + "IpAddress", old.Addr, r.Addr},
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
		if err := tx.Prefetch(tables.Policies.Key(k.PolicyKey()), tables.Rules.Key(k)); err != nil {
			return err
		}
		r, err := tables.Rules.Get(tx, k)
		if err != nil {
			return err
		}
		if p, err := tables.Policies.Peek(tx, k.PolicyKey()); err != nil {
			return err
		} else if p.Exists() { // kind and owner never change
			if err := mayChange(p.Value, model.KindContiv, model.OwnerUser); err != nil {
				return err
			}
		}
		for _, t := range ruleTargets(r) {
			unrefer(tx, t.target, "rule", k.String())
		}
		tables.Rules.Delete(tx, k)
		return nil
	})
	return err
}
