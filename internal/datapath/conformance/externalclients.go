package conformance

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ThirdVTEP is the tunnel endpoint of a host that has no endpoints.
var ThirdVTEP = netip.MustParseAddr("192.168.7.3")

type outsideCase struct {
	name string
	run  func(*externalTest)
}

// testServicesOutside: clients on the host and beyond it reach exposed services.
func testServicesOutside(t *testing.T, h Harness) {
	t.Helper()
	tryOutside(t, h, func(c driver.Capabilities) bool { return c.ExternalServices }, []outsideCase{
		{"Who", (*externalTest).who},
		{"Policy", (*externalTest).policy},
		{"Ends", (*externalTest).connectionEnd},
		{"Replaced", (*externalTest).replaced},
		{"MorePorts", (*externalTest).morePorts},
		{"LostForAMoment", (*externalTest).lostForAMoment},
		{"NotBack", (*externalTest).notBack},
	})
}

// tryOutside tries cases on the first of three hosts, on a driver that can.
func tryOutside(t *testing.T, h Harness, can func(driver.Capabilities) bool, cases []outsideCase) {
	t.Helper()
	if h.Send == nil || !h.Egress {
		t.Skip("the harness has no Egress")
	}
	b := open(t, h)
	if !can(b.drv.Capabilities()) {
		t.Skip("the driver knows no clients outside")
	}
	top := StandardTopology()
	top.Hosts = append(slices.Clone(top.Hosts), model.Host{Name: "h3", Control: ThirdVTEP, VTEP: ThirdVTEP})
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Change(func(c *compile.Compiler) { WithEgress(top, c, h.Egress6) }); err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	for _, sub := range cases {
		t.Run(sub.name, func(t *testing.T) {
			sub.run(&externalTest{newServices(t, b, w, model.NetworkKey{Tenant: "blue", Name: "vx"}), t})
		})
	}
}

// externalTest tries services for clients outside.
type externalTest struct {
	services *services
	t        *testing.T
}

// six are the families that the data plane leads outside.
func (s *externalTest) six() []bool {
	if s.services.Egress6 {
		return ipv4and6
	}
	return []bool{false}
}

func clientOutside(v6 bool) netip.Addr {
	if v6 {
		return Outside6
	}
	return Outside
}

// open makes the service, exposed.
func (s *externalTest) open(ids ...model.EndpointID) desired.Service {
	out := s.services.shop(ids...)
	out.Exposed = true
	return out
}

// from makes the first packet of a client's new connection, as the host's stack
// sends it.
func (s *externalTest) from(client netip.Addr, proto model.Protocol) reference.Packet {
	s.services.sport++
	p := reference.Packet{Host: true, Src: client, Dst: vipOf(s.services.top.Network(s.services.key), client.Is6()), Proto: proto, SrcPort: s.services.sport, DstPort: 80}
	if proto == model.ProtoUDP {
		p.DstPort = 53
	} else {
		p.TCPFlags = reference.FlagSYN
	}
	return p
}

// came is reached, by the router.
func (s *externalTest) came(what string, p reference.Packet, ids ...model.EndpointID) model.Endpoint {
	s.t.Helper()
	e, v := s.services.arrived(what, p, ids...)
	if v.Sent.SrcMAC != desired.RouterMAC {
		s.t.Fatalf("%s: %s got it from %s, want it from the router", what, e.Key, v.Sent.SrcMAC)
	}
	if e.Host != "h1" && v.Network != s.services.top.Network(s.services.key).ID {
		s.t.Fatalf("%s: by the tunnel of network %d", what, v.Network)
	}
	return e
}

// back makes a backend's answer: of a container here, or as its host sends it here.
func (s *externalTest) back(p reference.Packet, e model.Endpoint) reference.Packet {
	r := s.services.replyOf(p, e)
	r.DstMAC = desired.RouterMAC
	if e.Host != "h1" {
		r.SrcMAC = desired.RouterMAC
	}
	return r
}

// answersAsService sends a backend's packet and wants it at the host's stack, in the service's
// name.
func (s *externalTest) answersAsService(what string, asked, r reference.Packet) {
	s.t.Helper()
	v := s.services.Send(s.t, r)
	got := v.Sent
	if !v.Host || got == nil || got.Src != asked.Dst || got.Dst != asked.Src {
		s.t.Fatalf("%s: %s (%+v), want it at the host, from %s to %s", what, v, got, asked.Dst, asked.Src)
	}
	if first := r.Frag == nil || r.Frag.Offset == 0; first && r.Proto.HasPorts() && (got.SrcPort != asked.DstPort || got.DstPort != asked.SrcPort) {
		s.t.Fatalf("%s: the host got ports %d > %d, want %d > %d", what, got.SrcPort, got.DstPort, asked.DstPort, asked.SrcPort)
	}
}

// who: packets from an address that no client outside has are counted as spoofed.
func (s *externalTest) who() {
	s.services.applyServices(s.open("db1"))
	spoofed := func() uint64 {
		st, err := s.services.drv.Stats(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		return st.Drops[driver.DropSpoof]
	}
	before, sent := spoofed(), uint64(0)
	for _, v6 := range s.six() {
		for _, a := range []netip.Addr{addrOf(s.services.at("web2"), v6), vipOf(s.services.top.Network(s.services.key), v6)} {
			s.services.denied("from "+a.String(), s.from(a, model.ProtoTCP))
			sent++
		}
	}
	if !s.services.eventually(func() bool { return spoofed()-before == sent }) { // a data plane may count later
		s.t.Fatalf("%d of %d counted as spoofed", spoofed()-before, sent)
	}
}
