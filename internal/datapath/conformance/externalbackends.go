package conformance

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// externalBackends tries services with backends that are no endpoints: "Backends that are no
// endpoints" of docs/design/services.md. The client is web1 of h1.
type externalBackends struct {
	services *services
	native   *routedTest
	t        *testing.T
	client   model.Endpoint
	six      bool // also by IPv6
}

// backendPlace is where a backend that is no endpoint is.
type backendPlace struct {
	name     string
	v4, v6   netip.Addr
	byTunnel bool // it is led to by the tunnel of h2
}

// testExternalBackends: a client's host leads connections to such backends as it leads
// its containers' own ones to these addresses.
func testExternalBackends(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil || !h.Egress {
		t.Skip("the harness has no Egress")
	}
	b := open(t, h)
	can := b.drv.Capabilities()
	if !can.ExternalBackends {
		t.Skip("the driver knows endpoints as backends only")
	}
	apart := RoutedTopology()
	apart.Global.FwdMode = model.FwdBridge
	private, err := NewWorld(apart, Case{})
	if err != nil {
		t.Fatal(err)
	}
	if err := private.Change(func(c *compile.Compiler) { WithEgress(apart, c, h.Egress6) }); err != nil {
		t.Fatal(err)
	}
	bridge, routing := nativeWorld(t, apart), nativeWorld(t, RoutedTopology())
	b.interfaces(t, private.Desired["h1"], bridge.Desired["h1"], routing.Desired["h1"])
	t.Run("Private", func(t *testing.T) { tryExternalBackends(t, b, private, h.Egress6) })
	t.Run("Native", func(t *testing.T) {
		if !can.RoutedNetworks {
			t.Skip("the driver knows no native networks")
		}
		tryExternalBackends(t, b, bridge, h.Egress6)
	})
	t.Run("Routing", func(t *testing.T) {
		if !can.RoutedNetworks || !can.Routes {
			t.Skip("the driver does not route, or knows no native networks")
		}
		tryExternalBackends(t, b, routing, h.Egress6)
	})
}

func tryExternalBackends(t *testing.T, b *bench, w *World, six bool) {
	t.Helper()
	for _, sub := range []struct {
		name string
		run  func(*externalBackends)
	}{
		{"Translated", (*externalBackends).translated},
		{"Mixed", (*externalBackends).mixed},
		{"Frontends", (*externalBackends).externalFrontend},
		{"Local", (*externalBackends).local},
		{"Policy", (*externalBackends).policy},
		{"Nowhere", (*externalBackends).nowhere},
		{"Outside", (*externalBackends).outsiders},
		{"OutsideErrors", (*externalBackends).outsidersErrors},
		{"OutsideFragments", (*externalBackends).outsidersFragments},
		{"OutsideNowhere", (*externalBackends).outsidersNowhere},
		{"OutsideCounts", (*externalBackends).outsidersCounts},
		{"Fragments", (*externalBackends).fragments},
		{"Errors", (*externalBackends).errors},
		{"Owner", (*externalBackends).owner},
		{"Ends", (*externalBackends).connectionEnd},
		{"Restart", (*externalBackends).restarted},
		{"Counts", (*externalBackends).counts},
	} {
		t.Run(sub.name, func(t *testing.T) {
			of := newServices(t, b, w, nativeKey)
			s := &externalBackends{services: of, native: &routedTest{of, t}, t: t, six: six}
			s.client = s.services.at("web1")
			sub.run(s)
		})
	}
}

func (s *externalBackends) families() []bool {
	if s.six {
		return ipv4and6
	}
	return []bool{false}
}

// isNative reports whether the client has no private address.
func (s *externalBackends) isNative() bool {
	n, _ := s.services.w.Desired["h1"].Networks.Get(s.services.top.Network(s.services.key).ID)
	return n.Routed
}

// own is the client as the world beyond its networks sees it.
func (s *externalBackends) own(v6 bool) netip.Addr {
	port, _ := s.services.w.Desired["h1"].Ports.Get(compile.IfName(s.client.Key))
	switch {
	case s.isNative():
		return addrOf(s.client, v6)
	case v6:
		return port.Private6
	}
	return port.Private
}

// places are backends on the client's host, on another one, and outside.
func (s *externalBackends) places() []backendPlace {
	out := []backendPlace{{name: "outside", v4: clientOutside(false), v6: clientOutside(true)}}
	if s.isNative() {
		out = append(out, backendPlace{name: "this host", v4: s.native.node(1, false), v6: s.native.node(1, true)}, backendPlace{"another host", s.native.node(2, false), s.native.node(2, true), true})
	}
	return out
}

func (p backendPlace) addr(v6 bool) netip.Addr {
	if v6 {
		return p.v6
	}
	return p.v4
}

func (p backendPlace) key() model.EndpointKey {
	return model.EndpointKey{Network: nativeKey, ID: model.EndpointID("@" + p.v4.String())}
}

// with adds backends to a service.
func (s *externalBackends) with(of desired.Service, all ...backendPlace) desired.Service {
	for _, p := range all {
		of.Backends = of.Backends.Set(p.key(), &desired.Backend{IPv4: p.v4, IPv6: p.v6, Local: s.isNative() && p.v4 == s.native.node(1, false)})
	}
	return of
}

func (s *externalBackends) applyServices(all ...desired.Service) {
	s.t.Helper()
	newFrontends(&externalTest{s.services, s.t}).applyServices(all...)
}

// backendPort is where a packet to the service is translated to.
func backendPort(proto model.Protocol) uint16 {
	if proto == model.ProtoUDP {
		return 5353
	}
	return 8080
}

// led sends a client's packet, and wants it on its way to a place, in the client's name.
func (s *externalBackends) led(what string, p reference.Packet, to backendPlace) *reference.Packet {
	s.t.Helper()
	v := s.services.Send(s.t, p)
	got := v.Sent
	at := v.Host && len(v.VTEPs) == 0
	if to.byTunnel {
		at = !v.Host && slices.Equal(v.VTEPs, []netip.Addr{s.services.top.Hosts[1].VTEP}) && v.Network == s.services.top.Network(s.services.key).ID && got != nil && got.SrcMAC == desired.RouterMAC
	}
	if !at || len(v.Ports) > 0 || got == nil || got.DstMAC != desired.RouterMAC {
		s.t.Fatalf("%s: %s (%+v), want it on its way to %s, %s", what, v, got, to.name, to.addr(p.Src.Is6()))
	}
	v6 := p.Src.Is6()
	if got.Src != s.own(v6) || got.Dst != to.addr(v6) {
		s.t.Fatalf("%s: it went as %s > %s, want %s > %s", what, got.Src, got.Dst, s.own(v6), to.addr(v6))
	}
	if later := p.Frag != nil && p.Frag.Offset != 0; !later && p.Proto.HasPorts() && (got.SrcPort != p.SrcPort || got.DstPort != backendPort(p.Proto)) {
		s.t.Fatalf("%s: ports %d > %d, want %d > %d", what, got.SrcPort, got.DstPort, p.SrcPort, backendPort(p.Proto))
	}
	return got
}

// came sends back what a place sends to the client.
func (s *externalBackends) came(r reference.Packet, from backendPlace) reference.Packet {
	if from.byTunnel {
		return s.native.byHost(s.services.top.Hosts[1].VTEP, s.client, r)
	}
	return byStack(r)
}

// answerOf makes a place's answer to a client's packet, as it arrives here.
func (s *externalBackends) answerOf(p reference.Packet, from backendPlace) reference.Packet {
	there := p
	there.Src, there.Dst, there.DstPort = s.own(p.Src.Is6()), from.addr(p.Src.Is6()), backendPort(p.Proto)
	return s.came(s.native.answer(there), from)
}

// converse has a client's packet led to a place, and answered.
func (s *externalBackends) converse(what string, p reference.Packet, to backendPlace) {
	s.t.Helper()
	s.led(what, p, to)
	s.services.answered(what, s.client, p, s.answerOf(p, to))
}

// everywhere calls fn with all places, families and protocols, the service having the
// place as its only backend.
func (s *externalBackends) everywhere(fn func(what string, to backendPlace, v6 bool, proto model.Protocol)) {
	s.t.Helper()
	for _, to := range s.places() {
		for _, v6 := range s.families() {
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				s.applyServices(s.with(s.services.shop(), to))
				fn(to.name+" "+ipText(v6)+" "+proto.String(), to, v6, proto)
			}
		}
	}
}

// turn has a policy, and no service.
func (s *externalBackends) turn(c Case) {
	s.t.Helper()
	if err := s.services.w.Switch(c); err != nil {
		s.t.Fatal(err)
	}
}
