package reference

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// shopFloor is a host with a client, some backends beside it and a service.
func shopFloor(backends int) (desired.Host, desired.Service) {
	network := model.NetworkKey{Tenant: "blue", Name: "n1"}
	h := desired.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")}
	h.Networks = h.Networks.Set(1, &desired.Network{ID: 1, Key: network, Encap: model.EncapVXLAN, Tag: 7, Subnet: netip.MustParsePrefix("10.0.0.0/16")})
	s := desired.Service{
		Key: model.ServiceKey{Tenant: "blue", Name: "shop"}, Network: 1, IPv4: netip.MustParseAddr("10.0.255.1"), Affinity: time.Hour,
		Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}, {Protocol: model.ProtoSCTP, Port: 9, Backend: 9}},
	}
	for i := range backends + 1 {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		p := desired.Port{IfName: fmt.Sprint("p", i), Endpoint: model.EndpointKey{Network: network, ID: model.EndpointID(fmt.Sprint("e", i))}, Network: 1, MAC: model.MAC{2, 2, 0, 0, 0, byte(i + 1)}, IPv4: a, Identity: 300}
		h.Ports = h.Ports.Set(p.IfName, &p)
		if i > 0 {
			s.Backends = s.Backends.Set(p.Endpoint, &desired.Backend{Network: 1, IPv4: a, Identity: 300, Local: true})
		}
	}
	h.Services = h.Services.Set(s.Key, &s)
	return h, s
}

func atShop(s desired.Service, sport uint16, proto model.Protocol) Packet {
	p := Packet{Port: "p0", SrcMAC: model.MAC{2, 2, 0, 0, 0, 1}, DstMAC: desired.RouterMAC, Src: netip.MustParseAddr("10.0.0.1"), Dst: s.IPv4, Proto: proto, SrcPort: sport, DstPort: 80}
	if proto == model.ProtoTCP {
		p.TCPFlags = FlagSYN
	} else {
		p.DstPort = 9
	}
	return p
}

// TestClientLosesItsBackendAfterTheAffinityTimeout: a client keeps its backend until Affinity after its last new
// connection. Then it gets a new choice.
func TestClientLosesItsBackendAfterTheAffinityTimeout(t *testing.T) {
	h, s := shopFloor(20)
	d := New()
	now := time.Unix(0, 0)
	d.k.nat.now = func() time.Time { return now }
	mustApply(t, d, h)
	v := d.Send(atShop(s, 1000, model.ProtoTCP))
	first := v.Ports[0]
	less := s
	id := model.EndpointID("e" + first[1:])
	drains, _ := s.Backends.Get(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n1"}, ID: id})
	b := *drains
	b.State = desired.BackendDraining
	key := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n1"}, ID: id}
	less.Backends = less.Backends.Set(key, &b)
	without := h
	without.Services = without.Services.Set(s.Key, &less)
	mustApply(t, d, without)
	second := d.Send(atShop(s, 1001, model.ProtoTCP)).Ports[0]
	if second == first {
		t.Fatal("a new connection went to a backend that drains")
	}
	mustApply(t, d, h)
	for i := range uint16(3) {
		now = now.Add(50 * time.Minute)
		if got := d.Send(atShop(s, 1100+i, model.ProtoTCP)).Ports[0]; got != second {
			t.Errorf("after 50 minutes: %s, want %s as before", got, second)
		}
	}
	got := map[string]bool{}
	for i := range uint16(8) {
		now = now.Add(time.Hour)
		got[d.Send(atShop(s, 1200+i, model.ProtoTCP)).Ports[0]] = true
	}
	if len(got) < 2 {
		t.Errorf("an hour apart it gets %v, one of twenty backends each time", got)
	}
}

// TestAffinityIsRememberedOfSomeClients: the choice is remembered of MaxAffine clients at most, and
// clients whose affinity has ended make room.
func TestAffinityIsRememberedOfSomeClients(t *testing.T) {
	x := newNAT()
	now := time.Unix(0, 0)
	x.now = func() time.Time { return now }
	s := &desired.Service{Key: model.ServiceKey{Tenant: "blue", Name: "shop"}, Affinity: time.Hour}
	client := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range desired.MaxAffine + 1 {
		x.setAffinity(s, client(i), model.EndpointKey{ID: "e"})
	}
	if _, ok := x.affinityBackend(s, client(desired.MaxAffine)); ok || len(x.affine) != desired.MaxAffine {
		t.Errorf("%d clients are remembered, the last one: %v", len(x.affine), ok)
	}
	now = now.Add(time.Hour)
	x.setAffinity(s, client(desired.MaxAffine), model.EndpointKey{ID: "e"})
	if _, ok := x.affinityBackend(s, client(desired.MaxAffine)); !ok || len(x.affine) != 1 {
		t.Errorf("%d clients are remembered later, the last one: %v", len(x.affine), ok)
	}
}

// TestServiceSCTP: the reference keeps ports of SCTP apart like those of others.
func TestServiceSCTP(t *testing.T) {
	h, s := shopFloor(1)
	d := New()
	mustApply(t, d, h)
	if v := d.Send(atShop(s, 5, model.ProtoSCTP)); len(v.Ports) != 1 || v.Sent.DstPort != 9 || v.Sent.Dst != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("%s (%+v)", v, v.Sent)
	}
	s.Backends = desired.Map[model.EndpointKey, *desired.Backend]{}
	h.Services = h.Services.Set(s.Key, &s)
	mustApply(t, d, h)
	if v := d.Send(atShop(s, 6, model.ProtoSCTP)); v.Drop != driver.DropNoProvider || v.Answer == nil || v.Answer.ICMPCode != 3 {
		t.Errorf("%s (%+v)", v, v.Answer)
	}
}

// TestPacketsAreDroppedWithoutAFreePort: a client with all ports taken behind the translation is dropped.
func TestPacketsAreDroppedWithoutAFreePort(t *testing.T) {
	h, s := shopFloor(1)
	d := New()
	mustApply(t, d, h)
	for i := range uint16(otherPorts) {
		p := atShop(s, 65500+i, model.ProtoTCP)
		if p.SrcPort < firstPort {
			p.SrcPort += firstPort
		}
		p.Dst, p.DstMAC, p.DstPort = netip.MustParseAddr("10.0.0.2"), model.MAC{2, 2, 0, 0, 0, 2}, 8080
		if v := d.Send(p); !v.Passed() {
			t.Fatalf("port %d: %s", p.SrcPort, v)
		}
	}
	if v := d.Send(atShop(s, 65500, model.ProtoTCP)); v.Drop != driver.DropInvalid {
		t.Errorf("%s, want it dropped", v)
	}
	if v := d.Send(atShop(s, 65501, model.ProtoTCP)); !v.Passed() || v.Sent.SrcPort != firstPort+uint16(otherPorts)-36 {
		t.Errorf("%s (%+v), want the port after the last one", v, v.Sent)
	}
}

// TestRepeatedConnectionGetsItsAnswer: a client that connects again, and gets the same leaving backend since
// there is no other, gets its answer.
func TestRepeatedConnectionGetsItsAnswer(t *testing.T) {
	h, s := shopFloor(1)
	d := New()
	mustApply(t, d, h)
	if v := d.Send(atShop(s, 1000, model.ProtoTCP)); !v.Passed() {
		t.Fatal(v)
	}
	for key, b := range s.Backends.All() {
		leaving := *b
		leaving.State = desired.BackendLeaving
		s.Backends = s.Backends.Set(key, &leaving)
	}
	h.Services = h.Services.Set(s.Key, &s)
	mustApply(t, d, h)
	v := d.Send(atShop(s, 1000, model.ProtoTCP))
	if !v.Passed() {
		t.Fatal(v)
	}
	answer := Packet{
		Port: "p1", SrcMAC: v.Sent.DstMAC, DstMAC: v.Sent.SrcMAC, Src: v.Sent.Dst, Dst: v.Sent.Src,
		Proto: model.ProtoTCP, SrcPort: v.Sent.DstPort, DstPort: v.Sent.SrcPort, TCPFlags: FlagSYN | FlagACK,
	}
	if v := d.Send(answer); !v.Passed() || v.Sent == nil || v.Sent.Src != s.IPv4 {
		t.Errorf("%s, want it at the client, in the service's name", v)
	}
}

// TestTooLargeServicesAreRefused: what no data plane could hold is refused by name, and the
// rest is there.
func TestTooLargeServicesAreRefused(t *testing.T) {
	for name, edit := range map[string]func(*desired.Service){
		"another's key":     func(s *desired.Service) { s.Key.Name = "x" },
		"no such network":   func(s *desired.Service) { s.Network = 9 },
		"no address":        func(s *desired.Service) { s.IPv4 = netip.Addr{} },
		"of another family": func(s *desired.Service) { s.IPv6 = netip.MustParseAddr("10.0.0.9") },
		"a port twice":      func(s *desired.Service) { s.Ports = []desired.ServicePort{s.Ports[0], s.Ports[0]} },
		"no backend's port": func(s *desired.Service) { s.Ports = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80}} },
		"protocol with none": func(s *desired.Service) {
			s.Ports = []desired.ServicePort{{Protocol: model.ProtoICMP, Port: 80, Backend: 80}}
		},
	} {
		h, s := shopFloor(1)
		bad := s
		edit(&bad)
		key := model.ServiceKey{Tenant: "blue", Name: "bad"}
		if bad.Key == s.Key {
			bad.Key = key
		}
		h.Services = h.Services.Set(key, &bad)
		d := New()
		report, err := d.Apply(context.Background(), h)
		if err != nil || len(report.Problems) != 1 || report.Problems[0].Object != "service blue:bad" ||
			!errors.Is(report.Problems[0].Err, model.ErrInvalid) && !errors.Is(report.Problems[0].Err, model.ErrNotFound) {
			t.Errorf("%s: %v, %v", name, report.Problems, err)
		}
		if v := d.Send(atShop(s, 7, model.ProtoTCP)); !v.Passed() {
			t.Errorf("%s: the other service: %s", name, v)
		}
	}
}
