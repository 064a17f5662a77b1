package control

import (
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// refer records that something refers to a target.
func refer(tx store.Tx, t tables.Target, kind, from string) error {
	return tables.References.Put(tx, tables.Reference{RefKey: tables.RefKey{Target: t, Kind: kind, From: from}})
}

// unrefer takes a reference away. It touches no scope: who waits for the last
// reference to go has to try again anyway.
func unrefer(tx store.Tx, t tables.Target, kind, from string) {
	tx.Delete(tables.References.Key(tables.RefKey{Target: t, Kind: kind, From: from}))
}

// usedBy says by the kind of a reference, other than a rule's, what it means.
var usedBy = map[string]string{
	"appprofile": "it belongs to app profiles",
	"endpoint":   "it has active endpoints",
	"group":      "it is used by endpoint groups",
	"service":    "it is used by load-balanced services",
}

// unreferenced checks that nothing refers to a target, else model.ErrInUse.
// Deleting a policy leaves references of its rules behind when they are many;
// they count as gone when the rule is, or names something else by now.
func unreferenced(tx store.Tx, t tables.Target) error {
	if err := tx.Observe(t.Scope()); err != nil {
		return err
	}
	// References lie in order of their kinds: whatever comes before and after
	// those of rules refers for certain.
	for _, prefix := range []string{"", "service/"} {
		kvs, err := tx.Range(t.Scope()+prefix, 1)
		if err != nil || len(kvs) == 0 && prefix == "" {
			return err
		}
		for _, kv := range kvs {
			row, err := tables.References.Decode(kv)
			if err != nil {
				return err
			}
			if text, ok := usedBy[row.Value.Kind]; ok {
				return model.Errorf(model.ErrInUse, "%s, for one %q", text, row.Value.From)
			}
		}
	}
	kvs, err := tx.Range(t.Scope()+"rule/", 0)
	if err != nil {
		return err
	}
	keys := make([]model.RuleKey, len(kvs))
	names := make([]string, len(kvs))
	for i, kv := range kvs {
		row, err := tables.References.Decode(kv)
		if err != nil {
			return err
		}
		if keys[i], err = model.ParseRuleKey(row.Value.From); err != nil {
			return fmt.Errorf("read references of %s %q: %w", t.Kind, t.Name, err)
		}
		names[i] = tables.Rules.Key(keys[i])
	}
	if err := tx.Prefetch(names...); err != nil {
		return err
	}
	for _, k := range keys {
		row, err := tables.Rules.Peek(tx, k)
		if err != nil {
			return err
		}
		if row.Exists() && ruleNames(row.Value, t) {
			return model.Errorf(model.ErrInUse, "it is used by rules, for one %q", k)
		}
	}
	return nil
}

// ruleNames tells whether a rule refers to the target.
func ruleNames(r model.PolicyRule, t tables.Target) bool {
	return slices.ContainsFunc(ruleTargets(r), func(x ruleTarget) bool { return x.target == t })
}

// ruleTarget is something that a rule refers to beside its policy.
type ruleTarget struct {
	field, name string // the field without its side
	key         string // of its row
	target      tables.Target
	get         func(store.Tx) error // reads it into the read set
}

func ruleTargets(r model.PolicyRule) (out []ruleTarget) {
	add := func(x ruleTarget) {
		if !slices.ContainsFunc(out, func(o ruleTarget) bool { return o.key == x.key }) {
			out = append(out, x)
		}
	}
	group := func(k model.GroupKey) {
		add(ruleTarget{"EndpointGroup", string(k.Name), tables.Groups.Key(k), tables.TargetGroup(k), getter(tables.Groups, k)})
	}
	network := func(k model.NetworkKey) {
		add(ruleTarget{"Network", string(k.Name), tables.Networks.Key(k), tables.TargetNetwork(k), getter(tables.Networks, k)})
	}
	for _, p := range r.Peers {
		if p.Network != (model.NetworkKey{}) {
			network(p.Network)
		}
		if s := p.Selector; s != nil && s.Group != "" {
			group(model.GroupKey{Tenant: s.Tenant, Name: s.Group})
		}
		if s := p.Selector; s != nil && s.Network != "" {
			network(model.NetworkKey{Tenant: s.Tenant, Name: s.Network})
		}
	}
	return out
}
