package dns

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestClientsAreKnownByTheirAddress: who asks is known by the address by which the host's stack knows it, a
// private one or, on a native network, its own; whichever desired state an address comes with
// or leaves, or changes hands.
func TestClientsAreKnownByTheirAddress(t *testing.T) {
	plain, native := model.NetworkKey{Tenant: "default", Name: "plain"}, model.NetworkKey{Tenant: "default", Name: "native"}
	nets := desired.Map[model.NetworkID, *desired.Network]{}.
		Set(1, &desired.Network{ID: 1, Key: plain}).Set(2, &desired.Network{ID: 2, Key: native, Routed: true})
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	port := func(id model.EndpointID, n model.NetworkKey, number, own4, own6 string) *desired.Port {
		p := &desired.Port{IfName: string(id), Network: 1, Endpoint: model.EndpointKey{Network: n, ID: id}}
		if n == native {
			p.Network = 2
		}
		if own4 != "" {
			p.IPv4 = netip.MustParseAddr(own4)
		}
		if own6 != "" {
			p.IPv6 = netip.MustParseAddr(own6)
		}
		if number != "" {
			p.Private = netip.MustParseAddr(number)
			p.Private6 = way.Private6(p.Private)
		}
		return p
	}
	private6 := func(number string) string { return way.Private6(netip.MustParseAddr(number)).String() }
	n := newNames()
	for _, x := range []struct {
		name  string
		ports []*desired.Port
		want  map[string]model.NetworkKey
	}{
		{"nobody", nil, nil},
		{
			"by private addresses",
			[]*desired.Port{port("a", plain, "172.19.0.5", "10.1.0.5", "fd00:1::5")},
			map[string]model.NetworkKey{"172.19.0.5": plain, private6("172.19.0.5"): plain},
		},
		{
			"and by its own",
			[]*desired.Port{port("a", plain, "172.19.0.5", "10.1.0.5", "fd00:1::5"), port("b", native, "", "10.244.0.5", "fd00:244::5")},
			map[string]model.NetworkKey{"172.19.0.5": plain, private6("172.19.0.5"): plain, "10.244.0.5": native, "fd00:244::5": native},
		},
		{"IPv4 alone", []*desired.Port{port("b", native, "", "10.244.0.5", "")}, map[string]model.NetworkKey{"10.244.0.5": native}},
		{
			"the address is another one's",
			[]*desired.Port{port("a", native, "", "10.244.0.6", ""), port("c", native, "", "10.244.0.5", "")},
			map[string]model.NetworkKey{"10.244.0.5": native, "10.244.0.6": native},
		},
		{
			"where the data plane leads none",
			[]*desired.Port{port("b", native, "172.19.0.5", "10.244.0.5", "")},
			map[string]model.NetworkKey{"172.19.0.5": native, private6("172.19.0.5"): native},
		},
		{"nobody any more", nil, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := desired.Host{Networks: nets}
			for _, p := range x.ports {
				h.Ports = h.Ports.Set(p.IfName, p)
			}
			n.update(h)
			if len(n.askers) != len(x.want) {
				t.Errorf("%d askers, want %d: %v", len(n.askers), len(x.want), n.askers)
			}
			for a, network := range x.want {
				if got, ok := n.asker(netip.MustParseAddr(a)); !ok || got.network != network || got.addr != netip.MustParseAddr(a) {
					t.Errorf("%s asks as %v (%v), want %s", a, got, ok, network)
				}
			}
		})
	}
}

// TestNamesLeaveWithTheirRecords: a name is found while a record has it, after records came, changed and
// went in whatever order, and a tenant without any leaves nothing.
func TestNamesLeaveWithTheirRecords(t *testing.T) {
	network := model.NetworkKey{Tenant: "blue", Name: "n"}
	record := func(name, group, addr string) *desired.DNSRecord {
		return &desired.DNSRecord{Network: network, Name: name, Group: group, IPv4: netip.MustParseAddr(addr)}
	}
	key := func(id model.EndpointID) desired.DNSKey {
		return desired.DNSKey{Endpoint: model.EndpointKey{Network: network, ID: id}}
	}
	who := dnsClient{addr: netip.MustParseAddr("172.19.0.9"), network: network}
	n := newNames()
	var h desired.Host
	for _, x := range []struct {
		name   string
		change func()
		want   map[string]int // how many addresses each name has
	}{
		{"one", func() { h.DNS.Records = h.DNS.Records.Set(key("a"), record("web", "front", "10.1.0.1")) }, map[string]int{"web": 1, "front": 1, "db": 0}},
		{"two of one name", func() { h.DNS.Records = h.DNS.Records.Set(key("b"), record("web", "front", "10.1.0.2")) }, map[string]int{"web": 2, "front": 2}},
		{"one is renamed", func() { h.DNS.Records = h.DNS.Records.Set(key("a"), record("db", "", "10.1.0.1")) }, map[string]int{"web": 1, "front": 1, "db": 1}},
		{"the other one goes", func() { h.DNS.Records = h.DNS.Records.Delete(key("b")) }, map[string]int{"web": 0, "front": 0, "db": 1}},
		{"none", func() { h.DNS.Records = h.DNS.Records.Delete(key("a")) }, map[string]int{"db": 0}},
	} {
		x.change()
		n.update(h)
		for name, want := range x.want {
			if got := n.find(who, name, false, 10); len(got.addrs) != want {
				t.Errorf("%s: %s has %v, want %d addresses", x.name, name, got.addrs, want)
			}
		}
	}
	if len(n.zones) != 0 {
		t.Errorf("zones %v are left", n.zones)
	}
}
