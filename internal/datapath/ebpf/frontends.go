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

// Frontends are ports of addresses that services share. Such an address, a shared VIP, leads to
// a number of its own, under which each port leads to its service. All nodes' addresses of a
// family and domain are one shared VIP. A node's address with frontends of its own is one too;
// its other ports are those of all nodes.

// frontendKey is a port of a shared VIP, whose address is unspecified where it is all nodes'.
type frontendKey struct {
	at    domainAddr
	port  uint16
	proto uint8
}

// sharedVIPs are what the driver knows of frontends beside what the maps hold.
type sharedVIPs struct {
	owners map[frontendKey][]model.ServiceKey // sorted: the first has it
	number map[domainAddr]uint32              // of shared VIPs; also of ones that the maps hold and no desired state has named yet
	count  map[domainAddr]int                 // of claims at a shared VIP
	open   map[addr][]model.ServiceKey        // by a shared VIP's address, sorted: the exposed services there
	// severalDomains has the addresses at which exposed services of several domains have frontends, the
	// unspecified one for all nodes'; exposedPorts the ports of shared VIPs there that have entries.
	severalDomains map[addr]bool
	exposedPorts   map[addr]map[exposedKey]bool
	sources        map[string]*sourceSet
	nodes          desired.Map[netip.Addr, struct{}] // as of the last desired state
}

// sourceSet are prefixes of clients, which frontends name by a number.
type sourceSet struct {
	number uint32
	keys   []subnetKey
	users  int
}

func newSharedVIPs() sharedVIPs {
	return sharedVIPs{
		owners: map[frontendKey][]model.ServiceKey{}, number: map[domainAddr]uint32{}, count: map[domainAddr]int{}, open: map[addr][]model.ServiceKey{}, sources: map[string]*sourceSet{},
		severalDomains: map[addr]bool{}, exposedPorts: map[addr]map[exposedKey]bool{},
	}
}

// loadSharedVIPs takes over what the maps hold; of are the services there.
func (s *serviceState) loadSharedVIPs(of map[uint32]*servedService) {
	s.sharedVIPs = newSharedVIPs()
	for a, n := range s.maps.VIPs.have {
		number := n &^ (vipShared | vipOwn)
		if number == 0 || of[n] != nil {
			continue
		}
		at := a
		if at.Domain &^= allNodes; n&vipShared != 0 && n&vipOwn == 0 {
			at.IP = toAddr(desired.AnyNode(a.IP.vip()))
		}
		s.sharedVIPs.number[at] = number
		s.number = max(s.number, number)
	}
	sets := map[uint32]*sourceSet{}
	for k := range s.maps.Sources.have {
		n := k.Domain &^ sources6
		if sets[n] == nil {
			sets[n] = &sourceSet{number: n}
		}
		sets[n].keys = append(sets[n].keys, k)
		s.number = max(s.number, n)
	}
	for _, set := range sets {
		s.sharedVIPs.sources[set.name()] = set
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
func (r *serviceRun) sourcesOf(prefixes []netip.Prefix) (*sourceSet, error) {
	if len(prefixes) == 0 {
		return nil, nil
	}
	set := &sourceSet{number: r.s.number + 1}
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
	if had := r.s.sharedVIPs.sources[name]; had != nil {
		for _, k := range had.keys { // it is wanted
			if err := r.maps.Sources.put(k, 1); err != nil {
				return nil, err
			}
		}
		return had, nil
	}
	if err := r.maps.Sources.room(set.keys...); err != nil {
		return nil, err
	}
	r.s.number++
	r.s.sharedVIPs.sources[name] = set
	r.sources[set] = true // until a frontend names it
	for _, k := range set.keys {
		if err := r.maps.Sources.put(k, 1); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// vip is the address that has frontends, be it unspecified.
func (a addr) vip() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// forAll is where all nodes' number is found, for addresses that have one of their own;
// ok reports whether a shared VIP is theirs.
func (at domainAddr) forAll() (k domainAddr, ok bool) {
	return domainAddr{at.Domain | allNodes, at.IP}, at.IP.vip().IsUnspecified()
}

// addrsOf are the addresses of a shared VIP.
func (r *serviceRun) addrsOf(at domainAddr) (out []domainAddr) {
	a := at.IP.vip()
	if !a.IsUnspecified() {
		return []domainAddr{at}
	}
	for n := range r.run.want.NodeAddrs.All() {
		if n.Is6() == a.Is6() {
			out = append(out, domainAddr{at.Domain, toAddr(n)})
		}
	}
	return out
}

// frontend is a front of a service's, and the clients that it takes.
type frontend struct {
	vipPortEntry
	sources *sourceSet
}

// frontendsOf are the frontends of a service in a domain, under a number. The prefixes of their
// clients are written.
func (r *serviceRun) frontendsOf(number uint32, s *desired.Service, domain desired.Domain) (map[frontendKey]frontend, error) {
	out := make(map[frontendKey]frontend, len(s.Frontends))
	for _, f := range s.Frontends {
		set, err := r.sourcesOf(f.Sources)
		if err != nil {
			return out, err
		}
		v := frontend{vipPortEntry{Service: number, Port: f.Backend, Inside: uint8(f.InternalPolicy), Outside: uint8(f.ExternalPolicy)}, set}
		if set != nil {
			v.Sources = set.number
		}
		if s.Exposed {
			v.Exposed = 1
		}
		out[frontendKey{domainAddr{uint32(domain), toAddr(f.Addr)}, f.Port, uint8(f.Protocol)}] = v
	}
	return out, nil
}

// vipsOf are the shared VIPs of frontends.
func vipsOf(frontends map[frontendKey]frontend) map[domainAddr]bool {
	out := map[domainAddr]bool{}
	for k := range frontends {
		out[k.at] = true
	}
	return out
}

// checkFrontendRoom reports whether there is room for frontends, before anything leads to them.
func (r *serviceRun) checkFrontendRoom(frontends map[frontendKey]frontend) error {
	var ports []vipPortKey
	var vips []domainAddr
	for k := range frontends {
		ports = append(ports, vipPortKey{VIP: r.s.sharedVIPs.number[k.at], Port: k.port, Proto: k.proto})
	}
	for at := range vipsOf(frontends) {
		vips = append(vips, r.addrsOf(at)...)
		if k, all := at.forAll(); all {
			vips = append(vips, k)
		}
	}
	if err := r.maps.ServicePorts.room(ports...); err != nil {
		return err
	}
	return r.maps.VIPs.room(vips...)
}

// putFrontend moves a service's claims from its former frontends to others, which may be none.
func (r *serviceRun) putFrontend(key model.ServiceKey, x *servedService, frontends map[frontendKey]frontend) {
	shared := &r.s.sharedVIPs
	turn := map[domainAddr]bool{}
	for k, v := range x.frontends {
		if now, stays := frontends[k]; stays && now == v {
			continue
		} else if !stays {
			shared.owners[k] = slices.DeleteFunc(shared.owners[k], func(o model.ServiceKey) bool { return o == key })
			shared.count[k.at]--
		}
		if v.sources != nil {
			v.sources.users--
			r.sources[v.sources] = true
		}
		r.frontends[k], turn[k.at] = true, true
	}
	for k, v := range frontends {
		was, had := x.frontends[k]
		if had && was == v {
			if r.run.scratch {
				r.frontends[k] = true
			}
			continue
		}
		if !had {
			shared.owners[k] = append(shared.owners[k], key)
			slices.SortFunc(shared.owners[k], compareServices)
			shared.count[k.at]++
			ip := k.at.IP.vip()
			nodes := frontendKey{domainAddr{k.at.Domain, toAddr(desired.AnyNode(ip))}, k.port, k.proto}
			if len(shared.owners[k]) > 1 || r.run.want.IsNode(ip) && len(shared.owners[nodes]) > 0 {
				r.narrowed = true // it may take another service's port
			}
		}
		if v.sources != nil {
			v.sources.users++
		}
		r.frontends[k], turn[k.at] = true, true
	}
	for at := range turn {
		r.sharedVIPs[at] = true
	}
	x.frontends = frontends
}

func compareServices(a, b model.ServiceKey) int { return cmp.Compare(a.String(), b.String()) }

// exposedVIPs are the addresses of the shared VIPs at which a service is exposed.
func exposedVIPs(s *desired.Service) (out []addr) {
	if s == nil || !s.Exposed {
		return nil
	}
	for _, f := range s.Frontends {
		if a := toAddr(f.Addr); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// exposeFrontends moves a service's claims to shared VIPs that clients outside ask at.
func (r *serviceRun) exposeFrontends(key model.ServiceKey, x *servedService, now []addr) {
	for _, a := range x.exposedVIPs {
		if !slices.Contains(now, a) {
			r.s.sharedVIPs.open[a] = slices.DeleteFunc(r.s.sharedVIPs.open[a], func(k model.ServiceKey) bool { return k == key })
			r.exposedVIPs[a] = true
		}
	}
	for _, a := range now {
		if !slices.Contains(x.exposedVIPs, a) {
			r.s.sharedVIPs.open[a] = append(r.s.sharedVIPs.open[a], key)
			slices.SortFunc(r.s.sharedVIPs.open[a], compareServices)
			r.exposedVIPs[a] = true
		}
	}
	x.exposedVIPs = now
}

// moveNodes notes what becomes of addresses that are nodes' now, or are no more.
func (r *serviceRun) moveNodes() {
	shared := &r.s.sharedVIPs
	if !differs(r.run.want.NodeAddrs, shared.nodes) {
		return
	}
	for c := range r.run.want.NodeAddrs.Diff(shared.nodes) {
		if c.Had == c.Has {
			continue
		}
		r.narrowed = r.narrowed || c.Had // its connections end
		a := toAddr(c.Key)
		for at := range shared.number {
			if at.IP == a || at.IP == toAddr(desired.AnyNode(c.Key)) {
				k := domainAddr{at.Domain, a}
				r.moved[k] = true
				r.s.generations.add(k)
			}
		}
		r.exposedServices[a], r.exposedVIPs[a], r.exposedVIPs[toAddr(desired.AnyNode(c.Key))] = true, true, true
	}
	shared.nodes = r.run.want.NodeAddrs
}

// putFrontends lets ports of shared VIPs lead where they now do, and numbers shared VIPs that are new.
// It comes before addresses lead to these.
func (r *serviceRun) putFrontends() error {
	shared := &r.s.sharedVIPs
	for k := range r.frontends {
		if len(shared.owners[k]) > 0 && shared.number[k.at] == 0 {
			r.s.number++
			shared.number[k.at] = r.s.number
		}
		front := vipPortKey{VIP: shared.number[k.at], Port: k.port, Proto: k.proto}
		claims := shared.owners[k]
		if len(claims) == 0 {
			delete(shared.owners, k)
			r.stalePorts = append(r.stalePorts, front)
			continue
		}
		if err := r.maps.ServicePorts.put(front, r.s.of[claims[0]].frontends[k].vipPortEntry); err != nil {
			return err
		}
	}
	for at := range r.sharedVIPs {
		addrs := r.addrsOf(at)
		r.s.generations.add(addrs...)
		for _, a := range addrs {
			r.moved[a] = true
		}
		if k, all := at.forAll(); all && shared.count[at] > 0 { // before nodes' addresses rest on it
			if err := r.maps.VIPs.put(k, shared.number[at]|vipShared); err != nil {
				return err
			}
		}
	}
	for a := range r.exposedVIPs {
		for _, k := range r.addrsOf(domainAddr{IP: a}) {
			r.exposedServices[k.IP] = true
		}
	}
	return nil
}

// leadsTo is where an address leads that no service has to itself; 0 = nowhere.
func (r *serviceRun) leadsTo(a domainAddr) uint32 {
	shared, ip := &r.s.sharedVIPs, a.IP.vip()
	switch own := shared.count[a] > 0; {
	case !r.run.want.IsNode(ip) && !own:
		return 0
	case !r.run.want.IsNode(ip):
		return shared.number[a]
	case own:
		return shared.number[a] | vipShared | vipOwn
	}
	at := domainAddr{a.Domain, toAddr(desired.AnyNode(ip))}
	if shared.count[at] == 0 {
		return 0
	}
	return shared.number[at] | vipShared
}

// openAt is the network in which clients outside ask at an address that no service has
// to itself; nil = in none.
func (r *serviceRun) openAt(a addr) *desired.Network {
	keys := r.s.sharedVIPs.open[a]
	if ip := a.vip(); r.run.want.IsNode(ip) {
		keys = slices.Concat(keys, r.s.sharedVIPs.open[toAddr(desired.AnyNode(ip))])
		slices.SortFunc(keys, compareServices)
	}
	for _, key := range keys {
		s, _ := r.run.want.Services.Get(key)
		n := r.run.networks[s.Network]
		if len(r.s.vipOwners[domainAddr{uint32(n.Domain()), a}]) == 0 {
			return n
		}
	}
	return nil
}

// removeFrontends takes out what no packet is led to any more: ports, shared VIPs without any, and
// prefixes that no frontend names.
func (r *serviceRun) removeFrontends() error {
	shared := &r.s.sharedVIPs
	for _, k := range r.stalePorts {
		if err := r.maps.ServicePorts.del(k); err != nil {
			return err
		}
	}
	if r.run.scratch { // what no desired state names any more
		for at := range shared.number {
			r.sharedVIPs[at] = true
		}
		for _, set := range shared.sources {
			r.sources[set] = true
		}
	}
	for at := range r.sharedVIPs {
		if shared.count[at] == 0 {
			delete(shared.count, at)
			delete(shared.number, at)
		}
	}
	for set := range r.sources {
		if set.users > 0 {
			continue
		}
		for _, k := range set.keys {
			if err := r.maps.Sources.del(k); err != nil {
				return err
			}
		}
		delete(shared.sources, set.name())
	}
	if r.run.scratch {
		return r.maps.Sources.sweep()
	}
	return nil
}

// lostFrontends reports whether translations by frontends that a service had may be none of its
// any more.
func lostFrontends(was, now map[frontendKey]frontend) bool {
	for k, v := range was {
		if f, ok := now[k]; !ok || k.proto == uint8(model.ProtoUDP) && f.Port != v.Port {
			return true
		}
	}
	return false
}

// frontendAt is where a port of an address in a domain leads, and its service.
func (r *serviceRun) frontendAt(k frontendKey) (x *servedService, to vipPortEntry, ok bool) {
	if claims := r.s.vipOwners[k.at]; len(claims) > 0 {
		x = r.s.of[claims[0]]
		to, ok = x.ports[vipPortKey{VIP: x.number, Port: k.port, Proto: k.proto}]
		return x, to, ok
	}
	claims := r.s.sharedVIPs.owners[k]
	if a := k.at.IP.vip(); len(claims) == 0 && r.run.want.IsNode(a) {
		k.at.IP = toAddr(desired.AnyNode(a))
		claims = r.s.sharedVIPs.owners[k]
	}
	if len(claims) == 0 {
		return nil, to, false
	}
	x = r.s.of[claims[0]]
	return x, x.frontends[k].vipPortEntry, true
}
