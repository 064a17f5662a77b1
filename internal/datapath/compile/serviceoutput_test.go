package compile

import (
	"fmt"
	"maps"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// kubeCluster has hosts h1 (this one) to h3, and the network of pods.
func kubeCluster() *Compiler {
	c := New("h1")
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	for i := range byte(3) {
		c.SetHost(model.Host{Name: model.HostName(fmt.Sprint("h", i+1)), VTEP: netip.AddrFrom4([4]byte{192, 168, 0, i + 1})})
	}
	c.SetNetwork(model.Network{
		Key: clusterNetworkKey, Encap: model.EncapVXLAN, Tag: 5, ID: 5, Subnet: netip.MustParsePrefix("10.5.0.0/16"), Subnet6: netip.MustParsePrefix("fd05::/64"),
	})
	return c
}

// podOn makes the i-th pod, on a host.
func podOn(i int, host model.HostName) model.Endpoint {
	return model.Endpoint{
		Key: model.EndpointKey{Network: clusterNetworkKey, ID: model.EndpointID(fmt.Sprint("pod", i))}, Host: host, Identity: 300, MAC: model.MAC{2, 2, 0, 0, 0, byte(i)},
		IPv4: netip.AddrFrom4([4]byte{10, 5, 0, byte(i)}), IPv6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 5, 15: byte(i)}),
		Namespace: "shop", Pod: model.Pod{Name: fmt.Sprint("pod", i), UID: fmt.Sprint("uid", i)},
	}
}

func backendOf(e model.Endpoint, v6 bool) model.ServiceBackend {
	b := model.ServiceBackend{Addr: e.IPv4, Pod: e.Pod.UID, Node: model.NodeName(e.Host)}
	if v6 {
		b.Addr = e.IPv6
	}
	return b
}

func sliceOf(name string, ports []model.SlicePort, backends ...model.ServiceBackend) model.ServiceSlice {
	return model.ServiceSlice{Key: model.ServiceSliceKey{Namespace: "shop", Name: name}, Service: "web", Ports: ports, Backends: backends}
}

func web() model.Service {
	return model.Service{
		Key: model.ClusterServiceKey{Namespace: "shop", Name: "web"}.ServiceKey(), Owner: model.OwnerKubernetes, Network: clusterNetworkKey, Affinity: model.NoAffinity,
		Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")},
		Ports: []model.ServicePort{{Name: "http", Protocol: model.ProtoTCP, Port: 80, Node: 30080}, {Name: "dns", Protocol: model.ProtoUDP, Port: 53}},
	}
}

var webPorts = []model.SlicePort{{Name: "dns", Protocol: model.ProtoUDP, Port: 5353}, {Name: "http", Protocol: model.ProtoTCP, Port: 8080}}

func clusterPics(c *Compiler) (map[string]*desired.Service, string) {
	pic, problems := c.Compile(1)
	out := map[string]*desired.Service{}
	for k, s := range pic.Services.All() {
		out[k.Name] = s
	}
	var texts []string
	for _, p := range problems {
		if strings.Contains(p.Object, "Kubernetes") {
			texts = append(texts, p.Object+": "+p.Text)
		}
	}
	return out, strings.Join(texts, "\n")
}

func frontendTexts(s *desired.Service) (out []string) {
	if s == nil {
		return nil
	}
	for _, f := range s.Frontends {
		text := fmt.Sprintf("%s %s %d>%d in %d out %d", f.Addr, f.Protocol, f.Port, f.Backend, f.InternalPolicy, f.ExternalPolicy)
		if len(f.Sources) > 0 {
			text += fmt.Sprint(" of ", f.Sources)
		}
		out = append(out, text)
	}
	return out
}

func backendTexts(s *desired.Service) (out []string) {
	if s == nil {
		return nil
	}
	for k, b := range s.Backends.All() {
		out = append(out, fmt.Sprintf("%s %s %s local %v vtep %s state %d near %d port %d", k.ID, b.IPv4, b.IPv6, b.Local, b.VTEP, b.State, b.Near, b.Port))
	}
	slices.Sort(out)
	return out
}

// TestServiceOfAnOrchestratorIsMadeOfItsSlices: what a service of an orchestrator and its slices are in a desired state.
func TestServiceOfAnOrchestratorIsMadeOfItsSlices(t *testing.T) {
	c := kubeCluster()
	one, two := podOn(1, "h1"), podOn(2, "h2")
	s := web()
	s.Affinity = 60
	c.SetService(s)
	c.SetServiceSlice(sliceOf("web-4", webPorts, backendOf(one, false), backendOf(two, false)))
	c.SetServiceSlice(sliceOf("web-6", webPorts, backendOf(one, true)))
	c.SetEndpoint(one)
	c.SetEndpoint(two)
	c.SetClusterNode(model.ClusterNode{Name: "h1", Addrs: []netip.Addr{netip.MustParseAddr("172.18.0.1")}})
	got, problems := clusterPics(c)
	pic := got["shop/web"]
	if problems != "" || len(got) != 1 || pic == nil || !pic.Exposed || pic.Network != 5 || pic.Affinity.Seconds() != 60 {
		t.Fatalf("services %v, problems %q, %+v", maps.Keys(got), problems, pic)
	}
	if err := pic.Check(pic.Key, true); err != nil {
		t.Error(err)
	}
	if _, has := c.out.NodeAddrs.Get(netip.MustParseAddr("172.18.0.1")); !has || c.out.NodeAddrs.Len() != 1 {
		t.Error("the node's address is not in the desired state")
	}
	if diff := cmp.Diff([]string{
		"0.0.0.0 tcp 30080>8080 in 0 out 0", "10.96.0.10 tcp 80>8080 in 0 out 0", "10.96.0.10 udp 53>5353 in 0 out 0",
		":: tcp 30080>8080 in 0 out 0", "fd96::10 tcp 80>8080 in 0 out 0", "fd96::10 udp 53>5353 in 0 out 0",
	}, frontendTexts(pic)); diff != "" {
		t.Errorf("frontends (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"pod1 10.5.0.1 fd05::1 local true vtep invalid IP state 0 near 0 port 0", "pod2 10.5.0.2 invalid IP local false vtep 192.168.0.2 state 0 near 0 port 0",
	}, backendTexts(pic)); diff != "" {
		t.Errorf("backends (-want +got):\n%s", diff)
	}
	two.Host = "h3"
	c.SetEndpoint(two)
	if got, _ = clusterPics(c); !strings.Contains(backendTexts(got["shop/web"])[1], "vtep 192.168.0.3") {
		t.Errorf("moved: backends %q", backendTexts(got["shop/web"]))
	}
	c.DeleteEndpoint(two.Key)
	if got, problems = clusterPics(c); got["shop/web"].Backends.Len() != 1 || problems != "" {
		t.Errorf("a pod that is no endpoint: backends %q, problems %q", backendTexts(got["shop/web"]), problems)
	}
	c.DeleteServiceSlice(model.ServiceSliceKey{Namespace: "shop", Name: "web-4"})
	if got, problems = clusterPics(c); problems != "" || !slices.Equal(backendTexts(got["shop/web"]), []string{"pod1 invalid IP fd05::1 local true vtep invalid IP state 0 near 0 port 0"}) {
		t.Errorf("one slice is left: backends %q, problems %q", backendTexts(got["shop/web"]), problems)
	}
	c.DeleteNetwork(clusterNetworkKey)
	if got, problems = clusterPics(c); len(got) != 0 || !strings.Contains(problems, model.NoEffectPrefix) {
		t.Errorf("without the network: %v, problems %q", got, problems)
	}
	c.DeleteService(s.Key)
	if got, problems = clusterPics(c); len(got) != 0 || problems != "" {
		t.Errorf("gone: %v, problems %q", got, problems)
	}
}

// TestDeletedServiceKeepsItsAddressesClosed: of a service that was deleted its addresses are left for a while,
// without ports and backends, unless another one has them.
func TestDeletedServiceKeepsItsAddressesClosed(t *testing.T) {
	c := kubeCluster()
	s := web()
	s.Balanced = []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.6")}
	c.SetService(s)
	c.SetServiceSlice(sliceOf("web-4", webPorts, backendOf(podOn(1, "h1"), false)))
	c.SetEndpoint(podOn(1, "h1"))
	clusterPics(c)
	left := c.Services.Close(s.Key)
	got, problems := clusterPics(c)
	pic := got["shop/web"]
	if !slices.Equal(left, slices.Concat(s.Addrs, s.Balanced)) || problems != "" || len(got) != 1 || pic == nil {
		t.Fatalf("closed: %v, services %v, problems %q", left, maps.Keys(got), problems)
	}
	balanced := []desired.Frontend{{Addr: s.Balanced[1], Protocol: model.ProtoTCP}, {Addr: s.Balanced[0], Protocol: model.ProtoTCP}}
	if err := pic.Check(pic.Key, true); err != nil || pic.IPv4 != s.Addrs[0] || pic.IPv6 != s.Addrs[1] || !pic.Exposed || !slices.EqualFunc(pic.Frontends, balanced, desired.Frontend.Equal) || len(pic.Ports)+len(pic.Balanced)+pic.Backends.Len() > 0 {
		t.Errorf("closed: %+v, %v", pic, err)
	}
	c.Services.Reopen(s.Key, s.Balanced[0])
	if got, _ = clusterPics(c); !slices.EqualFunc(got["shop/web"].Frontends, balanced[:1], desired.Frontend.Equal) || got["shop/web"].IPv4 != s.Addrs[0] {
		t.Errorf("with another owner of an address: %+v", got["shop/web"])
	}
	c.SetService(s)
	c.Services.Reopen(s.Key, s.Balanced[0])                                                                 // it is open
	c.Services.Reopen(model.ClusterServiceKey{Namespace: "shop", Name: "none"}.ServiceKey(), s.Balanced[0]) // it is none
	if got, _ = clusterPics(c); len(got["shop/web"].Frontends) == 0 || got["shop/web"].IPv4.IsValid() || !slices.Equal(got["shop/web"].Balanced, s.Balanced) {
		t.Errorf("there again: %+v", got["shop/web"])
	}
	other := s
	other.Key.Name = "shop/other"
	c.SetService(other)
	if left := c.Services.Close(s.Key); len(left) > 0 {
		t.Errorf("%v are closed, which another service has", left)
	}
	if left := c.Services.Close(model.ClusterServiceKey{Namespace: "shop", Name: "none"}.ServiceKey()); len(left) > 0 {
		t.Errorf("%v are closed of a service that is not there", left)
	}
}

// TestEachKindOfAddressHasItsTrafficPolicy: which traffic policies and clients each kind of address has.
func TestEachKindOfAddressHasItsTrafficPolicy(t *testing.T) {
	c := kubeCluster()
	s := web()
	s.Ports, s.Addrs = s.Ports[:1], s.Addrs[:1]
	s.InsideLocal, s.OutsideLocal = true, true
	s.Balanced = []netip.Addr{netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("203.0.113.1")}
	s.External = []netip.Addr{netip.MustParseAddr("203.0.113.2")}
	s.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	c.SetService(s)
	expect := func(when string, want ...string) {
		t.Helper()
		got, _ := clusterPics(c)
		if diff := cmp.Diff(want, frontendTexts(got["shop/web"])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("local", "0.0.0.0 tcp 30080>80 in 0 out 2", "10.96.0.10 tcp 80>80 in 2 out 2", "172.18.0.1 tcp 80>80 in 0 out 2 of [198.51.100.0/24]",
		"203.0.113.1 tcp 80>80 in 0 out 2 of [198.51.100.0/24]", "203.0.113.2 tcp 80>80 in 0 out 2")
	c.SetClusterNode(model.ClusterNode{Name: "h2", Addrs: []netip.Addr{netip.MustParseAddr("172.18.0.1")}})
	s.InsideLocal, s.OutsideLocal, s.Near, s.External, s.Sources, s.OnlySources = false, false, model.NearZone, nil, nil, true
	c.SetService(s)
	expect("near, one is a node's, nobody may", "0.0.0.0 tcp 30080>80 in 3 out 3", "10.96.0.10 tcp 80>80 in 3 out 3", "203.0.113.1 tcp 80>80 in 3 out 3 of [0.0.0.0/32]")
	c.DeleteClusterNode("h2")
	if got, _ := clusterPics(c); len(got["shop/web"].Frontends) != 4 || c.out.NodeAddrs.Len() != 0 {
		t.Errorf("a node's no more: %q", frontendTexts(got["shop/web"]))
	}
}

// TestPortWithSeveralNumbersIsAServiceOfItsOwn: a port that slices have under several numbers, or not all of
// them have, is a service of its own.
func TestPortWithSeveralNumbersIsAServiceOfItsOwn(t *testing.T) {
	c := kubeCluster()
	one, two := podOn(1, "h1"), podOn(2, "h2")
	c.SetEndpoint(one)
	c.SetEndpoint(two)
	s := web()
	s.Addrs, s.HealthPort = s.Addrs[:1], 30999
	s.Ports = append(s.Ports, model.ServicePort{Name: "old", Protocol: model.ProtoTCP, Port: 81})
	slices.SortFunc(s.Ports, model.CompareServicePorts)
	c.SetService(s)
	other := []model.SlicePort{{Name: "dns", Protocol: model.ProtoUDP, Port: 5353}, {Name: "http", Protocol: model.ProtoTCP, Port: 9090}, {Name: "old", Protocol: model.ProtoTCP, Port: 81}}
	c.SetServiceSlice(sliceOf("a", webPorts, backendOf(one, false)))
	c.SetServiceSlice(sliceOf("b", other, backendOf(two, false)))
	got, problems := clusterPics(c)
	if len(got) != 3 || problems != "" {
		t.Fatalf("%v, problems %q", got, problems)
	}
	for name, want := range map[string]struct {
		frontends []string
		backends  []string
	}{
		"shop/web":        {[]string{"10.96.0.10 udp 53>5353"}, []string{"pod1 port 0", "pod2 port 0"}},
		"shop/web:tcp/80": {[]string{"0.0.0.0 tcp 30080>80", "10.96.0.10 tcp 80>80"}, []string{"pod1 port 8080", "pod2 port 9090"}},
		"shop/web:tcp/81": {[]string{"10.96.0.10 tcp 81>81"}, []string{"pod2 port 81"}},
	} {
		var frontends, backends []string
		for _, f := range frontendTexts(got[name]) {
			text, _, _ := strings.Cut(f, " in ")
			frontends = append(frontends, text)
		}
		for _, b := range backendTexts(got[name]) {
			id, _, _ := strings.Cut(b, " ")
			backends = append(backends, id+b[strings.LastIndex(b, " port"):])
		}
		if !slices.Equal(frontends, want.frontends) || !slices.Equal(backends, want.backends) {
			t.Errorf("%s: frontends %q, backends %q, want %v", name, frontends, backends, want)
		}
		if got[name].HealthPort != s.HealthPort {
			t.Errorf("%s: the health check port does not count its backends", name)
		}
	}
	c.SetServiceSlice(sliceOf("b", webPorts, backendOf(two, false)))
	s.Ports = web().Ports
	slices.SortFunc(s.Ports, model.CompareServicePorts)
	c.SetService(s)
	if got, _ = clusterPics(c); len(got) != 1 || got["shop/web"].Backends.Len() != 2 {
		t.Errorf("alike again: %v", got)
	}
}

// TestBackendsHaveTheStatesAndHintsOfSlices: states and hints.
func TestBackendsHaveTheStatesAndHintsOfSlices(t *testing.T) {
	c := kubeCluster()
	e := podOn(1, "h2")
	c.SetEndpoint(e)
	c.SetEndpoint(podOn(9, "h1"))
	c.SetClusterNode(model.ClusterNode{Name: "h1", Zone: "east"})
	s := web()
	b := backendOf(e, false)
	for _, x := range []struct {
		near  model.Near
		state model.ServiceBackendState
		zones []string
		nodes []model.NodeName
		want  string // empty = none
	}{
		{model.NearAnywhere, model.ServiceBackendReady, []string{"east"}, nil, "state 0 near 0"},
		{model.NearAnywhere, model.ServiceBackendDraining, nil, nil, "state 3 near 0"},
		{model.NearAnywhere, model.ServiceBackendUnready, nil, nil, ""},
		{model.NearZone, model.ServiceBackendReady, []string{"east", "west"}, nil, "state 0 near 2"},
		{model.NearZone, model.ServiceBackendReady, []string{"west"}, []model.NodeName{"h1"}, "state 0 near 1"},
		{model.NearZone, model.ServiceBackendReady, nil, []model.NodeName{"h1"}, "state 0 near 0"},
		{model.NearNode, model.ServiceBackendReady, []string{"west"}, []model.NodeName{"h1"}, "state 0 near 3"},
		{model.NearNode, model.ServiceBackendReady, []string{"east"}, []model.NodeName{"h2"}, "state 0 near 2"},
		{model.NearNode, model.ServiceBackendReady, nil, []model.NodeName{"h2"}, "state 0 near 1"},
		{model.NearNode, model.ServiceBackendReady, nil, nil, "state 0 near 0"},
	} {
		s.Near, b.State, b.ForZones, b.ForNodes = x.near, x.state, x.zones, x.nodes
		c.SetService(s)
		c.SetServiceSlice(sliceOf("a", webPorts, b))
		got, _ := clusterPics(c)
		texts := backendTexts(got["shop/web"])
		if x.want == "" && len(texts) == 0 {
			continue
		}
		if x.want == "" || len(texts) != 1 || !strings.Contains(texts[0], x.want) {
			t.Errorf("%+v: %q", x, texts)
		}
	}
	s.Near, b.ForZones, b.ForNodes = model.NearZone, []string{"west"}, nil
	c.SetService(s)
	c.SetServiceSlice(sliceOf("a", webPorts, b))
	clusterPics(c)
	c.SetClusterNode(model.ClusterNode{Name: "h1", Zone: "west"})
	if got, _ := clusterPics(c); !strings.Contains(backendTexts(got["shop/web"])[0], "near 2") {
		t.Errorf("this host's zone is another one: %q", backendTexts(got["shop/web"]))
	}
}

// TestBackendStateByFamily: a backend's state, nearness and port in a family are what its slice of that
// family says, whichever of them is first by name.
func TestBackendStateByFamily(t *testing.T) {
	for _, first := range []bool{false, true} { // by name: the slice of IPv6
		c := kubeCluster()
		e := podOn(1, "h2")
		c.SetEndpoint(e)
		c.SetClusterNode(model.ClusterNode{Name: "h1", Zone: "east"})
		s := web()
		s.Near = model.NearZone
		c.SetService(s)
		ready, leaves := backendOf(e, false), backendOf(e, true)
		ready.ForZones = []string{"east"}
		leaves.State, leaves.ForZones = model.ServiceBackendDraining, []string{"west"}
		names := []string{"a", "b"}
		if first {
			slices.Reverse(names)
		}
		c.SetServiceSlice(sliceOf(names[0], webPorts, ready))
		c.SetServiceSlice(sliceOf(names[1], []model.SlicePort{webPorts[0], {Name: "http", Protocol: model.ProtoTCP, Port: 8086}}, leaves))
		got, problems := clusterPics(c)
		for name, ports := range map[string][2]uint16{"shop/web": {}, "shop/web:tcp/80": {8080, 8086}} {
			if got[name] == nil || got[name].Backends.Len() != 1 || problems != "" {
				t.Fatalf("IPv6 first %v: %s: %q, problems %q", first, name, backendTexts(got[name]), problems)
			}
			for _, b := range got[name].Backends.All() {
				want4 := desired.Serving{State: desired.BackendActive, Nearness: desired.NearZone, Port: ports[0]}
				want6 := desired.Serving{State: desired.BackendLeaving, Nearness: desired.NearFar, Port: ports[1]}
				if b.Serving(false) != want4 || b.Serving(true) != want6 {
					t.Errorf("IPv6 first %v: %s: %+v and %+v, want %+v and %+v", first, name, b.Serving(false), b.Serving(true), want4, want6)
				}
			}
		}
		e.Unhealthy = true
		c.SetEndpoint(e)
		got, _ = clusterPics(c)
		for _, b := range got["shop/web"].Backends.All() {
			if b.Serving(false).State != desired.BackendUnhealthy || b.Serving(true).State != desired.BackendUnhealthy {
				t.Errorf("IPv6 first %v: unhealthy: %+v and %+v", first, b.Serving(false), b.Serving(true))
			}
		}
	}
}

// randomServiceRow makes a row of an orchestrator's services, whose network and pods are
// among those of randomObject.
func randomServiceRow(rng *rand.Rand) any {
	switch rng.Intn(6) {
	case 0:
		return model.ClusterNode{Name: choose(rng, model.NodeName("h1"), "h2"), Addrs: []netip.Addr{choose(rng, netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("172.18.0.2"))}, Zone: choose(rng, "", "east")}
	case 1:
		return model.ServiceRanges{Ranges: []netip.Prefix{netip.MustParsePrefix(choose(rng, "10.96.0.0/16", "172.18.0.0/16"))}}
	case 2, 3:
		s := model.Service{
			Key: model.ServiceKey{Tenant: model.DefaultTenant, Name: choose(rng, "x/s1", "x/s2")}, Owner: model.OwnerKubernetes, Network: model.NetworkKey{Tenant: model.DefaultTenant, Name: "n1"},
			Addrs: []netip.Addr{choose(rng, netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1"), netip.MustParseAddr("10.1.0.100"))}, Affinity: model.NoAffinity,
			InsideLocal: rng.Intn(3) == 0, OutsideLocal: rng.Intn(2) == 0, Near: choose(rng, model.NearAnywhere, model.NearZone, model.NearNode),
		}
		s.Ports = []model.ServicePort{{Name: "http", Protocol: model.ProtoTCP, Port: 80, Node: 30080}, {Name: "dns", Protocol: model.ProtoUDP, Port: 53}}[:rng.Intn(3)]
		if rng.Intn(2) == 0 {
			s.Balanced = []netip.Addr{choose(rng, netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("172.18.0.1"))}
		}
		if rng.Intn(4) == 0 {
			s.Selectors = []model.ServiceSelector{{Key: "a", Value: "1"}}
		}
		return s
	}
	s := model.ServiceSlice{Key: model.ServiceSliceKey{Namespace: "x", Name: choose(rng, "1", "2", "3")}, Service: choose(rng, "s1", "s2")}
	s.Ports = []model.SlicePort{{Name: "dns", Protocol: model.ProtoUDP, Port: 53}, {Name: "http", Protocol: model.ProtoTCP, Port: choose(rng, uint16(80), 8080)}}[rng.Intn(2):]
	for i := range byte(rng.Intn(4)) {
		s.Backends = append(s.Backends, model.ServiceBackend{
			Addr: netip.AddrFrom4([4]byte{10, 1, 0, 1 + i}), State: choose(rng, model.ServiceBackendReady, model.ServiceBackendReady, model.ServiceBackendDraining, model.ServiceBackendUnready),
			Node: choose(rng, model.NodeName("h1"), "h2", ""), Pod: choose(rng, "", "", "uid"), ForZones: choose(rng, nil, []string{"east"}),
		})
	}
	if rng.Intn(3) == 0 {
		s.Backends = append(s.Backends, model.ServiceBackend{Addr: choose(rng, netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("198.51.100.7"))})
	}
	return s
}
