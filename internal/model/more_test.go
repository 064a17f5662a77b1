package model

import (
	"strings"
	"testing"
)

// Bandwidths in every form that rest.md and known-faults.md (26) speak of.
func TestParseBandwidth(t *testing.T) {
	for in, kbps := range map[string]uint64{
		"": 0, "10 kbps": 10, "100mbps": 100_000, "1gbps": 1_000_000, "5Mb": 5000, "2g": 2_000_000, "100Kb": 100, "7  k": 7, "10000g": MaxBandwidth,
	} {
		b, err := ParseBandwidth(in)
		if err != nil || b.Kbps != kbps || b.Text != in {
			t.Errorf("%q: %+v, %v", in, b, err)
		}
	}
	for _, in := range []string{"10", "Mbps", "10Tbps", "0k", "01k", "-1k", "1.5g", "10001g", "99999999999999Gbps", "10kbp", " 10k", "10k ", "18446744073709551616k"} {
		_, err := ParseBandwidth(in)
		wantField(t, err, "bandwidth", "number and a unit")
	}
}

// What a service selects: all of its labels, never everything.
func TestServiceSelects(t *testing.T) {
	s := Service{Selectors: []ServiceSelector{{"app", "web"}, {"tier", ""}}}
	for _, tc := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, false},
		{map[string]string{"app": "web"}, false},
		{map[string]string{"app": "web", "tier": "x"}, false},
		{map[string]string{"app": "db", "tier": ""}, false},
		{map[string]string{"app": "web", "tier": "", "more": "1"}, true},
	} {
		if got := s.Selects(tc.labels); got != tc.want {
			t.Errorf("%v: %v", tc.labels, got)
		}
	}
	if (Service{}).Selects(map[string]string{"app": "web"}) {
		t.Error("a service without selectors selects everything")
	}
}

// Validate refuses what no parser makes.
func TestValidateMore(t *testing.T) {
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
		{NetProfile{Key: NetProfileKey{"t", ""}}, "profileName"},
		{AppProfile{Key: AppProfileKey{"t", "a"}, Groups: make([]GroupName, MaxAppProfileGroups+1)}, "endpointGroups"},
		{Service{Key: ServiceKey{"t", "s"}, Network: "n"}, "selectors"},
		{Service{Key: ServiceKey{"t", "s"}, Network: "n", Selectors: []ServiceSelector{{"a=b", "c"}}}, "selectors"},
		{Service{Key: ServiceKey{"t", "s"}, Network: "n", Selectors: []ServiceSelector{{"a", "b"}}, Ports: []ServicePort{{1, 2, ProtoTCP, "1:3:tcp"}}}, "ports"},
		{Bgp{Host: "h", AS: 1, NeighborAS: 2}, "routerip"},
		{ExtContracts{Key: ExtContractsKey{"t", "e"}}, "contractsType"},
		{AciGw{PathBindings: []string{"a,b"}}, "pathBindings"},
		{AciGw{}, ""},
		{Volume{Key: VolumeKey{"t", "v"}, Storage: Storage{Size: strings.Repeat("x", MaxStorageText+1)}}, "size"},
		{VolumeProfile{Key: VolumeProfileKey{"t", "v"}}, ""},
	} {
		wantField(t, tc.v.Validate(), tc.field, "")
	}
}

// Everything of the remaining kinds that parses prints as a text that parses to
// the same value, and is accepted by Validate.
func FuzzMore(f *testing.F) {
	for _, s := range []string{"10 kbps", "a=b", "80:8080:TCP", "50.1.1.2/24", "65000", "t:name", "topology/pod-1/node-101", "topology/pod-1/paths-101/pathep-[eth1/14]", "10.1.1.1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := ParseBandwidth(s); err == nil {
			if err := (NetProfile{Key: NetProfileKey{"t", "p"}, Bandwidth: b}).Validate(); err != nil {
				t.Errorf("%q parses but is refused: %v", s, err)
			}
		}
		svc := Service{Key: ServiceKey{"t", "s"}, Network: "n", Selectors: []ServiceSelector{{"a", "b"}}, Ports: []ServicePort{{80, 80, ProtoTCP, "80:80:tcp"}}}
		if sel, err := ParseServiceSelector(s); err == nil {
			if sel.String() != s {
				t.Errorf("%q became %q", s, sel)
			}
			svc.Selectors = []ServiceSelector{sel}
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
