package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// serviceConn is a connection of a client of host h1 to a service.
type serviceConn struct {
	client  model.Endpoint
	request reference.Packet  // its first packet
	behind  *reference.Packet // as the last one that came through left; nil = none did
	by      model.Endpoint    // the backend of that
	port    uint16            // at which it is asked
	ended   bool              // a packet of it has said so, or its tuple is used by others too
	known   bool              // the backend has answered: trackers pick up nothing sooner
	// bound tells that as the rules are, the connection stays with by.
	bound   bool
	domain  desired.Domain   // of its client, while it is bound
	service model.ServiceKey // likewise
}

// packet sends a random packet; it tells whether that came through.
func (x *randomServices) packet() bool {
	x.t.Helper()
	if len(x.clients) > 24 {
		x.clients = slices.Delete(x.clients, 0, 8)
	}
	if len(x.clients) == 0 || x.r.IntN(3) == 0 {
		return x.beginConnection()
	}
	i := x.r.IntN(len(x.clients))
	c := x.clients[i]
	if c.behind == nil && (x.single || x.r.IntN(4) > 0) { // a client without answer gives up
		x.clients = slices.Delete(x.clients, i, i+1)
		return x.beginConnection()
	}
	if x.plain && c.ended {
		return x.beginConnection()
	}
	if c.behind == nil || x.plain && !c.known && x.r.IntN(4) > 0 {
		if c.behind != nil {
			return x.sendReply(c)
		}
		return x.sendClientPacket(c, c.request, "again")
	}
	switch x.r.IntN(16) {
	case 0, 1, 2, 3:
		return x.sendLaterPacket(c)
	case 4:
		c.ended = c.ended || x.plain && c.known // tracking may keep to its numbers
		return x.sendClientPacket(c, c.request, "asks again")
	case 5, 6, 7, 8:
		return x.sendReply(c)
	case 9:
		return x.sendEnd(c)
	case 10:
		return x.inParts(c)
	case 11, 12:
		return x.sendICMPError(c)
	case 13:
		return x.sendUnrelated(c)
	case 14:
		return x.askNeighbour(c)
	}
	return x.beginConnection()
}

// check sends a packet to the reference and to the data plane and compares; it
// returns what became of it.
func (x *randomServices) check(what string, p reference.Packet) reference.Verdict {
	x.t.Helper()
	if _, there := x.pic.Ports.Get(p.Port); p.Port != "" && !there || x.bench.SkipPacket != nil && x.bench.SkipPacket(p) != "" {
		return reference.Verdict{Drop: "skipped"}
	}
	p = x.malform(p)
	var v, v2 reference.Verdict
	if x.bench.Differs[Chosen] == "" {
		v, v2 = x.bench.ref.Send(p), x.bench.Send(x.t, p)
	} else {
		if v2 = x.bench.Send(x.t, p); v2.Sent != nil {
			x.bench.ref.Prefer(v2.Sent.Dst)
		} else if p.Host { // dropped, as clients outside are whose backend is outside
			x.bench.ref.Prefer(x.externalAddrs()...)
		}
		v = x.bench.ref.Send(p)
		x.bench.ref.Prefer()
	}
	x.note("%s: %s form %d damage %d: %s", what, sentText(&p), p.Form, p.Damage, v)
	if !sameVerdict(x.t, what, p, v, v2) {
		x.fail()
	}
	return v
}

// beginConnection begins a connection of some client to some service, or to what might be one.
func (x *randomServices) beginConnection() bool {
	x.t.Helper()
	s := x.shops[x.r.IntN(len(x.shops))]
	n := x.networkOf(s)
	var from []model.Endpoint
	for _, e := range x.top.Endpoints {
		if e.Host == "h1" && !x.deleted[e.Key] && (e.Key.Network == n.Key || x.r.IntN(map[bool]int{true: 3, false: 16}[e.Key.Network.Tenant == n.Key.Tenant]) == 0) {
			from = append(from, e)
		}
	}
	if len(from) == 0 {
		return false
	}
	e := from[x.r.IntN(len(from))]
	port := desired.ServicePort{Protocol: model.ProtoTCP, Port: 444}
	if x.r.IntN(24) > 0 {
		port = s.of.Ports[x.r.IntN(len(s.of.Ports))]
	}
	*x.sport++
	if *x.sport < 20000 {
		*x.sport = 20000
	}
	sport, reused := *x.sport, len(x.clients) > 0 && !x.plain && x.r.IntN(4) == 0
	if reused { // another connection's
		sport = x.clients[x.r.IntN(len(x.clients))].request.SrcPort
	}
	v6 := x.r.IntN(2) == 0 && s.of.IPv6.IsValid() && e.IPv6.IsValid() || !s.of.IPv4.IsValid()
	p := between(x.top, e, e, port.Protocol, v6, sport, port.Port)
	p.DstMAC, p.Dst = desired.RouterMAC, s.of.IPv4
	if v6 {
		p.Dst = s.of.IPv6
	}
	if !p.Src.IsValid() {
		return false
	}
	switch x.r.IntN(40) {
	case 0:
		p.DstMAC = model.MAC{2, 9, 9, 9, 9, 9}
	case 1:
		if !x.plain {
			p.TTL = 1
		}
	case 2:
		if p.Proto == model.ProtoTCP && !x.plain {
			p.TCPFlags = one(x.r, reference.FlagACK, reference.FlagRST, reference.FlagSYN|reference.FlagACK)
		}
	case 3:
		if v6 {
			p.Src = e.MAC.LinkLocal()
		}
	case 4:
		if v6 && s.of.IPv4.IsValid() {
			p.Dst = netip.AddrFrom16(s.of.IPv4.As16()) // mapped
		}
	}
	for _, c := range x.clients {
		if q := c.request; q.Port == p.Port && q.Src == p.Src && q.Dst == p.Dst && q.Proto == p.Proto && q.SrcPort == p.SrcPort && q.DstPort == p.DstPort {
			c.ended, c.bound = true, false
		}
	}
	c := &serviceConn{client: e, request: p, ended: reused}
	x.clients = append(x.clients, c)
	return x.sendClientPacket(c, p, "asks")
}

// sendClientPacket sends a client's packet to its service, and judges where it went.
func (x *randomServices) sendClientPacket(c *serviceConn, p reference.Packet, what string) bool {
	x.t.Helper()
	what = fmt.Sprintf("%s %s %s", c.client.Key, what, askedText(p))
	v := x.check(what, p)
	if nowhere(v) || v.Sent == nil {
		return false
	}
	x.judge(what, c, p, v)
	return true
}

// sendLaterPacket sends a later packet of a client's.
func (x *randomServices) sendLaterPacket(c *serviceConn) bool {
	x.t.Helper()
	p := laterPacket(c.request)
	if x.r.IntN(12) == 0 && c.by.Key != c.client.Key {
		p.TTL = 1
	}
	return x.sendClientPacket(c, p, "goes on")
}

// reply makes the backend's answer to the last packet of a connection that came through.
func (x *randomServices) reply(c *serviceConn) reference.Packet {
	q := c.behind
	var r reference.Packet
	if c.by.Host != "" {
		r = origin(x.top, c.by)
	}
	r.SrcMAC, r.DstMAC, r.Src, r.Dst, r.Proto, r.SrcPort, r.DstPort = c.by.MAC, c.client.MAC, q.Dst, q.Src, q.Proto, q.DstPort, q.SrcPort
	if q.Proto == model.ProtoTCP {
		r.TCPFlags = reference.FlagACK
		if q.TCPFlags == reference.FlagSYN {
			r.TCPFlags |= reference.FlagSYN
		}
	}
	switch {
	case c.by.Host == "":
		return fromExternal(r)
	case c.by.Key == c.client.Key:
		r.DstMAC = desired.RouterMAC
		return r
	}
	return inTransit(x.top, r, c.by, c.client)
}

// sendBackendPacket sends a backend's packet. While the connection is bound, it comes to the client
// in the service's name or not at all.
func (x *randomServices) sendBackendPacket(c *serviceConn, what string, r reference.Packet) bool {
	x.t.Helper()
	v := x.check(what, r)
	if nowhere(v) {
		return false
	}
	if got := v.Sent; c.bound && (got == nil || got.Src != c.request.Dst || !slices.Equal(v.Ports, []string{compile.IfName(c.client.Key)})) {
		x.t.Errorf("%s: %s (%+v), want it at the client in the service's name", what, v, got)
		x.fail()
	}
	return true
}

// sendReply sends a backend's answer.
func (x *randomServices) sendReply(c *serviceConn) bool {
	x.t.Helper()
	if x.deleted[c.by.Key] {
		return false
	}
	r, what := x.reply(c), fmt.Sprintf("%s answers %s", c.by.Key, c.client.Key)
	if c.by.Key == c.client.Key {
		switch x.r.IntN(4) {
		case 0: // any gateway
			r.DstMAC = model.MAC{2, 9, 9, 9, 9, 9}
		case 1:
			if r.Src.Is6() {
				r.Src = c.by.MAC.LinkLocal()
			}
		case 2: // of no connection
			r.DstPort++
			return !nowhere(x.check(what, r))
		}
	}
	came := x.sendBackendPacket(c, what, r)
	c.known = c.known || came
	return came
}

// sendEnd sends an end of a connection, of either side.
func (x *randomServices) sendEnd(c *serviceConn) bool {
	x.t.Helper()
	if c.request.Proto != model.ProtoTCP || x.deleted[c.by.Key] || x.plain && !c.known {
		return false
	}
	flags := one(x.r, reference.FlagFIN|reference.FlagACK, reference.FlagFIN|reference.FlagACK, reference.FlagRST|reference.FlagACK)
	c.ended = true
	if x.r.IntN(2) == 0 {
		p := c.request
		p.TCPFlags = flags
		return x.sendClientPacket(c, p, "ends")
	}
	r := x.reply(c)
	r.TCPFlags = flags
	return x.sendBackendPacket(c, fmt.Sprintf("%s ends it with %s", c.by.Key, c.client.Key), r)
}

// inParts sends a datagram in fragments, by either side, perhaps the later one alone.
func (x *randomServices) inParts(c *serviceConn) bool {
	x.t.Helper()
	if c.request.Proto != model.ProtoUDP || x.deleted[c.by.Key] || x.plain && !c.bound {
		return false
	}
	*x.sport++
	p, who, send := c.request, c.client.Key, func(what string, p reference.Packet) bool { return x.sendClientPacket(c, p, what) }
	if x.r.IntN(2) == 0 {
		p, who = x.reply(c), c.by.Key
		send = func(what string, p reference.Packet) bool {
			return x.sendBackendPacket(c, fmt.Sprint(who, " ", what), p)
		}
	}
	first, last, stray := inParts(p, uint32(*x.sport))
	if x.r.IntN(4) == 0 {
		return send("a later fragment alone", stray)
	}
	send("a first fragment", first)
	return send("a last fragment", last)
}

// sendICMPError sends an ICMP error about a packet of a connection.
func (x *randomServices) sendICMPError(c *serviceConn) bool {
	x.t.Helper()
	if x.deleted[c.by.Key] || x.plain && !c.bound {
		return false
	}
	p, who, ok := x.icmpError(c.request, *c.behind, x.reply(c))
	return ok && !nowhere(x.check(fmt.Sprintf("%s tells, of %s and %s", who, c.client.Key, c.by.Key), p))
}

// icmpError makes an ICMP error about a packet of a connection: of the client, of the backend,
// which replies so, or of a router between. ok is false if the driver is known to do otherwise.
func (x *randomServices) icmpError(request, behind, reply reference.Packet) (p reference.Packet, who string, ok bool) {
	v6 := request.Src.Is6()
	if v6 && request.Proto == model.ProtoTCP && x.bench.Differs[QuotedTCP] != "" {
		return p, "", false
	}
	proto, types := model.ProtoICMP, []uint8{3, 11}
	if v6 {
		proto, types = model.ProtoICMPv6, []uint8{1, 2, 3}
	}
	p, who = reply, "the backend"
	q := reference.Packet{Src: behind.Src, Dst: behind.Dst, Proto: behind.Proto, SrcPort: behind.SrcPort, DstPort: behind.DstPort}
	switch odd := x.r.IntN(6) == 0; {
	case x.r.IntN(3) == 0: // of what it got
		if x.bench.Differs[ClientsErrors] != "" {
			return p, "", false
		}
		p, who = request, "the client"
		q = reference.Packet{Src: request.Dst, Dst: request.Src, Proto: request.Proto, SrcPort: request.DstPort, DstPort: request.SrcPort}
		if odd && x.r.IntN(2) == 0 { // which another one got
			q.Dst = q.Dst.Next()
		} else if odd {
			q.DstPort++
		}
	case odd:
		q.SrcPort++
	case x.r.IntN(4) == 0 && !x.plain:
		if p.Src, who = Outside, "a router"; v6 {
			p.Src = Outside6
		}
	}
	p.Proto, p.SrcPort, p.DstPort, p.TCPFlags, p.ICMPType, p.TTL, p.Inner = proto, 0, 0, 0, one(x.r, types...), 0, &q
	return p, who, true
}

// sendUnrelated sends what is no connection's to a service, by the tuple behind one, or by
// another one.
func (x *randomServices) sendUnrelated(c *serviceConn) bool {
	x.t.Helper()
	if x.deleted[c.by.Key] || x.deleted[c.client.Key] || c.by.Key == c.client.Key {
		return false
	}
	p := between(x.top, c.client, c.by, c.request.Proto, c.request.Src.Is6(), c.behind.SrcPort, c.port)
	if c.by.Host != "" { // else by the router's MAC, which it has
		p = inTransit(x.top, p, c.client, c.by)
	}
	what, asks := fmt.Sprintf("%s asks %s itself", c.client.Key, c.by.Key), x.r.IntN(3) > 0
	if !asks {
		p, what = x.reply(c), fmt.Sprintf("%s asks %s", c.by.Key, c.client.Key)
		if p.Proto == model.ProtoTCP {
			p.TCPFlags = reference.FlagSYN
		}
	}
	fresh := x.plain || x.r.IntN(2) == 0
	if fresh {
		*x.sport++
		p.SrcPort, p.DstPort = *x.sport, 80
	} else {
		c.ended, c.bound = true, false
	}
	came := !nowhere(x.check(what, p))
	if came && fresh && asks && c.by.Host != "" {
		x.check(what+" and gets its answer", inTransit(x.top, answerTo(x.top, p, c.client, c.by), c.by, c.client))
	}
	return came
}

// askNeighbour asks for the virtual address's neighbour, or pings it. From another host,
// where the address means nothing here, it connects to it instead.
func (x *randomServices) askNeighbour(c *serviceConn) bool {
	x.t.Helper()
	from, proto := c.client, model.ProtoICMP
	for _, e := range x.top.Endpoints {
		if e.Key.Network == c.client.Key.Network && e.Host != "h1" && !x.deleted[e.Key] && x.r.IntN(3) == 0 {
			from, proto = e, model.ProtoTCP
		}
	}
	p, what := origin(x.top, from), fmt.Sprintf("%s asks for %s", from.Key, c.request.Dst)
	p.SrcMAC, p.DstMAC = from.MAC, reference.Broadcast
	switch v6 := c.request.Src.Is6(); {
	case x.r.IntN(2) == 0:
		what = fmt.Sprintf("%s sends %s to %s", from.Key, proto, c.request.Dst)
		p = between(x.top, from, from, proto, v6, *x.sport, c.request.DstPort)
		p.DstMAC, p.Dst = desired.RouterMAC, c.request.Dst
	case v6:
		p.Src, p.Proto, p.ICMPType = from.IPv6, model.ProtoICMPv6, reference.NDNeighborSolicit
		p.Dst, p.DstMAC = reference.SolicitedNode(c.request.Dst)
		p.ND = &reference.ND{Target: c.request.Dst, LinkAddr: p.SrcMAC, HasLink: true}
	default:
		p.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: p.SrcMAC, SenderIP: from.IPv4, TargetIP: c.request.Dst}
	}
	x.check(what, p)
	return false
}

func askedText(p reference.Packet) string { return fmt.Sprintf("%s:%d", p.Dst, p.DstPort) }

// judge says what is wrong with where a client's packet went, whatever the reference
// says: a new connection goes to a backend that takes it, at the port's backends' port;
// one that is bound stays.
func (x *randomServices) judge(what string, c *serviceConn, p reference.Packet, v reference.Verdict) {
	x.t.Helper()
	port, _ := x.pic.Ports.Get(p.Port)
	if port == nil || p.Frag != nil && p.Frag.Offset != 0 {
		return
	}
	n, _ := x.pic.Networks.Get(port.Network)
	s := serviceAt(x.pic, n, p.Dst)
	if s == nil {
		return // it is somebody's address, perhaps
	}
	wrong := func(why string) {
		x.t.Errorf("%s: it went to %s:%d: %s", what, v.Sent.Dst, v.Sent.DstPort, why)
		x.fail()
	}
	for e, b := range s.Backends.All() {
		if v.Sent.Dst != b.Addr(p.Src.Is6()) {
			continue
		}
		to, _ := s.PortOf(p.Proto, p.DstPort)
		old, there := s.Backends.Get(c.by.Key)
		request := p.TCPFlags == reference.FlagSYN && c.bound
		renewed := request && (!there || old.Serving(p.Src.Is6()).State != desired.BackendActive)
		if request && e != c.by.Key && !x.acceptsNew(s, c.by.Key, p) {
			renewed = true // an active backend that the traffic policy has put out of the pool may be kept, or not
		}
		switch was := c.bound && !renewed; {
		case was && e != c.by.Key:
			wrong("it was bound to " + c.by.Key.String())
		case was && v.Sent.DstPort != c.port:
			wrong(fmt.Sprintf("it was bound to port %d", c.port))
		case !was && !c.bound && !c.ended && c.behind == nil && (!x.acceptsNew(s, e, p) || v.Sent.DstPort != b.PortFor(p.Src.Is6(), to.Backend)):
			wrong("that takes nothing new")
		case renewed && !x.acceptsNew(s, e, p):
			wrong("that takes nothing new either")
		}
		c.by, c.port = x.endpointOrBackend(e), v.Sent.DstPort
		sent := *v.Sent
		c.behind, c.bound, c.domain, c.service = &sent, !c.ended, n.Domain(), s.Key
		return
	}
	if c.bound && v.Sent.Dst == addressOf(c.by, p.Src.Is6()) {
		return // no backend any more
	}
	if !c.ended {
		wrong("that is no backend")
	}
}

// acceptsNew reports whether a backend takes new connections of a client inside.
func (x *randomServices) acceptsNew(s *desired.Service, k model.EndpointKey, p reference.Packet) bool {
	b, ok := s.Backends.Get(k)
	return ok && s.Pools().Of(p.Src.Is6(), s.InternalPolicy).Has(b)
}

// forget finds out whether a connection is still bound after a change: what ends a
// translation in docs/design/services.md.
func (c *serviceConn) forget(x *randomServices) {
	port, _ := x.pic.Ports.Get(c.request.Port)
	if port == nil || x.deleted[c.by.Key] {
		c.bound = false
		return
	}
	n, _ := x.pic.Networks.Get(port.Network)
	s := serviceAt(x.pic, n, c.request.Dst)
	if s == nil || n.Domain() != c.domain || s.Key != c.service {
		c.bound = false
		return
	}
	to, ok := s.PortOf(c.request.Proto, c.request.DstPort)
	b, there := s.Backends.Get(c.by.Key)
	v6 := c.request.Dst.Is6()
	if !ok || c.request.Proto == model.ProtoUDP && (!there || b.Serving(v6).State == desired.BackendUnhealthy || b.PortFor(v6, to.Backend) != c.port) {
		c.bound = false
	}
}
