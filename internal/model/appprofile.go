package model

import (
	"fmt"
	"slices"
)

var _ = register(Kind{
	Collection: "appProfiles", Name: "appProfile", Order: 90,
})

// AppProfileKey names an app profile within the cluster.
type AppProfileKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k AppProfileKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseAppProfileKey parses "tenant:profile". The error is of kind ErrInvalid.
func ParseAppProfileKey(s string) (AppProfileKey, error) {
	t, n, err := parseKey("appProfileName", s, MaxName)
	return AppProfileKey{t, n}, err
}

// AppProfile ties groups of a tenant together: one application.
type AppProfile struct {
	Key    AppProfileKey `json:"key"`
	Groups []GroupName   `json:"groups,omitempty"`
}

// MaxAppProfileGroups is how many groups one app profile may tie.
const MaxAppProfileGroups = 500

// Validate checks all fields. The error is of kind ErrInvalid.
func (p AppProfile) Validate() error {
	if _, err := ParseTenantName(string(p.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("appProfileName", p.Key.Name, MaxName); err != nil {
		return err
	}
	if len(p.Groups) > MaxAppProfileGroups {
		return InvalidField("endpointGroups", len(p.Groups), fmt.Sprintf("must be at most %d", MaxAppProfileGroups))
	}
	for i, g := range p.Groups {
		if err := parseName("endpointGroups", string(g), MaxName); err != nil {
			return err
		}
		if slices.Contains(p.Groups[:i], g) {
			return InvalidField("endpointGroups", g, "must be named once")
		}
	}
	return nil
}
