package ebpf

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Faces are ports of addresses that services share. Such an address, a spot, leads to a
// number of its own, under which each port leads to its service; all nodes' addresses of
// a family and domain are one spot. A node's address that has faces by itself is a spot
// too, and rests on that one for all other ports.

// faceKey is a port of a spot, whose address is unspecified where it is all nodes'.
type faceKey struct {
	at    hostKey
	port  uint16
	proto uint8
}

// spots are what the driver knows of faces beside what the maps hold.
type spots struct {
	claims  map[faceKey][]model.ServiceKey // sorted: the first has it
	number  map[hostKey]uint32             // of spots; also of those that the maps hold and no picture has named yet
	count   map[hostKey]int                // of claims at a spot
	open    map[addr][]model.ServiceKey    // by a spot's address, sorted: the exposed services there
	sources map[string]*sourceSet
	nodes   desired.Map[netip.Addr, struct{}] // as of the last picture
}

// sourceSet are prefixes of clients, which fronts name by a number.
type sourceSet struct {
	number uint32
	keys   []subnetKey
	users  int
}

func newSpots() spots {
	return spots{claims: map[faceKey][]model.ServiceKey{}, number: map[hostKey]uint32{}, count: map[hostKey]int{}, open: map[addr][]model.ServiceKey{}, sources: map[string]*sourceSet{}}
}

// beginSpots takes over what the maps hold; of are the services there.
func (s *serving) beginSpots(d *Driver, of map[uint32]*servedService) {
	s.spots = newSpots()
	for a, n := range d.vips.have {
		number := n &^ (vipShared | vipOwn)
		if number == 0 || of[n] != nil {
			continue
		}
		at := a
		if at.Domain &^= allNodes; n&vipShared != 0 && n&vipOwn == 0 {
			at.IP = toAddr(desired.AnyNode(a.IP.spot()))
		}
		s.spots.number[at] = number
		s.number = max(s.number, number)
	}
	sets := map[uint32]*sourceSet{}
	for k := range d.sources.have {
		n := k.Domain &^ sources6
		if sets[n] == nil {
			sets[n] = &sourceSet{number: n}
		}
		sets[n].keys = append(sets[n].keys, k)
		s.number = max(s.number, n)
	}
	for _, set := range sets {
		s.spots.sources[set.name()] = set
	}
}

// name is what a set has in it, whichever its number.
func (x *sourceSet) name() string {
	var all []string
	for _, k := range x.keys {
		all = append(all, fmt.Sprintf("%d %d %x", k.Domain>>31, k.Bits-domainBits, k.IP))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// sourcesOf is the set of some prefixes, written; nil = of none.
func (p *pass) sourcesOf(after *servicePass, prefixes []netip.Prefix) (*sourceSet, error) {
	if len(prefixes) == 0 {
		return nil, nil
	}
	set := &sourceSet{number: p.serving.number + 1}
	for _, x := range prefixes {
		bits := domainBits + 128 - x.Addr().BitLen() + x.Bits()
		k := subnetKey{Bits: uint32(bits), Domain: set.number, IP: toAddr(x.Masked().Addr())}
		if x.Addr().Is6() {
			k.Domain |= sources6
		}
		if !slices.Contains(set.keys, k) {
			set.keys = append(set.keys, k)
		}
	}
	name := set.name()
	if had := p.serving.spots.sources[name]; had != nil {
		for _, k := range had.keys { // it is wanted
			if err := p.sources.put(k, 1); err != nil {
				return nil, err
			}
		}
		return had, nil
	}
	if err := p.sources.room(set.keys...); err != nil {
		return nil, err
	}
	p.serving.number++
	p.serving.spots.sources[name] = set
	after.sources[set] = true // until a face names it
	for _, k := range set.keys {
		if err := p.sources.put(k, 1); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// spot is the address that has faces, be it unspecified.
func (a addr) spot() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// forAll is where all nodes' number is found, for addresses that have one of their own;
// ok tells whether a spot is theirs.
func (at hostKey) forAll() (k hostKey, ok bool) {
	return hostKey{at.Domain | allNodes, at.IP}, at.IP.spot().IsUnspecified()
}

// addrsOf are the addresses of a spot.
func (p *pass) addrsOf(at hostKey) (out []hostKey) {
	a := at.IP.spot()
	if !a.IsUnspecified() {
		return []hostKey{at}
	}
	for n := range p.want.NodeAddrs.All() {
		if n.Is6() == a.Is6() {
			out = append(out, hostKey{at.Domain, toAddr(n)})
		}
	}
	return out
}

// face is a front of a service's, and the clients that it takes.
type face struct {
	frontEntry
	sources *sourceSet
}

// facesOf are the faces of a service in a domain, under a number. The prefixes of their
// clients are written.
func (p *pass) facesOf(after *servicePass, number uint32, s *desired.Service, domain desired.Domain) (map[faceKey]face, error) {
	out := make(map[faceKey]face, len(s.Faces))
	for _, f := range s.Faces {
		set, err := p.sourcesOf(after, f.Sources)
		if err != nil {
			return out, err
		}
		v := face{frontEntry{Service: number, Port: f.Backend, Inside: uint8(f.Inside), Outside: uint8(f.Outside)}, set}
		if set != nil {
			v.Sources = set.number
		}
		if s.Exposed {
			v.Exposed = 1
		}
		out[faceKey{hostKey{uint32(domain), toAddr(f.Addr)}, f.Port, uint8(f.Protocol)}] = v
	}
	return out, nil
}

// spotsOf are the spots of faces.
func spotsOf(faces map[faceKey]face) map[hostKey]bool {
	out := map[hostKey]bool{}
	for k := range faces {
		out[k.at] = true
	}
	return out
}

// roomForFaces tells whether there is room for faces, before anything leads to them.
func (p *pass) roomForFaces(faces map[faceKey]face) error {
	var fronts []frontKey
	var vips []hostKey
	for k := range faces {
		fronts = append(fronts, frontKey{VIP: p.serving.spots.number[k.at], Port: k.port, Proto: k.proto})
	}
	for at := range spotsOf(faces) {
		vips = append(vips, p.addrsOf(at)...)
		if k, all := at.forAll(); all {
			vips = append(vips, k)
		}
	}
	if err := p.servicePorts.room(fronts...); err != nil {
		return err
	}
	return p.vips.room(vips...)
}

// putFace moves a service's claims from its former faces to others, which may be none.
func (p *pass) putFace(after *servicePass, key model.ServiceKey, x *servedService, faces map[faceKey]face) {
	spots := &p.serving.spots
	turn := map[hostKey]bool{}
	for k, v := range x.faces {
		if now, stays := faces[k]; stays && now == v {
			continue
		} else if !stays {
			spots.claims[k] = slices.DeleteFunc(spots.claims[k], func(o model.ServiceKey) bool { return o == key })
			spots.count[k.at]--
		}
		if v.sources != nil {
			v.sources.users--
			after.sources[v.sources] = true
		}
		after.faces[k], turn[k.at] = true, true
	}
	for k, v := range faces {
		was, had := x.faces[k]
		if had && was == v {
			if p.scratch {
				after.faces[k] = true
			}
			continue
		}
		if !had {
			spots.claims[k] = append(spots.claims[k], key)
			slices.SortFunc(spots.claims[k], compareServices)
			spots.count[k.at]++
		}
		if v.sources != nil {
			v.sources.users++
		}
		after.faces[k], turn[k.at] = true, true
	}
	for at := range turn {
		after.spots[at] = true
	}
	x.faces = faces
}

func compareServices(a, b model.ServiceKey) int { return cmp.Compare(a.String(), b.String()) }

// openSpots are the addresses of the spots at which a service is exposed.
func openSpots(s *desired.Service) (out []addr) {
	if s == nil || !s.Exposed {
		return nil
	}
	for _, f := range s.Faces {
		if a := toAddr(f.Addr); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// openFaces moves a service's claims to spots that clients outside ask at.
func (p *pass) openFaces(after *servicePass, key model.ServiceKey, x *servedService, now []addr) {
	for _, a := range x.openSpots {
		if !slices.Contains(now, a) {
			p.serving.spots.open[a] = slices.DeleteFunc(p.serving.spots.open[a], func(k model.ServiceKey) bool { return k == key })
			after.openSpots[a] = true
		}
	}
	for _, a := range now {
		if !slices.Contains(x.openSpots, a) {
			p.serving.spots.open[a] = append(p.serving.spots.open[a], key)
			slices.SortFunc(p.serving.spots.open[a], compareServices)
			after.openSpots[a] = true
		}
	}
	x.openSpots = now
}

// moveNodes notes what becomes of addresses that are nodes' now, or are no more.
func (p *pass) moveNodes(after *servicePass) {
	spots := &p.serving.spots
	if !differs(p.want.NodeAddrs, spots.nodes) {
		return
	}
	for c := range p.want.NodeAddrs.Diff(spots.nodes) {
		if c.Had == c.Has {
			continue
		}
		a := toAddr(c.Key)
		for at := range spots.number {
			if at.IP == a || at.IP == toAddr(desired.AnyNode(c.Key)) {
				k := hostKey{at.Domain, a}
				after.moved[k] = true
				p.turns.add(k)
			}
		}
		after.exposed[a] = true
	}
	spots.nodes = p.want.NodeAddrs
}

// putFaces lets ports of spots lead where they now do, and numbers spots that are new.
// It comes before addresses lead to these.
func (p *pass) putFaces(after *servicePass) error {
	spots := &p.serving.spots
	for k := range after.faces {
		if len(spots.claims[k]) > 0 && spots.number[k.at] == 0 {
			p.serving.number++
			spots.number[k.at] = p.serving.number
		}
		front := frontKey{VIP: spots.number[k.at], Port: k.port, Proto: k.proto}
		claims := spots.claims[k]
		if len(claims) == 0 {
			delete(spots.claims, k)
			after.fronts = append(after.fronts, front)
			continue
		}
		if err := p.servicePorts.put(front, p.serving.of[claims[0]].faces[k].frontEntry); err != nil {
			return err
		}
	}
	for at := range after.spots {
		addrs := p.addrsOf(at)
		p.turns.add(addrs...)
		for _, a := range addrs {
			after.moved[a] = true
		}
		if k, all := at.forAll(); all && spots.count[at] > 0 { // before nodes' addresses rest on it
			if err := p.vips.put(k, spots.number[at]|vipShared); err != nil {
				return err
			}
		}
	}
	for a := range after.openSpots {
		for _, k := range p.addrsOf(hostKey{IP: a}) {
			after.exposed[k.IP] = true
		}
	}
	return nil
}

// leadsTo is where an address leads that no service has to itself; 0 = nowhere.
func (p *pass) leadsTo(a hostKey) uint32 {
	spots, ip := &p.serving.spots, a.IP.spot()
	switch own := spots.count[a] > 0; {
	case !p.want.IsNode(ip) && !own:
		return 0
	case !p.want.IsNode(ip):
		return spots.number[a]
	case own:
		return spots.number[a] | vipShared | vipOwn
	}
	at := hostKey{a.Domain, toAddr(desired.AnyNode(ip))}
	if spots.count[at] == 0 {
		return 0
	}
	return spots.number[at] | vipShared
}

// openAt is the network in which clients outside ask at an address that no service has
// to itself; nil = in none.
func (p *pass) openAt(a addr) *desired.Network {
	keys := p.serving.spots.open[a]
	if ip := a.spot(); p.want.IsNode(ip) {
		keys = slices.Concat(keys, p.serving.spots.open[toAddr(desired.AnyNode(ip))])
		slices.SortFunc(keys, compareServices)
	}
	for _, key := range keys {
		s, _ := p.want.Services.Get(key)
		n := p.networks[s.Network]
		if len(p.serving.claims[hostKey{uint32(n.Domain()), a}]) == 0 {
			return n
		}
	}
	return nil
}

// removeFaces takes out what no packet is led to any more: fronts, spots without any, and
// prefixes that no face names.
func (p *pass) removeFaces(after *servicePass) error {
	spots := &p.serving.spots
	for _, k := range after.fronts {
		if err := p.servicePorts.del(k); err != nil {
			return err
		}
	}
	if p.scratch { // what no picture names any more
		for at := range spots.number {
			after.spots[at] = true
		}
		for _, set := range spots.sources {
			after.sources[set] = true
		}
	}
	for at := range after.spots {
		if spots.count[at] == 0 {
			delete(spots.count, at)
			delete(spots.number, at)
		}
	}
	for set := range after.sources {
		if set.users > 0 {
			continue
		}
		for _, k := range set.keys {
			if err := p.sources.del(k); err != nil {
				return err
			}
		}
		delete(spots.sources, set.name())
	}
	if p.scratch {
		return p.sources.sweep()
	}
	return nil
}

// lostFaces tells whether translations by faces that a service had may be none of its
// any more.
func lostFaces(was, now map[faceKey]face) bool {
	for k, v := range was {
		if f, ok := now[k]; !ok || k.proto == uint8(model.ProtoUDP) && f.Port != v.Port {
			return true
		}
	}
	return false
}

// faceOf is the front by which a translation came, if it is a face.
func (x *servedService) faceOf(p *pass, t translation) (frontEntry, bool) {
	f, ok := x.faces[faceKey{hostKey{t.Front.Domain, t.Front.Hi}, t.Front.HiPort, t.Front.Proto}]
	if a := t.Front.Hi.spot(); !ok && p.want.IsNode(a) {
		f, ok = x.faces[faceKey{hostKey{t.Front.Domain, toAddr(desired.AnyNode(a))}, t.Front.HiPort, t.Front.Proto}]
	}
	return f.frontEntry, ok
}
