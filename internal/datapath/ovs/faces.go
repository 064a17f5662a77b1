package ovs

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// What services have in common at addresses that they share. A service owns the flows of
// its faces; those of the address, its spot, are the address's own.

// facePort is a port of a spot, whose address is unspecified where it is all nodes'.
type facePort struct {
	at    place
	proto model.Protocol
	port  uint16
}

func (f facePort) compare(o facePort) int {
	return cmp.Or(cmp.Compare(f.at.domain, o.at.domain), f.at.addr.Compare(o.at.addr), cmp.Compare(f.proto, o.proto), cmp.Compare(f.port, o.port))
}

// spot is an address that services have faces at.
type spot struct {
	number    uint32
	claims    int                 // of faces
	datagrams map[uint16]bool     // ports of UDP that are claimed
	flows     pipeline.Spot       // as they were made
	live      bool                // and whether there are any
	nodes     map[netip.Addr]bool // of the nodes' shared VIP: the ones that lead to it
}

// faces are the spots, and who has which port there.
type faces struct {
	claims map[facePort][]model.ServiceKey // sorted: the first one has it
	spots  map[place]*spot
	named  map[uint32]place                  // by number
	open   map[netip.Addr][]model.ServiceKey // sorted: the exposed services with faces at an address
	ended  map[facePort]bool                 // ports claimed or left since translations were looked through: whether others have them
	dirty  map[place]bool                    // shared VIPs whose flows are to be computed
	nodes  map[place]bool                    // likewise, of nodes' addresses
}

func newFaces() faces {
	return faces{
		claims: map[facePort][]model.ServiceKey{}, spots: map[place]*spot{}, named: map[uint32]place{}, open: map[netip.Addr][]model.ServiceKey{},
		ended: map[facePort]bool{}, dirty: map[place]bool{}, nodes: map[place]bool{},
	}
}

func spotOwner(at place) owner {
	return owner{kind: pipeline.KindService, id: uint64(at.domain), name: "at " + at.addr.String()}
}

func facedNodeOwner(at place) owner {
	return owner{kind: pipeline.KindService, id: uint64(at.domain), name: "node " + at.addr.String()}
}

// anyNode is the spot of a node's address.
func anyNode(at place) place { return place{at.domain, desired.AnyNode(at.addr)} }

// facesOf are the faces that flows can serve of a service in a domain, sorted, and the
// addresses where it is exposed.
func facesOf(x *desired.Service, d desired.Domain) (faces []facePort, open []netip.Addr) {
	for _, f := range x.Frontends {
		if f.Protocol == model.ProtoTCP || f.Protocol == model.ProtoUDP {
			faces = append(faces, facePort{place{d, f.Addr}, f.Protocol, f.Port})
			if x.Exposed && !slices.Contains(open, f.Addr) {
				open = append(open, f.Addr)
			}
		}
	}
	slices.SortFunc(faces, facePort.compare)
	return faces, open
}

// claimFaces replaces the frontends that a service has, and marks the services that had or
// get one with it.
func (ch *servicesChange) claimFaces(k model.ServiceKey, old, now held) {
	for _, a := range old.open {
		if !slices.Contains(now.open, a) || old.domain != now.domain {
			ch.faces.open[a] = without(ch.faces.open[a], k)
			ch.reopen(a)
		}
	}
	for _, a := range now.open {
		if !slices.Contains(old.open, a) || old.domain != now.domain {
			ch.faces.open[a] = with(ch.faces.open[a], k)
			ch.reopen(a)
		}
	}
	for _, f := range old.faces {
		if _, stays := slices.BinarySearchFunc(now.faces, f, facePort.compare); !stays {
			ch.claimFace(f, k, false)
		}
	}
	for _, f := range now.faces {
		if _, was := slices.BinarySearchFunc(old.faces, f, facePort.compare); !was {
			ch.claimFace(f, k, true)
		}
	}
}

func with(list []model.ServiceKey, k model.ServiceKey) []model.ServiceKey {
	i, _ := slices.BinarySearchFunc(list, k, compareServices)
	return slices.Insert(list, i, k)
}

func without(list []model.ServiceKey, k model.ServiceKey) []model.ServiceKey {
	return slices.DeleteFunc(list, func(o model.ServiceKey) bool { return o == k })
}

// claimFace adds or takes a service's claim to a port of a spot.
func (ch *servicesChange) claimFace(f facePort, k model.ServiceKey, claims bool) {
	if _, noted := ch.owners[f]; !noted {
		ch.owners[f] = ch.ownerOf(ch.old, f)
	}
	had, list := ch.ownerOf(ch.want, f), ch.faces.claims[f]
	s := ch.faces.spots[f.at]
	if claims {
		if s == nil {
			s = &spot{datagrams: map[uint16]bool{}, nodes: map[netip.Addr]bool{}}
			ch.faces.spots[f.at] = s
		}
		s.claims++
		list = with(list, k)
	} else {
		s.claims--
		list = without(list, k)
	}
	ch.faces.dirty[f.at] = ch.faces.dirty[f.at] || s.claims == 0 || s.claims == 1
	if !f.at.addr.IsUnspecified() && ch.want.IsNode(f.at.addr) {
		ch.ownPorts(f.at)
	}
	if ch.faces.claims[f] = list; len(list) == 0 {
		delete(ch.faces.claims, f)
	}
	if has := ch.ownerOf(ch.want, f); had != has {
		for _, o := range []model.ServiceKey{had, has} {
			if o != (model.ServiceKey{}) {
				ch.dirty[o] = true
			}
		}
	}
	if f.proto == model.ProtoUDP {
		if delete(s.datagrams, f.port); len(list) > 0 {
			s.datagrams[f.port] = true
		}
		ch.faces.dirty[f.at] = true // perhaps it is the only one
	}
}

// ownerOf is the service that has a port of a shared VIP, or at a node's address a port of
// all nodes; none if there is none.
func (s *services) ownerOf(h desired.Host, f facePort) (k model.ServiceKey) {
	c := s.faces.claims[f]
	if len(c) == 0 && h.IsNode(f.at.addr) {
		c = s.faces.claims[facePort{anyNode(f.at), f.proto, f.port}]
	}
	if len(c) > 0 {
		k = c[0]
	}
	return k
}

// endFaces notes that connections by ports end which are other services' now. After a start
// services come in any order, and who had a port is who has it.
func (ch *servicesChange) endFaces() {
	maps.DeleteFunc(ch.faces.ended, func(_ facePort, ended bool) bool { return !ended })
	for f, had := range ch.owners {
		has := ch.ownerOf(ch.want, f)
		_, was := ch.old.Services.Get(had)
		ended := was && has != had && has != (model.ServiceKey{})
		if ch.faces.ended[f] = ch.faces.ended[f] || ended; ended {
			ch.look(f.at.domain)
		}
	}
}

// reopen marks what leads clients outside to an address.
func (ch *servicesChange) reopen(a netip.Addr) {
	if len(ch.faces.open[a]) == 0 {
		delete(ch.faces.open, a)
	}
	for d := range ch.serving {
		ch.touchSpot(place{d, a})
	}
}

// ownPorts makes it known that a node's address has ports of its own, or none any more, at
// the spot that it shares with all nodes'.
func (ch *servicesChange) ownPorts(at place) {
	all := anyNode(at)
	if ch.faces.spots[all] == nil {
		ch.faces.spots[all] = &spot{datagrams: map[uint16]bool{}, nodes: map[netip.Addr]bool{}}
	}
	ch.faces.dirty[all] = true
}

// renode marks services that have frontends at addresses which have become nodes', or no
// longer are: their flows lead there by another shared VIP.
func (ch *servicesChange) renode() {
	for x := range ch.want.NodeAddrs.Diff(ch.old.NodeAddrs) {
		for d := range ch.serving {
			at := place{d, x.Key}
			if ch.faces.spots[at] == nil {
				continue
			}
			ch.ownPorts(at)
			for f, claims := range ch.faces.claims {
				if f.at == at {
					ch.dirty[claims[0]] = true
				}
			}
		}
	}
}

// touchSpot marks an address whose faces may have come, gone, or moved.
func (ch *servicesChange) touchSpot(at place) {
	if ch.faces.spots[at] != nil {
		ch.faces.dirty[at] = true
	}
	if _, node := ch.want.NodeAddrs.Get(at.addr); node && ch.faces.spots[anyNode(at)] != nil {
		ch.faces.nodes[at] = true
	}
}

// touchDomain marks all spots of a domain.
func (ch *servicesChange) touchDomain(d desired.Domain) {
	for at := range ch.faces.spots {
		if at.domain == d {
			ch.faces.dirty[at] = true
		}
	}
}

// moveNodes follows which addresses are nodes'.
func (ch *servicesChange) moveNodes(all bool) {
	for x := range ch.want.NodeAddrs.Diff(ch.old.NodeAddrs) {
		for d := range ch.serving {
			at := place{d, x.Key}
			if ch.faces.spots[at] != nil {
				ch.faces.dirty[at] = true
			}
			if ch.faces.spots[anyNode(at)] != nil {
				ch.faces.nodes[at] = true
			}
		}
	}
	if all {
		for at := range ch.faces.spots {
			ch.faces.dirty[at] = true
		}
	}
}

// free tells whether an address is neither an endpoint's nor altogether a service's.
func (s *services) free(at place) bool { return s.users[at].n == 0 && len(s.claims[at]) == 0 }

// hasFaces tells whether a spot, which is not the nodes', has its address in a picture.
func (s *services) hasFaces(h desired.Host, at place) bool {
	_, node := h.NodeAddrs.Get(at.addr)
	x := s.faces.spots[at]
	return x != nil && x.claims > 0 && !node && s.free(at)
}

// leadsOutside is the service by which clients outside ask at an address: the first one
// by key whose spot has it.
func (ch *servicesChange) leadsOutside(a netip.Addr) (first *desired.Service, d desired.Domain) {
	for _, k := range ch.faces.open[a] {
		if d := ch.held[k].domain; a.IsUnspecified() || ch.hasFaces(ch.want, place{d, a}) {
			x, _ := ch.want.Services.Get(k)
			return x, d
		}
	}
	return nil, 0
}

// setFaces makes the flows of the spots that were marked, once their services have
// theirs.
func (ch *servicesChange) setFaces(all bool) {
	ch.moveNodes(all)
	for again := true; again; { // who leads clients outside may be another one
		again = false
		for at := range ch.faces.dirty {
			if x := ch.faces.spots[at]; x.live != ch.isLive(at) {
				x.live = !x.live
				again = true
				ch.reopen(at.addr)
				if !x.live {
					ch.endAt(at)
				}
			}
		}
	}
	for at := range ch.faces.dirty {
		ch.setSpot(at, all)
	}
	clear(ch.faces.dirty)
	for at := range ch.faces.nodes {
		ch.setNode(at)
	}
	clear(ch.faces.nodes)
}

func (ch *servicesChange) isLive(at place) bool {
	if x := ch.faces.spots[at]; x.claims > 0 || !at.addr.IsUnspecified() {
		return x.claims > 0 && (at.addr.IsUnspecified() || ch.hasFaces(ch.want, at))
	}
	for a := range ch.want.NodeAddrs.All() {
		if own := ch.faces.spots[place{at.domain, a}]; own != nil && own.claims > 0 && a.Is6() == at.addr.Is6() {
			return true
		}
	}
	return false
}

// setSpot makes a spot's flows.
func (ch *servicesChange) setSpot(at place, all bool) {
	x := ch.faces.spots[at]
	was := x.flows
	if x.flows = (pipeline.Spot{}); x.live {
		x.flows = pipeline.Spot{Number: ch.spotNumber(at), Domain: at.domain, Zone: ch.zones[at.domain], Addr: at.addr}
		if by, d := ch.leadsOutside(at.addr); by != nil && d == at.domain {
			x.flows.Open = by.Network
		}
		for port := range x.datagrams {
			k := ch.faces.claims[facePort{at, model.ProtoUDP, port}][0]
			if s, _ := ch.want.Services.Get(k); s != nil && len(x.datagrams) == 1 {
				x.flows.Datagrams, x.flows.Inside = ch.numbers[k], !s.Exposed
			}
		}
		ch.ledger.set(spotOwner(at), pipeline.SpotFlows(ch.config, x.flows))
	} else {
		ch.ledger.set(spotOwner(at), nil)
	}
	if at.addr.IsUnspecified() && (was != x.flows || all) {
		for a := range x.nodes {
			ch.faces.nodes[place{at.domain, a}] = true
		}
		for a := range ch.want.NodeAddrs.All() {
			if a.Is6() == at.addr.Is6() {
				ch.faces.nodes[place{at.domain, a}] = true
			}
		}
	}
	if x.claims == 0 && !x.live {
		ch.leaveSpot(at)
	}
}

// leaveSpot forgets a spot without faces, whose nodes lead elsewhere by now.
func (ch *servicesChange) leaveSpot(at place) {
	x := ch.faces.spots[at]
	for a := range x.nodes {
		ch.ledger.set(facedNodeOwner(place{at.domain, a}), nil)
		ch.endAt(place{at.domain, a})
		delete(ch.faces.nodes, place{at.domain, a})
	}
	delete(ch.faces.named, x.number)
	delete(ch.faces.spots, at)
}

// setNode makes the flows that lead a node's address to the nodes' spot.
func (ch *servicesChange) setNode(at place) {
	x := ch.faces.spots[anyNode(at)]
	if x == nil {
		return
	}
	_, node := ch.want.NodeAddrs.Get(at.addr)
	leads := node && x.live && ch.free(at)
	var flows []openflow.Flow
	if leads {
		flows = pipeline.FacedNode(ch.config, ch.openNode(x.flows, at), at.addr)
	}
	ch.ledger.set(facedNodeOwner(at), flows)
	if x.nodes[at.addr] && !leads {
		ch.endAt(at)
	}
	if delete(x.nodes, at.addr); leads {
		x.nodes[at.addr] = true
	}
}

// openNode is the nodes' spot as it is at one's address, where services may be exposed by
// that itself.
func (ch *servicesChange) openNode(s pipeline.Spot, at place) pipeline.Spot {
	own, all := ch.faces.open[at.addr], ch.faces.open[anyNode(at).addr]
	if len(own) == 0 {
		return s
	}
	first := own[0]
	if len(all) > 0 && compareServices(all[0], first) < 0 {
		first = all[0]
	}
	if s.Open = 0; ch.held[first].domain == at.domain {
		s.Open = ch.held[first].network
	}
	return s
}

// spotNumber is a spot's number in the switch.
func (s *services) spotNumber(at place) uint32 {
	x := s.faces.spots[at]
	if x.number == 0 {
		x.number = pipeline.SpotNumber(at.domain, at.addr)
		for s.faces.named[x.number] != (place{}) {
			x.number = pipeline.NextSpot(x.number)
		}
		s.faces.named[x.number] = at
	}
	return x.number
}

// facesHad are the faces that a service has.
func (ch *servicesChange) facesHad(x *desired.Service, d desired.Domain) (out []pipeline.Face) {
	for _, f := range x.Frontends {
		p := facePort{place{d, f.Addr}, f.Protocol, f.Port}
		if c := ch.faces.claims[p]; len(c) > 0 && c[0] == x.Key {
			at, node := p.at, ch.want.IsNode(f.Addr)
			if node {
				at = anyNode(at)
			}
			out = append(out, pipeline.Face{Frontend: f, Spot: ch.spotNumber(at), Node: node})
		}
	}
	return out
}

// frontAt is the service that is asked at a port of an address in a picture, and the
// backends' port that it leads to; nil if there is none.
func (s *services) frontAt(h desired.Host, where place, proto model.Protocol, port uint16) (x *desired.Service, backend uint16) {
	if x = s.at(h, where); x != nil {
		p, ok := x.PortOf(proto, port)
		if !ok {
			return nil, 0
		}
		return x, p.Backend
	}
	node := h.IsNode(where.addr)
	f := facePort{where, proto, port}
	c := s.faces.claims[f]
	ended, own := s.faces.ended[f]
	if len(c) == 0 && node {
		f.at = anyNode(where)
		c, ended = s.faces.claims[f], ended || !own && s.faces.ended[f]
	}
	if len(c) == 0 || !s.free(where) || ended {
		return nil, 0
	}
	x, _ = h.Services.Get(c[0])
	if x == nil {
		return nil, 0
	}
	face, ok := x.FrontendAt(where.addr, node, proto, port)
	if !ok {
		return nil, 0
	}
	return x, face.Backend
}

// facesEnd tells whether translations by faces may end when a service changes.
func facesEnd(was, now *desired.Service) (ends, udp bool) {
	for _, f := range was.Frontends {
		i, ok := slices.BinarySearchFunc(now.Frontends, f, desired.CompareFrontends)
		if !ok || f.Protocol == model.ProtoUDP && now.Frontends[i].Backend != f.Backend {
			return true, false
		}
		udp = udp || f.Protocol == model.ProtoUDP
	}
	return false, udp
}
