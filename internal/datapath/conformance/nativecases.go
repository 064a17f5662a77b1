package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// nodeToPod: the host's stack and a container of the host.
func (s *routedTest) nodeToPod() {
	web := s.services.at("web1")
	way := s.services.w.Desired["h1"].HostNAT
	s.each(func(what string, v6 bool, proto model.Protocol) {
		private := way.Addr
		if v6 {
			private = way.Addr6
		}
		for _, src := range []netip.Addr{s.node(1, v6), s.node(2, v6), clientOutside(v6), private} {
			for _, by := range []func(reference.Packet) reference.Packet{byStack, bySocket} {
				p := s.first(src, addrOf(web, v6), proto)
				on := what + " from " + src.String()
				s.arrives(on, by(p), web)
				s.reachesStack(on+": answer", byPod(web, s.answer(p)))
				if p = laterPacket(p); proto == model.ProtoICMP {
					continue
				}
				s.arrives(on+", later", by(p), web)
				s.reachesStack(on+": answer, later", byPod(web, s.answer(p)))
			}
		}
	})
}

// nodeToPodElsewhere: the host's stack, and whom it forwards for, and a container of
// another host.
func (s *routedTest) nodeToPodElsewhere() {
	web := s.services.at("web2")
	h2 := s.services.top.Hosts[1].VTEP
	s.each(func(what string, v6 bool, proto model.Protocol) {
		for _, src := range []netip.Addr{s.node(1, v6), clientOutside(v6)} {
			p := s.first(src, addrOf(web, v6), proto)
			on := what + " from " + src.String()
			s.arrives(on, byStack(p), web)
			s.reachesStack(on+": answer", s.byHost(h2, web, s.answer(p)))
			if proto == model.ProtoICMP {
				continue
			}
			p = laterPacket(p)
			s.arrives(on+", later", bySocket(p), web)
			s.reachesStack(on+": answer, later", s.byHost(h2, web, s.answer(p)))
		}
		s.services.denied(what+" from another host's address", byStack(s.first(s.node(3, v6), addrOf(web, v6), proto)))
		s.services.denied(what+": answer to nobody", s.byHost(h2, web, s.answer(s.first(clientOutside(v6), addrOf(web, v6), proto))))
	})
}

// podAndNodeElsewhere: the stack of another host, and whom that forwards for, and a
// container of this one.
func (s *routedTest) podAndNodeElsewhere() {
	web := s.services.at("web1")
	h2 := s.services.top.Hosts[1].VTEP
	s.each(func(what string, v6 bool, proto model.Protocol) {
		for _, src := range []netip.Addr{s.node(2, v6), clientOutside(v6)} {
			p := s.first(src, addrOf(web, v6), proto)
			on := what + " from " + src.String()
			s.arrives(on, s.byHost(h2, web, p), web)
			s.reachesNode(on+": answer", byPod(web, s.answer(p)))
			if p = laterPacket(p); proto != model.ProtoICMP {
				s.arrives(on+", later", s.byHost(h2, web, p), web)
				s.reachesNode(on+": answer, later", byPod(web, s.answer(p)))
			}
		}
		p := s.first(addrOf(web, v6), s.node(2, v6), proto)
		s.reachesNode(what+" from the container", byPod(web, p))
		s.reachesNode(what+" from the container, once more", byPod(web, p))
		s.arrives(what+" from the container: answer", s.byHost(h2, web, s.answer(p)), web)
		if p = laterPacket(p); proto != model.ProtoICMP {
			s.reachesNode(what+" from the container, later", byPod(web, p))
			s.arrives(what+" from the container: answer, later", s.byHost(h2, web, s.answer(p)), web)
		}
	})
	p := s.first(web.IPv4, s.node(2, false), model.ProtoUDP)
	p.DstPort = TunnelPort
	s.services.denied("to the tunnels of another host", byPod(web, p))
	far := s.services.at("web2") // what endpoints say to each other is nothing that a host's stack began
	p = between(s.services.top, web, far, model.ProtoUDP, false, 5001, 8080)
	if v := s.services.Send(s.t, p); !slices.Equal(v.VTEPs, []netip.Addr{h2}) {
		s.t.Fatalf("to an endpoint elsewhere: %s", v)
	}
	s.services.denied("its answer by the router", s.byHost(h2, far, s.answer(p)))
	p = between(s.services.top, far, web, model.ProtoUDP, false, 5002, 8080)
	if v := s.services.Send(s.t, p); !slices.Equal(v.Ports, []string{compile.IfName(web.Key)}) {
		s.t.Fatalf("from an endpoint elsewhere: %s", v)
	}
	s.services.denied("the container's answer by the router", byPod(web, s.answer(p)))
}

// podToNode: containers, here and elsewhere, and the host's stack; and the outside.
func (s *routedTest) podToNode() {
	web, far := s.services.at("web1"), s.services.at("web2")
	h2 := s.services.top.Hosts[1].VTEP
	way := s.services.w.Desired["h1"].HostNAT
	s.each(func(what string, v6 bool, proto model.Protocol) {
		private := way.Addr
		if v6 {
			private = way.Addr6
		}
		for _, dst := range []netip.Addr{s.node(1, v6), clientOutside(v6), private} {
			p := s.first(addrOf(web, v6), dst, proto)
			on := what + " to " + dst.String()
			s.reachesStack(on, byPod(web, p))
			s.arrives(on+": answer", byStack(s.answer(p)), web)
			if p = laterPacket(p); proto != model.ProtoICMP {
				s.reachesStack(on+", later", byPod(web, p))
				s.arrives(on+": answer, later", bySocket(s.answer(p)), web)
			}
		}
		p := s.first(addrOf(far, v6), s.node(1, v6), proto)
		s.reachesStack(what+" from elsewhere", s.byHost(h2, far, p))
		s.arrives(what+" from elsewhere: answer", bySocket(s.answer(p)), far)
		if p = laterPacket(p); proto != model.ProtoICMP {
			s.reachesStack(what+" from elsewhere, later", s.byHost(h2, far, p))
			s.arrives(what+" from elsewhere: answer, later", byStack(s.answer(p)), far)
		}
		s.services.denied(what+" from elsewhere to another host", s.byHost(h2, far, s.first(addrOf(far, v6), s.node(3, v6), proto)))
		s.services.denied(what+" from elsewhere to the outside", s.byHost(h2, far, s.first(addrOf(far, v6), clientOutside(v6), proto)))
		s.services.denied(what+" from elsewhere by another host", s.byHost(ThirdVTEP, far, s.first(addrOf(far, v6), s.node(1, v6), proto)))
		s.services.denied(what+" of a container here from elsewhere", s.byHost(h2, far, s.first(addrOf(web, v6), s.node(1, v6), proto)))
		s.services.denied(what+" of nobody from elsewhere", s.byHost(h2, far, s.first(s.unusedAddr(v6), s.node(1, v6), proto)))
	})
	p := s.first(web.IPv4, s.node(1, false), model.ProtoUDP)
	p.DstPort = TunnelPort
	s.services.denied("to the tunnels of the host", byPod(web, p))
	for _, host := range []int{1, 2} {
		s.services.denied("from a link-local address", byPod(web, s.first(web.MAC.LinkLocal(), s.node(host, true), model.ProtoUDP)))
	}
	if s.services.top.Global.FwdMode == model.FwdBridge {
		s.each(func(what string, v6 bool, proto model.Protocol) {
			s.services.denied(what+" to another native network", byPod(web, s.first(addrOf(web, v6), addrOf(s.other("app2"), v6), proto)))
			s.services.denied(what+" to nobody of one", byPod(web, s.first(addrOf(web, v6), addrOf(s.other("app2"), v6).Next().Next(), proto)))
		})
	}
}

// other is an endpoint of the other native network.
func (s *routedTest) other(id model.EndpointID) model.Endpoint {
	return s.services.top.Endpoint(model.EndpointKey{Network: otherNative, ID: id})
}

// unusedAddr is an address of the network that no endpoint has.
func (s *routedTest) unusedAddr(v6 bool) netip.Addr {
	n := s.services.top.Network(s.services.key)
	if v6 {
		return host6(n, 77)
	}
	return host4(n, 77)
}

// spoofed: who is not who it says.
func (s *routedTest) spoofed() {
	web, far := s.services.at("web1"), s.services.at("web2")
	h2 := s.services.top.Hosts[1].VTEP
	way := s.services.w.Desired["h1"].HostNAT
	s.each(func(what string, v6 bool, proto model.Protocol) {
		private, local := way.Addr, netip.MustParseAddr("169.254.7.7")
		if v6 {
			private, local = way.Addr6, netip.MustParseAddr("fe80::7")
		}
		for name, src := range map[string]netip.Addr{
			"of this host": s.node(1, v6), "of a third host": s.node(3, v6), "of nobody": s.unusedAddr(v6), "private": private, "link-local": local,
			"of another container": addrOf(s.services.at("db2"), v6), "its own": addrOf(web, v6), "of another native network": addrOf(s.other("app2"), v6),
		} {
			s.services.denied(fmt.Sprintf("%s: by a tunnel from an address %s", what, name), s.byHost(h2, web, s.first(src, addrOf(web, v6), proto)))
		}
		s.services.denied(what+": by a stranger", s.byHost(netip.MustParseAddr("192.168.7.9"), web, s.first(clientOutside(v6), addrOf(web, v6), proto)))
		for name, src := range map[string]netip.Addr{
			"of nobody": s.unusedAddr(v6), "another private one": private.Prev(), "link-local": local, "of a container": addrOf(s.services.at("db2"), v6),
			"of another native network": addrOf(s.other("app1"), v6),
		} {
			s.services.denied(fmt.Sprintf("%s: by the stack from an address %s", what, name), bySocket(s.first(src, addrOf(web, v6), proto)))
		}
		s.services.denied(what+": by the stack from its private address, elsewhere", bySocket(s.first(private, addrOf(far, v6), proto)))
		s.services.denied(what+": by the stack to nobody", bySocket(s.first(s.node(1, v6), s.unusedAddr(v6), proto)))
	})
	for _, to := range []model.Endpoint{web, far} {
		p := s.first(s.node(1, true), to.IPv6, model.ProtoICMP)
		p.ICMPType, p.ND = reference.NDNeighborSolicit, &reference.ND{Target: to.IPv6}
		s.services.denied("neighbour discovery by the stack", byStack(p))
	}
}
