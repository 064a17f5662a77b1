package model

import (
	"net/netip"
	"strings"
	"testing"
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// refusal fails unless a value is refused for a field; "" = it is taken.
func refusal[T Validator](t *testing.T, v T, field string) {
	t.Helper()
	_, err := Check(v)
	switch {
	case field == "" && err != nil:
		t.Errorf("refused: %v", err)
	case field != "" && (err == nil || !strings.HasPrefix(err.Error(), field+" ")):
		t.Errorf("%v, want that %s is refused", err, field)
	}
}

// TestClusterServicesAreBounded: what a row may say, and what not.
func TestClusterServicesAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Service)
		field  string
	}{
		"whole":              {func(*Service) {}, ""},
		"nothing":            {func(s *Service) { *s = Service{Key: s.Key, Owner: s.Owner, Network: s.Network} }, ""},
		"namespace":          {func(s *Service) { s.Key.Name = "A/web" }, "namespace"},
		"name with a dot":    {func(s *Service) { s.Key.Name = "ns/a.b" }, "service"},
		"no namespace":       {func(s *Service) { s.Key.Name = "web" }, "namespace"},
		"another tenant":     {func(s *Service) { s.Key.Tenant = "blue" }, "service"},
		"another network":    {func(s *Service) { s.Network = NetworkKey{"blue", "n"} }, ""},
		"no network":         {func(s *Service) { s.Network.Name = "" }, "networkName"},
		"a user's":           {func(s *Service) { s.Owner = "" }, "serviceName"},
		"IPv6 first":         {func(s *Service) { s.Addrs = addrs("2001:db8::1", "10.96.0.1") }, "addrs"},
		"IPv6 alone":         {func(s *Service) { s.Addrs = addrs("2001:db8::1") }, ""},
		"two of one family":  {func(s *Service) { s.Addrs = addrs("10.96.0.1", "10.96.0.2") }, "addrs"},
		"multicast":          {func(s *Service) { s.Addrs = addrs("224.0.0.1") }, "addrs"},
		"mapped":             {func(s *Service) { s.External = addrs("::ffff:10.0.0.1") }, "external"},
		"loopback":           {func(s *Service) { s.External = addrs("127.0.0.1") }, "external"},
		"broadcast":          {func(s *Service) { s.External = addrs("255.255.255.255") }, "external"},
		"with a zone":        {func(s *Service) { s.Balanced = addrs("2001:db8::1%eth0") }, "balanced"},
		"not sorted":         {func(s *Service) { s.Balanced = addrs("10.0.0.2", "10.0.0.1") }, "balanced"},
		"twice":              {func(s *Service) { s.External = addrs("10.0.0.2", "10.0.0.2") }, "external"},
		"bits of a host":     {func(s *Service) { s.Sources = []netip.Prefix{netip.PrefixFrom(addrs("10.0.0.1")[0], 8)} }, "sources"},
		"sources not sorted": {func(s *Service) { s.Sources = prefixes("10.2.0.0/16", "10.1.0.0/16") }, "sources"},
		"near":               {func(s *Service) { s.Near = "moon" }, "near"},
		"affinity":           {func(s *Service) { s.Affinity = 24*60*60 + 1 }, "affinity"},
		"affinity of a day":  {func(s *Service) { s.Affinity = 24 * 60 * 60 }, ""},
		"affinity below 0":   {func(s *Service) { s.Affinity = -2 }, "affinity"},
		"port 0":             {func(s *Service) { s.Ports = []ServicePort{{Protocol: ProtoTCP}} }, "ports"},
		"icmp":               {func(s *Service) { s.Ports = []ServicePort{{Protocol: ProtoICMP, Port: 1}} }, "ports"},
		"port twice":         {func(s *Service) { s.Ports = append(s.Ports[:1:1], s.Ports[0]) }, "ports"},
		"port's name":        {func(s *Service) { s.Ports = []ServicePort{{Name: "A", Protocol: ProtoTCP, Port: 1}} }, "ports"},
		"too many ports":     {func(s *Service) { s.Ports = make([]ServicePort, MaxClusterPorts+1) }, "ports"},
		"too many addresses": {func(s *Service) { s.Balanced = make([]netip.Addr, MaxBalancedAddrs+1) }, "balanced"},
		"too many clients":   {func(s *Service) { s.Sources = make([]netip.Prefix, MaxBalancedPrefixes+1) }, "sources"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Service{
				Key: ClusterServiceKey{"ns", "web"}.ServiceKey(), Owner: OwnerKubernetes, Network: ClusterNetworkKey, Addrs: addrs("10.96.0.1", "2001:db8::1"), Balanced: addrs("10.0.0.1", "10.0.0.2"),
				External: addrs("10.0.0.3"), Sources: prefixes("10.1.0.0/16", "2001:db8::/32"), Near: NearZone, Affinity: 5, HealthPort: 30000,
				Ports: []ServicePort{{Name: "http", Protocol: ProtoTCP, Port: 80, Node: 30080}, {Name: "dns", Protocol: ProtoUDP, Port: 53}},
			}
			same := s
			tc.change(&s)
			refusal(t, s, tc.field)
			if name != "whole" && s.Equal(same) {
				t.Error("it is said to equal what it is not")
			}
		})
	}
}

// TestServiceSlicesAreBounded is TestClusterServicesAreBounded for slices.
func TestServiceSlicesAreBounded(t *testing.T) {
	b := func(change func(*ServiceBackend)) func(*ServiceSlice) {
		return func(s *ServiceSlice) { change(&s.Backends[0]) }
	}
	for name, tc := range map[string]struct {
		change func(*ServiceSlice)
		field  string
	}{
		"whole":             {func(*ServiceSlice) {}, ""},
		"nobody":            {func(s *ServiceSlice) { s.Ports, s.Backends = nil, nil }, ""},
		"namespace":         {func(s *ServiceSlice) { s.Key.Namespace = "" }, "namespace"},
		"name":              {func(s *ServiceSlice) { s.Key.Name = "a..b" }, "slice"},
		"service":           {func(s *ServiceSlice) { s.Service = "" }, "service"},
		"port 0":            {func(s *ServiceSlice) { s.Ports = []SlicePort{{Protocol: ProtoTCP}} }, "ports"},
		"port's name":       {func(s *ServiceSlice) { s.Ports = []SlicePort{{Name: "-", Protocol: ProtoTCP, Port: 1}} }, "ports"},
		"port twice":        {func(s *ServiceSlice) { s.Ports = append(s.Ports[:1:1], s.Ports[0]) }, "ports"},
		"address":           {b(func(b *ServiceBackend) { b.Addr = netip.Addr{} }), "backends"},
		"not sorted":        {b(func(b *ServiceBackend) { b.Addr = addrs("10.1.0.9")[0] }), "backends"},
		"both families":     {func(s *ServiceSlice) { s.Backends[1].Addr = addrs("2001:db8::1")[0] }, "backends"},
		"state":             {b(func(b *ServiceBackend) { b.State = "odd" }), "state"},
		"draining":          {b(func(b *ServiceBackend) { b.State = ServiceBackendDraining }), ""},
		"node":              {b(func(b *ServiceBackend) { b.Node = "n n" }), "node"},
		"node of a hint":    {b(func(b *ServiceBackend) { b.ForNodes = []NodeName{""} }), "node"},
		"zone":              {b(func(b *ServiceBackend) { b.Zone = "z\n" }), "backends"},
		"hints":             {b(func(b *ServiceBackend) { b.ForZones = []string{"b", "a"} }), "hints"},
		"too many hints":    {b(func(b *ServiceBackend) { b.ForZones = make([]string, MaxHints+1) }), "hints"},
		"too many backends": {func(s *ServiceSlice) { s.Backends = make([]ServiceBackend, MaxSliceBackends+1) }, "backends"},
	} {
		t.Run(name, func(t *testing.T) {
			of := func() ServiceSlice {
				return ServiceSlice{
					Key: ServiceSliceKey{"ns", "web-x7"}, Service: "web", Ports: []SlicePort{{"http", ProtoTCP, 8080}, {"http", ProtoUDP, 8081}},
					Backends: []ServiceBackend{{Addr: addrs("10.1.0.2")[0], Pod: "u", Node: "n1", Zone: "z", ForZones: []string{"a", "z"}, ForNodes: []NodeName{"n1"}}, {Addr: addrs("10.1.0.3")[0]}},
				}
			}
			s := of()
			tc.change(&s)
			refusal(t, s, tc.field)
			if name != "whole" && s.Equal(of()) {
				t.Error("it is said to equal what it is not")
			}
		})
	}
}

// TestNodesAndRangesAreValidated: nodes and the ranges of services' addresses.
func TestNodesAndRangesAreValidated(t *testing.T) {
	n := ClusterNode{Name: "n1", Addrs: addrs("10.0.0.1", "2001:db8::1"), Zone: "z"}
	refusal(t, n, "")
	for _, o := range []ClusterNode{{Name: "n1", Addrs: n.Addrs}, {Name: "n2", Addrs: n.Addrs, Zone: "z"}, {Name: "n1", Zone: "z"}} {
		if n.Equal(o) {
			t.Errorf("%v is said to equal %v", n, o)
		}
	}
	refusal(t, ClusterNode{}, "node")
	refusal(t, ClusterNode{Name: "n1", Zone: "\x1b"}, "zone")
	refusal(t, ClusterNode{Name: "n1", Addrs: addrs("10.0.0.2", "10.0.0.1")}, "addrs")
	refusal(t, ClusterNode{Name: "n1", Addrs: addrs("169.254.0.1")}, "addrs")
	r := ServiceRanges{Ranges: prefixes("10.96.0.0/16", "fd00:10:96::/112")}
	refusal(t, r, "")
	refusal(t, ServiceRanges{Ranges: prefixes("0.0.0.0/0")}, "ranges")
	refusal(t, ServiceRanges{Ranges: prefixes("10.96.0.1/16")}, "ranges")
	refusal(t, ServiceRanges{Ranges: prefixes("10.96.0.0/16", "10.96.0.0/16")}, "ranges")
	if p, ok := r.Overlapping(prefixes("10.0.0.0/8")[0]); !ok || p != r.Ranges[0] {
		t.Errorf("10.0.0.0/8 overlaps %v %v", p, ok)
	}
	if _, ok := r.Overlapping(prefixes("10.97.0.0/16")[0]); ok {
		t.Error("10.97.0.0/16 overlaps none")
	}
}

// TestClusterServiceKeysAreReadAsPrinted: what a key prints it is read as.
func TestClusterServiceKeysAreReadAsPrinted(t *testing.T) {
	k, err := ParseClusterServiceKey("ns/web")
	if err != nil || k.String() != "ns/web" {
		t.Errorf("%v %v", k, err)
	}
	for _, bad := range []string{"", "ns", "ns/", "/web", "ns/a/b", "NS/web"} {
		if _, err := ParseClusterServiceKey(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
