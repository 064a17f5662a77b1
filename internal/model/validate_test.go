package model

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wantField fails unless err is a FieldError of kind ErrInvalid about field
// whose text holds part; field "" wants no error.
func wantField(t *testing.T, err error, field, part string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Fatalf("unexpected error: %v", err)
		}
		return
	}
	var fe *FieldError
	if !errors.As(err, &fe) || !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v, want a FieldError about %s", err, field)
	}
	if fe.Field != field || !strings.Contains(err.Error(), part) {
		t.Fatalf("got %q, want field %s and %q", err, field, part)
	}
}

// Subnets in every form that rest.md and known-faults.md (20, 22) speak of.
func TestIPv4SubnetsAreParsedInEveryForm(t *testing.T) {
	for _, tc := range []struct{ in, subnet, rng, fault string }{
		{in: "10.1.1.0/24", subnet: "10.1.1.0/24"},
		{in: "10.3.4.77/24", fault: "the subnet is 10.3.4.0/24"},
		{in: "10.1.3.10-10.1.3.50/24", subnet: "10.1.3.0/24", rng: "10.1.3.10-10.1.3.50"},
		{in: "10.3.8.10-10.3.8.10/24", subnet: "10.3.8.0/24", rng: "10.3.8.10-10.3.8.10"},
		{in: "10.3.1.0/31", subnet: "10.3.1.0/31"},
		{in: "10.3.1.1/32", subnet: "10.3.1.1/32"},
		{in: "11.0.0.0/8", subnet: "11.0.0.0/8"},
		{in: "16.0.0.0/4", subnet: "16.0.0.0/4"},
		{in: "128.0.0.0/1", fault: "overlap"},
		{in: "127.0.0.0/8", fault: "loopback"},
		{in: "224.0.0.0/8", fault: "multicast"},
		{in: "250.1.0.0/16", fault: "reserved"},
		{in: "0.0.0.0/0", fault: "IPv4 subnet"},
		{in: "0.0.0.0/8", fault: "this network"},
		{in: "169.254.1.0/24", fault: "link-local"},
		{in: "10.1.1.0", fault: "IPv4 subnet"},
		{in: "10.1.1.0/33", fault: "IPv4 subnet"},
		{in: "10.3.300.0/24", fault: "IPv4 subnet"},
		{in: "10.1.1.0/024", fault: "IPv4 subnet"},
		{in: "abc", fault: "IPv4 subnet"},
		{in: "", fault: "IPv4 subnet"},
		{in: "2001:db8::/64", fault: "IPv4 subnet"},
		{in: "10.1.1.50-10.1.1.10/24", fault: "at or before"},
		{in: "10.1.1.10-10.1.2.10/24", fault: "inside the subnet"},
		{in: "10.1.1.0-10.1.1.10/24", fault: "network or broadcast"},
		{in: "10.1.1.10-10.1.1.255/24", fault: "network or broadcast"},
		{in: "10.1.1.10-20/24", fault: "range in one"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			p, r, err := ParseSubnet4("subnet", tc.in)
			if tc.fault != "" {
				wantField(t, err, "subnet", tc.fault)
				return
			}
			wantField(t, err, "", "")
			if diff := cmp.Diff([]string{tc.subnet, tc.rng}, []string{p.String(), r.String()}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// IPv6 prefix lengths 1 to 128 are accepted (known fault 20), reserved blocks not.
func TestIPv6SubnetsAreParsedInEveryLength(t *testing.T) {
	for in, fault := range map[string]string{
		"2001:db8::/64": "", "2001:db8::/108": "", "2001:db8::1/128": "", "2001:db8::/127": "", "fd00::/8": "",
		"::/0": "must be", "fe80::/64": "link-local", "ff02::/16": "multicast", "::1/128": "loopback",
		"::ffff:10.0.0.0/104": "must be", "zz::/64": "must be", "10.1.1.0/24": "must be", "2001:db8::/129": "must be", "": "must be",
	} {
		_, err := ParseSubnet6("ipv6Subnet", in)
		t.Run(in, func(t *testing.T) {
			if fault == "" {
				wantField(t, err, "", "")
				return
			}
			wantField(t, err, "ipv6Subnet", fault)
		})
	}
}

// The first and last usable address per prefix length.
func TestHostRangeOmitsNetworkAndBroadcast(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.1.0/24":     "10.1.1.1-10.1.1.254",
		"10.1.1.0/30":     "10.1.1.1-10.1.1.2",
		"10.1.1.0/31":     "10.1.1.0-10.1.1.1",
		"10.1.1.7/32":     "10.1.1.7-10.1.1.7",
		"2001:db8::/126":  "2001:db8::1-2001:db8::3",
		"2001:db8::/127":  "2001:db8::-2001:db8::1",
		"2001:db8::9/128": "2001:db8::9-2001:db8::9",
	} {
		if diff := cmp.Diff(want, HostRange(netip.MustParsePrefix(in)).String()); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}

func validNetwork() Network {
	return Network{
		Key: NetworkKey{"default", "n1"}, Type: NetworkData, Encap: EncapVXLAN,
		Subnet: netip.MustParsePrefix("10.1.1.0/24"), Gateway: netip.MustParseAddr("10.1.1.254"), RawSubnet: "10.1.1.0/24",
		Subnet6: netip.MustParsePrefix("2001:db8::/64"), Gateway6: netip.MustParseAddr("2001:db8::1"),
	}
}

// Every constraint on a network, one change at a time.
func TestBadNetworksAreRefused(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	for _, tc := range []struct {
		name, field, part string
		change            func(*Network)
	}{
		{"good", "", "", func(*Network) {}},
		{"bad name", "networkName", "letters", func(n *Network) { n.Key.Name = "bad_name" }},
		{"long name", "networkName", "64", func(n *Network) { n.Key.Name = NetworkName(strings.Repeat("x", 300)) }},
		{"no tenant", "tenantName", "empty", func(n *Network) { n.Key.Tenant = "" }},
		{"type", "nwType", "data, infra", func(n *Network) { n.Type = "other" }},
		{"encap", "encap", "vlan, vxlan", func(n *Network) { n.Encap = "" }},
		{"vlan tag", "pktTag", "4094", func(n *Network) { n.Encap, n.ReqTag = EncapVLAN, 4095 }},
		{"vni", "pktTag", "16777215", func(n *Network) { n.ReqTag = 1 << 24 }},
		{"no subnet", "subnet", "ipv6Subnet", func(n *Network) { *n = Network{Key: n.Key, Type: n.Type, Encap: n.Encap} }},
		{"only IPv6", "", "", func(n *Network) { n.Subnet, n.RawSubnet, n.Gateway = netip.Prefix{}, "", netip.Addr{} }},
		{"gateway outside", "gateway", "inside", func(n *Network) { n.Gateway = addr("10.1.2.1") }},
		{"gateway network address", "gateway", "broadcast", func(n *Network) { n.Gateway = addr("10.1.1.0") }},
		{"gateway broadcast address", "gateway", "broadcast", func(n *Network) { n.Gateway = addr("10.1.1.255") }},
		{"gateway without subnet", "gateway", "empty", func(n *Network) { n.Subnet, n.RawSubnet = netip.Prefix{}, "" }},
		{"gateway of a /32", "gateway", "second address", func(n *Network) {
			n.Subnet, n.RawSubnet, n.Gateway = prefix("10.1.1.1/32"), "", addr("10.1.1.1")
		}},
		{"gateway of a /31", "", "", func(n *Network) {
			n.Subnet, n.RawSubnet, n.Gateway = prefix("10.1.1.0/31"), "", addr("10.1.1.0")
		}},
		{"gateway6 outside", "ipv6Gateway", "inside", func(n *Network) { n.Gateway6 = addr("2001:db9::1") }},
		{"gateway6 anycast", "ipv6Gateway", "network", func(n *Network) { n.Gateway6 = addr("2001:db8::") }},
		{"gateway6 of family 4", "ipv6Gateway", "inside", func(n *Network) { n.Gateway6 = addr("10.1.1.1") }},
		{"gateway6 only", "ipv6Gateway", "empty", func(n *Network) { n.Subnet6 = netip.Prefix{} }},
		{"range outside", "subnet", "inside", func(n *Network) { n.Range = AddrRange{addr("10.1.2.1"), addr("10.1.2.9")} }},
		{"gateway fills range", "gateway", "only address", func(n *Network) {
			n.Range, n.RawSubnet = AddrRange{n.Gateway, n.Gateway}, ""
		}},
		{"host bits", "subnet", "bits", func(n *Network) { n.Subnet = prefix("10.1.1.7/24") }},
		{"host bits 6", "ipv6Subnet", "bits", func(n *Network) { n.Subnet6 = prefix("2001:db8::7/64") }},
		{"raw of another subnet", "subnet", "mean", func(n *Network) { n.RawSubnet = "10.9.1.0/24" }},
		{"cfgdTag", "cfgdTag", "letters", func(n *Network) { n.CfgdTag = "a_b" }},
		{"long cfgdTag", "cfgdTag", "128", func(n *Network) { n.CfgdTag = strings.Repeat("x", 129) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := validNetwork()
			tc.change(&n)
			wantField(t, n.Validate(), tc.field, tc.part)
		})
	}
}

// A group's pool must fit its network (known faults 19, 22).
func TestPoolMustBeInsideItsNetwork(t *testing.T) {
	n := validNetwork()
	for in, part := range map[string]string{
		"10.1.1.10-10.1.1.20": "", "10.1.1.1-10.1.1.253": "",
		"10.1.1.250-10.1.1.254": "gateway", "10.1.1.0-10.1.1.5": "network or broadcast", "10.1.2.1-10.1.2.5": "inside the subnet",
	} {
		r, err := ParseAddrRange("ipPool", in)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.CheckPool(r); part == "" {
			wantField(t, err, "", "")
		} else {
			wantField(t, err, "ipPool", part)
		}
	}
	ranged := n
	ranged.Range = AddrRange{netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.1.1.50")}
	wantField(t, ranged.CheckPool(AddrRange{netip.MustParseAddr("10.1.1.45"), netip.MustParseAddr("10.1.1.60")}), "ipPool", "range")
	for _, in := range []string{"10.1.2.30", "abc", "10.1.1.9-10.1.1.1", "2001:db8::1-2001:db8::2", ""} {
		_, err := ParseAddrRange("ipPool", in)
		wantField(t, err, "ipPool", "must be")
	}
}

// Every constraint on a rule (known fault 25), one change at a time.
func TestBadRulesAreRefused(t *testing.T) {
	good := Rule{Key: RuleKey{"default", "p1", "1"}, Direction: In, Priority: 1, Action: Allow, Protocol: ProtoTCP, Port: 80, Group: "db"}
	for _, tc := range []struct {
		name, field, part string
		change            func(*Rule)
	}{
		{"good", "", "", func(*Rule) {}},
		{"id", "ruleId", "letters", func(r *Rule) { r.Key.Rule = "bad_id" }},
		{"direction", "direction", "in, out", func(r *Rule) { r.Direction = "both" }},
		{"action", "action", "allow, deny", func(r *Rule) { r.Action = "log" }},
		{"pass", "action", "allow, deny", func(r *Rule) { r.Action = Pass }},
		{"priority low", "priority", "100", func(r *Rule) { r.Priority = 0 }},
		{"priority high", "priority", "100", func(r *Rule) { r.Priority = 101 }},
		{"port with icmp", "port", "132", func(r *Rule) { r.Protocol = ProtoICMP }},
		{"port without protocol", "port", "132", func(r *Rule) { r.Protocol = AnyProtocol }},
		{"port with sctp", "", "", func(r *Rule) { r.Protocol = ProtoSCTP }},
		{"protocol", "protocol", "255", func(r *Rule) { r.Protocol = 256 }},
		{"two peers", "ruleId", "fromEndpointGroup and fromNetwork", func(r *Rule) { r.Network = "n1" }},
		{"two peers out", "ruleId", "toEndpointGroup and toIpAddress", func(r *Rule) {
			r.Direction, r.Addr = Out, netip.MustParsePrefix("10.0.0.0/8")
		}},
		{"raw address", "", "", func(r *Rule) {
			r.Group, r.Addr, r.RawAddr = "", netip.MustParsePrefix("10.1.2.0/24"), "10.1.2.77/24"
		}},
		{"raw address of another", "fromIpAddress", "mean", func(r *Rule) {
			r.Group, r.Addr, r.RawAddr = "", netip.MustParsePrefix("10.1.2.0/24"), "10.1.3.77/24"
		}},
		{"group name", "fromEndpointGroup", "letters", func(r *Rule) { r.Group = "a/b" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := good
			tc.change(&r)
			wantField(t, r.Validate(), tc.field, tc.part)
		})
	}
	for in, ok := range map[string]bool{
		"10.1.2.5": true, "10.1.2.0/24": true, "10.1.2.5/32": true, "0.0.0.0/1": true, "2001:db8::1": true, "2001:db8::/32": true,
		"10.1.1.1-20": false, "10.1.1.0/33": false, "fe80::1%eth0": false, "": false, "::ffff:10.0.0.1": false, "web": false,
	} {
		if _, err := ParsePeerAddr("fromIpAddress", in); (err == nil) != ok {
			t.Errorf("ParsePeerAddr(%q): %v, want ok=%v", in, err, ok)
		}
	}
	for _, n := range []int{-1, 65536} {
		_, err := ParsePort(n)
		wantField(t, err, "port", "65535")
	}
	if n, err := ParsePriority(0); n != 1 || err != nil {
		t.Errorf("ParsePriority(0) = %d, %v, want 1", n, err)
	}
	for _, n := range []int{-1, 101} {
		_, err := ParsePriority(n)
		wantField(t, err, "priority", "100")
	}
	for _, s := range []string{"999", "256", "-1", "sctp", "06", "TCP"} {
		_, err := ParseProtocol(s)
		wantField(t, err, "protocol", "tcp, udp")
	}
}

// Settings: each field rejects what it must, and Merge keeps what is not given.
func TestSettingsRejectBadFields(t *testing.T) {
	if err := DefaultGlobal().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		field  string
		change func(*Global)
	}{
		{"networkInfraType", func(g *Global) { g.Infra = "foo" }},
		{"fwdMode", func(g *Global) { g.FwdMode = "hub" }},
		{"arpMode", func(g *Global) { g.ArpMode = "x" }},
		{"vlans", func(g *Global) { g.VLANs = TagRange{1, 4095} }},
		{"vlans", func(g *Global) { g.VLANs = TagRange{0, 10} }},
		{"vxlans", func(g *Global) { g.VXLANs = TagRange{10, 1} }},
		{"pvtSubnet", func(g *Global) { g.PvtSubnet = netip.MustParsePrefix("10.200.0.0/24") }},
		{"pvtSubnet", func(g *Global) { g.PvtSubnet = netip.MustParsePrefix("127.0.0.0/16") }},
	} {
		g := DefaultGlobal()
		tc.change(&g)
		wantField(t, g.Validate(), tc.field, "must")
	}
	for _, s := range []string{"1-10,20-30", "", "a-b", "0-10", "1-9999", "10-1", "1 - 3", "1-2x"} {
		_, err := ParseTagRange("vlans", s, MaxVLAN)
		wantField(t, err, "vlans", "lo-hi")
	}
	want := DefaultGlobal()
	want.ArpMode = ArpFlood
	if diff := cmp.Diff(want.String(), DefaultGlobal().Merge(Global{ArpMode: ArpFlood}).String()); diff != "" {
		t.Error(diff)
	}
}

func (g Global) String() string {
	return strings.Join([]string{string(g.Infra), string(g.FwdMode), string(g.ArpMode), g.VLANs.String(), g.VXLANs.String(), g.PvtSubnet.String()}, " ")
}

// What runtimes tell about endpoints is bounded and holds no slashes (known fault 5).
func TestBadEndpointsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, field string
		change      func(*Endpoint)
	}{
		{"good", "", func(*Endpoint) {}},
		{"empty id", "EndpointID", func(e *Endpoint) { e.Key.ID = "" }},
		{"slash", "EndpointID", func(e *Endpoint) { e.Key.ID = "a/b" }},
		{"long id", "EndpointID", func(e *Endpoint) { e.Key.ID = EndpointID(strings.Repeat("a", 300)) }},
		{"v6 in v4", "IPAddress", func(e *Endpoint) { e.IPv4 = netip.MustParseAddr("2001:db8::1") }},
		{"v4 in v6", "IPv6Address", func(e *Endpoint) { e.IPv6 = netip.MustParseAddr("10.1.1.1") }},
		{"zone", "IPv6Address", func(e *Endpoint) { e.IPv6 = netip.MustParseAddr("fe80::1%eth0") }},
		{"host", "Host", func(e *Endpoint) { e.Host = "a b" }},
		{"name", "EPCommonName", func(e *Endpoint) { e.Name = "a\nb" }},
		{"container", "ContainerID", func(e *Endpoint) { e.Container = strings.Repeat("c", 257) }},
		{"name with CSI", "EPCommonName", func(e *Endpoint) { e.Name = "a\u009b31mb" }},
		{"name turned round", "EPCommonName", func(e *Endpoint) { e.Name = "a\u202eb" }},
		{"name in two lines", "EPCommonName", func(e *Endpoint) { e.Name = "a\u2028b" }},
		{"name of people", "", func(e *Endpoint) { e.Name = "Größe\u00a0№ 1 日本\u3000語" }},
		{"container turned round", "ContainerID", func(e *Endpoint) { e.Container = "\u2066c" }},
		{"label", "Labels", func(e *Endpoint) { e.Labels = map[string]string{"": "x"} }},
		{"label with CSI", "Labels", func(e *Endpoint) { e.Labels = map[string]string{"a\u009bb": "x"} }},
		{"label in lines", "Labels", func(e *Endpoint) { e.Labels = map[string]string{"a\nb": "x"} }},
		{"value with CSI", "Labels", func(e *Endpoint) { e.Labels = map[string]string{"a": "\u009b2J"} }},
		{"value with ESC", "Labels", func(e *Endpoint) { e.Labels = map[string]string{"a": "\x1b]0;x\a"} }},
		{"value turned round", "Labels", func(e *Endpoint) { e.Labels = map[string]string{"a": "x\u202ey"} }},
		{"value in lines", "", func(e *Endpoint) { e.Labels = map[string]string{"a b": "one:\tx\r\ntwo: \u00e9\u00a0👨\u200d👩"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := Endpoint{Key: EndpointKey{NetworkKey{"default", "n1"}, "c1"}, Group: "web", Host: "host1", Name: "name-c1"}
			tc.change(&e)
			wantField(t, e.Validate(), tc.field, "")
		})
	}
}

// Groups, tenants and policies check their names.
func TestBadNamesAreRefused(t *testing.T) {
	g := Group{Key: GroupKey{"default", "web"}, Network: "n1", Policies: []PolicyName{"p1"}}
	wantField(t, g.Validate(), "", "")
	g.Policies = []PolicyName{"p_1"}
	wantField(t, g.Validate(), "policies", "letters")
	g.Policies, g.CfgdTag = nil, "a_b"
	wantField(t, g.Validate(), "cfgdTag", "letters")
	for _, s := range []string{"", "-x", "a_b", "a b", "a/b", ".", "..", "a..b", "a.", "x-", strings.Repeat("x", 65), "a:b"} {
		wantField(t, Tenant{Name: TenantName(s)}.Validate(), "tenantName", "must")
		wantField(t, ContivPolicy{Key: PolicyKey{"default", PolicyName(s)}}.Validate(), "policyName", "must")
	}
	for _, s := range []string{"blue", "t-1", "a.b.c", strings.Repeat("x", 64), "BLUE", "1"} {
		wantField(t, Tenant{Name: TenantName(s)}.Validate(), "", "")
	}
	wantField(t, Tenant{Name: "blue", DefaultNetwork: "a_b"}.Validate(), "defaultNetwork", "must")
}

// served is a service that is valid before the change.
func served(change func(*Service)) Service {
	s := Service{
		Key: ServiceKey{"t", "s"}, Network: NetworkKey{"t", "n"}, Selectors: []ServiceSelector{{"a", "b"}},
		Ports: []ServicePort{{Port: 80, Target: 80, Protocol: ProtoTCP, Text: "80:80:tcp"}},
	}
	change(&s)
	return s
}

// Validate refuses what no parser makes.
func TestUnparsableKindsAreInvalid(t *testing.T) {
	key := NetProfileKey{"t", "p"}
	for _, tc := range []struct {
		v     interface{ Validate() error }
		field string
	}{
		{NetProfile{Key: key}, ""},
		{NetProfile{Key: key, Bandwidth: Bandwidth{Kbps: 7, Text: "10k"}}, "bandwidth"},
		{NetProfile{Key: key, Bandwidth: Bandwidth{Kbps: 7}}, "bandwidth"},
		{NetProfile{Key: key, DSCP: 64}, "DSCP"},
		{NetProfile{Key: key, Burst: 1}, "burst"},
		{NetProfile{Key: key, ReceiveBandwidth: Bandwidth{Kbps: 7, Text: "10k"}}, "receiveBandwidth"},
		{NetProfile{Key: key, ReceiveBurst: MaxBurst + 1}, "receiveBurst"},
		{NetProfile{Key: NetProfileKey{"t", ""}}, "profileName"},
		{AppProfile{Key: AppProfileKey{"t", "a"}, Groups: make([]GroupName, MaxAppProfileGroups+1)}, "endpointGroups"},
		{Service{Key: ServiceKey{"t", "s"}, Network: NetworkKey{"t", "n"}}, "selectors"},
		{Service{Key: ServiceKey{"t", "s"}, Network: NetworkKey{"t", "n"}, Selectors: []ServiceSelector{{"a=b", "c"}}}, "selectors"},
		{Service{Key: ServiceKey{"t", "s"}, Network: NetworkKey{"t", "n"}, Selectors: []ServiceSelector{{"a", "b"}}, Ports: []ServicePort{{Port: 1, Target: 2, Protocol: ProtoTCP, Text: "1:3:tcp"}}}, "ports"},
		{served(func(*Service) {}), ""},
		{served(func(s *Service) { s.Ports[0].Name = "http" }), "ports"},
		{served(func(s *Service) { s.Affinity = MaxAffinity + 1 }), "affinity"},
		{served(func(s *Service) { s.Affinity = -2 }), "affinity"},
		{served(func(s *Service) { s.ReqAddr6 = netip.MustParseAddr("10.1.1.1") }), "ipv6Address"},
		{served(func(s *Service) {
			s.ReqAddr, s.ReqAddr6 = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		}), "ipv6Address"},
		{Bgp{Host: "h", AS: 1, NeighborAS: 2}, "routerip"},
		{ExtContracts{Key: ExtContractsKey{"t", "e"}}, "contractsType"},
		{AciGw{PathBindings: []string{"a,b"}}, "pathBindings"},
		{AciGw{}, ""},
	} {
		wantField(t, tc.v.Validate(), tc.field, "")
	}
}

// A group names each thing once and at most as many as one transaction takes; the zero
// Valid, which was never checked, says so.
func TestGroupNamesEachThingOnce(t *testing.T) {
	g := Group{Key: GroupKey{"t", "g"}, Network: "n", Policies: []PolicyName{"p", "q"}, ExtContracts: []string{"e"}}
	v, err := Check(g)
	if err != nil || v.Err() != nil || v.Value().Key != g.Key {
		t.Errorf("%+v, %v", v, err)
	}
	for field, change := range map[string]func(*Group){
		"policies":         func(g *Group) { g.Policies = []PolicyName{"p", "p"} },
		"extContractsGrps": func(g *Group) { g.ExtContracts = []string{"e", "e"} },
		"networkName":      func(g *Group) { g.Network = "a_b" },
	} {
		bad := g
		change(&bad)
		v, err := Check(bad)
		wantField(t, err, field, "")
		if !errors.Is(v.Err(), ErrInvalid) {
			t.Errorf("%s: the proof of a refused value says %v", field, v.Err())
		}
	}
}
