package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// networks decides which networks and segments are in the desired state, and by which
// number.
//
// Takes: network rows, segments of groups, endpoints by host; hosts, routing, interest.
// Gives: Networks; whether hosts lie inside of them; marks networks, endpoints, and
// selections that name a network.
type networks struct {
	self   model.HostName
	netIDs map[model.NetworkID]set[*network] // who claims a number; nearly always one

	inv           *inventory
	hosts         *Hosts
	routing       *routing
	interest      *Interest
	selections    *selections
	control       *ControlPlane
	out           *output
	problems      *problems
	dirtyNetworks *marks[*network]
	dirtyEps      *marks[*endpoint]
}

func (ns *networks) put(k model.NetworkKey, rec *model.Network) {
	n := ns.inv.network(k)
	old := n.rec
	n.rec = rec
	ns.dirtyNetworks.add(n)
	markSegments(ns.dirtyNetworks, n)
	if old == nil || rec == nil || *old != *rec {
		for e := range eachEndpoint(n) {
			ns.dirtyEps.add(e)
		}
		ns.selections.touchPeer(peerRef{tenant: k.Tenant, network: k.Name})
		ns.routing.touchShared(n.tenant)
		ns.routing.countRouted(n, old, rec)
		ns.control.countInfra(n, rec)
	}
}

// markSegments marks a network's segments.
func markSegments(dirty *marks[*network], n *network) {
	for _, s := range n.segments {
		dirty.add(s)
	}
}

// compile decides which networks are in the desired state and writes them.
func (ns *networks) compile() {
	contested := set[model.NetworkID]{}
	for n := range ns.dirtyNetworks.of {
		if n.base != nil {
			n.rec = n.record()
		}
		claim := model.NetworkID(0)
		if n.rec != nil && ns.interest.present(n) {
			claim = n.rec.ID
		}
		if claim == n.claimed {
			continue
		}
		if n.claimed != 0 {
			if delete(ns.netIDs[n.claimed], n); len(ns.netIDs[n.claimed]) == 0 {
				delete(ns.netIDs, n.claimed)
			}
			contested.add(n.claimed)
		}
		if n.claimed = claim; claim != 0 {
			if ns.netIDs[claim] == nil {
				ns.netIDs[claim] = set[*network]{}
			}
			ns.netIDs[claim].add(n)
			contested.add(claim)
		}
		ns.renumber(n, 0)
	}
	for id := range contested {
		var winner *network
		for n := range ns.netIDs[id] {
			if winner == nil || n.name() < winner.name() {
				winner = n
			}
		}
		for n := range ns.netIDs[id] {
			if n == winner {
				ns.renumber(n, id)
			} else {
				ns.renumber(n, 0)
			}
		}
	}
	for n := range ns.dirtyNetworks.of {
		if n.deleted {
			continue
		}
		var text string
		switch {
		case !ns.interest.present(n):
		case n.rec == nil:
			text = "unknown: its ports on this host stay shut"
		case n.rec.ID == 0:
			text = "has no number: its ports on this host stay shut, and nothing here reaches it"
		case n.id == 0:
			text = fmt.Sprintf("its number %d belongs to another network: its ports on this host stay shut, and nothing here reaches it", n.rec.ID)
		default:
			if text = ns.write(n); text == "" {
				text = ns.hosts.hostsInside(n.rec)
			}
		}
		ns.problems.set("network "+n.name(), text)
		if n.base != nil {
			continue
		}
		noEffect(ns.problems, "networks", n.key.String(), n.rec, n.here(ns.self))
	}
}

// renumber moves a network to another number in the desired state, 0 = out of it.
func (ns *networks) renumber(n *network, id model.NetworkID) {
	if n.id == id {
		return
	}
	if cur, ok := ns.out.Networks.Get(n.id); ok && cur.Key == n.key && cur.Group == n.group {
		ns.out.Networks = ns.out.Networks.Delete(n.id)
	}
	n.id = id
	ns.dirtyNetworks.add(n)
	for _, e := range n.root().eps {
		ns.dirtyEps.add(e)
	}
}

// write writes a network and returns what is wrong with it.
func (ns *networks) write(n *network) (problem string) {
	r := n.rec
	pic := &desired.Network{
		ID: n.id, Key: n.key, Group: n.group, Encap: r.Encap, Tag: r.Tag,
		Subnet: r.Subnet, Subnet6: r.Subnet6, Gateway: r.Gateway, Gateway6: r.Gateway6,
		Routed: r.Routed && r.Encap == model.EncapVXLAN, ByTenant: r.ByTenant,
	}
	if n.base == nil { // a segment's router is the fabric's
		pic.Joined = ns.routing.joins(n.tenant)
	}
	if r.Encap == model.EncapVXLAN {
		var unknown []string
		for h := range n.byHost {
			if h == ns.self {
				continue
			}
			switch vtep := ns.hosts.vtep(h); {
			case !vtep.IsValid():
				unknown = append(unknown, fmt.Sprintf("%q", h))
			case n.here(ns.self): // else nothing is flooded to it from here
				pic.VTEPs = append(pic.VTEPs, vtep)
			}
		}
		slices.SortFunc(pic.VTEPs, netip.Addr.Compare)
		pic.VTEPs = slices.Compact(pic.VTEPs)
		if slices.Sort(unknown); len(unknown) > 0 {
			problem = "hosts without a tunnel endpoint, whose endpoints cannot be reached: " + strings.Join(unknown, ", ")
		}
	}
	if old, ok := ns.out.before.Networks.Get(n.id); ok {
		if old.Equal(pic) {
			pic = old
		}
		if old.Joined != pic.Joined && r.Encap == model.EncapVLAN { // by which its endpoints have tunnels
			for e := range eachEndpoint(n) {
				ns.dirtyEps.add(e)
			}
		}
	}
	ns.out.Networks = ns.out.Networks.Set(n.id, pic)
	return problem
}
