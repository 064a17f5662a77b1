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

// tagOwner names who has a tag, unless that is a tenant outside of the scope.
func (s Scope) tagOwner(n tables.Number) string {
	tenant, _, _ := strings.Cut(strings.TrimPrefix(n.Owner, groupOwner), ":")
	if !s.Has(model.TenantName(tenant)) {
		return "another tenant"
	}
	return tagOwner(n)
}

// describeCollision refuses a value that collides with what others have. why names that: it is for
// clients who may read the whole cluster.
func (s Scope) describeCollision(field string, value any, why string) error {
	if s.limited {
		why = "cannot be used in this cluster: choose another, or ask a cluster administrator, who sees why"
	}
	return model.Errorf(model.ErrConflict, "%s %q: %s", field, fmt.Sprint(value), why)
}

// hostNotFound says that a host is not there for who asks.
func (s Scope) hostNotFound(h model.HostName) error {
	if s.limited {
		return model.Errorf(model.ErrNotFound, "host %q does not exist, or has no endpoints of %s", h, s)
	}
	return model.Errorf(model.ErrNotFound, "host %q does not exist", h)
}
