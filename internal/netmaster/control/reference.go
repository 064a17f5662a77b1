package control

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// addReference records that something refers to a target.
func addReference(tx store.Tx, t tables.Target, kind, from string, how ...tables.WriteOption) error {
	return tables.References.Put(tx, tables.Reference{RefKey: tables.RefKey{Target: t, Kind: kind, From: from}}, how...)
}

// removeReference takes a reference away. It touches no scope: who waits for the last
// reference to go has to try again anyway.
func removeReference(tx store.Tx, t tables.Target, kind, from string) {
	tx.Delete(tables.References.Key(tables.RefKey{Target: t, Kind: kind, From: from}))
}

// ruleReference is the kind of the references that rules make.
const ruleReference = "rule"

// referrers says by the kind of a reference, other than a rule's, what it means,
// and which kinds lie behind those of rules, as prefixes.
var referrers = sync.OnceValues(func() (usedBy map[string]string, after []string) {
	usedBy = map[string]string{}
	for _, k := range registry {
		if k.reference == "" {
			continue
		}
		usedBy[k.reference] = k.usedBy
		if k.reference > ruleReference {
			after = append(after, k.reference+"/")
		}
	}
	slices.Sort(after)
	return usedBy, after
})

// maxListedRefs is from how many new references on a group touches the one scope of its
// tenant for all of them: each scope costs a transaction two operations, and the largest
// group with a VLAN of its own would have more than Consul takes. Groups that name less
// keep to the scopes of what they name: so they do not meet deletions of other things,
// and netmasters of versions that know no such scope see them.
const maxListedRefs = 6

// namedByGroups are the kinds of what groups name, but their networks.
var namedByGroups = map[string]bool{"policy": true, "netprofile": true, "extcontracts": true}

// checkUnreferenced checks that nothing refers to a target, else model.ErrInUse.
// Deleting a policy leaves references of its rules behind when they are many;
// they count as gone when the rule is, or names something else by now.
// next are scopes that the caller looks at after that: they are read at once with these.
func checkUnreferenced(s Scope, tx store.Tx, t tables.Target, next ...string) error {
	scopes := []string{t.Scope()}
	if namedByGroups[t.Kind] {
		scopes = append(scopes, tables.GroupRefs(t.Tenant))
	}
	if err := tx.PrefetchScopes(few, append(next, scopes...)...); err != nil {
		return err
	}
	for _, scope := range scopes {
		if err := tx.Observe(scope); err != nil {
			return err
		}
	}
	// References lie in order of their kinds: whatever comes before and after
	// those of rules refers for certain.
	usedBy, after := referrers()
	for _, prefix := range append([]string{""}, after...) {
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
				if tenant, _, _ := strings.Cut(row.Value.From, ":"); !s.Has(model.TenantName(tenant)) {
					return model.Errorf(model.ErrInUse, "other %s; ask a cluster administrator", text)
				}
				return model.Errorf(model.ErrInUse, "%s, for one %q", text, row.Value.From)
			}
		}
	}
	for _, limit := range []int{few, 0} { // mostly the first says all
		kvs, err := tx.Range(t.Scope()+ruleReference+"/", limit)
		if err != nil {
			return err
		}
		if err := checkNotNamed(tx, t, kvs); err != nil || len(kvs) < limit {
			return err
		}
	}
	return nil
}

// few is how many rows are looked at before all are.
const few = 8

// checkNotNamed checks the rules whose references to a target are given: none of them
// names it any more, nor will when its policy's rules are replaced.
func checkNotNamed(tx store.Tx, t tables.Target, kvs []store.KV) error {
	keys := make([]model.RuleKey, len(kvs))
	names := make([]string, 0, 2*len(kvs))
	for i, kv := range kvs {
		row, err := tables.References.Decode(kv)
		if err != nil {
			return err
		}
		if keys[i], err = model.ParseRuleKey(row.Value.From); err != nil {
			return fmt.Errorf("read references of %s %q: %w", t.Kind, t.Name, err)
		}
		names = append(names, tables.Rules.Key(keys[i]), tables.StagedRules.Key(tables.StagedKey(keys[i])))
	}
	if err := tx.Prefetch(names...); err != nil {
		return err
	}
	for _, k := range keys {
		row, err := tables.Rules.Peek(tx, k)
		if err != nil {
			return err
		}
		staged, err := tables.StagedRules.Peek(tx, tables.StagedKey(k))
		if err != nil {
			return err
		}
		will := staged.Value.Rule
		if row.Exists() && ruleNames(row.Value, t) || will != nil && ruleNames(*will, t) {
			return model.Errorf(model.ErrInUse, "it is used by rules, for one %q", k)
		}
	}
	return nil
}

// policyTarget is something that a rule refers to beside its policy, or that a
// policy's selector names.
type policyTarget struct {
	field, name string // the field of errors
	key         string // of its row
	target      tables.Target
	get         func(store.Tx) error // reads it into the read set
}

// reference is the key of the reference that something makes to the target.
func (t policyTarget) reference(kind, from string) tables.RefKey {
	return tables.RefKey{Target: t.target, Kind: kind, From: from}
}

// fieldsIn says that the fields of targets lie in another one; "" = they do not.
func fieldsIn(outer string, targets []policyTarget) []policyTarget {
	for i := range targets {
		if outer != "" {
			targets[i].field = outer + "." + targets[i].field
		}
	}
	return targets
}

func hasTarget(list []policyTarget, t tables.Target) bool {
	return slices.ContainsFunc(list, func(x policyTarget) bool { return x.target == t })
}

func groupTarget(field string, k model.GroupKey) policyTarget {
	return policyTarget{field, string(k.Name), tables.Groups.Key(k), tables.TargetGroup(k), getter(tables.Groups, k)}
}

func networkTarget(field string, k model.NetworkKey) policyTarget {
	return policyTarget{field, string(k.Name), tables.Networks.Key(k), tables.TargetNetwork(k), getter(tables.Networks, k)}
}

// moveTargets moves the references of a rule or policy from what it named to what
// it names, which must exist.
func moveTargets(tx store.Tx, kind, from string, before, after []policyTarget) error {
	for _, t := range after {
		if hasTarget(before, t.target) {
			continue
		}
		if err := t.get(tx); err != nil {
			return fmt.Errorf("%s %q: %w", t.field, t.name, err)
		}
		if err := addReference(tx, t.target, kind, from); err != nil {
			return err
		}
	}
	for _, t := range before {
		if !hasTarget(after, t.target) {
			removeReference(tx, t.target, kind, from)
		}
	}
	return nil
}
