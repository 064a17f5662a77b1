package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/access/refusal"
)

// verdict is that a request is let in.
type verdict struct {
	role Role     // by which
	only []string // tenants whose objects a list may show; nil = all
}

// Tenants are those of which somebody is admin.
func (i Identity) Tenants() []string {
	var all []string
	for _, g := range i.Grants {
		if g.Role == TenantAdmin {
			all = append(all, g.Tenants...)
		}
	}
	return all
}

// Scope returns the tenants to which all that somebody may read is limited; nil = it is
// not limited.
func (i Identity) Scope() []string {
	if i.has(ClusterAdmin) || i.has(Viewer) {
		return nil
	}
	return i.Tenants()
}

func (i Identity) has(role Role) bool {
	return slices.ContainsFunc(i.Grants, func(g Grant) bool { return g.Role == role })
}

// mayAsk tells whether somebody may ask for a route at all, for some subject.
func (i Identity) mayAsk(ru *rule) bool {
	return i.has(ClusterAdmin) || ru != nil && slices.ContainsFunc(ru.roles, i.has)
}

// decide tells whether somebody may do what a route (nil = none of the table) does
// with a subject.
func decide(i Identity, ru *rule, s subject) (verdict, *refusal.Refusal) {
	if i.has(ClusterAdmin) {
		return verdict{role: ClusterAdmin}, nil
	}
	if !i.mayAsk(ru) {
		return verdict{}, refuseRole(i, ru)
	}
	var why []string
	for _, role := range Roles { // the mightiest first
		if !i.has(role) || !slices.Contains(ru.roles, role) {
			continue
		}
		no := ""
		v := verdict{role: role}
		switch role {
		case TenantAdmin:
			no = i.notOfTenants(ru, s)
			if ru.list {
				v.only = i.Tenants()
			}
		case Host:
			no = i.notOfHost(ru, s)
		default:
		}
		if no == "" {
			return v, nil
		}
		why = append(why, no)
	}
	return verdict{}, refusal.Forbidden("%s has no right to this: %s; it needs the role %s", i, strings.Join(why, "; "), who(i, ru))
}

// notOfTenants says why a request is not about an admin's tenants alone; empty = it is.
func (i Identity) notOfTenants(ru *rule, s subject) string {
	mine := i.Tenants()
	isMine := func(t string) bool { return slices.Contains(mine, t) }
	switch {
	case ru.about == nil: // about nothing of any tenant, or a list that is cut to what is theirs
		return ""
	case !s.ofTenants:
	case ru.scoped && i.Scope() != nil && slices.ContainsFunc(s.tenants, isMine):
		return ""
	case len(s.tenants) > 0 && !slices.ContainsFunc(s.tenants, func(t string) bool { return !isMine(t) }):
		return ""
	}
	if s.hint != "" {
		return s.hint
	}
	return "it is not about " + strings.Join(mine, ", ") + " alone" // whose it is, is not told
}

// notOfHost says why a request is not about a host's own things; empty = it is.
func (i Identity) notOfHost(ru *rule, s subject) string {
	switch {
	case ru.about == nil:
		return ""
	case !s.ofHosts:
		return "it cannot be found out whose it is"
	}
	for _, h := range s.hosts {
		if h != i.Name {
			return fmt.Sprintf("it is about host %q, and an agent may change what its own host has", refusal.Clip(h))
		}
	}
	return ""
}

func refuseRole(i Identity, ru *rule) *refusal.Refusal {
	if len(i.Grants) == 0 {
		return refusal.Forbidden("%s has no right to anything: %s", i, i.Note)
	}
	if ru == nil {
		return refusal.Forbidden("%s has no right to this: there is no such route for its role; it needs the role %s", i, ClusterAdmin)
	}
	return refusal.Forbidden("%s has no right to this; it needs the role %s", i, who(i, ru))
}

// who may: "cluster-admin, viewer or tenant-admin of its tenant".
// Programs' roles are named to programs only.
func who(i Identity, ru *rule) string {
	program := i.has(Host) || i.has(Netmaster)
	roles := []string{string(ClusterAdmin)}
	for _, role := range ru.roles {
		text := string(role)
		switch {
		case (role == Host || role == Netmaster) && !program:
			continue
		case ru.about == nil:
		case role == TenantAdmin:
			text += " of its tenant"
		case role == Host:
			text += " that has it"
		}
		roles = append(roles, text)
	}
	if last := len(roles) - 1; last > 0 {
		return strings.Join(roles[:last], ", ") + " or " + roles[last]
	}
	return roles[0]
}
