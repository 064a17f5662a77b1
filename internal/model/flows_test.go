package model

import (
	"net/netip"
	"testing"
)

// TestFlowMeterForgetsWhatLeaves checks rules by hand, and that what comes and goes leaves nothing.
func TestFlowMeterForgetsWhatLeaves(t *testing.T) {
	ports := func(p Protocol, lo, hi uint16) []PortMatch { return []PortMatch{{Protocol: p, Lo: lo, Hi: hi}} }
	cidr := func(p string, except ...string) Peer {
		out := Peer{CIDR: netip.MustParsePrefix(p)}
		for _, x := range except {
			out.Except = append(out.Except, netip.MustParsePrefix(x))
		}
		return out
	}
	network := Peer{Network: NetworkKey{Tenant: "t", Name: "n"}}
	group := Peer{Selector: &Selector{Tenant: "t", Group: "g"}}
	var all FlowMeter
	var rules []PolicyRule
	for name, tc := range map[string]struct {
		rule PolicyRule
		want int
	}{
		"anybody":               {PolicyRule{}, 1},
		"a port":                {PolicyRule{Ports: ports(ProtoTCP, 80, 80)}, 2},
		"a range":               {PolicyRule{Ports: ports(ProtoUDP, 1, 65534)}, 60},
		"icmp":                  {PolicyRule{Ports: ports(ProtoICMP, 0, 0)}, 2},
		"a prefix":              {PolicyRule{Peers: []Peer{cidr("10.0.0.0/8")}}, 2},
		"a prefix and a range":  {PolicyRule{Peers: []Peer{cidr("10.0.0.0/8")}, Ports: ports(ProtoTCP, 1, 65534)}, 30},
		"a prefix of SCTP":      {PolicyRule{Peers: []Peer{cidr("fd00::/8")}, Ports: ports(ProtoSCTP, 9, 9)}, 2},
		"exceptions":            {PolicyRule{Peers: []Peer{cidr("10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/17")}, Ports: ports(ProtoTCP, 80, 80)}, 17},
		"a network of ten":      {PolicyRule{Peers: []Peer{network}, Ports: ports(ProtoTCP, 80, 80)}, 22},
		"a network and a group": {PolicyRule{Peers: []Peer{network, group}}, 15},
	} {
		var m FlowMeter
		m.Add(tc.rule, 1)
		if got := m.Flows(ten); got != tc.want || m.AtMost(10) < got {
			t.Errorf("%s: %d flows, at most %d; want %d", name, got, m.AtMost(10), tc.want)
		}
		all.Add(tc.rule, 1)
		rules = append(rules, tc.rule)
	}
	for _, r := range rules {
		all.Add(r, -1)
	}
	if n := all.Flows(ten); n != 0 || all.AtMost(10) != 0 || len(all.selectors) != 0 {
		t.Errorf("%d flows are left, %+v", n, all)
	}
}
