package control

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Policies changes policies of all kinds and their rules. Rules that change together, and
// are more than one transaction takes, are staged beside the policy. The API, Kubernetes'
// controllers and Repair call it. stalled belongs to the leader's goroutine that sweeps.
type Policies struct {
	commits      *Committer
	endpointView *EndpointView
	policyView   *PolicyView
	stalled      stalled
}

// putPolicy creates a policy or, of a network policy, changes what it says. One
// of another kind, or of another owner, is model.ErrConflict; for labels that it
// may not select by see selectByLabels.
func (ps *Policies) putPolicy(tx store.Tx, p model.Policy) error {
	targets := policyTargets(p)
	keys := []string{tables.Tenants.Key(p.Key.Tenant), tables.Policies.Key(p.Key)}
	for _, t := range targets {
		keys = append(keys, t.key)
	}
	if err := tx.Prefetch(keys...); err != nil {
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
		p.Object = old.Value.Object
		if err := checkKind(old.Value, p.Kind, p.Owner); err != nil || old.Value.Equal(p) {
			return err
		}
	}
	if !old.Exists() && p.Owner == model.OwnerUser && p.Key.Name.IsKubernetes() { // one that is there since before may stay
		return model.InvalidField("policyName", p.Key.Name, "must not begin so: such names are reserved for policies of Kubernetes")
	}
	if err := ps.selectByLabels(tx, namedSelector{"applies", p.Applies}); err != nil {
		return err
	}
	if !old.Exists() {
		if err := moveTargets(tx, "policy", p.Key.String(), nil, targets); err != nil {
			return err
		}
		return tables.Policies.Create(tx, p)
	}
	if err := moveTargets(tx, "policy", p.Key.String(), policyTargets(old.Value), targets); err != nil {
		return err
	}
	return tables.Policies.Put(tx, p)
}

// checkKind refuses a change of a policy in other words than those in which it was
// written, or by somebody else than its owner.
func checkKind(p model.Policy, kind model.PolicyKind, owner model.PolicyOwner) error {
	switch {
	case p.Owner != owner && p.Owner == model.OwnerKubernetes && p.Key.Name.IsKubernetes():
		return model.Errorf(model.ErrConflict, "policy %q belongs to %s: change %s there", p.Key, p.Owner, p.Key.Name.KubernetesObject())
	case p.Owner != owner:
		return model.Errorf(model.ErrConflict, "policy %q belongs to %s: change it there", p.Key, p.Owner)
	case p.Kind != kind:
		return model.Errorf(model.ErrConflict, "policy %q is a %s policy: change it as one", p.Key, p.Kind)
	}
	return nil
}

// maxRefDeletes bounds the references that deleting a policy takes along; the
// rest is ignored by unreferenced and goes with its target.
const maxRefDeletes = 24

// deletePolicy deletes a policy of a kind and owner.
func deletePolicy(k model.PolicyKey, kind model.PolicyKind, owner model.PolicyOwner) Deletion {
	return inOne(fmt.Sprintf("delete policy %q", k), func(tx store.Tx, a Actor) error {
		p, err := tables.Policies.Get(tx, k)
		if err != nil {
			return err
		}
		if err := checkKind(p, kind, owner); err != nil {
			return err
		}
		if err := a.mayWriteTier(tx, k, 0); err != nil {
			return err
		}
		if err := a.mayDelete(tx, ownPolicy(k)); err != nil {
			return err
		}
		if err := checkUnreferenced(a.Scope(), tx, tables.TargetPolicy(k), tables.RulesOf(k), tables.PendingScope); err != nil {
			return err
		}
		for _, t := range policyTargets(p) {
			removeReference(tx, t.target, "policy", k.String())
		}
		rules, err := tables.Rules.List(tx, tables.RulesOf(k))
		if err != nil {
			return err
		}
		left := maxRefDeletes
		for _, r := range rules {
			for _, t := range ruleTargets(r) {
				if left--; left >= 0 {
					removeReference(tx, t.target, "rule", r.Key.String())
				}
			}
		}
		tables.Rules.DeleteScope(tx, tables.RulesOf(k))
		dropReplacement(tx, k)
		tables.References.DeleteScope(tx, tables.TargetPolicy(k).Scope())
		tables.Policies.Delete(tx, k)
		return nil
	})
}
