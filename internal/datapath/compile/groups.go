package compile

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// groups decides which policies groups attach to their ports.
//
// Takes: group rows; policies, settings, profiles.
// Gives: the policies that a group attaches, or why its ports deny everything; segments to
// networks; marks groups, subjects, and selections that name a group.
type groups struct {
	inv           *inventory
	settings      *settings
	networks      *networks
	selections    *selections
	profiles      *profiles
	problems      *problems
	dirtyGroups   *marks[*group]
	dirtySubjects *marks[*subject]
}

// touchAll marks all groups.
func (gs *groups) touchAll() {
	for _, g := range gs.inv.groups {
		gs.dirtyGroups.add(g)
	}
}

func (gs *groups) put(k model.GroupKey, rec *model.Group) {
	g := gs.inv.group(k)
	old := g.rec
	g.rec = rec
	if old != nil {
		for _, name := range old.Policies {
			p := gs.inv.policy(model.PolicyKey{Tenant: k.Tenant, Name: name})
			delete(p.refs, k)
			gs.inv.dropPolicy(p)
		}
	}
	if rec != nil {
		for _, name := range rec.Policies {
			gs.inv.policy(model.PolicyKey{Tenant: k.Tenant, Name: name}).refs.add(k)
		}
	}
	gs.dirtyGroups.add(g)
	gs.networks.followSegment(k, old, rec)
	gs.profiles.follow(g, old, rec)
	if (old == nil) != (rec == nil) {
		gs.selections.touchPeer(peerRef{tenant: k.Tenant, group: k.Name})
	}
}

// reportNoFabricVLAN says of a group that infrastructure type aci knows no VLAN of it.
func (gs *groups) reportNoFabricVLAN(g *group) string {
	if g.rec == nil || !gs.settings.fabric() || segmentOfGroup(g.rec) != (segmentOf{}) {
		return ""
	}
	return "has no VLAN of its own (it was created before infrastructure type aci, or its network has encap vxlan): the fabric does not know it, and its containers here forward as with type default"
}

// compile finds out for the changed groups what attaches policies to
// their ports.
func (gs *groups) compile() {
	for g := range gs.dirtyGroups.of {
		here := len(g.subjects) > 0
		object := "group " + g.key.String()
		g.active, g.denyReason, g.fabric = nil, "", segmentOfGroup(g.rec) != (segmentOf{})
		text := ""
		switch {
		case !here || g.fabric:
		case g.rec == nil:
			g.denyReason, text = "unknown group", "unknown: its ports on this host deny everything"
		default:
			var unknown []string
			for _, name := range slices.Compact(slices.Sorted(slices.Values(g.rec.Policies))) {
				p := gs.inv.policies[model.PolicyKey{Tenant: g.key.Tenant, Name: name}]
				if p == nil || p.rec == nil || !p.rec.Attached && p.malformed == "" {
					unknown = append(unknown, string(name))
					continue
				}
				g.active = append(g.active, p)
			}
			text = gs.reportNoFabricVLAN(g)
			if list := strings.Join(unknown, ","); list != "" {
				g.denyReason = "unknown policy " + list
				text = "its policy " + list + " is unknown: its ports on this host deny everything"
			}
		}
		gs.problems.set(object, text)
		gs.profiles.setProblem(g, here)
		noEffect(gs.problems, "endpointGroups", g.key.String(), g.rec, here)
		for s := range g.subjects {
			gs.dirtySubjects.add(s)
		}
	}
}
