package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// strayAddresses are IP destinations that are no endpoint's on a network.
func strayAddresses(n model.Network) (out []netip.Addr) {
	for _, a := range []string{
		"255.255.255.255", "224.0.0.1", "239.1.1.1", "240.0.0.1", "0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.1.1", "198.51.100.9",
		"ff01::1", "ff02::1", "ff02::1:ff00:1", "ff05::1", "ff0e::1", "::", "::1", "fe80::1", "2001:db8::9",
	} {
		out = append(out, netip.MustParseAddr(a))
	}
	return append(out, host4(n, 0), host4(n, 250), host4(n, 255), host6(n, 250))
}

// testStrayFrames: a unicast frame to an endpoint's MAC is delivered only with an address of
// that endpoint as IP destination. Else policy would judge one destination, and another
// one would get the frame.
func testStrayFrames(t *testing.T, h Harness) {
	t.Helper()
	top := StandardTopology()
	b, w := sending(t, h, top, Case{})
	strayFrames(t, b, top, w.Desired["h1"])
}

// testRoutedStrayFrames: likewise where a router leads from network to network.
func testRoutedStrayFrames(t *testing.T, h Harness) {
	t.Helper()
	top := RoutedTopology()
	b, w := routing(t, h, top, true)
	strayFrames(t, b, top, w.Desired["h1"])
}

func strayFrames(t *testing.T, b *bench, top Topology, pic desired.Host) {
	t.Helper()
	at := func(network model.NetworkName, id string) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: network}, ID: model.EndpointID(id)})
	}
	for _, mode := range []model.ArpMode{model.ArpProxy, model.ArpFlood} {
		pic.ArpMode = mode
		b.apply(t, pic)
		sport := uint16(20000)
		for _, x := range []struct{ from, to, third model.Endpoint }{
			{at("vx", "web1"), at("vx", "db1"), at("vx", "db2")},
			{at("vx", "web1"), at("vx", "db2"), at("vx", "db1")},
			{at("vx", "db2"), at("vx", "web1"), at("vx", "db1")},
			{at("vl", "lan1"), at("vl", "lonely1"), at("vl", "lan2")},
			{at("vl", "lan1"), at("vl", "lan2"), at("vl", "lonely1")},
			{at("vl", "lan2"), at("vl", "lan1"), at("vl", "lonely1")},
		} {
			others := []netip.Addr{x.third.IPv4, x.third.IPv6, x.third.MAC.LinkLocal(), x.from.IPv4, x.from.IPv6, netip.AddrFrom16(x.to.IPv4.As16())}
			for _, a := range append(strayAddresses(top.Network(x.to.Key.Network)), others...) {
				for _, frag := range []*reference.Fragment{nil, {ID: uint32(sport), More: true}} {
					sport++
					p := between(top, x.from, x.to, model.ProtoUDP, a.Is6(), sport, 80)
					p.Dst, p.Frag = a, frag
					what := fmt.Sprintf("%s, %s to %s with the MAC of %s, fragment %v", mode, x.from.Key.ID, a, x.to.Key.ID, frag != nil)
					if v := b.ref.Send(p); v.Passed() {
						t.Errorf("%s: the reference: %s", what, v)
					}
					b.compare(t, what, p)
				}
			}
			b.compare(t, "to its own address", between(top, x.from, x.to, model.ProtoUDP, false, sport, 80))
		}
	}
}
