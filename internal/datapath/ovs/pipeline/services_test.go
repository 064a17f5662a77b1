package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// sampleService has two backends that are chosen among, and one that drains.
func sampleService() *desired.Service {
	s := &desired.Service{
		Key: model.ServiceKey{Tenant: "blue", Name: "shop"}, Network: 7, IPv4: netip.MustParseAddr("10.1.1.200"), IPv6: netip.MustParseAddr("fd00::c8"),
		Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}, {Protocol: model.ProtoUDP, Port: 53, Backend: 5353}},
	}
	for i, state := range []desired.BackendState{desired.BackendActive, desired.BackendActive, desired.BackendDraining} {
		v6 := netip.MustParseAddr("fd00::").As16()
		v6[15] = byte(i + 2)
		s.Backends = s.Backends.Set(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "vx"}, ID: model.EndpointID(fmt.Sprint("e", i))},
			&desired.Backend{Network: 7, IPv4: netip.AddrFrom4([4]byte{10, 1, 1, byte(i + 2)}), IPv6: netip.AddrFrom16(v6), State: state})
	}
	return s
}

// made returns a service's flows, and its groups as text.
func made(c Config, s *desired.Service, frontends ...Frontend) (flows []of.Flow, groups string) {
	numbers := map[GroupOf]uint32{}
	number := func(g GroupOf) uint32 {
		if numbers[g] == 0 {
			numbers[g] = uint32(len(numbers) + 1)
		}
		return numbers[g]
	}
	flows, all := ServiceFlows(c, Service{Service: s, Number: 0x80000005, Domain: 7, Zone: 65528, Group: number, Counted: true, ServedFrontends: frontends})
	var b strings.Builder
	for _, g := range all {
		fmt.Fprintf(&b, "# group %d by", g.ID)
		for _, f := range g.Fields {
			b.WriteString(" " + f.String())
		}
		for _, x := range g.Buckets {
			fmt.Fprintf(&b, "; %d %s", x.ID, of.ActionsText(x.Actions))
		}
		b.WriteByte('\n')
	}
	return flows, b.String()
}

// TestServiceFlowsAreAsPinned pins the flows of services, of a domain that has some, and the
// groups.
func TestServiceFlowsAreAsPinned(t *testing.T) {
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	for _, x := range []struct {
		name string
		c    Config
		stay time.Duration
	}{
		{"service", Config{Tunnel: 1, ArpMode: model.ArpProxy, Answers: true, Pieces: true}, 0},
		{"service-affine", Config{Tunnel: 1, ArpMode: model.ArpProxy, Answers: true, Pieces: true}, 24 * time.Hour},
		{"service-kernel", Config{Tunnel: 1, ArpMode: model.ArpProxy, Answers: true, Relay: true}, 0},
		{"service-exposed", Config{Tunnel: 1, Host: 3, Private: *way, ArpMode: model.ArpProxy, Answers: true, Pieces: true}, 24 * time.Hour},
	} {
		s := sampleService()
		s.Affinity, s.Exposed = x.stay, x.c.Host != 0
		if s.Exposed {
			k := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "vx"}, ID: "e1"}
			here, _ := s.Backends.Get(k)
			here.Local = true
		}
		flows, groups := made(x.c, s)
		base := map[string]bool{} // that is in another golden
		for _, f := range Base(Config{Tunnel: 1, Uplink: 2, Host: x.c.Host, Private: x.c.Private, ArpMode: model.ArpProxy, Answers: true}) {
			base[f.String()] = true
		}
		for _, f := range Base(x.c) {
			if !base[f.String()] {
				flows = append(flows, f)
			}
		}
		golden(t, x.name, text(t, append(flows, ServiceDomain(x.c, 7, 65528)...))+groups)
	}
}

// TestChangedBackendLeavesOtherBuckets: a backend's coming or going changes nothing of the others' buckets, and
// groups lead to the backends that may have new connections, each by its own number.
func TestChangedBackendLeavesOtherBuckets(t *testing.T) {
	s := sampleService()
	ids := func() []uint32 {
		var out []uint32
		for _, b := range newChooser(s, false).among(s.InternalPolicy) {
			out = append(out, b.id)
		}
		return out
	}
	two := ids()
	if len(two) != 2 {
		t.Fatalf("%d are chosen among, want the 2 active ones", len(two))
	}
	for i := range 100 {
		s.Backends = s.Backends.Set(model.EndpointKey{ID: model.EndpointID(fmt.Sprint("x", i))}, &desired.Backend{IPv4: netip.AddrFrom4([4]byte{10, 1, 2, byte(i)})})
	}
	all := ids()
	seen := map[uint32]bool{}
	for _, id := range all {
		if seen[id] || id >= of.MaxGroup {
			t.Errorf("number %d twice, or too high", id)
		}
		seen[id] = true
	}
	if !seen[two[0]] || !seen[two[1]] || len(all) != 102 {
		t.Errorf("%d and %d have other numbers among %d", two[0], two[1], len(all))
	}
	s.InternalPolicy = desired.TrafficLocal
	if n := len(ids()); n != 0 {
		t.Errorf("%d are chosen among, and none is here", n)
	}
	for i := range of.MaxBuckets + 1 {
		s.Backends = s.Backends.Set(model.EndpointKey{ID: model.EndpointID(fmt.Sprintf("y%05d", i))}, &desired.Backend{Local: true, IPv4: netip.AddrFrom4([4]byte{10, 2, byte(i / 256), byte(i)})})
	}
	if n := len(ids()); n != of.MaxBuckets {
		t.Errorf("%d are chosen among, want %d", n, of.MaxBuckets)
	}
}

// TestChangedGroupsGetANewNumber: a group that changes has another one, and a
// flow of ServiceDomain tells its zone.
func TestChangedGroupsGetANewNumber(t *testing.T) {
	a := of.Group{ID: 1, Seed: 1, Fields: []of.Field{of.NwSrc}, Buckets: []of.Bucket{{ID: 1}, {ID: 2}}}
	b := a
	b.Buckets = a.Buckets[:1]
	if GroupNumber(a) == GroupNumber(b) {
		t.Error("two groups have one number")
	}
	found := slices.ContainsFunc(ServiceDomain(Config{}, 9, 77), func(f of.Flow) bool {
		d, zone, ok := TranslationsOf(f)
		return ok && d == 9 && zone == 77
	})
	if !found {
		t.Error("no flow tells the zone")
	}
	for _, f := range Base(Config{Answers: true}) {
		if _, _, ok := TranslationsOf(f); ok {
			t.Errorf("%s tells a zone", f)
		}
	}
}
