package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// routedTest tries docs/design/native.md on h1: its network is blue's vx, while red's of
// the same addresses is not native.
type routedTest struct {
	services *services
	t        *testing.T
}

// node6 is a host's own IPv6 address in the tests.
func node6(host int) netip.Addr {
	a := netip.MustParseAddr("2001:db8:77::").As16()
	a[15] = byte(host)
	return netip.AddrFrom16(a)
}

// testNative: the stacks of hosts and the endpoints of a native network reach each
// other by their own addresses.
func testNative(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil || !h.Egress || !h.Egress6 {
		t.Skip("the harness has no Egress for both families")
	}
	b := open(t, h)
	if !b.drv.Capabilities().RoutedNetworks {
		t.Skip("the driver knows no native networks")
	}
	apart := RoutedTopology()
	apart.Global.FwdMode = model.FwdBridge
	bridge, routing := nativeWorld(t, apart), nativeWorld(t, RoutedTopology())
	b.interfaces(t, bridge.Desired["h1"], routing.Desired["h1"])
	t.Run("Bridge", func(t *testing.T) { tryNative(t, b, bridge) })
	t.Run("Routing", func(t *testing.T) {
		if !b.drv.Capabilities().Routes {
			t.Skip("the driver does not route")
		}
		tryNative(t, b, routing)
	})
}

var (
	nativeKey   = model.NetworkKey{Tenant: "blue", Name: "vx"}
	otherNative = model.NetworkKey{Tenant: "blue", Name: "vy"}
)

// nativeWorld makes vx and vy of a topology native, on three hosts with addresses of
// both families.
func nativeWorld(t *testing.T, top Topology) *World {
	t.Helper()
	top.Hosts = append(slices.Clone(top.Hosts), model.Host{Name: "h3", Control: ThirdVTEP, VTEP: ThirdVTEP})
	for i := range top.Hosts {
		top.Hosts[i].IPv6 = node6(i + 1)
	}
	top.Networks = slices.Clone(top.Networks)
	for i := range top.Networks {
		top.Networks[i].Routed = top.Networks[i].Key == nativeKey || top.Networks[i].Key == otherNative
	}
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Change(func(c *compile.Compiler) { WithEgress(top, c, true) }); err != nil {
		t.Fatal(err)
	}
	return w
}

func tryNative(t *testing.T, b *bench, w *World) {
	t.Helper()
	for _, sub := range []struct {
		name string
		run  func(*routedTest)
	}{
		{"NodeToPod", (*routedTest).nodeToPod},
		{"NodeToPodElsewhere", (*routedTest).nodeToPodElsewhere},
		{"PodAndNodeElsewhere", (*routedTest).podAndNodeElsewhere},
		{"PodToNode", (*routedTest).podToNode},
		{"Spoofed", (*routedTest).spoofed},
		{"Own", (*routedTest).own},
		{"Policy", (*routedTest).policy},
		{"Fragments", (*routedTest).fragments},
		{"Errors", (*routedTest).errors},
		{"Others", (*routedTest).others},
	} {
		t.Run(sub.name, func(t *testing.T) {
			s := &routedTest{newServices(t, b, w, nativeKey), t}
			s.services.applyServices()
			sub.run(s)
		})
	}
}

// node is the address of a host, by its number.
func (s *routedTest) node(host int, v6 bool) netip.Addr {
	if v6 {
		return s.services.top.Hosts[host-1].IPv6
	}
	return s.services.top.Hosts[host-1].VTEP
}

func addrOf(e model.Endpoint, v6 bool) netip.Addr {
	if v6 {
		return e.IPv6
	}
	return e.IPv4
}

// first makes the first packet of a new connection between two addresses.
func (s *routedTest) first(src, dst netip.Addr, proto model.Protocol) reference.Packet {
	s.services.sport++
	p := reference.Packet{SrcMAC: desired.RouterMAC, DstMAC: desired.RouterMAC, Src: src, Dst: dst, Proto: proto, SrcPort: s.services.sport, DstPort: 8080}
	if proto == model.ProtoTCP {
		p.TCPFlags = reference.FlagSYN
	}
	if proto == model.ProtoICMP {
		p.SrcPort, p.DstPort, p.ICMPID, p.ICMPType = 0, 0, s.services.sport, 8
		if src.Is6() {
			p.Proto, p.ICMPType = model.ProtoICMPv6, 128
		}
	}
	return p
}

// answer makes the answer to a packet, without saying where it is sent.
func (s *routedTest) answer(p reference.Packet) reference.Packet {
	r := reference.Packet{
		SrcMAC: desired.RouterMAC, DstMAC: desired.RouterMAC, Src: p.Dst, Dst: p.Src,
		Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort, ICMPID: p.ICMPID,
	}
	if p.Proto == model.ProtoTCP {
		if r.TCPFlags = reference.FlagACK; p.TCPFlags == reference.FlagSYN {
			r.TCPFlags |= reference.FlagSYN
		}
	}
	if p.Proto == model.ProtoICMPv6 {
		r.ICMPType = 129
	}
	return r
}

// byStack, byPod and byHost say where a packet is sent: by the stack of h1, by a
// container of h1 to its router, or by another host's router.
func byStack(p reference.Packet) reference.Packet {
	p.Host = true
	return p
}

func bySocket(p reference.Packet) reference.Packet {
	p.Host, p.Own = true, true
	return p
}

func byPod(e model.Endpoint, p reference.Packet) reference.Packet {
	p.Port, p.SrcMAC, p.DstMAC = compile.IfName(e.Key), e.MAC, desired.RouterMAC
	return p
}

func (s *routedTest) byHost(vtep netip.Addr, to model.Endpoint, p reference.Packet) reference.Packet {
	p.VTEP, p.Network = vtep, s.services.top.Network(s.services.key).ID
	if p.DstMAC = desired.RouterMAC; to.Host == "h1" {
		p.DstMAC = to.MAC
	}
	return p
}

// arrives sends a packet and wants it unchanged at an endpoint, here or elsewhere.
func (s *routedTest) arrives(what string, p reference.Packet, e model.Endpoint) {
	s.t.Helper()
	v := s.services.Send(s.t, p)
	at := slices.Equal(v.Ports, []string{compile.IfName(e.Key)}) && len(v.VTEPs) == 0
	if e.Host != "h1" {
		at = slices.Equal(v.VTEPs, []netip.Addr{s.services.top.vtep(e.Host)}) && len(v.Ports) == 0 && v.Network == s.services.top.Network(s.services.key).ID
	}
	if !at || v.Host {
		s.t.Fatalf("%s: %s, want it at %s", what, v, e.Key)
	}
	if v.Sent == nil && p.VTEP.IsValid() { // as it came
		v.Sent = &p
	}
	s.unchanged(what, v.Sent, p, desired.RouterMAC, e.MAC)
}

// reachesStack sends a packet and wants it unchanged at the stack of h1.
func (s *routedTest) reachesStack(what string, p reference.Packet) {
	s.t.Helper()
	v := s.services.Send(s.t, p)
	if !v.Host || len(v.Ports) > 0 || len(v.VTEPs) > 0 || v.Sent == nil {
		s.t.Fatalf("%s: %s, want it at the host", what, v)
	}
	s.unchanged(what, v.Sent, p, v.Sent.SrcMAC, desired.RouterMAC)
}

// reachesNode sends a packet and wants it unchanged at the router of h2.
func (s *routedTest) reachesNode(what string, p reference.Packet) {
	s.t.Helper()
	v := s.services.Send(s.t, p)
	if !slices.Equal(v.VTEPs, []netip.Addr{s.services.top.Hosts[1].VTEP}) || v.Host || len(v.Ports) > 0 || v.Network != s.services.top.Network(s.services.key).ID {
		s.t.Fatalf("%s: %s, want it at host h2", what, v)
	}
	s.unchanged(what, v.Sent, p, desired.RouterMAC, desired.RouterMAC)
}

func (s *routedTest) unchanged(what string, got *reference.Packet, p reference.Packet, src, dst model.MAC) {
	s.t.Helper()
	if got == nil || got.Src != p.Src || got.Dst != p.Dst || got.SrcMAC != src || got.DstMAC != dst {
		s.t.Fatalf("%s: it came as %+v, want %s > %s, MACs %s > %s", what, got, p.Src, p.Dst, src, dst)
	}
	if later := p.Frag != nil && p.Frag.Offset != 0; !later && p.Proto.HasPorts() && (got.SrcPort != p.SrcPort || got.DstPort != p.DstPort) {
		s.t.Fatalf("%s: ports %d > %d, want %d > %d", what, got.SrcPort, got.DstPort, p.SrcPort, p.DstPort)
	}
}

// each calls fn with the families and protocols.
func (s *routedTest) each(fn func(what string, v6 bool, proto model.Protocol)) {
	s.t.Helper()
	for _, v6 := range ipv4and6 {
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP, model.ProtoICMP} {
			fn(fmt.Sprintf("%s %s", ipText(v6), proto), v6, proto)
		}
	}
}
