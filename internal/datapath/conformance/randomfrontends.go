package conformance

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// randomFrontends are random services at few addresses, that share them and take ports from
// each other, asked by containers, by the node's own processes and by clients outside. They
// are in three domains, each with ports of its own: two have equal addresses, and the third is
// a VLAN network.
type randomFrontends struct {
	random   *randomServices
	six      bool // also by IPv6 from outside
	networks []model.Network
	services []desired.Service   // in turn of the networks
	absent   map[netip.Addr]bool // nodes' addresses that are no nodes' now
	asked    []*frontendConn
}

// frontendConn is a connection to a frontend that came to a backend.
type frontendConn struct {
	client  model.Endpoint // without a key: it is outside
	first   reference.Packet
	behind  reference.Packet // as the last one left
	by      model.Endpoint
	service model.ServiceKey
	last    bool // it gets one packet more; what a data plane keeps of it then is its own affair
}

// testRandomFrontends compares what becomes of random packets to and from frontends while
// services change.
func testRandomFrontends(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil || !h.Egress {
		t.Skip("the harness has no WayOut")
	}
	b := open(t, h)
	if can := b.drv.Capabilities(); !can.Frontends || !can.ExternalServices {
		t.Skip("the driver makes no frontends, or knows no clients outside")
	}
	top := Labelled(StandardTopology())
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Change(func(c *compile.Compiler) { WithEgress(top, c, h.Egress6) }); err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	n, seed := *serviceWorldCount, Seed()
	if h.Differs[Tracked] != "" && n == 0 {
		seed = 1
	}
	if n == 0 {
		if n = 32; h.Slow {
			n = 2
		}
	}
	t.Logf("%d random worlds, which -seed %d repeats", n, seed)
	sport, sent, through := uint16(20000), 0, 0
	foreign := b.withExternal(t, h, w)
	for i := range n {
		x := &randomFrontends{random: newRandomServices(t, b, top, w), six: h.Egress6, networks: []model.Network{top.Networks[0], top.Networks[2], top.Networks[1]}, absent: map[netip.Addr]bool{}}
		x.random.r, x.random.unusual = rand.New(rand.NewPCG(seed, uint64(i))), rand.New(rand.NewPCG(seed, 1<<32|uint64(i)))
		x.random.seed, x.random.world, x.random.sport, x.random.external = seed, uint64(i), &sport, foreign
		x.random.single = h.Differs[Chosen] != "" && x.random.r.IntN(2) == 0
		for range 4 + x.random.r.IntN(3) {
			i := len(x.services)
			x.services = append(x.services, desired.Service{Key: model.ServiceKey{Tenant: "blue", Name: fmt.Sprint("shop", i)}, Network: x.networks[i%len(x.networks)].ID})
			x.fill(i)
		}
		for range 8 {
			x.change()
			for _, c := range x.asked[max(0, len(x.asked)-12):] {
				// Before its client. Datagrams may go on if their backend was away for a moment.
				if sent++; !x.random.plain && c.first.Proto == model.ProtoTCP && x.random.r.IntN(4) == 0 {
					x.sendReply(c)
				}
				x.sendClientPacket(c, laterPacket(c.first), "goes on")
			}
			x.asked = slices.DeleteFunc(x.asked, func(c *frontendConn) bool { return c.last })
			for range 20 {
				sent++
				if x.packet() {
					through++
				}
			}
		}
	}
	if t.Logf("%d packets, %d of which came through", sent, through); through < sent/10 {
		t.Errorf("of %d packets %d came through: that is no test", sent, through)
	}
}

// frontendAddrs are the addresses at which services have frontends; one of a node's is asked by itself.
func frontendAddrs() []netip.Addr {
	return slices.Concat(both(1), both(2), nodes, []netip.Addr{node(false), node(true)})
}

// fill gives a service anything but its key.
func (x *randomFrontends) fill(i int) {
	r, s, n := x.random.r, &x.services[i], x.networks[i%len(x.networks)]
	*s = desired.Service{Key: s.Key, Network: s.Network, Exposed: r.IntN(4) > 0, Affinity: one(r, 0, 0, 0, time.Hour)}
	among := func() desired.TrafficPolicy {
		return one(r, desired.TrafficCluster, desired.TrafficCluster, desired.TrafficLocal, desired.TrafficLocalDrop)
	}
	outside := among
	if n.Encap == model.EncapVLAN {
		outside = func() desired.TrafficPolicy { return desired.TrafficLocal }
	}
	if r.IntN(2) == 0 {
		s.IPv4, s.IPv6 = host4(n, byte(200+i)), host6(n, byte(200+i))
		s.Ports = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}, {Protocol: model.ProtoUDP, Port: 53, Backend: 5353}}
		s.InternalPolicy, s.ExternalPolicy = among(), outside()
	}
	for range 1 + r.IntN(8) {
		f := desired.Frontend{
			Addr: one(r, frontendAddrs()...), Protocol: one(r, model.ProtoTCP, model.ProtoUDP), Port: one(r, uint16(53), 80) + uint16(i%len(x.networks)), Backend: one(r, uint16(5353), 8080),
			InternalPolicy: among(), ExternalPolicy: outside(),
		}
		if r.IntN(4) == 0 {
			f.Sources = x.sources(f.Addr.Is6())
		}
		s.Frontends = append(s.Frontends, f)
	}
	slices.SortStableFunc(s.Frontends, desired.CompareFrontends)
	s.Frontends = slices.CompactFunc(s.Frontends, func(a, b desired.Frontend) bool { return desired.CompareFrontends(a, b) == 0 })
	for _, e := range append(slices.Clone(x.random.top.Endpoints), x.random.external...) {
		if e.Key.Network != n.Key || r.IntN(3) > 0 || r.IntN(12) == 0 {
			continue
		}
		b := &desired.Backend{IPv4: e.IPv4, IPv6: e.IPv6, State: x.random.state(), Port: one(r, uint16(0), 0, 7000)}
		b.Split, b.Serving6 = x.random.serving6()
		if e.Host != "" {
			b.Network, b.Identity, b.Local = n.ID, e.Identity, e.Host == "h1"
			if !b.Local && n.Encap == model.EncapVXLAN {
				b.VTEP = x.random.top.vtep(e.Host)
			}
		}
		if x.random.single {
			s.Backends = desired.Map[model.EndpointKey, *desired.Backend]{}
		}
		s.Backends = s.Backends.Set(e.Key, b)
	}
	if r.IntN(12) == 0 { // deleted: its addresses refuse for a minute
		s.Backends, s.Ports = desired.Map[model.EndpointKey, *desired.Backend]{}, nil
		s.Frontends = slices.DeleteFunc(s.Frontends, func(f desired.Frontend) bool { return slices.Contains(append(nodeAddrs(), nodes...), f.Addr) })
		for i := range s.Frontends {
			s.Frontends[i] = desired.Frontend{Addr: s.Frontends[i].Addr, Protocol: model.ProtoTCP}
		}
		s.Frontends = slices.CompactFunc(s.Frontends, desired.Frontend.Equal)
		if len(s.Frontends) == 0 && !s.IPv4.IsValid() {
			s.IPv4 = host4(n, byte(200+i))
		}
	}
	x.random.note("%s: exposed %v affinity %s at %s %s inside %d outside %d, frontends %+v", s.Key, s.Exposed, s.Affinity, s.IPv4, s.IPv6, s.InternalPolicy, s.ExternalPolicy, s.Frontends)
	for k, b := range s.Backends.All() {
		x.random.note("     %s %s %s state %d local %v port %d, by IPv6 otherwise: %v %+v", k, b.IPv4, b.IPv6, b.State, b.Local, b.Port, b.Split, b.Serving6)
	}
}

// sources are clients that a frontend takes.
func (x *randomFrontends) sources(v6 bool) (out []netip.Prefix) {
	r := x.random.r
	if r.IntN(8) == 0 { // of the other family
		return []netip.Prefix{netip.PrefixFrom(desired.AnyNode(frontendAddr(1, !v6)), 0)}
	}
	for _, a := range []netip.Addr{one(r, x.clientsOf(v6)...), addrOf(one(r, x.random.top.Endpoints[:5]...), v6)} {
		p, _ := a.Prefix(one(r, a.BitLen(), a.BitLen(), a.BitLen()-8, 0))
		out = append(out, p)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// clientsOf are clients outside: beyond the host, another node, and the host's own processes by its
// address for tunnels, and by the private one.
func (x *randomFrontends) clientsOf(v6 bool) []netip.Addr {
	way := x.random.w.Desired["h1"].HostNAT
	if v6 {
		return []netip.Addr{Outside6, Outside6.Next(), node(true).Next(), way.Addr6}
	}
	return []netip.Addr{Outside, Outside.Next(), node(false).Next(), x.random.top.Hosts[0].VTEP, way.Addr}
}

// noClients are addresses that no client outside has: of the cluster's networks, and such as
// are no single machine's.
func (x *randomFrontends) noClients(v6 bool) (out []netip.Addr) {
	way, n := x.random.w.Desired["h1"].HostNAT, x.networks[0]
	if v6 {
		out = []netip.Addr{host6(n, 1), host6(n, 77), host6(n, 200), frontendAddr(1, true), way.Addr6.Prev()}
		for _, a := range []string{"ff02::1", "::1", "fe80::7", "::ffff:198.51.100.7"} {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	out = []netip.Addr{host4(n, 1), host4(n, 77), host4(n, 200), frontendAddr(1, false), way.Addr.Prev(), desired.RouterAddr}
	for _, a := range []string{"224.0.0.5", "127.0.0.1", "0.0.0.1", "255.255.255.255"} {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// change changes a service, or policies, and applies the world.
func (x *randomFrontends) change() {
	x.random.t.Helper()
	was := x.owners()
	i, restarts := x.random.r.IntN(len(x.services)), false
	if len(x.asked) > 0 && x.random.r.IntN(3) > 0 { // it concerns a connection
		c := one(x.random.r, x.asked...)
		i = slices.IndexFunc(x.services, func(s desired.Service) bool { return s.Key == c.service })
	}
	switch s := &x.services[i]; x.random.r.IntN(9) {
	case 0, 1:
		x.fill(i)
	case 2, 7:
		s.Exposed = !s.Exposed
		x.random.note("%s exposed %v", s.Key, s.Exposed)
		if x.random.r.IntN(2) == 0 { // for a moment
			x.apply()
			s.Exposed = !s.Exposed
		}
	case 8:
		s.Frontends = slices.Clone(s.Frontends)
		for j, f := range s.Frontends {
			if f.Port != 0 && x.random.r.IntN(2) == 0 {
				s.Frontends[j].Sources = x.sources(f.Addr.Is6())
			}
		}
		x.random.note("%s has frontends %+v", s.Key, s.Frontends)
	case 3:
		x.random.setPolicies()
	case 4:
		x.random.note("the driver starts anew")
		if restarts = x.random.plain || x.random.r.IntN(2) == 0; !restarts { // with another desired state
			x.random.bench.restart(x.random.t)
			x.fill(i)
		}
	case 6:
		a := one(x.random.r, nodeAddrs()...)
		x.absent[a] = !x.absent[a]
		x.random.note("%s is no node's: %v", a, x.absent[a])
	case 5:
		for k, b := range s.Backends.All() {
			if x.random.r.IntN(3) == 0 {
				other := *b
				other.State = x.random.state()
				other.Split, other.Serving6 = x.random.serving6()
				s.Backends = s.Backends.Set(k, &other)
				x.random.note("%s of %s is in state %d, by IPv6 otherwise: %v %+v", k, s.Key, other.State, other.Split, other.Serving6)
			}
		}
	}
	x.apply()
	if restarts {
		x.random.bench.restartsSame(x.random.t, x.random.pic)
	}
	now := x.owners()
	for _, c := range x.asked {
		at := frontendOf(c.first)
		c.last = x.random.plain && (c.service == x.services[i].Key || was[at] != now[at])
	}
}

// apply applies the world as it is now.
func (x *randomFrontends) apply() {
	x.random.t.Helper()
	pic := x.random.w.Desired["h1"]
	for _, s := range x.services {
		pic.Services = pic.Services.Set(s.Key, &s)
	}
	for _, at := range nodeAddrs() {
		if !x.absent[at] {
			pic.NodeAddrs = pic.NodeAddrs.Set(at, struct{}{})
		}
	}
	x.random.pic = pic
	x.random.bench.apply(x.random.t, pic)
}

// nodeAddrs are the nodes' addresses.
func nodeAddrs() (out []netip.Addr) {
	for _, v6 := range ipv4and6 {
		out = append(out, node(v6), node(v6).Next())
	}
	return out
}

func (x *randomFrontends) isNode(a netip.Addr) bool {
	return slices.Contains(nodeAddrs(), a) && !x.absent[a]
}

// fronts is where somebody asks.
type frontendAt struct {
	addr  netip.Addr
	proto model.Protocol
	port  uint16
}

func frontendOf(p reference.Packet) frontendAt { return frontendAt{p.Dst, p.Proto, p.DstPort} }

// owners are who has which frontend, by the smallest key.
func (x *randomFrontends) owners() map[frontendAt]model.ServiceKey {
	out := map[frontendAt]model.ServiceKey{}
	for _, a := range x.clientTargets() {
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			for _, port := range []uint16{53, 54, 55, 80, 81, 82} {
				if s, _ := x.owner(frontendAt{a, proto, port}); s != nil {
					out[frontendAt{a, proto, port}] = s.Key
				}
			}
		}
	}
	return out
}

// clientTargets are all addresses that may be asked.
func (x *randomFrontends) clientTargets() []netip.Addr {
	out := slices.Concat(both(1), both(2), nodeAddrs())
	for _, s := range x.services {
		if s.IPv4.IsValid() {
			out = append(out, s.IPv4)
		}
		if s.IPv6.IsValid() {
			out = append(out, s.IPv6)
		}
	}
	return out
}

func (x *randomFrontends) owner(at frontendAt) (has *desired.Service, face desired.Frontend) {
	for i := range x.services {
		s := &x.services[i]
		if f, ok := s.FrontendAt(at.addr, x.isNode(at.addr), at.proto, at.port); ok && (has == nil || f.Before(s.Key, face, has.Key)) {
			has, face = s, f
		}
	}
	return has, face
}

// packet sends a random packet; it tells whether that came through.
func (x *randomFrontends) packet() bool {
	x.random.t.Helper()
	if len(x.asked) == 0 || x.random.r.IntN(2) == 0 {
		return x.beginConnection()
	}
	c := x.asked[x.random.r.IntN(len(x.asked))]
	switch x.random.r.IntN(12) {
	case 0, 1, 2, 3:
		return x.sendClientPacket(c, laterPacket(c.first), "goes on")
	case 4, 5:
		return x.sendICMPError(c)
	case 6:
		return x.inParts(c)
	case 7:
		if c.client.Host != "" {
			return x.random.askNeighbour(&serviceConn{client: c.client, request: c.first})
		}
	case 8:
		if !x.random.plain {
			return x.sendClientPacket(c, c.first, "asks again")
		}
	}
	return x.sendReply(c)
}

// beginConnection begins a connection.
func (x *randomFrontends) beginConnection() bool {
	x.random.t.Helper()
	at := frontendAt{one(x.random.r, x.clientTargets()...), one(x.random.r, model.ProtoTCP, model.ProtoUDP), one(x.random.r, uint16(53), 53, 54, 55, 80, 80, 81, 82, 443)}
	s := one(x.random.r, x.services...)
	aimed := len(s.Frontends) > 0 && x.random.r.IntN(2) == 0
	if aimed { // at what is there
		f := one(x.random.r, s.Frontends...)
		if at.addr, at.proto = f.Addr, f.Protocol; f.Port != 0 {
			at.port = f.Port
		}
		if f.Addr.IsUnspecified() {
			at.addr = one(x.random.r, node(f.Addr.Is6()), node(f.Addr.Is6()).Next())
		}
	}
	*x.random.sport = max(*x.random.sport+1, 20000)
	c := &frontendConn{}
	v6 := at.addr.Is6()
	if x.random.r.IntN(2) == 0 && (x.six || !v6) {
		c.first = reference.Packet{Host: true, Src: one(x.random.r, x.clientsOf(v6)...), Proto: at.proto, SrcPort: *x.random.sport}
		if x.random.r.IntN(12) == 0 {
			c.first.Src = one(x.random.r, x.noClients(v6)...)
		}
		if at.proto == model.ProtoTCP {
			c.first.TCPFlags = reference.FlagSYN
		}
	} else {
		here := slices.DeleteFunc(slices.Clone(x.random.top.Endpoints), func(e model.Endpoint) bool {
			return e.Host != "h1" || !slices.ContainsFunc(x.networks, func(n model.Network) bool { return n.Key == e.Key.Network && (!aimed || n.ID == s.Network) })
		})
		c.client = one(x.random.r, here...)
		c.first = between(x.random.top, c.client, c.client, at.proto, v6, *x.random.sport, at.port)
		c.first.DstMAC = desired.RouterMAC
	}
	c.first.Dst, c.first.DstPort = at.addr, at.port
	if at.port == 443 && c.first.Host && at.proto == model.ProtoTCP && x.random.r.IntN(2) == 0 { // which no service has
		c.first.TCPFlags = reference.FlagRST
	}
	if !x.sendClientPacket(c, c.first, "asks") || x.random.plain && !x.sendReply(c) { // tracking knows it from then on
		return false
	}
	x.asked = append(x.asked, c)
	return true
}

// sendClientPacket sends a client's packet; it tells whether a backend gets it.
func (x *randomFrontends) sendClientPacket(c *frontendConn, p reference.Packet, what string) bool {
	x.random.t.Helper()
	what = fmt.Sprintf("%s %s %s", p.Src, what, askedText(p))
	v := x.random.check(what, p)
	s, face := x.owner(frontendOf(p))
	if nowhere(v) || v.Sent == nil || v.Sent.Dst == p.Dst {
		return false
	}
	if s == nil {
		x.random.t.Errorf("%s: it went to %s, and no service has a frontend there", what, v.Sent.Dst)
		x.random.fail()
	}
	for k, b := range s.Backends.All() {
		if b.Addr(p.Src.Is6()) == v.Sent.Dst {
			if v.Sent.DstPort != b.PortFor(p.Src.Is6(), face.Backend) && p.TCPFlags == reference.FlagSYN && !c.behind.Dst.IsValid() {
				x.random.t.Errorf("%s: it went to port %d of %s", what, v.Sent.DstPort, k)
				x.random.fail()
			}
			c.by, c.behind, c.service = x.random.endpointOrBackend(k), *v.Sent, s.Key
			return true
		}
	}
	return false
}

// reply makes the backend's answer to the last packet that it got.
func (x *randomFrontends) reply(c *frontendConn) reference.Packet {
	if c.client.Host != "" || c.by.Host == "" {
		return x.random.reply(&serviceConn{client: c.client, behind: &c.behind, by: c.by})
	}
	r := origin(x.random.top, c.by)
	r.SrcMAC, r.DstMAC, r.Src, r.Dst, r.Proto, r.SrcPort, r.DstPort = c.by.MAC, desired.RouterMAC, c.behind.Dst, c.behind.Src, c.behind.Proto, c.behind.DstPort, c.behind.SrcPort
	if c.by.Host != "h1" {
		r.SrcMAC = desired.RouterMAC
	}
	if r.Proto == model.ProtoTCP {
		if r.TCPFlags = reference.FlagACK; c.behind.TCPFlags == reference.FlagSYN {
			r.TCPFlags |= reference.FlagSYN
		}
	}
	return r
}

// sendReply sends the backend's answer.
func (x *randomFrontends) sendReply(c *frontendConn) bool {
	x.random.t.Helper()
	v := x.random.check(fmt.Sprintf("%s answers %s", c.by.Key, c.first.Src), x.reply(c))
	return !nowhere(v)
}

// sendICMPError sends an ICMP error about a packet of a connection.
func (x *randomFrontends) sendICMPError(c *frontendConn) bool {
	x.random.t.Helper()
	p, who, ok := x.random.icmpError(c.first, c.behind, x.reply(c))
	ok = ok && (c.by.Host != "" || c.client.Host != "") // see atHost
	return ok && !nowhere(x.random.check(fmt.Sprintf("%s tells, of %s and %s", who, c.first.Src, c.by.Key), p))
}

// inParts sends a datagram in fragments, of either side, perhaps the later one alone.
func (x *randomFrontends) inParts(c *frontendConn) bool {
	x.random.t.Helper()
	if c.first.Proto != model.ProtoUDP {
		return false
	}
	*x.random.sport++
	p := c.first
	if x.random.r.IntN(2) == 0 {
		p = x.reply(c)
	}
	first, last, stray := inParts(p, uint32(*x.random.sport))
	if x.random.r.IntN(4) == 0 {
		return !nowhere(x.random.check("a later fragment alone", stray))
	}
	x.random.check("a first fragment", first)
	return !nowhere(x.random.check("a last fragment", last))
}
