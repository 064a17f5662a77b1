package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Scope is the tenants to which what a request may read is limited. The zero Scope
// limits nothing.
type Scope struct {
	limited bool
	tenants []model.TenantName
}

// Limited reports whether the scope limits anything.
func (s Scope) Limited() bool { return s.limited }

// Has reports whether a tenant is within the scope.
func (s Scope) Has(t model.TenantName) bool { return !s.limited || slices.Contains(s.tenants, t) }

// Tenants returns the tenants, each once and in order; nil = the scope limits nothing.
func (s Scope) Tenants() []model.TenantName {
	return slices.Compact(slices.Sorted(slices.Values(s.tenants)))
}

// Names returns the tenants' names; nil = the scope limits nothing.
func (s Scope) Names() (names []string) {
	for _, t := range s.tenants {
		names = append(names, string(t))
	}
	return names
}

// String names the tenants to people.
func (s Scope) String() string { return strings.Join(s.Names(), ", ") }

// network names a network, unless it is of a tenant of which who asks may know nothing.
func (s Scope) network(k model.NetworkKey) string {
	if !s.Has(k.Tenant) {
		return "a network of another tenant"
	}
	return fmt.Sprintf("network %q", k)
}

// tagOwner likewise names who has a tag.
func (s Scope) tagOwner(n tables.Number) string {
	tenant, _, _ := strings.Cut(strings.TrimPrefix(n.Owner, groupOwner), ":")
	if !s.Has(model.TenantName(tenant)) {
		return "another tenant"
	}
	return tagOwner(n)
}

// noHost says that a host is not there for who asks.
func (s Scope) noHost(h model.HostName) error {
	if s.limited {
		return model.Errorf(model.ErrNotFound, "host %q does not exist, or has no endpoints of %s", h, s)
	}
	return model.Errorf(model.ErrNotFound, "host %q does not exist", h)
}
