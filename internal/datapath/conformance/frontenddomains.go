package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// frontendDomains tries addresses that services of blue and of red share, whose endpoints have
// equal addresses.
type frontendDomains struct {
	*frontends
	established []sharedConn
}

// sharedConn is a connection of a client outside to a service of a tenant.
type sharedConn struct {
	tenant model.TenantName
	first  reference.Packet
	by     model.EndpointID
}

// domains: ports of one address lead clients outside to the domains of their services.
func (s *frontends) domains() {
	if !s.services.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver serves nobody outside")
	}
	x := &frontendDomains{frontends: s}
	all := append(both(1), nodes...)
	blue, red := x.shop("blue", 0, all, "db1", "db2"), x.shop("red", 1, all, "web1", "web2")
	x.applyServices(blue, red)
	for _, v6 := range s.outside.six() {
		for _, at := range []netip.Addr{frontendAddr(1, v6), node(v6), node(v6).Next()} {
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				x.begin("blue", x.packet(at, proto, 0), "db1", "db2")
				x.begin("red", x.packet(at, proto, 1), "web1", "web2")
			}
			x.fragments(at)
			x.errors(at)
		}
		p := x.packet(frontendAddr(1, v6), model.ProtoTCP, 2)
		if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer == nil {
			s.t.Errorf("%s: a port that nobody has: %s (%+v), want a refusal", p.Dst, v, v.Answer)
		}
		p.Dst = node(v6)
		if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
			s.t.Errorf("%s: a port that nobody has: %s (%+v), want nothing of the services'", p.Dst, v, v.Answer)
		}
	}
	x.goOn("at first")
	want := s.services.inspect(s.t)
	s.services.restart(s.t)
	x.applyServices(blue, red)
	if diff := cmp.Diff(want, s.services.inspect(s.t)); diff != "" {
		s.t.Errorf("state after a restart (-want +got):\n%s", diff)
	}
	x.goOn("after a restart")

	early := x.shop("red", 2, all, "db1") // the address leads to its domain, and no port of others with it
	early.Key.Tenant = "amber"
	x.applyServices(early, blue, red)
	x.goOn("the address leads elsewhere")
	x.applyServices(blue, red)
	x.goOn("the address leads to the first one again")

	own, same, hidden := x.shop("red", 0, []netip.Addr{node(false), node(true)}, "db1"), x.shop("red", 0, both(1), "db2"), blue
	own.Key.Name, same.Key.Name, hidden.Exposed = "own", "same", false
	for _, v6 := range s.outside.six() {
		ask := func(what string, at netip.Addr, by uint16, tenant model.TenantName, ids ...model.EndpointID) {
			s.t.Helper()
			s.services.key.Tenant = tenant
			s.outside.came(what, x.packet(at, model.ProtoTCP, by), ids...)
		}
		x.applyServices(blue, red, own, same)
		ask("a node has the port by itself", node(v6), 0, "red", "db1")
		ask("and no other one", node(v6).Next(), 0, "blue", "db1", "db2")
		ask("the first by key has the port", frontendAddr(1, v6), 0, "blue", "db1", "db2")
		x.applyServices(hidden, red, own, same)
		ask("the first by key is not exposed", frontendAddr(1, v6), 0, "red", "db2")
		s.services.denied("and has no port outside", x.packet(node(v6).Next(), model.ProtoTCP, 0))
		x.applyServices(early)
		ask("one domain is left", frontendAddr(1, v6), 2, "red", "db1")
		s.services.denied("blue's port, which has gone", x.packet(frontendAddr(1, v6), model.ProtoTCP, 0))
		s.services.denied("blue's port at a node", x.packet(node(v6), model.ProtoTCP, 0))
	}
}

// shop makes a tenant's service at some addresses, at the usual ports and so many beyond.
func (x *frontendDomains) shop(tenant model.TenantName, beyond uint16, at []netip.Addr, ids ...model.EndpointID) desired.Service {
	x.services.key.Tenant = tenant
	out := x.withFrontends(at, ids...)
	for i := range out.Frontends {
		out.Frontends[i].Port += beyond
	}
	return out
}

// packet is a client's first one to such a port.
func (x *frontendDomains) packet(at netip.Addr, proto model.Protocol, beyond uint16) reference.Packet {
	p := x.outside.from(clientOutside(at.Is6()), proto)
	p.Dst, p.DstPort = at, p.DstPort+beyond
	return p
}

func (x *frontendDomains) begin(tenant model.TenantName, p reference.Packet, ids ...model.EndpointID) {
	x.t.Helper()
	what := fmt.Sprintf("%s at %s, protocol %d", tenant, p.Dst, p.Proto)
	x.services.key.Tenant = tenant
	e := x.outside.came(what, p, ids...)
	x.outside.answersAsService(what, p, x.outside.back(p, e))
	x.established = append(x.established, sharedConn{tenant, p, e.Key.ID})
}

// goOn checks that all connections do.
func (x *frontendDomains) goOn(when string) {
	x.t.Helper()
	for _, c := range x.established {
		what := fmt.Sprintf("%s: %s at %s", when, c.tenant, c.first.Dst)
		x.services.key.Tenant = c.tenant
		e := x.outside.came(what, laterPacket(c.first), c.by)
		x.outside.answersAsService(what, c.first, x.outside.back(laterPacket(c.first), e))
	}
}

// fragments: later ones follow the first, which shows the port.
func (x *frontendDomains) fragments(at netip.Addr) {
	first, rest, stray := inParts(x.packet(at, model.ProtoUDP, 1), uint32(x.services.sport))
	if x.services.SkipPacket != nil && x.services.SkipPacket(first) != "" {
		return
	}
	x.services.key.Tenant = "red"
	x.services.denied("without its first", stray)
	e := x.outside.came("a first fragment", first, "web1", "web2")
	if v := x.services.Send(x.t, rest); x.services.receiverOf("the last one", v).Key != e.Key {
		x.t.Errorf("%s: the last fragment: %s, the first one came to %s", at, v, e.Key)
	}
}

// errors: what a client tells of an answer comes to the backend that sent it.
func (x *frontendDomains) errors(at netip.Addr) {
	if x.services.Differs[ClientsErrors] != "" {
		return
	}
	i := slices.IndexFunc(x.established, func(c sharedConn) bool {
		return c.tenant == "red" && c.first.Dst == at && c.first.Proto == model.ProtoUDP
	})
	p := x.established[i].first
	told := p
	told.Proto, told.SrcPort, told.DstPort, told.ICMPType, told.ICMPCode = model.ProtoICMP, 0, 0, 3, 4
	if at.Is6() {
		told.Proto, told.ICMPType = model.ProtoICMPv6, 1
	}
	told.Inner = &reference.Packet{Src: p.Dst, Dst: p.Src, Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort}
	x.services.key.Tenant = "red"
	v := x.services.Send(x.t, told)
	if e := x.services.receiverOf("an error", v); e.Key.ID != x.established[i].by || v.Sent.Inner == nil || v.Sent.Inner.SrcPort != 5353 {
		x.t.Errorf("%s: %s got an error about %+v", at, e.Key, v.Sent.Inner)
	}
	told.Inner.DstPort = 1
	x.services.denied("an error about nothing that is known", told)
}
