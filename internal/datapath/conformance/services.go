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

// services tries what docs/design/services.md says. It judges by itself, not by the reference
// data plane: which backend a connection gets is each kind of data plane's own choice. The
// client is web1 of h1.
type services struct {
	*bench
	t     *testing.T
	top   Topology
	w     *World
	key   model.NetworkKey
	sport uint16
}

// vipOf is a network's virtual address in the tests.
func vipOf(n model.Network, v6 bool) netip.Addr {
	if v6 {
		a := n.Subnet6.Addr().As16()
		a[15] = 200
		return netip.AddrFrom16(a)
	}
	a := n.Subnet.Addr().As4()
	a[3] = 200
	return netip.AddrFrom4(a)
}

// testServices: connections to a service reach its backends and come back, and
// policy sees backends only.
func testServices(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	b := open(t, h)
	if !b.drv.Capabilities().Services {
		t.Skip("the driver makes no services")
	}
	top := StandardTopology()
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	for _, sub := range []struct {
		name string
		run  func(*serviceCases)
	}{
		{"Recreated", (*serviceCases).recreated},
		{"Affinity", (*serviceCases).affinity},
		{"AffinityEnds", (*serviceCases).affinityExpires},
		{"Spread", (*serviceCases).spread},
		{"Many", (*serviceCases).many},
		{"OneOwner", (*serviceCases).oneOwner},
		{"Closed", (*serviceCases).closed},
		{"Counts", (*serviceCases).counts},
	} {
		t.Run(sub.name, func(t *testing.T) {
			s := newServices(t, b, w, model.NetworkKey{Tenant: "blue", Name: "vx"})
			sub.run(&serviceCases{s, t})
		})
	}
}

// newServices begins a part, with no connection of the one before.
func newServices(t *testing.T, b *bench, w *World, key model.NetworkKey) *services {
	t.Helper()
	if err := w.Switch(Case{}); err != nil {
		t.Fatal(err)
	}
	b.apply(t, emptyState(1))
	return &services{bench: b, t: t, top: w.Topology, w: w, key: key, sport: 20000}
}

// testRoutedServices: connections end when networks are joined or parted.
func testRoutedServices(t *testing.T, h Harness) {
	t.Helper()
	top := RoutedTopology()
	b, w := routing(t, h, top, true)
	if !b.drv.Capabilities().Services {
		t.Skip("the driver makes no services")
	}
	s := &services{bench: b, t: t, top: top, w: w, key: model.NetworkKey{Tenant: "blue", Name: "vx"}, sport: 20000}
	for _, id := range []model.EndpointID{"web1", "db1", "db2"} {
		s.joined(s.at("web1"), id)
	}
}

func (s *services) at(id model.EndpointID) model.Endpoint {
	return s.top.Endpoint(model.EndpointKey{Network: s.key, ID: id})
}

// shop makes the service, with endpoints as backends.
func (s *services) shop(ids ...model.EndpointID) desired.Service {
	n := s.top.Network(s.key)
	out := desired.Service{
		Key: model.ServiceKey{Tenant: s.key.Tenant, Name: "shop"}, Network: n.ID, IPv4: vipOf(n, false), IPv6: vipOf(n, true),
		Ports: []desired.ServicePort{
			{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}, {Protocol: model.ProtoUDP, Port: 53, Backend: 5353},
		},
	}
	for _, id := range ids {
		e := s.at(id)
		b := &desired.Backend{Network: n.ID, IPv4: e.IPv4, IPv6: e.IPv6, Identity: e.Identity, Local: e.Host == "h1"}
		if !b.Local {
			b.VTEP = s.top.Hosts[1].VTEP
		}
		out.Backends = out.Backends.Set(e.Key, b)
	}
	return out
}

// inState sets the state of a backend.
func (s *services) inState(of desired.Service, id model.EndpointID, state desired.BackendState) desired.Service {
	old, _ := of.Backends.Get(s.at(id).Key)
	b := *old
	b.State = state
	of.Backends = of.Backends.Set(s.at(id).Key, &b)
	return of
}

// applyServices applies the present policies' desired state with services.
func (s *services) applyServices(all ...desired.Service) {
	s.t.Helper()
	pic := s.w.Desired["h1"]
	for _, x := range all {
		pic.Services = pic.Services.Set(x.Key, &x)
	}
	s.apply(s.t, pic)
}

// ask makes the first packet of a new connection to the service.
func (s *services) ask(from model.Endpoint, proto model.Protocol, v6 bool) reference.Packet {
	s.sport++
	port := uint16(80)
	if proto == model.ProtoUDP {
		port = 53
	}
	p := between(s.top, from, from, proto, v6, s.sport, port)
	p.DstMAC, p.Dst = desired.RouterMAC, vipOf(s.top.Network(s.key), v6)
	return p
}

func nowhere(v reference.Verdict) bool {
	return len(v.Ports) == 0 && len(v.VTEPs) == 0 && !v.Uplink && !v.Host
}

// receiverOf returns who got a client's packet.
func (s *services) receiverOf(what string, v reference.Verdict) model.Endpoint {
	s.t.Helper()
	if nowhere(v) || v.Sent == nil {
		s.t.Fatalf("%s: %s (%+v), want it at a backend", what, v, v.Sent)
	}
	i := slices.IndexFunc(s.top.Endpoints, func(e model.Endpoint) bool {
		return e.Key.Network == s.key && (e.IPv4 == v.Sent.Dst || e.IPv6 == v.Sent.Dst)
	})
	if i < 0 {
		s.t.Fatalf("%s: sent to %s, which is nobody", what, v.Sent.Dst)
	}
	e := s.top.Endpoints[i]
	right := slices.Equal(v.Ports, []string{compile.IfName(e.Key)})
	if e.Host != "h1" {
		right = slices.Equal(v.VTEPs, []netip.Addr{s.top.Hosts[1].VTEP})
	}
	if !right || v.Sent.DstMAC != e.MAC {
		s.t.Fatalf("%s: sent to %s by %s, MAC %s", what, e.Key, v, v.Sent.DstMAC)
	}
	return e
}

// reached sends a client's packet, and wants it at one of the backends, to the port
// and in the client's own name.
func (s *services) reached(what string, p reference.Packet, ids ...model.EndpointID) model.Endpoint {
	s.t.Helper()
	e, _ := s.arrived(what, p, ids...)
	return e
}

// arrived is reached, and tells how the packet went.
func (s *services) arrived(what string, p reference.Packet, ids ...model.EndpointID) (model.Endpoint, reference.Verdict) {
	s.t.Helper()
	v := s.Send(s.t, p)
	e := s.receiverOf(what, v)
	port := uint16(8080)
	if p.Proto == model.ProtoUDP {
		port = 5353
	}
	if !slices.Contains(ids, e.Key.ID) || v.Sent.Src != p.Src || v.Sent.SrcPort != p.SrcPort || v.Sent.DstPort != port {
		s.t.Fatalf("%s: %s got %s:%d > port %d, want one of %s and %s:%d > port %d", what, e.Key, v.Sent.Src, v.Sent.SrcPort, v.Sent.DstPort, ids, p.Src, p.SrcPort, port)
	}
	return e, v
}

// denied sends a packet and wants it nowhere.
func (s *services) denied(what string, p reference.Packet) {
	s.t.Helper()
	if v := s.Send(s.t, p); !nowhere(v) {
		s.t.Fatalf("%s: %s (%+v), want it nowhere", what, v, v.Sent)
	}
}

// replyOf makes a backend's answer to a client's packet.
func (s *services) replyOf(p reference.Packet, e model.Endpoint) reference.Packet {
	r := origin(s.top, e)
	r.SrcMAC, r.DstMAC, r.Src, r.Dst, r.Proto = e.MAC, p.SrcMAC, e.IPv4, p.Src, p.Proto
	if p.Src.Is6() {
		r.Src = e.IPv6
	}
	if r.SrcPort, r.DstPort = 8080, p.SrcPort; p.Proto == model.ProtoUDP {
		r.SrcPort = 5353
	}
	if p.Proto == model.ProtoTCP {
		r.TCPFlags = reference.FlagACK
		if p.TCPFlags == reference.FlagSYN {
			r.TCPFlags |= reference.FlagSYN
		}
	}
	return r
}

// answered sends a backend's packet and wants it at the client, in the service's name.
func (s *services) answered(what string, client model.Endpoint, asked, r reference.Packet) *reference.Packet {
	s.t.Helper()
	v := s.Send(s.t, r)
	got := v.Sent
	if !slices.Equal(v.Ports, []string{compile.IfName(client.Key)}) || got == nil {
		s.t.Fatalf("%s: %s, want it at the client, translated", what, v)
	}
	if got.Src != asked.Dst || got.Dst != asked.Src || got.SrcMAC != desired.RouterMAC || got.DstMAC != client.MAC {
		s.t.Fatalf("%s: the client got %s > %s (%s > %s), want %s > %s by the router", what, got.Src, got.Dst, got.SrcMAC, got.DstMAC, asked.Dst, asked.Src)
	}
	if first := r.Frag == nil || r.Frag.Offset == 0; first && r.Proto.HasPorts() && (got.SrcPort != asked.DstPort || got.DstPort != asked.SrcPort) {
		s.t.Fatalf("%s: the client got ports %d > %d, want %d > %d", what, got.SrcPort, got.DstPort, asked.DstPort, asked.SrcPort)
	}
	return got
}

// laterPacket is a later packet of a connection.
func laterPacket(p reference.Packet) reference.Packet {
	if p.Proto == model.ProtoTCP {
		p.TCPFlags = reference.FlagACK
	}
	return p
}

var ipv4and6 = []bool{false, true}

func ipText(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}
