package reference

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services for clients on the host and beyond it; see docs/design/services.md.

// exposedTo is the network in whose domain external clients use a service with a packet;
// nil = the packet is no service's. It is the network of the first exposed service by key that
// has the address to itself, else of the first one with the packet's port there, else of the
// first one with any port.
func (k *kernel) exposedTo(p *Packet) *desired.Network {
	t := k.tables
	if t.private == nil || !p.isIP() {
		return nil
	}
	whole := func(*desired.Service) (at desired.Frontend, ok bool) { return at, true }
	n := t.firstExposed(t.vips[p.Dst], p.Dst, whole)
	if n == nil {
		shared := t.servicesAt(p.Dst)
		if proto, port, ok := k.servicePort(p); ok {
			n = t.firstExposed(shared, p.Dst, func(s *desired.Service) (desired.Frontend, bool) {
				return s.FrontendAt(p.Dst, t.isNode(p.Dst), proto, port)
			})
		}
		if n == nil {
			n = t.firstExposed(shared, p.Dst, whole)
		}
	}
	if n == nil {
		return nil
	}
	q := *p
	if q.DstMAC = desired.RouterMAC; !k.isForService(n, &q) {
		return nil
	}
	return n
}

// firstExposed is the network of the first exposed service at an address, among services with
// a frontend there.
func (t *tables) firstExposed(keys map[model.ServiceKey]struct{}, a netip.Addr, frontend func(*desired.Service) (desired.Frontend, bool)) *desired.Network {
	var first *desired.Service
	var at desired.Frontend
	for key := range keys {
		s := t.services[key]
		if s == nil || !s.Exposed || t.networks[s.Network] == nil || t.stations.byAddr(t.networks[s.Network], a).known() {
			continue
		}
		if has := t.serviceAt(t.networks[s.Network], a); has != nil && s.IPv4 != a && s.IPv6 != a {
			continue // it has the address to itself
		}
		if f, ok := frontend(s); ok && (first == nil || f.Before(s.Key, at, first.Key)) {
			first, at = s, f
		}
	}
	if first == nil {
		return nil
	}
	return t.networks[first.Network]
}

// servicePort is the port of a service that a packet of an external client is about: its own,
// its datagram's, or the one that an error quotes.
func (k *kernel) servicePort(p *Packet) (proto model.Protocol, port uint16, ok bool) {
	switch {
	case p.Frag != nil && p.Frag.Offset != 0:
		for _, n := range k.tables.networks {
			if tr := k.nat.frags[fragOf(n, p)]; tr != nil && tr.outside() && tr.original.dst == p.Dst {
				return tr.original.proto, tr.original.dstPort, true
			}
		}
	case p.isError():
		if p.Inner != nil && p.Inner.Src == p.Dst {
			return p.Inner.Proto, p.Inner.SrcPort, true
		}
	case p.hasPorts():
		return p.Proto, p.DstPort, true
	}
	return 0, 0, false
}

// isOutside reports whether an address can be an external client's in a network's domain: a
// single machine's, and in none of the cluster's ranges.
func (t *tables) isOutside(n *desired.Network, a netip.Addr) bool {
	if n.Contains(a) || t.isOtherNetwork(n, a) || t.stations.byAddr(n, a).known() || !oneStation(a) || desired.InBlackhole(a) {
		return false
	}
	if n.Routed && t.routedNetworkAt(a) != nil {
		return false
	}
	if t.private != nil && (t.private.Subnet.Contains(a) || t.private.Subnet6.Contains(a)) {
		return false
	}
	return !t.virtual(n, a)
}

// isHost reports whether an address is the host's own towards its containers, which
// means nothing on other hosts.
func (t *tables) isHost(a netip.Addr) bool {
	return t.private != nil && a.IsValid() && (a == t.private.Addr || a == t.private.Addr6)
}

// fromOutside judges what the host's stack sends to an exposed service.
func (k *kernel) fromOutside(p *Packet, n *desired.Network) Verdict {
	t := k.tables
	from := origin{net: n, host: true}
	switch {
	case p.isND() || !t.isOutside(from.net, p.Src) && !t.isHost(p.Src):
		return dropped(driver.DropSpoof)
	case p.damaged():
		return dropped(driver.DropInvalid)
	}
	q := *p
	q.Host, q.SrcMAC, q.DstMAC = false, desired.RouterMAC, desired.RouterMAC
	return k.toService(from, &q)
}

// fromRouter judges a frame that another host's router has sent into a tunnel: of a
// client outside to a backend here, or of a backend back to a client of this host.
func (k *kernel) fromRouter(from origin, p *Packet, vtep netip.Addr) Verdict {
	t := k.tables
	if _, known := t.tunnels.Get(vtep); !known || !p.isIP() || p.ARP != nil || p.isND() || p.DstMAC.Multicast() {
		return dropped(driver.DropUnknownSource)
	}
	if p.DstMAC == desired.RouterMAC {
		return k.backToHost(from, p, vtep)
	}
	if !t.isOutside(from.net, p.Src) || from.net.Routed && !t.byItsNode(p.Src, vtep) {
		return dropped(driver.DropSpoof)
	}
	to := t.stations.onNetwork(from.net, p.Dst)
	switch {
	case p.damaged():
		return dropped(driver.DropInvalid)
	case to.port == nil:
		return dropped(driver.DropUnknownDest)
	}
	from.by = vtep
	return k.fromBackend(from, p)
}

// backToHost gives a packet of a backend elsewhere to the host, as the service's.
func (k *kernel) backToHost(from origin, p *Packet, vtep netip.Addr) Verdict {
	s := k.tables.stations.onNetwork(from.net, p.Src)
	if s.remote == nil || s.remote.VTEP != vtep || s.identity() == model.IdentityUnknown {
		return dropped(driver.DropUnknownSource)
	}
	tr := k.translationBack(from.net, p)
	if from.net.Routed && tr == nil {
		return k.backToStack(from, p)
	}
	switch {
	case p.damaged() || tr != nil && request(p):
		return dropped(driver.DropInvalid)
	case tr == nil || !tr.outside():
		return dropped(driver.DropUnknownDest)
	}
	return k.toClientOutside(from, p, tr)
}

// toClientOutside gives a backend's packet to the host's stack, in the service's name.
func (k *kernel) toClientOutside(from origin, p *Packet, tr *translation) Verdict {
	v := k.forwardBy(from, p, &Verdict{Host: true})
	if !v.Passed() {
		return v
	}
	k.nat.fragment(from.net, p, tr)
	k.nat.countIn(tr, p)
	v.Sent = tr.toClient(p)
	v.Sent.Port, v.Sent.VTEP, v.Sent.Network = "", netip.Addr{}, 0
	v.Sent.SrcMAC, v.Sent.DstMAC = desired.RouterMAC, desired.RouterMAC
	return v
}

// backBy is the host by which the client outside came whom a container's packet to
// the router answers; zero when there is none.
func (k *kernel) backBy(from origin, p *Packet) netip.Addr {
	if from.port == nil || p.DstMAC != desired.RouterMAC {
		return netip.Addr{}
	}
	orig, ok := k.conns.classify(from.net, p, true)
	if !ok || orig.src != p.Dst {
		return netip.Addr{}
	}
	return k.conns.conns[orig].by
}

// back sends a container's packet to a client outside by the host that the client
// came by.
func (k *kernel) back(from origin, p *Packet, by netip.Addr) Verdict {
	if _, known := k.tables.tunnels.Get(by); !known {
		return dropped(driver.DropUnknownDest)
	}
	sent := *p
	sent.Port, sent.SrcMAC = "", desired.RouterMAC
	return k.forwardBy(from, p, &Verdict{VTEPs: []netip.Addr{by}, Network: from.net.ID, Sent: &sent})
}

// relay sends a packet of a client outside to a backend that is no endpoint, by the host's stack.
func (k *kernel) relay(n *desired.Network, p *Packet) Verdict {
	t := k.tables
	port := p.DstPort
	if p.Frag != nil && p.Frag.Offset != 0 {
		port = 0
	}
	if !t.private.Relays(n, netip.AddrPortFrom(p.Dst, port), p.Proto) || t.isOtherNetwork(n, p.Dst) || t.routedNetworkAt(p.Dst) != nil {
		return dropped(driver.DropUnknownDest)
	}
	return Verdict{Host: true}
}

// relayNetwork has the tuples behind relayed translations, which are of no network's domain.
var relayNetwork = &desired.Network{}

// fromRelay judges what the host's stack sends to HostNAT.Relay: answers of backends that are no
// endpoints, to clients outside.
func (k *kernel) fromRelay(p *Packet) Verdict {
	if p.damaged() || p.isND() {
		return dropped(driver.DropInvalid)
	}
	tr, taken := k.replyTranslation(relayNetwork, p)
	switch {
	case taken:
		return dropped(driver.DropInvalid)
	case tr == nil:
		return dropped(driver.DropUnknownDest)
	}
	k.nat.fragment(relayNetwork, p, tr)
	k.nat.countIn(tr, p)
	q := tr.toClient(p)
	q.Host, q.SrcMAC, q.DstMAC = false, desired.RouterMAC, desired.RouterMAC
	return Verdict{Host: true, Sent: q}
}
