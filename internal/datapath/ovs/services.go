package ovs

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// services keeps the flows and groups of a desired state's services in step, and notes
// whose translations may have ended. What it does follows what has changed.
type services struct {
	ledger    *ledger
	groups    *groups
	numbers   map[model.ServiceKey]uint32
	named     map[uint32]model.ServiceKey // by number
	on        map[model.NetworkID]map[model.ServiceKey]bool
	vipOwners map[domainAddress][]model.ServiceKey        // who has a virtual address; the first one gets it
	users     map[domainAddress]addressUser               // endpoints, which come before services
	backing   map[domainAddress]int                       // how often an address is a backend's
	external  map[domainAddress]map[model.ServiceKey]bool // services with an address as a backend that is no endpoint
	addrs     map[model.ServiceKey]serviceAddrs
	serving   map[desired.Domain]map[model.ServiceKey]bool // services with flows
	zones     map[desired.Domain]uint16                    // of translations, of domains that are served
	wrong     map[model.ServiceKey][]driver.Problem
	counts    *counterBudget
	frontends frontends

	ended    map[domainAddress]bool      // endpoints that are gone, and virtual addresses that others have, since translations were looked through
	check    map[desired.Domain]uint16   // whose translations are to be looked through, and their zones
	forget   map[uint32]bool             // services, by number, whose client affinity ends
	oldZones map[desired.Domain][]uint16 // zones that a domain had and has no more
}

// addressUser is the endpoint at an address; n = how many there are.
type addressUser struct {
	n   int
	mac model.MAC
}

func newServices(l *ledger) *services {
	return &services{
		ledger: l, groups: newGroups(), numbers: map[model.ServiceKey]uint32{}, named: map[uint32]model.ServiceKey{},
		on: map[model.NetworkID]map[model.ServiceKey]bool{}, vipOwners: map[domainAddress][]model.ServiceKey{}, users: map[domainAddress]addressUser{},
		backing: map[domainAddress]int{}, external: map[domainAddress]map[model.ServiceKey]bool{}, addrs: map[model.ServiceKey]serviceAddrs{}, serving: map[desired.Domain]map[model.ServiceKey]bool{}, zones: map[desired.Domain]uint16{},
		wrong: map[model.ServiceKey][]driver.Problem{}, counts: newCounters(), frontends: newFrontends(), ended: map[domainAddress]bool{}, check: map[desired.Domain]uint16{},
		forget: map[uint32]bool{}, oldZones: map[desired.Domain][]uint16{},
	}
}

func serviceOwner(k model.ServiceKey) owner {
	return owner{kind: pipeline.KindService, name: k.String()}
}

func domainOwner(d desired.Domain) owner { return owner{kind: pipeline.KindService, id: uint64(d)} }

// servicesChange is one step from a desired state to the next.
type servicesChange struct {
	*services
	config    pipeline.Config
	old, want desired.Host
	dirty     map[model.ServiceKey]bool
	owners    map[frontendPort]model.ServiceKey // of ports that are claimed or left, as they were
}

// update makes the ledger and the groups want what the desired state says. domains are its
// domains; moved: networks have come, gone or changed their domains; all: compute all
// flows.
func (s *services) update(c pipeline.Config, old, want desired.Host, domains map[desired.Domain]int, moved, all bool) {
	ch := &servicesChange{s, c, old, want, map[model.ServiceKey]bool{}, map[frontendPort]model.ServiceKey{}}
	ch.endpoints(moved)
	if moved {
		for n := range want.Networks.Diff(old.Networks) {
			for k := range s.on[n.Key] {
				ch.dirty[k] = true
			}
		}
		ch.moveZones(domains)
	}
	for x := range want.Services.Diff(old.Services) {
		ch.dirty[x.Key] = true
	}
	if all {
		for k := range want.Services.All() {
			ch.dirty[k] = true
		}
		for d, zone := range s.zones {
			s.ledger.set(domainOwner(d), pipeline.ServiceDomain(c, d, zone))
		}
	}
	claimed := map[model.ServiceKey]bool{}
	for len(claimed) < len(ch.dirty) { // a claim may concern others
		for k := range ch.dirty {
			if !claimed[k] {
				claimed[k] = true
				ch.replaceAddrs(k)
			}
		}
	}
	ch.endFrontends()
	ch.renode()
	for k := range ch.dirty {
		ch.set(k, domains)
	}
	for k := s.counts.next(); k != (model.ServiceKey{}); k = s.counts.next() {
		ch.set(k, domains)
	}
	ch.setFrontends(all)
}

// domainIn is the domain of a network in a desired state, 0 if it is not there.
func domainIn(h desired.Host, id model.NetworkID) desired.Domain {
	n, ok := h.Networks.Get(id)
	if !ok {
		return 0
	}
	return n.Domain()
}

// endpoints follows who has which address.
func (ch *servicesChange) endpoints(moved bool) {
	type gone struct {
		at  domainAddress
		mac model.MAC
	}
	var left []gone
	put := func(h desired.Host, by int, n model.NetworkID, mac model.MAC, own ...netip.Addr) {
		d := domainIn(h, n)
		for _, a := range own {
			if d == 0 || !a.IsValid() {
				continue
			}
			at := domainAddress{d, a}
			u := ch.users[at]
			was := u.n
			if u.n += by; by > 0 {
				u.mac = mac
			} else {
				left = append(left, gone{at, mac})
			}
			if u.n > 0 {
				ch.users[at] = u
			} else {
				delete(ch.users, at)
			}
			if was == 0 || u.n == 0 {
				ch.touch(at)
			}
		}
	}
	port := func(h desired.Host, by int, p *desired.Port) { put(h, by, p.Network, p.MAC, p.IPv4, p.IPv6) }
	remote := func(h desired.Host, by int, r *desired.Remote) { put(h, by, r.Network, r.MAC, r.IPv4, r.IPv6) }
	if moved {
		for _, p := range ch.old.Ports.All() {
			port(ch.old, -1, p)
		}
		for _, r := range ch.old.Remotes.All() {
			remote(ch.old, -1, r)
		}
		for _, p := range ch.want.Ports.All() {
			port(ch.want, 1, p)
		}
		for _, r := range ch.want.Remotes.All() {
			remote(ch.want, 1, r)
		}
	} else {
		ports, remotes := ch.want.Ports.Diff(ch.old.Ports), ch.want.Remotes.Diff(ch.old.Remotes)
		for x := range ports {
			if x.Had {
				port(ch.old, -1, x.Old)
			}
		}
		for x := range remotes {
			if x.Had {
				remote(ch.old, -1, x.Old)
			}
		}
		for x := range ports {
			if x.Has {
				port(ch.want, 1, x.New)
			}
		}
		for x := range remotes {
			if x.Has {
				remote(ch.want, 1, x.New)
			}
		}
		for x := range ports { // a client that is here no more
			if x.Had && (!x.Has || x.Old.MAC != x.New.MAC) {
				for _, a := range []netip.Addr{x.Old.IPv4, x.Old.IPv6} {
					ch.endTranslationsAt(domainAddress{domainIn(ch.old, x.Old.Network), a})
				}
			}
		}
	}
	for _, g := range left {
		if u := ch.users[g.at]; (u.n == 0 || u.mac != g.mac) && (moved || ch.backing[g.at] > 0) {
			ch.endTranslationsAt(g.at)
		}
	}
}

// endTranslationsAt notes that translations from and to an address may have ended.
func (s *services) endTranslationsAt(at domainAddress) {
	if zone, ok := s.zones[at.domain]; ok && at.addr.IsValid() {
		s.ended[at] = true
		s.check[at.domain] = zone
	}
}

// moveZones gives domains other zones for translations where a network has come that
// tracks in the same one.
func (ch *servicesChange) moveZones(domains map[desired.Domain]int) {
	for d, zone := range ch.zones {
		for other := range domains {
			if zoneOf(other) == zone {
				ch.oldZones[d] = append(ch.oldZones[d], zone)
				delete(ch.zones, d)
				ch.zoneFor(d, domains)
				for k := range ch.want.Services.All() {
					ch.dirty[k] = true
				}
				ch.touchDomain(d)
				ch.ledger.set(domainOwner(d), pipeline.ServiceDomain(ch.config, d, ch.zones[d]))
				break
			}
		}
	}
}

// zoneFor finds a zone for a domain's translations: those of tracking count from
// below, these from above.
func (s *services) zoneFor(d desired.Domain, domains map[desired.Domain]int) uint16 {
	if zone, ok := s.zones[d]; ok {
		return zone
	}
	taken := map[uint16]bool{0: true, pipeline.RelayZone: true}
	for other := range domains {
		taken[zoneOf(other)] = true
	}
	for _, zone := range s.zones {
		taken[zone] = true
	}
	zone := ^zoneOf(d)
	for taken[zone] {
		zone--
	}
	s.zones[d] = zone
	return zone
}

// serviceAddrs is what a service of the desired state has claimed.
type serviceAddrs struct {
	domain    desired.Domain // 0 = it cannot be served
	network   model.NetworkID
	vips      []netip.Addr
	backs     []netip.Addr
	external  []netip.Addr   // those of backs that are no endpoints'
	frontends []frontendPort // sorted
	open      []netip.Addr   // where it is exposed at frontends
}

// replaceAddrs replaces the addresses that a service has, and marks the services that had or get
// an address with it.
func (ch *servicesChange) replaceAddrs(k model.ServiceKey) {
	x, _ := ch.want.Services.Get(k)
	old := ch.addrs[k]
	now := serviceAddrs{}
	if x != nil {
		now.network, now.domain = x.Network, domainIn(ch.want, x.Network)
		for _, a := range []netip.Addr{x.IPv4, x.IPv6} {
			if a.IsValid() && now.domain != 0 {
				now.vips = append(now.vips, a)
			}
		}
		if now.domain != 0 && x.Check(k, true) == nil {
			now.frontends, now.open = frontendsOf(x, now.domain)
		}
		for _, b := range x.Backends.All() {
			for _, a := range []netip.Addr{b.IPv4, b.IPv6} {
				if a.IsValid() && now.domain != 0 {
					now.backs = append(now.backs, a)
					if b.External() {
						now.external = append(now.external, a)
					}
				}
			}
		}
	}
	had := map[domainAddress]model.ServiceKey{}
	for _, x := range []serviceAddrs{old, now} {
		for _, v := range x.vips {
			if c := ch.vipOwners[domainAddress{x.domain, v}]; len(c) > 0 {
				had[domainAddress{x.domain, v}] = c[0]
			}
		}
	}
	for _, v := range old.vips {
		at := domainAddress{old.domain, v}
		ch.vipOwners[at] = slices.DeleteFunc(ch.vipOwners[at], func(o model.ServiceKey) bool { return o == k })
		ch.touch(at)
		if len(ch.vipOwners[at]) == 0 {
			delete(ch.vipOwners, at)
		}
	}
	for _, v := range now.vips {
		at := domainAddress{now.domain, v}
		i, _ := slices.BinarySearchFunc(ch.vipOwners[at], k, compareServices)
		ch.vipOwners[at] = slices.Insert(ch.vipOwners[at], i, k)
		ch.touch(at)
	}
	for at, k := range had {
		if c := ch.vipOwners[at]; len(c) == 0 || c[0] != k { // another one has the address now
			ch.endTranslationsAt(at)
		}
	}
	for _, a := range old.backs {
		at := domainAddress{old.domain, a}
		if ch.backing[at]--; ch.backing[at] == 0 {
			delete(ch.backing, at)
		}
	}
	for _, a := range now.backs {
		ch.backing[domainAddress{now.domain, a}]++
	}
	ch.replaceExternal(k, old, now)
	ch.replaceFrontends(k, old, now)
	if old.network != now.network {
		delete(ch.on[old.network], k)
	}
	if old.domain != now.domain {
		ch.serve(k, old.domain, false, nil)
	}
	if x == nil {
		delete(ch.addrs, k)
		return
	}
	if ch.on[now.network] == nil {
		ch.on[now.network] = map[model.ServiceKey]bool{}
	}
	ch.on[now.network][k] = true
	ch.addrs[k] = now
}

func compareServices(a, b model.ServiceKey) int { return cmp.Compare(a.String(), b.String()) }

// touch marks all that claim an address.
func (ch *servicesChange) touch(at domainAddress) {
	for _, k := range ch.vipOwners[at] {
		ch.dirty[k] = true
	}
	for k := range ch.external[at] {
		ch.dirty[k] = true
	}
	ch.touchVIP(at)
}

// markDomain notes that a domain's translations may have ended.
func (s *services) markDomain(d desired.Domain) {
	if zone, ok := s.zones[d]; ok {
		s.check[d] = zone
	}
}

// at is the service that has an address in a desired state, nil if none.
func (s *services) at(h desired.Host, where domainAddress) *desired.Service {
	if c := s.vipOwners[where]; len(c) > 0 && s.users[where].n == 0 {
		x, _ := h.Services.Get(c[0])
		return x
	}
	return nil
}

// set makes the flows of a service, if it can have any.
func (ch *servicesChange) set(k model.ServiceKey, domains map[desired.Domain]int) {
	was, _ := ch.old.Services.Get(k)
	x, _ := ch.want.Services.Get(k)
	d := ch.addrs[k].domain
	delete(ch.wrong, k)
	var own desired.Service
	if x != nil {
		wrong := refusedPorts(x)
		if err := x.Check(k, domainIn(ch.want, x.Network) != 0); err != nil {
			wrong = []driver.Problem{{Object: "service " + k.String(), Err: err}}
		} else {
			own = ch.reachable(*x, d)
		}
		if len(wrong) > 0 {
			ch.wrong[k] = wrong
		}
	}
	var flows []openflow.Flow
	var groups []openflow.Group
	had := ch.frontendsOwned(&own, d)
	serves := own.IPv4.IsValid() || own.IPv6.IsValid() || len(had) > 0
	ch.serve(k, d, serves, domains)
	if serves {
		flows, groups = pipeline.ServiceFlows(ch.config, pipeline.Service{
			Service: &own, Number: ch.number(k), Domain: d, Zone: ch.zones[d], Group: ch.groups.number, ServedFrontends: had, IsEndpoint: func(a netip.Addr) bool { return ch.users[domainAddress{d, a}].n > 0 },
			Counted: ch.counts.take(k, pipeline.CountersOf(&own)),
		})
	} else {
		ch.counts.release(k)
	}
	ch.ledger.set(serviceOwner(k), flows)
	ch.groups.set(k, groups)
	if n, ok := ch.numbers[k]; ok && (!serves || was != nil && was.Affinity != own.Affinity) {
		ch.forget[n] = true
		if !serves {
			delete(ch.named, n)
			delete(ch.numbers, k)
		}
	}
	if was != nil && invalidatesTranslations(was, &own) {
		ch.markDomain(domainIn(ch.old, was.Network))
	}
}

// serve counts the services that a domain has, and gives it what it needs for them.
func (ch *servicesChange) serve(k model.ServiceKey, d desired.Domain, serves bool, domains map[desired.Domain]int) {
	switch in := ch.serving[d]; {
	case in[k] == serves:
	case serves && len(in) == 0:
		ch.serving[d] = map[model.ServiceKey]bool{k: true}
		ch.ledger.set(domainOwner(d), pipeline.ServiceDomain(ch.config, d, ch.zoneFor(d, domains)))
	case serves:
		in[k] = true
	default:
		ch.markDomain(d)
		if delete(in, k); len(in) == 0 {
			delete(ch.serving, d)
			delete(ch.zones, d)
			ch.ledger.set(domainOwner(d), nil)
		}
	}
}

// reachable is a service with the addresses that it gets.
func (s *services) reachable(x desired.Service, d desired.Domain) desired.Service {
	for _, a := range []*netip.Addr{&x.IPv4, &x.IPv6} {
		if at := (domainAddress{d, *a}); a.IsValid() && (s.users[at].n > 0 || s.vipOwners[at][0] != x.Key) {
			*a = netip.Addr{}
		}
	}
	return x
}

// number is a service's number in the switch.
func (s *services) number(k model.ServiceKey) uint32 {
	n, ok := s.numbers[k]
	if !ok {
		n = pipeline.ServiceNumber(k)
		for s.named[n] != (model.ServiceKey{}) {
			n = pipeline.NextService(n)
		}
		s.numbers[k], s.named[n] = n, k
	}
	return n
}

// refusedPorts are what flows cannot serve of a service.
func refusedPorts(x *desired.Service) []driver.Problem {
	var out []driver.Problem
	ports := slices.Clone(x.Ports)
	for _, f := range x.Frontends {
		if _, there := x.PortOf(f.Protocol, f.Port); !there && f.Protocol == model.ProtoSCTP {
			ports = append(ports, desired.ServicePort{Protocol: f.Protocol, Port: f.Port})
		}
	}
	slices.SortFunc(ports, desired.CompareServicePorts)
	for _, p := range slices.CompactFunc(ports, func(a, b desired.ServicePort) bool { return desired.CompareServicePorts(a, b) == 0 }) {
		if p.Protocol == model.ProtoSCTP {
			out = append(out, driver.Problem{
				Object: "service " + x.Key.String(),
				Err:    model.Errorf(model.ErrInvalid, "port %d/%d: the switch does not track SCTP, so it is not served", p.Protocol, p.Port),
			})
		}
	}
	return out
}

// problems are what is wrong with services.
func (s *services) problems() []driver.Problem {
	var out []driver.Problem
	for _, k := range slices.SortedFunc(maps.Keys(s.wrong), compareServices) {
		out = append(out, s.wrong[k]...)
	}
	return append(out, s.counts.problems()...)
}
