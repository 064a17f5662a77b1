package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// Capability is what a route requires of the client. Cluster admins have every capability;
// the bits name who else has it. The zero Capability is none: a route must declare one.
type Capability uint16

// The bits of a Capability.
const (
	// Public needs no identity at all.
	Public Capability = 1 << iota
	// AdminOnly is for cluster admins alone.
	AdminOnly
	// View is for viewers.
	View
	// OwnTenants is for tenant admins, if every tenant of the Resource is theirs.
	OwnTenants
	// WithinScope is for tenant admins: the answer shows only what is in Identity.Scope.
	WithinScope
	// OwnHost is for a host's agent, if the Resource is of that host alone.
	OwnHost
	// AnyHost is for every host's agent.
	AnyHost
	// Peer is for other netmasters.
	Peer
)

// roles returns the roles that have the capability, the mightiest first.
func (c Capability) roles() []Role {
	by := map[Role]Capability{Viewer: View, TenantAdmin: OwnTenants | WithinScope, Netmaster: Peer, Host: OwnHost | AnyHost}
	return slices.DeleteFunc(slices.Clone(Roles), func(r Role) bool { return r != ClusterAdmin && c&by[r] == 0 })
}

// NeedsResource reports whether the capability depends on the Resource.
func (c Capability) NeedsResource() bool { return c&(OwnTenants|OwnHost) != 0 }

// Resource is what a request is about.
type Resource struct {
	Objects []audit.Object // for the audit log
	// Tenants are those of all of it. No tenants: no tenant admin may.
	Tenants []string
	// Hosts are the hosts that have it. No hosts: no host may, unless it is Unowned.
	Hosts   []string
	Unowned bool
	// Hint tells a tenant admin what to do instead; empty = nothing helps.
	Hint string
}

// Tenants are those of which the identity is an admin.
func (i Identity) Tenants() []string {
	var all []string
	for _, g := range i.Grants {
		if g.Role == TenantAdmin {
			all = append(all, g.Tenants...)
		}
	}
	return all
}

// Scope returns the tenants to which everything that the identity reads is limited; nil =
// it is not limited.
func (i Identity) Scope() []string {
	if i.HasRole(ClusterAdmin) || i.HasRole(Viewer) {
		return nil
	}
	return i.Tenants()
}

// HasRole reports whether the identity has a role.
func (i Identity) HasRole(role Role) bool {
	return slices.ContainsFunc(i.Grants, func(g Grant) bool { return g.Role == role })
}

// CheckCapability refuses an identity that has a capability for no Resource at all. It returns the
// mightiest role that has it for some.
func (i Identity) CheckCapability(c Capability) (Role, error) {
	for _, role := range c.roles() {
		if i.HasRole(role) {
			return role, nil
		}
	}
	if len(i.Grants) == 0 {
		return "", httpguard.Forbidden("%s has no right to anything: %s", i, i.Note)
	}
	return "", httpguard.Forbidden("%s has no right to this; it needs the role %s", i, i.rolesText(c))
}

// CheckUnknownRoute refuses all but cluster admins what is no route.
func (i Identity) CheckUnknownRoute() (Role, error) {
	role, err := i.CheckCapability(AdminOnly)
	if err != nil && len(i.Grants) > 0 {
		err = httpguard.Forbidden("%s has no right to this: there is no such route for its role; it needs the role %s", i, ClusterAdmin)
	}
	return role, err
}

// Authorize decides whether the identity has a capability for a Resource. It returns the
// role that has it.
func (i Identity) Authorize(c Capability, r Resource) (Role, error) {
	if _, err := i.CheckCapability(c); err != nil {
		return "", err
	}
	var why []string
	for _, role := range c.roles() {
		if !i.HasRole(role) {
			continue
		}
		no := ""
		switch {
		case role == TenantAdmin && c&WithinScope == 0:
			no = i.notOwnTenants(r)
		case role == Host && c&AnyHost == 0:
			no = i.notOwnHost(r)
		}
		if no == "" {
			return role, nil
		}
		why = append(why, no)
	}
	if len(why) == 1 && why[0] == i.notFoundText() { // most often a name that was mistyped
		return "", httpguard.Forbidden("%s: %s has no right to what others have; that needs the role %s", why[0], i, i.rolesText(c))
	}
	return "", httpguard.Forbidden("%s has no right to this: %s; it needs the role %s", i, strings.Join(why, "; "), i.rolesText(c))
}

// notFoundText is the one answer to a tenant admin for what does not exist and for what others have.
func (i Identity) notFoundText() string {
	return "not found in tenant " + strings.Join(i.Tenants(), ", ")
}

// notOwnTenants says why a Resource is not of the admin's tenants alone; empty = it is.
func (i Identity) notOwnTenants(r Resource) string {
	mine := i.Tenants()
	switch {
	case len(r.Tenants) > 0 && !slices.ContainsFunc(r.Tenants, func(t string) bool { return !slices.Contains(mine, t) }):
		return ""
	case r.Hint != "":
		return r.Hint
	}
	return i.notFoundText()
}

// notOwnHost says why a Resource is not of the agent's host alone; empty = it is.
func (i Identity) notOwnHost(r Resource) string {
	if len(r.Hosts) == 0 && !r.Unowned {
		return "it cannot be found out whose it is"
	}
	for _, h := range r.Hosts {
		if h != i.Name {
			return fmt.Sprintf("it is about host %q, and an agent may change what its own host has", httpguard.Clip(h))
		}
	}
	return ""
}

// rolesText names the roles that have a capability: "cluster-admin, viewer or tenant-admin of
// its tenant". Programs' roles are named to programs only.
func (i Identity) rolesText(c Capability) string {
	program := i.HasRole(Host) || i.HasRole(Netmaster)
	var roles []string
	for _, role := range c.roles() {
		text := string(role)
		switch {
		case (role == Host || role == Netmaster) && !program:
			continue
		case role == TenantAdmin && c&WithinScope == 0:
			text += " of its tenant"
		case role == Host && c&AnyHost == 0:
			text += " that has it"
		}
		roles = append(roles, text)
	}
	if last := len(roles) - 1; last > 0 {
		return strings.Join(roles[:last], ", ") + " or " + roles[last]
	}
	return roles[0]
}
