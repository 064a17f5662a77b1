package pipeline

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFrontendFlowsAreAsPinned pins the flows of a service with frontends, of the addresses that it shares,
// of a node's and of ports of another domain there, and that frontends with the same choice have one group.
func TestFrontendFlowsAreAsPinned(t *testing.T) {
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	c := Config{Tunnel: 1, Host: 3, Private: *way, ArpMode: model.ArpProxy, Answers: true, Pieces: true}
	for _, v6 := range []bool{false, true} {
		s := sampleService()
		s.IPv4, s.IPv6, s.Ports, s.Exposed = netip.Addr{}, netip.Addr{}, nil, true
		name, at, node := "frontends", netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("203.0.113.7")
		sources := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
		if v6 {
			name, at, node, s.Affinity = "frontends-v6-affine", netip.MustParseAddr("2001:db8:9::9"), netip.MustParseAddr("2001:db8:7::7"), time.Hour
		}
		frontends := []Frontend{
			{Frontend: desired.Frontend{Addr: desired.AnyNode(at), Protocol: model.ProtoTCP, Port: 30080, Backend: 8080, ExternalPolicy: desired.TrafficLocalDrop}, VIP: 0xfff00001},
			{Frontend: desired.Frontend{Addr: at, Protocol: model.ProtoTCP, Port: 80, Backend: 8080, Sources: sources}, VIP: 0xfff00002},
			{Frontend: desired.Frontend{Addr: at, Protocol: model.ProtoUDP, Port: 53, Backend: 5353}, VIP: 0xfff00002},
		}
		nodes := SharedVIP{Number: 0xfff00001, Domain: 7, Zone: 65528, Addr: desired.AnyNode(at), Open: 7}
		flows, groups := made(c, s, frontends...)
		flows = slices.Concat(flows, SharedVIPFlows(c, nodes), NodeFrontendFlows(c, nodes, node),
			SharedVIPFlows(c, SharedVIP{Number: 0xfff00002, Domain: 7, Zone: 65528, Addr: at, Open: 7, Datagrams: 0x80000005}))
		other := SharedVIP{Number: 0xfff00003, Domain: 8, Zone: 65527, Addr: nodes.Addr, Open: 8}
		flows = append(flows, OutsideFlows(c, nodes, []OutsidePort{{model.ProtoTCP, 30081, netip.Addr{}, other}, {model.ProtoUDP, 30053, node, other}})...)
		golden(t, name, text(t, flows)+groups)
		if n := strings.Count(groups, "# group"); n != 3 {
			t.Errorf("%s: %d groups, want one for TCP and those for UDP", name, n)
		}
	}
}

// TestNoServiceHasTheNumberOfASharedVIP: no service has the number of a shared VIP.
func TestNoServiceHasTheNumberOfASharedVIP(t *testing.T) {
	for n := range uint32(1 << 13) {
		if got := service(n << 19); got&sharedVIPBits == sharedVIPBits || got&serviceBit == 0 {
			t.Errorf("a service has the number %#x", got)
		}
	}
	if n := NextSharedVIP(0xffffffff); n != sharedVIPBits {
		t.Errorf("after the last shared VIP comes %#x", n)
	}
	if !IsService(SharedVIPNumber(7, netip.IPv4Unspecified())) {
		t.Error("a shared VIP's number is not marked as one of services")
	}
}
