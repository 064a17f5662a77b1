package model

import "testing"

// Every key that parses prints as what was parsed.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{"default:n1", "default:p1:1", "a.b:c", "t:n:id:with:colons", "", ":", "a/b:c", "t:n:a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		same := func(got string, err error) {
			if err == nil && got != s {
				t.Errorf("%q became %q", s, got)
			}
		}
		n, err := ParseNetworkKey(s)
		same(n.String(), err)
		g, err := ParseGroupKey(s)
		same(g.String(), err)
		p, err := ParsePolicyKey(s)
		same(p.String(), err)
		r, err := ParseRuleKey(s)
		same(r.String(), err)
		e, err := ParseEndpointKey(s)
		same(e.String(), err)
	})
}

// Every subnet that parses prints as a text that parses to the same value, and
// is accepted by Validate.
func FuzzSubnets(f *testing.F) {
	for _, s := range []string{"10.1.1.0/24", "10.1.3.10-10.1.3.50/24", "10.3.4.77/24", "10.1.1.1/32", "10.1.1.0/31", "2001:db8::/64", "abc", "-/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := Network{Key: NetworkKey{"t", "n"}, Type: NetworkData, Encap: EncapVXLAN}
		if p, r, err := ParseSubnet4("subnet", s); err == nil {
			p2, r2, err := ParseSubnet4("subnet", FormatSubnet4(p, r))
			if err != nil || p2 != p || r2 != r {
				t.Errorf("%q became %s %s, then %s %s, %v", s, p, r, p2, r2, err)
			}
			n.Subnet, n.Range, n.RawSubnet = p, r, s
			if err := n.Validate(); err != nil {
				t.Errorf("%q parses but is refused: %v", s, err)
			}
			if h := HostRange(p); !p.Contains(h.First) || !p.Contains(h.Last) || h.Last.Less(h.First) {
				t.Errorf("%q has hosts %s", s, h)
			}
		}
		if p, err := ParseSubnet6("ipv6Subnet", s); err == nil {
			if p2, err := ParseSubnet6("ipv6Subnet", p.String()); err != nil || p2 != p {
				t.Errorf("%q became %s, then %s, %v", s, p, p2, err)
			}
		}
		if p, err := ParsePeerAddr("fromIpAddress", s); err == nil {
			if p2, err := ParsePeerAddr("fromIpAddress", p.String()); err != nil || p2 != p {
				t.Errorf("%q became %s, then %s, %v", s, p, p2, err)
			}
		}
	})
}

// Every range, protocol, MAC and tag range that parses prints as a text that
// parses to the same value.
func FuzzScalars(f *testing.F) {
	for _, s := range []string{"10.1.1.1-10.1.1.9", "tcp", "47", "02:02:0a:01:01:02", "1-4094", "", "0-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := ParseAddrRange("ipPool", s); err == nil {
			if r2, err := ParseAddrRange("ipPool", r.String()); err != nil || r2 != r {
				t.Errorf("%q became %s", s, r)
			}
		}
		if p, err := ParseProtocol(s); err == nil && p.String() != s && s != "1" && s != "6" && s != "17" {
			t.Errorf("%q became %q", s, p)
		}
		if m, err := ParseMAC(s); err == nil {
			if m2, err := ParseMAC(m.String()); err != nil || m2 != m {
				t.Errorf("%q became %s", s, m)
			}
		}
		if r, err := ParseTagRange("vlans", s, MaxVLAN); err == nil && r.String() != s {
			t.Errorf("%q became %s", s, r)
		}
	})
}

// Everything of these kinds that parses prints as a text that parses to
// the same value, and is accepted by Validate.
func FuzzKinds(f *testing.F) {
	for _, s := range []string{"10 kbps", "a=b", "80:8080:TCP", "80:8080:sctp:h-2", "90m", "off", "50.1.1.2/24", "65000", "t:name", "topology/pod-1/node-101", "topology/pod-1/paths-101/pathep-[eth1/14]", "10.1.1.1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := ParseBandwidth(s); err == nil {
			if err := (NetProfile{Key: NetProfileKey{"t", "p"}, Bandwidth: b}).Validate(); err != nil {
				t.Errorf("%q parses but is refused: %v", s, err)
			}
		}
		svc := Service{Key: ServiceKey{"t", "s"}, Network: NetworkKey{"t", "n"}, Selectors: []ServiceSelector{{"a", "b"}}, Ports: []ServicePort{{Port: 80, Target: 80, Protocol: ProtoTCP, Text: "80:80:tcp"}}}
		if sel, err := ParseServiceSelector(s); err == nil {
			if sel.String() != s {
				t.Errorf("%q became %q", s, sel)
			}
			svc.Selectors = []ServiceSelector{sel}
		}
		if a, err := ParseAffinity(s); err == nil {
			if again, err := ParseAffinity(a.String()); err != nil || again != a {
				t.Errorf("%q became %q", s, a)
			}
			svc.Affinity = a
		}
		if p, err := ParseServicePort(s); err == nil {
			svc.Ports = []ServicePort{p}
		}
		if a, err := ParseServiceAddr(s); err == nil {
			svc.ReqAddr = a
		}
		if err := svc.Validate(); err != nil {
			t.Errorf("%q parses but is refused: %v", s, err)
		}
		bgp := Bgp{Host: "h", RouterIP: mustRouter, AS: 1, NeighborAS: 1}
		if p, err := ParseRouterIP(s); err == nil {
			bgp.RouterIP = p
		}
		if n, err := ParseAS("as", s); err == nil {
			bgp.AS = n
		}
		if err := bgp.Validate(); err != nil {
			t.Errorf("%q parses but is refused: %v", s, err)
		}
		var gw AciGw
		gw.PathBindings, _ = ParsePathBindings(s)
		gw.NodeBindings, _ = ParseNodeBindings(s)
		if err := gw.Validate(); err != nil {
			t.Errorf("%q parses but is refused: %v", s, err)
		}
		if k, err := ParseServiceKey(s); err == nil && k.String() != s {
			t.Errorf("%q became %q", s, k)
		}
		if k, err := ParseNetProfileKey(s); err == nil && k.String() != s {
			t.Errorf("%q became %q", s, k)
		}
	})
}

var mustRouter, _ = ParseRouterIP("50.1.1.2/24")
