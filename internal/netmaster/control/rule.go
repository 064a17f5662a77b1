package control

import (
	"cmp"
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.RuleKey](kind{
	name: "rule",
})

func lessRule(a, b model.RuleKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule))
}

// groupsNamed returns the groups that a rule's peers name.
func groupsNamed(r model.PolicyRule) (out []model.GroupKey) {
	for _, p := range r.Peers {
		if p.Selector != nil && p.Selector.Group != "" {
			out = append(out, model.GroupKey{Tenant: p.Selector.Tenant, Name: p.Selector.Group})
		}
	}
	return out
}

// ChangeRule creates a rule. What it names must exist in its tenant. An
// existing rule with equal fields stays as it is; with others it is
// model.ErrConflict, since rules are immutable. One with which the policy, or
// the policies of a group, would not fit a host is model.ErrExhausted.
func (ps *Policies) ChangeRule(valid model.Valid[model.Rule]) Change {
	r := valid.Value()
	general := r.General()
	ch := changeOf(rankMember, tables.Rules, r.Key, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		return ps.putRule(tx, general, model.KindContiv, model.OwnerUser, "")
	})
	inContivWords[model.PolicyRule, model.Rule](&ch)
	ch.rules = []model.PolicyRule{general}
	return ch.of(ownPolicy(r.Key.PolicyKey()))
}

// putRule creates a rule of a policy of its kind and owner, or of a network
// policy replaces it. field is where a request names the rule, for errors; "" = the
// request is the rule.
func (ps *Policies) putRule(tx store.Tx, r model.PolicyRule, kind model.PolicyKind, owner model.PolicyOwner, field string) error {
	targets := fieldsIn(field, ruleTargets(r))
	if kind == model.KindContiv {
		for i, t := range targets {
			targets[i].field = contivField(r.Direction, t.target)
			if field != "" {
				targets[i].field = field + "." + targets[i].field
			}
		}
	}
	keys := []string{tables.Policies.Key(r.Key.PolicyKey()), tables.Rules.Key(r.Key), tables.Replacements.Key(tables.ReplacementKey(r.Key.PolicyKey()))}
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
	if err := checkKind(p, kind, owner); err != nil {
		return err
	}
	if err := checkNoReplacement(tx, r.Key.PolicyKey()); err != nil {
		return err
	}
	old, err := tables.Rules.Find(tx, r.Key)
	if err != nil {
		return err
	}
	if old.Exists() && kind == model.KindContiv && field == "" {
		return sameRule(old.Value, r)
	}
	if old.Exists() && old.Value.Equal(r) {
		return nil
	}
	if err := ps.selectByLabels(tx, peerSelectors(field, r)...); err != nil {
		return err
	}
	if kind == model.KindNetwork && field == "" { // else the request is the policy
		if err := touchPolicy(tx, r.Key.PolicyKey()); err != nil {
			return err
		}
	}
	if !old.Exists() {
		if err := moveTargets(tx, ruleReference, r.Key.String(), nil, targets); err != nil {
			return err
		}
		return tables.Rules.Create(tx, r)
	}
	if err := moveTargets(tx, ruleReference, r.Key.String(), ruleTargets(old.Value), targets); err != nil {
		return err
	}
	return tables.Rules.Put(tx, r)
}

// peerFieldPrefix is the prefix of the fields that name a rule's peer.
func peerFieldPrefix(d model.Direction) string {
	if d == model.Out {
		return "to"
	}
	return "from"
}

// contivField is the field of a rule of 1.x that names a target.
func contivField(d model.Direction, t tables.Target) string {
	if t.Kind == "group" {
		return peerFieldPrefix(d) + "EndpointGroup"
	}
	return peerFieldPrefix(d) + "Network"
}

// sameRule checks that a request for an existing rule of a Contiv policy asks for
// what is there.
func sameRule(was, want model.PolicyRule) (err error) {
	old, ok := was.Contiv()
	r, ok2 := want.Contiv()
	if !ok || !ok2 { // written by another version
		return model.Errorf(model.ErrConflict, "rule %q exists with other fields", was.Key)
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
		{peerFieldPrefix(old.Direction) + "EndpointGroup", old.Group, r.Group},
		{peerFieldPrefix(old.Direction) + "Network", old.Network, r.Network},
		{peerFieldPrefix(old.Direction) + "IpAddress", old.Addr, r.Addr},
	} {
		if f.old != f.new {
			err = joinRefusals(err, immutable(f.name, f.old, f.new))
		}
	}
	return err
}

// DeleteRule deletes a rule of a Contiv policy.
func (ps *Policies) DeleteRule(k model.RuleKey) Deletion {
	return ps.deleteRule(k, model.KindContiv, model.OwnerUser)
}

func (ps *Policies) deleteRule(k model.RuleKey, kind model.PolicyKind, owner model.PolicyOwner) Deletion {
	return inOne(fmt.Sprintf("delete rule %q", k), func(tx store.Tx, a Actor) error {
		if err := tx.Prefetch(tables.Policies.Key(k.PolicyKey()), tables.Rules.Key(k), tables.Replacements.Key(tables.ReplacementKey(k.PolicyKey()))); err != nil {
			return err
		}
		p, err := tables.Policies.Peek(tx, k.PolicyKey()) // kind and owner never change
		if err != nil {
			return err
		}
		if p.Exists() {
			if err := checkKind(p.Value, kind, owner); err != nil {
				return err
			}
		}
		if err := a.mayWriteTier(tx, k.PolicyKey(), 0); err != nil {
			return err
		}
		if kind == model.KindContiv {
			if err := a.mayDelete(tx, ownPolicy(k.PolicyKey())); err != nil {
				return err
			}
		}
		if err := checkNoReplacement(tx, k.PolicyKey()); err != nil {
			return err
		}
		r, err := tables.Rules.Get(tx, k)
		if err != nil {
			return err
		}
		dropRule(tx, r)
		if kind == model.KindNetwork {
			return ps.checkRulesRemain(tx, k)
		}
		return nil
	})
}

// dropRule takes a rule away with its references.
func dropRule(tx store.Tx, r model.PolicyRule) {
	for _, t := range ruleTargets(r) {
		removeReference(tx, t.target, ruleReference, r.Key.String())
	}
	tables.Rules.Delete(tx, r.Key)
}

// ruleNames reports whether a rule refers to the target.
func ruleNames(r model.PolicyRule, t tables.Target) bool { return hasTarget(ruleTargets(r), t) }

func ruleTargets(r model.PolicyRule) (out []policyTarget) {
	add := func(x policyTarget) {
		if !hasTarget(out, x.target) {
			out = append(out, x)
		}
	}
	for i, p := range r.Peers {
		if p.Network != (model.NetworkKey{}) {
			add(networkTarget(fmt.Sprintf("peers[%d].network", i), p.Network))
		}
		if s := p.Selector; s != nil && s.Group != "" {
			add(groupTarget(fmt.Sprintf("peers[%d].selector.group", i), model.GroupKey{Tenant: s.Tenant, Name: s.Group}))
		}
		if s := p.Selector; s != nil && s.Network != "" {
			add(networkTarget(fmt.Sprintf("peers[%d].selector.network", i), model.NetworkKey{Tenant: s.Tenant, Name: s.Network}))
		}
	}
	return out
}
