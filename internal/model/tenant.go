package model

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

// Tenant is a name space for networks, groups and policies; addresses of
// different tenants may overlap.
type Tenant struct {
	Name           TenantName  `json:"name"`
	DefaultNetwork NetworkName `json:"defaultNetwork,omitempty"`
	Router         RouterID    `json:"router,omitempty"` // allocated; none in a record of before there were any, until the leader gives it one
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
	return optionalName("defaultNetwork", string(t.DefaultNetwork), MaxName)
}
