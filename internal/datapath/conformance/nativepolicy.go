package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// denyAll is a case that denies all connections into the group web, or out of it.
func denyAll(dir model.Direction) Case {
	return Case{
		Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
		Attach:   map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: "web"}: {"p1"}},
		Rules: []model.Rule{{
			Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, Direction: dir, Priority: 10, Action: model.Deny, Protocol: model.AnyProtocol,
		}},
	}
}

func (s *routedTest) turn(c Case) {
	s.t.Helper()
	if err := s.services.w.Switch(c); err != nil {
		s.t.Fatal(err)
	}
	s.services.applyServices()
}

// own: what sockets of the container's own host send is not asked about; all else is,
// in the same connection too.
func (s *routedTest) own() {
	web := s.services.at("web1")
	h2 := s.services.top.Hosts[1].VTEP
	s.each(func(what string, v6 bool, proto model.Protocol) {
		s.turn(Case{})
		lives, forwarded := s.first(s.node(1, v6), addrOf(web, v6), proto), s.first(s.node(1, v6), addrOf(web, v6), proto)
		s.arrives(what+": before", bySocket(lives), web)
		s.arrives(what+": before, forwarded", byStack(forwarded), web)
		for _, asked := range []reference.Packet{lives, forwarded} { // conntrack accepts no more packets of a client without an answer
			s.reachesStack(what+": before: an answer", byPod(web, s.answer(asked)))
		}
		s.turn(denyAll(model.In))
		p := s.first(s.node(1, v6), addrOf(web, v6), proto)
		s.arrives(what+": a new one", bySocket(p), web)
		s.reachesStack(what+": its answer", byPod(web, s.answer(p)))
		s.services.denied(what+": the same, forwarded", byStack(laterPacket(p)))
		s.arrives(what+": goes on", bySocket(laterPacket(p)), web)
		s.reachesStack(what+": its answer, later", byPod(web, s.answer(laterPacket(p))))
		s.arrives(what+": a living one", bySocket(laterPacket(lives)), web)
		s.reachesStack(what+": a living one's answer", byPod(web, s.answer(laterPacket(lives))))
		s.services.denied(what+": a living one that is forwarded", byStack(laterPacket(forwarded)))
		s.services.denied(what+": its answer", byPod(web, s.answer(laterPacket(forwarded))))
		s.services.denied(what+": forwarded", byStack(s.first(s.node(1, v6), addrOf(web, v6), proto)))
		s.services.denied(what+": forwarded from outside", byStack(s.first(clientOutside(v6), addrOf(web, v6), proto)))
		s.services.denied(what+": another host", s.byHost(h2, web, s.first(s.node(2, v6), addrOf(web, v6), proto)))
		s.turn(denyAll(model.Out))
		s.reachesStack(what+": nothing out: an answer", byPod(web, s.answer(laterPacket(p))))
		s.services.denied(what+": nothing out: to the host", byPod(web, s.first(addrOf(web, v6), s.node(1, v6), proto)))
		s.services.denied(what+": nothing out: to another host", byPod(web, s.first(addrOf(web, v6), s.node(2, v6), proto)))
	})
	s.turn(denyAll(model.In))
	asked := s.first(web.IPv4, s.node(1, false), model.ProtoTCP) // the container's connection is not the host's
	s.reachesStack("to the host", byPod(web, asked))
	s.arrives("to the host: answer", bySocket(s.answer(asked)), web)
	s.turn(denyAll(model.Out))
	s.services.denied("to the host, later", byPod(web, laterPacket(asked)))
	s.services.denied("to the host: answer, later", bySocket(s.answer(laterPacket(asked))))
}

// policy: the peer is known by its address only, as external.
func (s *routedTest) policy() {
	web := s.services.at("web1")
	h2 := s.services.top.Hosts[1].VTEP
	for _, v6 := range ipv4and6 {
		one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
		for _, x := range []struct {
			name string
			rule model.Rule
			deny [3]bool // a client outside, another host, this host
		}{
			{"anybody", model.Rule{}, [3]bool{true, true, true}},
			{"a client's address", model.Rule{Addr: one(clientOutside(v6))}, [3]bool{true, false, false}},
			{"another host's address", model.Rule{Addr: one(s.node(2, v6))}, [3]bool{false, true, false}},
			{"this host's address", model.Rule{Addr: one(s.node(1, v6))}, [3]bool{false, false, true}},
			{"a group", model.Rule{Group: "web"}, [3]bool{}},
			{"the network", model.Rule{Network: "vx"}, [3]bool{}},
		} {
			for _, dir := range []model.Direction{model.In, model.Out} {
				c := denyAll(dir)
				x.rule.Key, x.rule.Direction, x.rule.Priority, x.rule.Action = c.Rules[0].Key, dir, 10, model.Deny
				x.rule.Protocol = model.AnyProtocol
				c.Rules[0] = x.rule
				s.turn(c)
				on := fmt.Sprintf("%s, %s, %s", x.name, dir, ipText(v6))
				peers := []netip.Addr{clientOutside(v6), s.node(2, v6), s.node(1, v6)}
				if dir == model.In {
					for i, send := range []func(p reference.Packet) reference.Packet{
						byStack, func(p reference.Packet) reference.Packet { return s.byHost(h2, web, p) }, byStack,
					} {
						p := s.first(peers[i], addrOf(web, v6), model.ProtoTCP)
						if x.deny[i] {
							s.services.denied(on+": from "+peers[i].String(), send(p))
						} else {
							s.arrives(on+": from "+peers[i].String(), send(p), web)
						}
					}
					continue
				}
				for i, peer := range peers {
					p := byPod(web, s.first(addrOf(web, v6), peer, model.ProtoTCP))
					switch on := on + ": to " + peer.String(); {
					case x.deny[i]:
						s.services.denied(on, p)
					case i == 1:
						s.reachesNode(on, p)
					default:
						s.reachesStack(on, p)
					}
				}
			}
		}
	}
}

// fragments follow their first, by whichever way.
func (s *routedTest) fragments() {
	web, far := s.services.at("web1"), s.services.at("web2")
	h2 := s.services.top.Hosts[1].VTEP
	id := uint32(9000)
	for _, v6 := range ipv4and6 {
		for name, way := range map[string]struct {
			send, back func(reference.Packet) reference.Packet
			src, dst   netip.Addr
			to         model.Endpoint
		}{
			"a socket": {bySocket, func(p reference.Packet) reference.Packet { return byPod(web, p) }, s.node(1, v6), addrOf(web, v6), web},
			"to elsewhere": {
				byStack, func(p reference.Packet) reference.Packet { return s.byHost(h2, far, p) }, s.node(1, v6), addrOf(far, v6), far,
			},
		} {
			what := name + " " + ipText(v6)
			id++
			first, rest, stray := inParts(s.first(way.src, way.dst, model.ProtoUDP), id)
			if s.services.SkipPacket != nil {
				if why := s.services.SkipPacket(first); why != "" {
					s.t.Skip(why)
				}
			}
			s.services.denied(what+": without its first", way.send(stray))
			s.arrives(what+": first", way.send(first), way.to)
			s.arrives(what+": last", byStack(rest), way.to)
			id++
			back, last, _ := inParts(s.answer(first), id)
			s.reachesStack(what+": first back", way.back(back))
			s.reachesStack(what+": last back", way.back(last))
		}
	}
	s.turn(denyAll(model.In))
	id++
	first, rest, _ := inParts(s.first(s.node(1, false), web.IPv4, model.ProtoUDP), id)
	s.arrives("nobody gets in: first", bySocket(first), web)
	s.arrives("nobody gets in: last", byStack(rest), web)
	id++
	first, rest, _ = inParts(s.first(s.node(1, false), web.IPv4, model.ProtoUDP), id)
	s.services.denied("nobody gets in: first, forwarded", byStack(first))
	s.services.denied("nobody gets in: last, not forwarded", bySocket(rest))
}

// about makes the ICMP error of who got a packet.
func (s *routedTest) about(p reference.Packet) reference.Packet {
	e := reference.Packet{
		SrcMAC: desired.RouterMAC, DstMAC: desired.RouterMAC, Src: p.Dst, Dst: p.Src, Proto: model.ProtoICMP, ICMPType: 3, ICMPCode: 3,
		Inner: &reference.Packet{Src: p.Src, Dst: p.Dst, Proto: p.Proto, SrcPort: p.SrcPort, DstPort: p.DstPort},
	}
	if p.Src.Is6() {
		e.Proto, e.ICMPType, e.ICMPCode = model.ProtoICMPv6, 1, 4
	}
	return e
}

// errors follow the connection that they are about.
func (s *routedTest) errors() {
	web, far := s.services.at("web1"), s.services.at("web2")
	h2 := s.services.top.Hosts[1].VTEP
	for _, v6 := range ipv4and6 {
		what := ipText(v6)
		for _, c := range []Case{{}, denyAll(model.In)} {
			s.turn(c)
			p := s.first(s.node(1, v6), addrOf(web, v6), model.ProtoUDP)
			s.arrives(what+": asked", bySocket(p), web)
			s.reachesStack(what+": error of the container", byPod(web, s.about(p)))
			r := s.answer(p)
			s.reachesStack(what+": answered", byPod(web, r))
			s.arrives(what+": error of the host", bySocket(s.about(r)), web)
			s.arrives(what+": error on the way", byStack(s.about(r)), web)
			s.arrives(what+": goes on", bySocket(p), web)
		}
		denied := s.first(clientOutside(v6), addrOf(web, v6), model.ProtoUDP)
		s.services.denied(what+": asked in vain", byStack(denied))
		s.services.denied(what+": error about nothing", byPod(web, s.about(denied)))
		s.services.denied(what+": error of the host about nothing", bySocket(s.about(s.answer(denied))))
		s.turn(Case{})
		p := s.first(s.node(1, v6), addrOf(far, v6), model.ProtoUDP)
		s.arrives(what+": asked elsewhere", bySocket(p), far)
		s.reachesStack(what+": error from elsewhere", s.byHost(h2, far, s.about(p)))
		p = s.first(s.node(2, v6), addrOf(web, v6), model.ProtoUDP)
		s.arrives(what+": asked from elsewhere", s.byHost(h2, web, p), web)
		s.reachesNode(what+": error to elsewhere", byPod(web, s.about(p)))
	}
}

// others: other networks are unchanged, and containers of a routed network do not reach
// them by the host.
func (s *routedTest) others() {
	red := s.services.top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "red", Name: "vx"}, ID: "web1"})
	port, _ := s.services.w.Desired["h1"].Ports.Get(compile.IfName(red.Key))
	for _, private := range []netip.Addr{port.Private, port.Private6} {
		client := clientOutside(private.Is6())
		p := s.first(client, private, model.ProtoTCP)
		v := s.services.Send(s.t, byStack(p))
		if !slices.Equal(v.Ports, []string{port.IfName}) || v.Sent == nil || v.Sent.Dst != addrOf(red, private.Is6()) {
			s.t.Fatalf("to a private address: %s (%+v)", v, v.Sent)
		}
		out := byPod(red, s.first(addrOf(red, private.Is6()), client, model.ProtoTCP))
		if v = s.services.Send(s.t, out); !v.Host || v.Sent == nil || v.Sent.Src != private {
			s.t.Fatalf("from a private address: %s (%+v)", v, v.Sent)
		}
		s.services.denied("to a private address from the native network", byPod(s.services.at("web1"), s.first(addrOf(s.services.at("web1"), private.Is6()), private, model.ProtoTCP)))
	}
	for name, p := range s.services.w.Desired["h1"].Ports.All() {
		if p.Network == s.services.top.Network(s.services.key).ID && (p.Private.IsValid() || p.Private6.IsValid()) {
			s.t.Errorf("port %s of the native network has private addresses", name)
		}
	}
	s.services.apply(s.t, s.services.w.Desired["h1"])
	if st, err := s.services.drv.Stats(s.t.Context()); err != nil || st.Drops[driver.DropUnknownDest] == 0 {
		s.t.Errorf("drops %v, %v: what goes nowhere is counted", st.Drops, err)
	}
}
