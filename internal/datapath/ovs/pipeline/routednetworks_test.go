package pipeline

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// routedFlows are all flows of a host with one network, a port, a remote endpoint and the
// addresses of three machines.
func routedFlows(c Config, n *desired.Network) []of.Flow {
	local := LocalPort{&port, 10}
	out := slices.Concat(Base(c), Network(c, n, []LocalPort{local}), Port(c, n, local), Remote(c, n, &remote), OtherHost(c, remote.VTEP))
	for _, x := range []Node{
		{Addr: netip.MustParseAddr("192.168.0.1"), VTEP: netip.MustParseAddr("192.168.0.1"), Here: true},
		{Addr: remote.VTEP, VTEP: remote.VTEP, Known: true},
		{Addr: netip.MustParseAddr("2001:db8::3"), VTEP: netip.MustParseAddr("192.168.0.3")},
	} {
		out = append(out, NodeFlows(c, x)...)
	}
	return out
}

// TestRoutedNetworkFlowsAreAsPinned pins what a routed network adds, by itself and joined to others, where
// marks are seen and where they are not.
func TestRoutedNetworkFlowsAreAsPinned(t *testing.T) {
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	way.TunnelPort = 4789
	for name, joined := range map[string]model.RouterID{"routed-network": 0, "routed-network-joined": 4} {
		c := Config{Tunnel: 1, ArpMode: model.ArpProxy, Answers: true, Host: 3, Private: *way}
		n := &desired.Network{
			ID: 7, Key: key, Encap: model.EncapVXLAN, Tag: 100, Joined: joined,
			Subnet: netip.MustParsePrefix("10.1.1.0/24"), Gateway: netip.MustParseAddr("10.1.1.1"), Subnet6: netip.MustParsePrefix("fd00::/64"),
		}
		have := map[string]bool{}
		for _, f := range routedFlows(c, n) {
			have[f.String()] = true
		}
		is := *n
		is.Routed, c.Routed = true, true
		golden(t, name, text(t, slices.DeleteFunc(routedFlows(c, &is), func(f of.Flow) bool { return have[f.String()] })))
		c.Marks = true
		seen := slices.ContainsFunc(Base(c), func(f of.Flow) bool { return slices.Contains(f.Match, of.Eq(of.PktMark, desired.OwnMark)) })
		if bySource := slices.ContainsFunc(Base(c), func(f of.Flow) bool { return slices.Contains(f.Match, of.EqMAC(of.EthSrc, HostSocketMAC)) }); !seen || bySource {
			t.Errorf("%s: with marks: by the mark %v, by a source %v", name, seen, bySource)
		}
	}
}
