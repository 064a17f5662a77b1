package objects

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
)

// Owned names what an object stands for, by its kind's name in package model.
func Owned(o Object) model.Owned {
	var kind, tenant, name string
	switch o := o.(type) {
	case *Tenant:
		return model.Owned{Kind: "tenant", Key: cmp.Or(o.Spec.TenantName, o.Name)}
	case *Network:
		kind, tenant, name = "network", o.Spec.TenantName, o.Spec.NetworkName
	case *EndpointGroup:
		kind, tenant, name = "endpointGroup", o.Spec.TenantName, o.Spec.GroupName
	case *Policy:
		kind, tenant, name = "policy", o.Spec.TenantName, o.Spec.PolicyName
	case *NetProfile:
		kind, tenant, name = "netprofile", o.Spec.TenantName, o.Spec.ProfileName
	}
	return model.Owned{Kind: kind, Key: cmp.Or(tenant, string(model.DefaultTenant)) + ":" + cmp.Or(name, o.GetName())}
}

// Presence is whether something is there that objects refer to.
type Presence int

// What there can be.
const (
	Absent  Presence = iota
	Leaving          // it is being deleted and has no members
	Present
)

// Known tells what there is of what objects refer to.
type Known struct {
	Network func(model.NetworkKey) Presence
	Group   func(model.GroupKey) Presence
}

// A meaning is a value of model, and in words what is missing from it. References to
// missing objects are left out; a missing peer matches none, so the policy's effect is the
// same.

// TranslateTenant is what a Tenant means. Networks that are not there come later, since
// they are in tenants.
func TranslateTenant(o *Tenant, known Known) (model.Valid[model.Tenant], []string, error) {
	spec := o.Spec
	spec.TenantName = cmp.Or(spec.TenantName, o.Name)
	if spec.SharedNetworks == nil {
		spec.SharedNetworks = []string{} // none, and not as they are
	}
	t, err := apiconv.Tenant(spec)
	if err != nil {
		return model.Valid[model.Tenant]{}, nil, err
	}
	var missing []string
	if k := (model.NetworkKey{Tenant: t.Name, Name: t.DefaultNetwork}); k.Name != "" && known.Network(k) != Present {
		t.DefaultNetwork = ""
		missing = append(missing, fmt.Sprintf("defaultNetwork: network %q does not exist", k))
	}
	shared := []model.NetworkKey{}
	for _, k := range t.Shared {
		if known.Network(k) == Present {
			shared = append(shared, k)
		} else {
			missing = append(missing, fmt.Sprintf("sharedNetworks: network %q does not exist", k))
		}
	}
	t.Shared = shared
	valid, err := model.Check(t)
	return valid, missing, err
}

// TranslateNetwork is what a Network means.
func TranslateNetwork(o *Network) (model.Valid[model.Network], error) {
	spec := o.Spec
	spec.TenantName, spec.NetworkName = cmp.Or(spec.TenantName, string(model.DefaultTenant)), cmp.Or(spec.NetworkName, o.Name)
	spec.Encap = cmp.Or(spec.Encap, string(model.EncapVXLAN))
	return checked(apiconv.Network(spec))
}

// TranslateGroup is what an EndpointGroup means.
func TranslateGroup(o *EndpointGroup) (model.Valid[model.Group], error) {
	spec := o.Spec
	spec.TenantName, spec.GroupName = cmp.Or(spec.TenantName, string(model.DefaultTenant)), cmp.Or(spec.GroupName, o.Name)
	return checked(apiconv.Group(spec))
}

// TranslateNetProfile is what a NetProfile means.
func TranslateNetProfile(o *NetProfile) (model.Valid[model.NetProfile], error) {
	spec := o.Spec
	spec.TenantName, spec.ProfileName = cmp.Or(spec.TenantName, string(model.DefaultTenant)), cmp.Or(spec.ProfileName, o.Name)
	return checked(apiconv.NetProfile(spec))
}

// TranslatePolicy is what a Policy means. A rule with a missing peer matches none, so it is
// left out until its peer is there. While the peer is being deleted, a rule that allows is
// left out too, since it would block the deletion. A rule that denies stays until the peer
// is gone, since the peer may still get members. ends says that the policy is being deleted
// and applies to no group: then such a rule denies all peers, which no longer blocks the
// peer's deletion.
func TranslatePolicy(o *Policy, known Known, ends bool) (model.Valid[model.PolicyWithRules], []string, error) {
	spec := o.Spec.Policy
	spec.TenantName, spec.PolicyName = cmp.Or(spec.TenantName, string(model.DefaultTenant)), cmp.Or(spec.PolicyName, o.Name)
	none := model.Valid[model.PolicyWithRules]{}
	policy, err := apiconv.Policy(spec)
	if err != nil {
		return none, nil, err
	}
	whole := model.PolicyWithRules{Policy: policy}
	for i, r := range o.Spec.Rules {
		r.TenantName, r.PolicyName = spec.TenantName, spec.PolicyName
		rule, err := apiconv.Rule(r)
		if err != nil {
			return none, nil, model.InField(fmt.Sprintf("rules[%d]", i), err)
		}
		whole.Rules = append(whole.Rules, rule)
	}
	if _, err := model.Check(whole); err != nil { // also of what is left out
		return none, nil, err
	}
	var missing []string
	there := model.PolicyWithRules{Policy: policy}
	for _, r := range whole.Rules {
		peer, is := "", Present
		switch {
		case r.Group != "":
			k := model.GroupKey{Tenant: r.Key.Tenant, Name: r.Group}
			peer, is = fmt.Sprintf("endpoint group %q", k), known.Group(k)
		case r.Network != "":
			k := model.NetworkKey{Tenant: r.Key.Tenant, Name: r.Network}
			peer, is = fmt.Sprintf("network %q", k), known.Network(k)
		}
		switch {
		case is == Absent || is == Leaving && r.Action == model.Allow:
			missing = append(missing, fmt.Sprintf("rule %q: %s does not exist", r.Key.Rule, peer))
			continue
		case is == Leaving && ends:
			r.Group, r.Network = "", ""
		}
		there.Rules = append(there.Rules, r)
	}
	valid, err := model.Check(there)
	return valid, missing, err
}

func checked[T model.Validator](v T, err error) (model.Valid[T], error) {
	if err != nil {
		return model.Valid[T]{}, err
	}
	return model.Check(v)
}

// Adopts reports whether an object takes over what users made.
func Adopts(o Object) bool { return o.GetAnnotations()[Adopt] == "true" }

// Reasons of the condition Ready, by the error that keeps the cluster from having an object.
const (
	ReasonApplied = "Applied"
	ReasonMissing = "Missing"  // what it needs is not there
	ReasonInUse   = "InUse"    // it is to go, and something uses it
	ReasonOwned   = "NotOwned" // what it stands for belongs to another one
	ReasonRefused = "Refused"
	ReasonLater   = "TriedAgain" // the store cannot be reached, or the like
)

// Reason is the condition's reason for an error.
func Reason(err error) string {
	switch {
	case err == nil:
		return ReasonApplied
	case errors.Is(err, model.ErrNotFound):
		return ReasonMissing
	case errors.Is(err, model.ErrInUse):
		return ReasonInUse
	case errors.Is(err, model.ErrInvalid), errors.Is(err, model.ErrConflict), errors.Is(err, model.ErrExists), errors.Is(err, model.ErrExhausted):
		return ReasonRefused
	}
	return ReasonLater
}
