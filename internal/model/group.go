package model

import (
	"fmt"
	"slices"
)

var _ = register(Kind{
	Collection: "endpointGroups", Name: "endpointGroup", Order: 40,
	NoEffects: []NoEffect{
		{
			Field: "cfgdTag",
			Text:  "a group's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name",
			set:   in(func(g Group) bool { return g.CfgdTag != "" }),
		},
	},
})

// GroupName names an endpoint group within its tenant.
type GroupName string

// GroupKey names an endpoint group within the cluster.
type GroupKey struct {
	Tenant TenantName `json:"tenant"`
	Name   GroupName  `json:"name"`
}

func (k GroupKey) String() string { return string(k.Tenant) + ":" + string(k.Name) }

// ParseGroupKey parses "tenant:group". The error is of kind ErrInvalid.
func ParseGroupKey(s string) (GroupKey, error) {
	t, n, err := split2("endpointGroup", s)
	return GroupKey{TenantName(t), GroupName(n)}, err
}

// ParseGroupName checks an endpoint group's name. The error is of kind ErrInvalid.
func ParseGroupName(s string) (GroupName, error) {
	return GroupName(s), parseName("groupName", s, MaxName)
}

// Group is a set of endpoints of one network that share policies.
type Group struct {
	Key          GroupKey     `json:"key"`
	Network      NetworkName  `json:"network"`
	Policies     []PolicyName `json:"policies,omitempty"`
	Pool         AddrRange    `json:"pool,omitzero"` // inside the network's subnet; zero = none
	NetProfile   string       `json:"netProfile,omitempty"`
	ExtContracts []string     `json:"extContracts,omitempty"`
	CfgdTag      string       `json:"cfgdTag,omitempty"`
	ID           Identity     `json:"id"` // identity of the group's endpoints without labels; shown as endpointGroupId
	// VLAN and Segment are allocated with infrastructure type aci, for a group on a
	// network of encap vlan: the VLAN id of the group's own endpoints, and the number of
	// that segment in data planes. Zero = its endpoints ride the network's tag.
	VLAN    uint16    `json:"vlan,omitempty"`
	Segment NetworkID `json:"segment,omitempty"`
	// Object is the Kubernetes object that it belongs to, "" = it is the users'. Control
	// writes it, and requests do not set it.
	Object string `json:"object,omitempty"`
}

// NetworkKey returns the key of the group's network.
func (g Group) NetworkKey() NetworkKey { return NetworkKey{g.Key.Tenant, g.Network} }

// MaxGroupPolicies is how many policies one group may have, MaxGroupRefs how
// many policies and groups of external contracts together: each takes
// operations of the one transaction that a change of a group is.
const (
	MaxGroupPolicies = 8
	MaxGroupRefs     = 10
)

// Validate checks the fields that a user gives (not ID, which is allocated, and not
// that the pool fits the network). The error is of kind ErrInvalid.
func (g Group) Validate() error {
	if _, err := ParseTenantName(string(g.Key.Tenant)); err != nil {
		return err
	}
	if _, err := ParseGroupName(string(g.Key.Name)); err != nil {
		return err
	}
	if _, err := ParseNetworkName(string(g.Network)); err != nil {
		return err
	}
	for _, p := range g.Policies {
		if err := parseName("policies", string(p), MaxName); err != nil {
			return err
		}
	}
	if g.Pool.First.IsValid() != g.Pool.Last.IsValid() {
		return InvalidField("ipPool", g.Pool, "must have a first and a last address")
	}
	if g.Pool.IsValid() {
		if _, err := ParseAddrRange("ipPool", g.Pool.String()); err != nil {
			return err
		}
	}
	if err := optionalName("netProfile", g.NetProfile, MaxName); err != nil {
		return err
	}
	for _, c := range g.ExtContracts {
		if err := parseName("extContractsGrps", c, MaxName); err != nil {
			return err
		}
	}
	if len(g.Policies) > MaxGroupPolicies {
		return InvalidField("policies", len(g.Policies), fmt.Sprintf("must be at most %d", MaxGroupPolicies))
	}
	if n := len(g.Policies) + len(g.ExtContracts); n > MaxGroupRefs {
		return InvalidField("extContractsGrps", len(g.ExtContracts), fmt.Sprintf("must be, together with policies, at most %d", MaxGroupRefs))
	}
	for i, p := range g.Policies {
		if slices.Contains(g.Policies[:i], p) {
			return InvalidField("policies", p, "must be named once")
		}
	}
	for i, c := range g.ExtContracts {
		if slices.Contains(g.ExtContracts[:i], c) {
			return InvalidField("extContractsGrps", c, "must be named once")
		}
	}
	return optionalName("cfgdTag", g.CfgdTag, MaxCfgdTag)
}
