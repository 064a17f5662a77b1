package compile

import (
	"github.com/contiv/netplugin/v2/internal/model"
)

// Segments: with infrastructure type aci a group on a VLAN network has a VLAN of its own
// (docs/adr/0030-aci-hosts.md). Its endpoints are on a segment with that VLAN and the
// group's number, and the network's subnets. Endpoints elsewhere on the network, on this
// host or another, are remote endpoints there, reached by the uplink. A segment is a
// network with a base, and has endpoints of its own only by their place.

// segmentOf is the part of a group's record that makes its segment; zero = it has none.
type segmentOf struct {
	network model.NetworkKey
	id      model.NetworkID
	vlan    uint16
}

func segmentOfGroup(rec *model.Group) segmentOf {
	if rec == nil || rec.VLAN == 0 || rec.Segment == 0 {
		return segmentOf{}
	}
	return segmentOf{rec.NetworkKey(), rec.Segment, rec.VLAN}
}

// root is the network itself, of a segment that it is part of.
func (n *network) root() *network {
	if n.base != nil {
		return n.base
	}
	return n
}

// name is how problems call a network or a segment.
func (n *network) name() string {
	if n.base != nil {
		return n.key.String() + " of group " + string(n.group)
	}
	return n.key.String()
}

// record is what a segment is in the desired state: nil without its network, which has to be
// one of encap vlan.
func (n *network) record() *model.Network {
	if n.deleted || n.base.rec == nil || n.base.rec.Encap != model.EncapVLAN {
		return nil
	}
	r := *n.base.rec
	r.ID, r.Tag = n.segment.id, uint32(n.segment.vlan)
	return &r
}

// homeSegment is where an endpoint is at home: its group's segment, or its network.
func (e *endpoint) homeSegment() *network {
	if e.segment != nil {
		return e.segment
	}
	return e.net
}

// followSegment enters a group's change into its network's segments, and moves its
// endpoints.
func (ns *networks) followSegment(k model.GroupKey, old, now *model.Group) {
	was, is := segmentOfGroup(old), segmentOfGroup(now)
	if was == is {
		return
	}
	if was != (segmentOf{}) {
		base := ns.inv.network(was.network)
		seg := base.segments[k.Name]
		seg.deleted = true
		delete(base.segments, k.Name)
		ns.problems.set("network "+seg.name(), "")
		ns.moveGroupEndpoints(base, seg, k.Name)
	}
	if is != (segmentOf{}) {
		base := ns.inv.network(is.network)
		seg := &network{key: base.key, tenant: base.tenant, base: base, group: k.Name, segment: is}
		if base.segments == nil {
			base.segments = map[model.GroupName]*network{}
		}
		base.segments[k.Name] = seg
		ns.moveGroupEndpoints(base, seg, k.Name)
	}
}

// moveGroupEndpoints moves a group's endpoints on a network to where they belong now.
func (ns *networks) moveGroupEndpoints(base, seg *network, group model.GroupName) {
	for e := range eachEndpoint(base) {
		if e.Group == group {
			ns.countEndpoint(e, -1)
			e.segment = base.segments[group]
			ns.countEndpoint(e, 1)
		}
		ns.dirtyEps.add(e) // who is elsewhere is seen from the segment, too
	}
	ns.dirtyNetworks.add(base)
	ns.dirtyNetworks.add(seg)
	ns.selections.touchPeer(peerRef{tenant: base.key.Tenant, network: base.key.Name})
}

// countEndpoint counts an endpoint of this host where it is at home, or takes it from there.
func (ns *networks) countEndpoint(e *endpoint, by int) {
	if e.Host != ns.self {
		return
	}
	at := e.homeSegment()
	if was := at.placed; by > 0 && was == 0 || by < 0 && was == 1 {
		ns.dirtyNetworks.add(at)
		ns.dirtyNetworks.add(e.net) // whose services tell
	}
	at.placed += by
}

// isSplit reports whether a network's services lead less far than they say: somebody on this
// host is on a segment.
func (n *network) isSplit() bool {
	for _, s := range n.segments {
		if s.placed > 0 {
			return true
		}
	}
	return false
}

// textSplit is what is wrong with a service then.
const textSplit = "containers of groups with a VLAN of their own neither reach it nor provide it: they are on the fabric's segments"

// isPresent reports whether a network or a segment of it is in the desired state.
func (n *network) isPresent() bool {
	if n.id != 0 {
		return true
	}
	for _, s := range n.segments {
		if s.id != 0 {
			return true
		}
	}
	return false
}

// serves reports whether an endpoint can be a backend: it is in the desired state, on its own
// network, by whose number services lead to it.
func (e *endpoint) serves() bool { return e.segment == nil && (e.isPort || e.isRemote) }
