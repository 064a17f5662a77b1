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
// its frontends; those of the address, its shared VIP, are the address's own.

// frontendPort is a port of a shared VIP, whose address is unspecified where it is all nodes'.
type frontendPort struct {
	at    domainAddress
	proto model.Protocol
	port  uint16
}

func (f frontendPort) compare(o frontendPort) int {
	return cmp.Or(cmp.Compare(f.at.domain, o.at.domain), f.at.addr.Compare(o.at.addr), cmp.Compare(f.proto, o.proto), cmp.Compare(f.port, o.port))
}

// sharedVIP is an address that services have frontends at.
type sharedVIP struct {
	number    uint32
	frontends int                 // of frontends
	datagrams map[uint16]bool     // ports of UDP that are claimed
	flows     pipeline.SharedVIP  // as they were made
	live      bool                // and whether there are any
	nodes     map[netip.Addr]bool // of the nodes' shared VIP: the ones that lead to it
}

// frontends are the shared VIPs, and who has which port there.
type frontends struct {
	owners  map[frontendPort][]model.ServiceKey // sorted: the first one has it
	vips    map[domainAddress]*sharedVIP
	named   map[uint32]domainAddress          // by number
	open    map[netip.Addr][]model.ServiceKey // sorted: the exposed services with frontends at an address
	ended   map[frontendPort]bool             // ports claimed or left since translations were looked through: whether others have them
	dirty   map[domainAddress]bool            // shared VIPs whose flows are to be computed
	nodes   map[domainAddress]bool            // likewise, of nodes' addresses
	outside map[netip.Addr]bool               // addresses that may lead clients outside to other domains now
}

func newFrontends() frontends {
	return frontends{
		owners: map[frontendPort][]model.ServiceKey{}, vips: map[domainAddress]*sharedVIP{}, named: map[uint32]domainAddress{}, open: map[netip.Addr][]model.ServiceKey{},
		ended: map[frontendPort]bool{}, dirty: map[domainAddress]bool{}, nodes: map[domainAddress]bool{}, outside: map[netip.Addr]bool{},
	}
}

func vipOwner(at domainAddress) owner {
	return owner{kind: pipeline.KindService, id: uint64(at.domain), name: "at " + at.addr.String()}
}

func nodeFrontendOwner(at domainAddress) owner {
	return owner{kind: pipeline.KindService, id: uint64(at.domain), name: "node " + at.addr.String()}
}

// anyNode is the shared VIP of a node's address.
func anyNode(at domainAddress) domainAddress {
	return domainAddress{at.domain, desired.AnyNode(at.addr)}
}

// frontendsOf are the frontends that flows can serve of a service in a domain, sorted, and the
// addresses where it is exposed.
func frontendsOf(x *desired.Service, d desired.Domain) (served []frontendPort, open []netip.Addr) {
	for _, f := range x.Frontends {
		if f.Protocol == model.ProtoTCP || f.Protocol == model.ProtoUDP {
			served = append(served, frontendPort{domainAddress{d, f.Addr}, f.Protocol, f.Port})
			if x.Exposed && !slices.Contains(open, f.Addr) {
				open = append(open, f.Addr)
			}
		}
	}
	slices.SortFunc(served, frontendPort.compare)
	return served, open
}

// replaceFrontends replaces the frontends that a service has, and marks the services that had or
// get one with it.
func (ch *servicesChange) replaceFrontends(k model.ServiceKey, old, now serviceAddrs) {
	for _, a := range old.open {
		if !slices.Contains(now.open, a) || old.domain != now.domain {
			ch.frontends.open[a] = without(ch.frontends.open[a], k)
			ch.reopen(a)
		}
	}
	for _, a := range now.open {
		if !slices.Contains(old.open, a) || old.domain != now.domain {
			ch.frontends.open[a] = with(ch.frontends.open[a], k)
			ch.reopen(a)
		}
	}
	for _, f := range old.frontends {
		if _, stays := slices.BinarySearchFunc(now.frontends, f, frontendPort.compare); !stays {
			ch.setFrontendOwner(f, k, false)
		}
	}
	for _, f := range now.frontends {
		if _, was := slices.BinarySearchFunc(old.frontends, f, frontendPort.compare); !was {
			ch.setFrontendOwner(f, k, true)
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

// setFrontendOwner adds or takes a service's claim to a port of a shared VIP.
func (ch *servicesChange) setFrontendOwner(f frontendPort, k model.ServiceKey, claims bool) {
	if _, noted := ch.owners[f]; !noted {
		ch.owners[f] = ch.ownerOf(ch.old, f)
	}
	had, list := ch.ownerOf(ch.want, f), ch.frontends.owners[f]
	s := ch.frontends.vips[f.at]
	if claims {
		if s == nil {
			s = &sharedVIP{datagrams: map[uint16]bool{}, nodes: map[netip.Addr]bool{}}
			ch.frontends.vips[f.at] = s
		}
		s.frontends++
		list = with(list, k)
	} else {
		s.frontends--
		list = without(list, k)
	}
	ch.frontends.dirty[f.at] = ch.frontends.dirty[f.at] || s.frontends == 0 || s.frontends == 1
	ch.frontends.outside[ch.want.FrontendAddr(f.at.addr)] = true
	if !f.at.addr.IsUnspecified() && ch.want.IsNode(f.at.addr) {
		ch.ownPorts(f.at)
	}
	if ch.frontends.owners[f] = list; len(list) == 0 {
		delete(ch.frontends.owners, f)
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
		ch.frontends.dirty[f.at] = true // perhaps it is the only one
	}
}

// ownerOf is the service that has a port of a shared VIP, or at a node's address a port of
// all nodes; none if there is none.
func (s *services) ownerOf(h desired.Host, f frontendPort) (k model.ServiceKey) {
	c := s.frontends.owners[f]
	if len(c) == 0 && h.IsNode(f.at.addr) {
		c = s.frontends.owners[frontendPort{anyNode(f.at), f.proto, f.port}]
	}
	if len(c) > 0 {
		k = c[0]
	}
	return k
}

// endFrontends notes that connections by ports end which are other services' now. After a start
// services come in any order, and who had a port is who has it.
func (ch *servicesChange) endFrontends() {
	maps.DeleteFunc(ch.frontends.ended, func(_ frontendPort, ended bool) bool { return !ended })
	for f, had := range ch.owners {
		has := ch.ownerOf(ch.want, f)
		_, was := ch.old.Services.Get(had)
		ended := was && has != had && has != (model.ServiceKey{})
		if ch.frontends.ended[f] = ch.frontends.ended[f] || ended; ended {
			ch.markDomain(f.at.domain)
		}
	}
}

// ownPorts makes it known that a node's address has ports of its own, or none any more, at
// the shared VIP that it shares with all nodes'.
func (ch *servicesChange) ownPorts(at domainAddress) {
	all := anyNode(at)
	if ch.frontends.vips[all] == nil {
		ch.frontends.vips[all] = &sharedVIP{datagrams: map[uint16]bool{}, nodes: map[netip.Addr]bool{}}
	}
	ch.frontends.dirty[all] = true
}

// renode marks services that have frontends at addresses which have become nodes', or no
// longer are: their flows lead there by another shared VIP.
func (ch *servicesChange) renode() {
	for x := range ch.want.NodeAddrs.Diff(ch.old.NodeAddrs) {
		for d := range ch.serving {
			at := domainAddress{d, x.Key}
			if ch.frontends.vips[at] == nil {
				continue
			}
			ch.ownPorts(at)
			for f, claims := range ch.frontends.owners {
				if f.at == at {
					ch.dirty[claims[0]] = true
				}
			}
		}
	}
}

// touchVIP marks an address whose frontends may have come, gone, or moved.
func (ch *servicesChange) touchVIP(at domainAddress) {
	if ch.frontends.vips[at] != nil {
		ch.frontends.dirty[at] = true
	}
	if _, node := ch.want.NodeAddrs.Get(at.addr); node && ch.frontends.vips[anyNode(at)] != nil {
		ch.frontends.nodes[at] = true
	}
}

// touchDomain marks all shared VIPs of a domain.
func (ch *servicesChange) touchDomain(d desired.Domain) {
	for at := range ch.frontends.vips {
		if at.domain == d {
			ch.frontends.dirty[at] = true
		}
	}
}

// moveNodes follows which addresses are nodes'.
func (ch *servicesChange) moveNodes(all bool) {
	for x := range ch.want.NodeAddrs.Diff(ch.old.NodeAddrs) {
		for d := range ch.serving {
			at := domainAddress{d, x.Key}
			if ch.frontends.vips[at] != nil {
				ch.frontends.dirty[at] = true
			}
			if ch.frontends.vips[anyNode(at)] != nil {
				ch.frontends.nodes[at] = true
			}
		}
		ch.reopen(x.Key)
		ch.reopen(desired.AnyNode(x.Key))
		ch.frontends.outside[x.Key] = true
	}
	if all {
		for at := range ch.frontends.vips {
			ch.frontends.dirty[at] = true
			ch.frontends.outside[ch.want.FrontendAddr(at.addr)] = true
		}
	}
}

// free reports whether an address is neither an endpoint's nor altogether a service's.
func (s *services) free(at domainAddress) bool {
	return s.users[at].n == 0 && len(s.vipOwners[at]) == 0
}

// hasFrontends reports whether a shared VIP, which is not the nodes', has its address in a desired state.
func (s *services) hasFrontends(h desired.Host, at domainAddress) bool {
	_, node := h.NodeAddrs.Get(at.addr)
	x := s.frontends.vips[at]
	return x != nil && x.frontends > 0 && !node && s.free(at)
}

// setFrontends makes the flows of the shared VIPs that were marked, once their services have
// theirs.
func (ch *servicesChange) setFrontends(all bool) {
	ch.moveNodes(all)
	for again := true; again; { // who leads clients outside may be another one
		again = false
		for at := range ch.frontends.dirty {
			if x := ch.frontends.vips[at]; x.live != ch.isLive(at) {
				x.live = !x.live
				again = true
				ch.reopen(at.addr)
				if !x.live {
					ch.endTranslationsAt(at)
				}
			}
		}
	}
	for at := range ch.frontends.dirty {
		ch.setVIP(at, all)
	}
	clear(ch.frontends.dirty)
	for at := range ch.frontends.nodes {
		ch.setNode(at)
	}
	clear(ch.frontends.nodes)
	for a := range ch.frontends.outside {
		ch.setOutside(a)
	}
	clear(ch.frontends.outside)
}

func (ch *servicesChange) isLive(at domainAddress) bool {
	if x := ch.frontends.vips[at]; x.frontends > 0 || !at.addr.IsUnspecified() {
		return x.frontends > 0 && (at.addr.IsUnspecified() || ch.hasFrontends(ch.want, at))
	}
	for a := range ch.want.NodeAddrs.All() {
		if own := ch.frontends.vips[domainAddress{at.domain, a}]; own != nil && own.frontends > 0 && a.Is6() == at.addr.Is6() {
			return true
		}
	}
	return false
}

// setVIP makes a shared VIP's flows.
func (ch *servicesChange) setVIP(at domainAddress, all bool) {
	x := ch.frontends.vips[at]
	was := x.flows
	if x.flows = (pipeline.SharedVIP{}); x.live {
		x.flows = pipeline.SharedVIP{Number: ch.vipNumber(at), Domain: at.domain, Zone: ch.zones[at.domain], Addr: at.addr}
		if by, d := ch.leadsOutside(at.addr); by != nil && d == at.domain {
			x.flows.Open = by.Network
		}
		for port := range x.datagrams {
			k := ch.frontends.owners[frontendPort{at, model.ProtoUDP, port}][0]
			if s, _ := ch.want.Services.Get(k); s != nil && len(x.datagrams) == 1 {
				x.flows.Datagrams, x.flows.Inside = ch.numbers[k], !s.Exposed || ch.severalDomains(at.addr)
			}
		}
		ch.ledger.set(vipOwner(at), pipeline.SharedVIPFlows(ch.config, x.flows))
	} else {
		ch.ledger.set(vipOwner(at), nil)
	}
	if was != x.flows {
		ch.frontends.outside[at.addr] = true
	}
	if at.addr.IsUnspecified() && (was != x.flows || all) {
		for a := range x.nodes {
			ch.frontends.nodes[domainAddress{at.domain, a}] = true
		}
		for a := range ch.want.NodeAddrs.All() {
			if a.Is6() == at.addr.Is6() {
				ch.frontends.nodes[domainAddress{at.domain, a}] = true
			}
		}
	}
	if x.frontends == 0 && !x.live {
		ch.deleteVIP(at)
	}
}

// deleteVIP forgets a shared VIP without frontends, whose nodes lead elsewhere by now.
func (ch *servicesChange) deleteVIP(at domainAddress) {
	x := ch.frontends.vips[at]
	for a := range x.nodes {
		ch.ledger.set(nodeFrontendOwner(domainAddress{at.domain, a}), nil)
		ch.endTranslationsAt(domainAddress{at.domain, a})
		delete(ch.frontends.nodes, domainAddress{at.domain, a})
	}
	delete(ch.frontends.named, x.number)
	delete(ch.frontends.vips, at)
}

// setNode makes the flows that lead a node's address to the nodes' shared VIP.
func (ch *servicesChange) setNode(at domainAddress) {
	x := ch.frontends.vips[anyNode(at)]
	if x == nil {
		return
	}
	_, node := ch.want.NodeAddrs.Get(at.addr)
	leads := node && x.live && ch.free(at)
	var flows []openflow.Flow
	if leads {
		flows = pipeline.NodeFrontendFlows(ch.config, x.flows, at.addr)
	}
	ch.ledger.set(nodeFrontendOwner(at), flows)
	if x.nodes[at.addr] && !leads {
		ch.endTranslationsAt(at)
	}
	if delete(x.nodes, at.addr); leads {
		x.nodes[at.addr] = true
	}
}

// vipNumber is a shared VIP's number in the switch.
func (s *services) vipNumber(at domainAddress) uint32 {
	x := s.frontends.vips[at]
	if x.number == 0 {
		x.number = pipeline.SharedVIPNumber(at.domain, at.addr)
		for s.frontends.named[x.number] != (domainAddress{}) {
			x.number = pipeline.NextSharedVIP(x.number)
		}
		s.frontends.named[x.number] = at
	}
	return x.number
}

// frontendsOwned are the frontends that a service has.
func (ch *servicesChange) frontendsOwned(x *desired.Service, d desired.Domain) (out []pipeline.Frontend) {
	for _, f := range x.Frontends {
		p := frontendPort{domainAddress{d, f.Addr}, f.Protocol, f.Port}
		if c := ch.frontends.owners[p]; len(c) > 0 && c[0] == x.Key {
			at, node := p.at, ch.want.IsNode(f.Addr)
			if node {
				at = anyNode(at)
			}
			out = append(out, pipeline.Frontend{Frontend: f, VIP: ch.vipNumber(at), Node: node})
		}
	}
	return out
}

// serviceAt is the service that is asked at a port of an address in a desired state, and the
// backends' port that it leads to; nil if there is none.
func (s *services) serviceAt(h desired.Host, where domainAddress, proto model.Protocol, port uint16) (x *desired.Service, backend uint16) {
	if x = s.at(h, where); x != nil {
		p, ok := x.PortOf(proto, port)
		if !ok {
			return nil, 0
		}
		return x, p.Backend
	}
	node := h.IsNode(where.addr)
	f := frontendPort{where, proto, port}
	c := s.frontends.owners[f]
	ended, own := s.frontends.ended[f]
	if len(c) == 0 && node {
		f.at = anyNode(where)
		c, ended = s.frontends.owners[f], ended || !own && s.frontends.ended[f]
	}
	if len(c) == 0 || !s.free(where) || ended {
		return nil, 0
	}
	x, _ = h.Services.Get(c[0])
	if x == nil {
		return nil, 0
	}
	frontend, ok := x.FrontendAt(where.addr, node, proto, port)
	if !ok {
		return nil, 0
	}
	return x, frontend.Backend
}

// frontendsChanged reports whether translations by frontends may end when a service changes.
func frontendsChanged(was, now *desired.Service) (ends, udp bool) {
	for _, f := range was.Frontends {
		i, ok := slices.BinarySearchFunc(now.Frontends, f, desired.CompareFrontends)
		if !ok || f.Protocol == model.ProtoUDP && now.Frontends[i].Backend != f.Backend {
			return true, false
		}
		udp = udp || f.Protocol == model.ProtoUDP
	}
	return false, udp
}
