package model

import (
	"net/netip"
	"testing"
)

// TestLowestLifelineInANetworkIsFound: the lowest address in any of a network's subnets is found, unless it is
// spared.
func TestLowestLifelineInANetworkIsFound(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	all := Lifelines{
		addr("10.1.0.9"): {OtherLifeline, "a host"}, addr("10.1.0.1"): {GatewayLifeline, "the gateway"},
		addr("10.2.0.1"): {NameServerLifeline, "a name server"}, addr("2001:db8::1"): {OtherLifeline, "a netmaster"},
	}
	gateways := func(_ netip.Addr, l Lifeline) bool { return l.Kind == GatewayLifeline }
	for _, tt := range []struct {
		name   string
		n      Network
		spared func(netip.Addr, Lifeline) bool
		at     string // empty = none
		subnet netip.Prefix
	}{
		{"no subnet", Network{}, nil, "", netip.Prefix{}},
		{"a subnet without any", Network{Subnet: prefix("10.3.0.0/16")}, nil, "", netip.Prefix{}},
		{"several", Network{Subnet: prefix("10.0.0.0/8"), Subnet6: prefix("2001:db8::/64")}, nil, "10.1.0.1", prefix("10.0.0.0/8")},
		{"the lowest is spared", Network{Subnet: prefix("10.1.0.0/16")}, gateways, "10.1.0.9", prefix("10.1.0.0/16")},
		{"the only one is spared", Network{Subnet: prefix("10.1.0.0/30")}, gateways, "", netip.Prefix{}},
		{"IPv6", Network{Subnet: prefix("10.3.0.0/16"), Subnet6: prefix("2001:db8::/64")}, nil, "2001:db8::1", prefix("2001:db8::/64")},
	} {
		at, subnet := all.In(tt.n, tt.spared)
		if at.IsValid() != (tt.at != "") || at.IsValid() && at != addr(tt.at) || subnet != tt.subnet {
			t.Errorf("%s: %s in %s, want %q in %s", tt.name, at, subnet, tt.at, tt.subnet)
		}
	}
}
