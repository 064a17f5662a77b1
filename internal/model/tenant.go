package model

import (
	"cmp"
	"fmt"
	"slices"
)

var _ = register(Kind{
	Collection: "tenants", Name: "tenant", Order: 20,
})

// TenantName names a tenant; it follows the 1.x contract, like NetworkName.
type TenantName string

// DefaultTenant exists from the start and cannot be deleted.
const DefaultTenant TenantName = "default"

// RouterID numbers the router that joins a tenant's networks in forwarding mode
// routing, 1-65535; zero is "none".
type RouterID uint16

// RouterShared is the router of all tenants that share networks, whose subnets are
// one plan. No tenant has it as its own.
const RouterShared RouterID = 1<<16 - 1

// MaxShared is how many networks of others a tenant can reach.
const MaxShared = 16

// Tenant is a name space for networks, groups and policies; addresses of
// different tenants may overlap.
type Tenant struct {
	Name           TenantName  `json:"name"`
	DefaultNetwork NetworkName `json:"defaultNetwork,omitempty"`
	Router         RouterID    `json:"router,omitempty"` // allocated; none in a record of before there were any, until the leader gives it one
	// Shared are networks of other tenants that this one's containers reach, sorted. In a
	// request nil keeps the present ones.
	Shared []NetworkKey `json:"shared,omitempty"`
	// Clients are the tenants that reach networks of this one, sorted. Control writes
	// them with the clients' Shared.
	Clients []TenantName `json:"clients,omitempty"`
	// Infra are the tenant's infra networks, sorted: hosts follow all tenants' records, and
	// get endpoints of their own there. Control writes it with the networks.
	Infra []NetworkName `json:"infra,omitempty"`
	// Object is the Kubernetes object that it belongs to, "" = it is the users'. Control
	// writes it, and requests do not set it.
	Object string `json:"object,omitempty"`
}

// Shares reports whether a tenant reaches networks of others, or others reach its: no
// two networks of all such tenants overlap.
func (t Tenant) Shares() bool { return len(t.Shared)+len(t.Clients) > 0 }

// Reaches reports whether a tenant's containers reach a network of another one.
func (t Tenant) Reaches(k NetworkKey) bool { return slices.Contains(t.Shared, k) }

// ParseShared parses the networks that a tenant reaches, each TENANT:NETWORK. The
// error is of kind ErrInvalid.
func ParseShared(field string, list []string) ([]NetworkKey, error) {
	out := make([]NetworkKey, 0, len(list))
	for _, s := range list {
		k, err := ParseNetworkKey(s)
		if err != nil {
			return nil, InvalidField(field, s, "must be TENANT:NETWORK")
		}
		out = append(out, k)
	}
	slices.SortFunc(out, compareNetworks)
	return slices.Compact(out), nil
}

func compareNetworks(a, b NetworkKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
}

// ParseTenantName checks a tenant's name. The error is of kind ErrInvalid.
func ParseTenantName(s string) (TenantName, error) {
	return TenantName(s), parseName("tenantName", s, MaxName)
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (t Tenant) Validate() error {
	if _, err := ParseTenantName(string(t.Name)); err != nil {
		return err
	}
	for i, k := range t.Shared {
		switch err := k.validate(); {
		case err != nil:
			return InvalidField("sharedNetworks", k, "must be TENANT:NETWORK")
		case k.Tenant == t.Name:
			return InvalidField("sharedNetworks", k, "must be another tenant's: a tenant reaches its own networks")
		case i > 0 && compareNetworks(t.Shared[i-1], k) >= 0:
			return InvalidField("sharedNetworks", k, "must be there once, in order")
		}
	}
	if len(t.Shared) > MaxShared {
		return InvalidField("sharedNetworks", len(t.Shared), fmt.Sprintf("must be at most %d", MaxShared))
	}
	return optionalName("defaultNetwork", string(t.DefaultNetwork), MaxName)
}
