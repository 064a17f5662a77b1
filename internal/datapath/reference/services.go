package reference

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services; see docs/design/services.md.

// otherPorts is how many source ports are tried when the client's own is taken behind the
// translation. After the last port they continue at firstPort.
const (
	otherPorts = 64
	firstPort  = 1024
)

// tracked is a translated tuple as the table of connections has it.
func tracked(n *desired.Network, f flow) flow {
	return flow{spaceOf(n, f.src, f.dst), f.src, f.dst, f.proto, f.srcPort, f.dstPort}
}

// serviceAnswers reports whether a container asks for a virtual address, or for a
// link-local service address: the router answers for them.
func (t *tables) serviceAnswers(from origin, p *Packet) bool {
	if from.port == nil || !isNeighbourRequest(p) {
		return false
	}
	a := requestedAddr(p)
	return isServiceAddr(a) && t.hasServices(from.net) || t.virtual(from.net, a)
}

func isServiceAddr(a netip.Addr) bool { return a == desired.ServiceAddr || a == desired.ServiceAddr6 }

func serviceAddr(v6 bool) netip.Addr {
	if v6 {
		return desired.ServiceAddr6
	}
	return desired.ServiceAddr
}

// serve judges an IP packet, translated where it is a service's.
func (k *kernel) serve(from origin, p *Packet) Verdict {
	if from.port != nil && !p.DstMAC.Multicast() {
		if isServiceAddr(p.Dst) && k.tables.hasServices(from.net) {
			return k.toItself(from, p)
		}
		if k.isForService(from.net, p) {
			return k.toService(from, p)
		}
		if p.hasPorts() && k.ownedBy(k.nat.behind[tupleOf(from.net, p)], p) {
			return dropped(driver.DropInvalid)
		}
	}
	tr, taken := k.replyTranslation(from.net, p)
	if taken {
		return dropped(driver.DropInvalid)
	}
	if by := k.backBy(from, p); by.IsValid() {
		return k.back(from, p, by)
	}
	if k.answersStack(from, p) {
		return k.forwardBy(from, p, toStack(p))
	}
	if tr != nil && tr.outside() && from.port != nil && !p.DstMAC.Multicast() {
		return k.toClientOutside(from, p, tr)
	}
	return k.toClient(from, p, tr, k.forward(from, p))
}

// replyTranslation is the translation by which a packet goes back to its client, which a request
// does not; taken tells that it is one, and that a translation has its tuple.
func (k *kernel) replyTranslation(n *desired.Network, p *Packet) (tr *translation, taken bool) {
	if tr = k.translationBack(n, p); tr == nil || !request(p) {
		return tr, false
	}
	return nil, k.ownedBy(tr, p)
}

// toClient translates what v says of a packet that answers a client on this host.
func (k *kernel) toClient(from origin, p *Packet, tr *translation, v Verdict) Verdict {
	if tr == nil || tr.outside() || len(v.Ports) != 1 || v.Ports[0] != tr.client {
		return v
	}
	k.nat.fragment(from.net, p, tr)
	k.nat.countIn(tr, p)
	if v.Sent != nil {
		p = v.Sent
	}
	v.Sent = tr.toClient(p)
	v.Sent.SrcMAC = desired.RouterMAC
	return v
}

// fromBackend judges what comes from beyond this host's networks to an endpoint: it may
// be the answer of a backend that is none.
func (k *kernel) fromBackend(from origin, p *Packet) Verdict {
	tr, taken := k.replyTranslation(from.net, p)
	if taken {
		return dropped(driver.DropInvalid)
	}
	return k.toClient(from, p, tr, k.forward(from, p))
}

// ownedBy reports whether a translation keeps the tuple behind it, which a packet has
// that is no client's to its service: a request ends one that is closed.
func (k *kernel) ownedBy(tr *translation, p *Packet) bool {
	if tr != nil && tr.closed() && request(p) {
		k.endTranslation(tr)
		return false
	}
	return tr != nil
}

func request(p *Packet) bool {
	return p.Proto == model.ProtoTCP && p.hasPorts() && p.TCPFlags&(FlagSYN|FlagACK) == FlagSYN
}

// translationBack is the translation by which a packet goes back to the client.
func (k *kernel) translationBack(n *desired.Network, p *Packet) *translation {
	switch {
	case p.Frag != nil && p.Frag.Offset != 0:
		if tr := k.nat.frags[fragOf(n, p)]; tr != nil && p.Dst == tr.behind.src {
			return tr
		}
	case p.isError():
		if p.Inner != nil && p.Inner.Src == p.Dst {
			return k.nat.behind[tupleOf(n, p.Inner)]
		}
	case p.hasPorts():
		return k.nat.behind[tupleOf(n, p).reversed()]
	}
	return nil
}

// toService judges what a container, or somebody outside by the host, sends to a
// virtual address.
func (k *kernel) toService(from origin, p *Packet) Verdict {
	if p.DstMAC != desired.RouterMAC {
		return dropped(driver.DropUnknownDest)
	}
	if from.port != nil && (!from.net.Contains(p.Src) || from.port.Identity == model.IdentityUnknown && from.net.Encap == model.EncapVXLAN) {
		return dropped(driver.DropUnknownSource)
	}
	var tr *translation
	fresh := false
	switch {
	case p.Frag != nil && p.Frag.Offset != 0:
		if tr = k.nat.frags[fragOf(from.net, p)]; tr == nil {
			return dropped(driver.DropInvalid)
		}
	case p.isError():
		if p.Inner != nil && p.Inner.Src == p.Dst {
			tr = k.nat.original[tupleOf(from.net, p.Inner).reversed()]
		}
		if tr == nil {
			return dropped(driver.DropInvalid)
		}
	case !p.Proto.HasPorts():
		return dropped(driver.DropNoProvider)
	default:
		tr = k.nat.original[tupleOf(from.net, p)]
		if tr != nil && request(p) && !active(k.tables.services[tr.service], tr.backend, p.Dst.Is6()) {
			tr = nil
		}
		if tr == nil {
			var v Verdict
			if tr, v = k.choose(from, p); tr == nil {
				return v
			}
			fresh = true
		}
	}
	q := tr.toBackend(p)
	var v Verdict
	switch backend := k.tables.stations.byAddr(from.net, tr.behind.dst); {
	case tr.foreign && backend.known():
		return dropped(driver.DropUnknownDest) // it is an endpoint's, which is another backend
	case tr.relayed():
		v = k.relay(from.net, q)
	case tr.foreign: // led out, as if the client had asked there itself
		v = k.forward(from, q)
	case tr.hairpin():
		q.SrcMAC, q.DstMAC = desired.RouterMAC, from.port.MAC
		v = Verdict{Ports: []string{from.port.IfName}}
	case from.host:
		from.net, q.DstMAC = k.tables.networks[backend.network()], backend.mac()
		if from.net == nil {
			return dropped(driver.DropUnknownDest)
		}
		v = k.forward(from, q)
	case from.net.Contains(tr.behind.dst):
		q.DstMAC = backend.mac()
		v = k.forward(from, q)
	default: // routed, as it came
		v = k.forward(from, q)
	}
	if !v.Passed() {
		if v.Answer != nil { // of the router, about what the client never sent
			v.Answer = tr.toClient(v.Answer)
		}
		return v
	}
	if fresh {
		if old := k.nat.original[tr.original]; old != nil && old.behind == tr.behind {
			k.nat.remove(old) // the connection behind it is this one's
		} else if old != nil {
			k.endTranslation(old)
		}
		k.nat.add(tr)
		k.nat.setAffinity(k.tables.services[tr.service], p.Src, tr.backend)
	}
	k.nat.fragment(from.net, p, tr)
	k.nat.countOut(tr, p)
	if v.Sent == nil {
		v.Sent = q
	}
	return v
}

func active(s *desired.Service, backend model.EndpointKey, v6 bool) bool {
	if s == nil {
		return false
	}
	b, ok := s.Backends.Get(backend)
	return ok && b.Serving(v6).State == desired.BackendActive
}

// choose begins a translation, or says why not.
func (k *kernel) choose(from origin, p *Packet) (*translation, Verdict) {
	if p.Proto == model.ProtoTCP && (p.TCPFlags&FlagRST != 0 || p.TCPFlags&(FlagSYN|FlagACK) == FlagSYN|FlagACK) {
		return nil, dropped(driver.DropInvalid)
	}
	s, frontend := k.tables.frontendAt(from.net, p.Dst, p.Proto, p.DstPort)
	switch {
	case s == nil, from.host && !s.Exposed:
		return nil, refused(p)
	case !frontend.Takes(p.Src):
		return nil, dropped(driver.DropNoProvider)
	}
	v6 := p.Src.Is6()
	among := frontend.InternalPolicy
	if from.host {
		if among = frontend.ExternalPolicy; k.tables.isHost(p.Src) {
			among = desired.TrafficLocal
		}
	}
	pools := s.Pools()
	key, stays := k.nat.affinityBackend(s, p.Src)
	if b, there := s.Backends.Get(key); !stays || !there || !pools.Of(v6, among).Has(b) {
		slot := desired.Slot(s.Seed(), s.Affinity > 0 && !k.nat.hasAffinityRoom(s, p.Src), p.Src, p.Proto, p.SrcPort, p.DstPort)
		if key, there = s.Choose(slot, v6, among); !there {
			if among == desired.TrafficLocalDrop && pools.HasBackends(v6) {
				return nil, dropped(driver.DropNoProvider)
			}
			return nil, refused(p)
		}
		if other, may := k.preferredOf(s, v6, among); may {
			key = other
		}
	}
	b, _ := s.Backends.Get(key)
	tr := &translation{
		original: tupleOf(from.net, p), service: s.Key, backend: key, network: from.net.ID, foreign: b.External(),
		backendMAC: k.tables.stations.byAddr(from.net, b.Addr(v6)).mac(),
		counted:    driver.ServiceOf{Service: s.Key, Protocol: p.Proto, Port: p.DstPort, IPv6: v6, Backend: key},
	}
	if from.port != nil {
		tr.client, tr.clientMAC, tr.counted.Client = from.port.IfName, from.port.MAC, from.port.Endpoint
	}
	tr.behind = tr.original
	if tr.behind.dst, tr.behind.dstPort = b.Addr(v6), b.PortFor(v6, frontend.Backend); tr.hairpin() {
		tr.behind.src = serviceAddr(v6)
	}
	if tr.relayed() {
		tr.behind.domain, tr.behind.src = 0, k.tables.private.Relay(v6)
	}
	if !k.freePort(from.net, tr) {
		return nil, dropped(driver.DropInvalid)
	}
	return tr, Verdict{}
}

// preferredOf is the backend that Prefer has named, where it may be chosen.
func (k *kernel) preferredOf(s *desired.Service, v6 bool, among desired.TrafficPolicy) (key model.EndpointKey, may bool) {
	for e, b := range s.Pool(v6, among) {
		if slices.Contains(k.preferred, b.Addr(v6)) {
			return e, true
		}
	}
	return key, false
}

// freePort gives a translation another port of the client's while another
// connection has its tuple behind the service.
func (k *kernel) freePort(n *desired.Network, tr *translation) bool {
	for range otherPorts {
		by := k.nat.behind[tr.behind]
		_, direct := k.conns.known(tracked(n, tr.behind))
		if by != nil && by.original == tr.original || by == nil && !direct {
			return true // free, or of the same client's former translation, which this one replaces
		}
		if tr.behind.srcPort++; tr.behind.srcPort < firstPort {
			tr.behind.srcPort = firstPort
		}
	}
	return false
}

// toItself judges the answers that a container which is its own backend sends to a
// link-local service address, to whichever gateway its default route says. Asked by
// IPv6, a socket that is bound to no address answers by the container's link-local
// address (RFC 6724 rule 2): that is the backend as well.
func (k *kernel) toItself(from origin, p *Packet) Verdict {
	if p.Src.Is6() && p.Src.IsLinkLocalUnicast() && from.port.IPv6.IsValid() {
		own := *p
		own.Src = from.port.IPv6
		p = &own
	}
	tr := k.translationBack(from.net, p)
	if p.isError() && p.Inner != nil && p.Inner.Dst != p.Src {
		tr = nil
	}
	if tr == nil || tr.client != from.port.IfName {
		return dropped(driver.DropUnknownDest)
	}
	k.nat.fragment(from.net, p, tr)
	k.nat.countIn(tr, p)
	q := tr.toClient(p)
	q.SrcMAC, q.DstMAC = desired.RouterMAC, from.port.MAC
	return Verdict{Ports: []string{from.port.IfName}, Sent: q}
}

// refused is the answer to a client of a service without backends.
func refused(p *Packet) Verdict {
	a := Packet{SrcMAC: desired.RouterMAC, DstMAC: p.SrcMAC, Src: p.Dst, Dst: p.Src}
	if p.Proto == model.ProtoTCP {
		a.Proto, a.SrcPort, a.DstPort, a.TCPFlags = p.Proto, p.DstPort, p.SrcPort, FlagRST
		if p.TCPFlags&FlagACK == 0 {
			a.TCPFlags |= FlagACK
		}
	} else {
		quoted := *p
		quoted.Port = ""
		a.Proto, a.ICMPType, a.ICMPCode, a.Inner = model.ProtoICMP, 3, 3, &quoted
		if p.Src.Is6() {
			a.Proto, a.ICMPType, a.ICMPCode = model.ProtoICMPv6, 1, 4
		}
	}
	return Verdict{Drop: driver.DropNoProvider, Answer: &a}
}

// judgeServices judges the services that have changed, and those of networks that
// have come or gone.
func (p *desiredStates) judgeServices(old desired.Host, t *changedObjects, flipped map[model.NetworkID]struct{}) {
	again := map[model.ServiceKey]struct{}{}
	for c := range p.want.Services.Diff(old.Services) {
		again[c.Key] = struct{}{}
		if c.Had {
			p.servicesOn.remove(c.Old.Network, c.Key)
		}
		if c.Has {
			p.servicesOn.add(c.New.Network, c.Key)
		}
	}
	if differs(p.want.NodeAddrs, old.NodeAddrs) {
		for key, s := range p.want.Services.All() {
			if len(s.Frontends) > 0 {
				again[key] = struct{}{}
			}
		}
	}
	for id := range flipped {
		for key := range p.servicesOn[id] {
			again[key] = struct{}{}
		}
	}
	for key := range again {
		t.services[key] = struct{}{}
		var err error
		if s, ok := p.want.Services.Get(key); ok {
			_, has := p.want.Networks.Get(s.Network)
			err = s.Check(key, has && p.refused[s.Network] == nil)
		}
		p.refuse(key, err)
	}
}

func serviceName(k model.ServiceKey) string { return "service " + k.String() }

// serviceLines are a service as text.
func serviceLines(name string, s *desired.Service) []string {
	lines := []string{fmt.Sprintf("%s network %d addresses %s %s affinity %s exposed %t", name, s.Network, addrText(s.IPv4), addrText(s.IPv6), s.Affinity, s.Exposed)}
	for _, p := range s.Ports {
		lines = append(lines, fmt.Sprintf("%s port proto %d %d to %d", name, p.Protocol, p.Port, p.Backend))
	}
	for _, f := range s.Frontends {
		lines = append(lines, fmt.Sprintf("%s frontend %s proto %d %d to %d inside %d outside %d sources %v", name, f.Addr, f.Protocol, f.Port, f.Backend, f.InternalPolicy, f.ExternalPolicy, f.Sources))
	}
	for k, b := range s.Backends.All() {
		lines = append(lines, fmt.Sprintf("%s backend %s %s %s network %d identity %d %+v, by IPv6 %+v", name, k, addrText(b.IPv4), addrText(b.IPv6), b.Network, b.Identity, b.Serving(false), b.Serving(true)))
	}
	return lines
}
