package compile

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestExternalBackendsNeedTheDataPlanesSupport: backends that are no endpoints are in a desired state if this host's
// data plane can forward to them; pods on other networks are not.
func TestExternalBackendsNeedTheDataPlanesSupport(t *testing.T) {
	for _, able := range []bool{true, false} {
		c := kubeCluster()
		if !able {
			c.Services.SetNoExternalBackends()
		}
		one := podOn(1, "h1")
		c.SetEndpoint(one)
		c.SetService(web())
		c.SetClusterNode(model.ClusterNode{Name: "h1", Addrs: []netip.Addr{netip.MustParseAddr("172.18.0.1")}})
		expect := func(when, problem string, want ...string) {
			t.Helper()
			got, problems := clusterPics(c)
			if problem != "" {
				if len(got) > 0 || !strings.Contains(problems, problem) || !strings.Contains(problems, model.NoEffectPrefix) {
					t.Errorf("able %v, %s: %v, problems %q", able, when, got, problems)
				}
				return
			}
			if diff := cmp.Diff(want, backendTexts(got["shop/web"])); diff != "" || problems != "" {
				t.Errorf("able %v, %s: problems %q, backends (-want +got):\n%s", able, when, problems, diff)
			}
			for k, b := range got["shop/web"].Backends.All() {
				if b.External() != strings.HasPrefix(string(k.ID), "@") || b.External() != (b.Identity == 0) {
					t.Errorf("able %v, %s: backend %s is %+v", able, when, k, b)
				}
			}
		}
		lacks := func(text string) string {
			if able {
				return ""
			}
			return text
		}
		const pod = "pod1 10.5.0.1 invalid IP local true vtep invalid IP state 0 near 0 port 0"
		addr := netip.MustParseAddr
		put := func(all ...model.ServiceBackend) {
			c.SetServiceSlice(sliceOf("web-4", webPorts, append([]model.ServiceBackend{backendOf(one, false)}, all...)...))
		}
		put(model.ServiceBackend{Addr: addr("172.18.0.1"), Pod: "api", Node: "h1"}, model.ServiceBackend{Addr: addr("198.51.100.7")})
		expect("a node and an address outside", lacks("2 of its backends are not pods of network"),
			"@172.18.0.1 172.18.0.1 invalid IP local true vtep invalid IP state 0 near 0 port 0", "@198.51.100.7 198.51.100.7 invalid IP local false vtep invalid IP state 0 near 0 port 0", pod)
		c.DeleteClusterNode("h1")
		expect("a pod that has no node's address", "1 of its backends are pods on no network")
		c.SetClusterNode(model.ClusterNode{Name: "h2", Addrs: []netip.Addr{addr("172.18.0.1"), addr("fd18::1")}})
		put(model.ServiceBackend{Addr: addr("172.18.0.1"), Pod: "api", Node: "h2", State: model.ServiceBackendDraining})
		c.SetServiceSlice(sliceOf("web-6", webPorts, model.ServiceBackend{Addr: addr("fd18::1"), Pod: "api", Node: "h2"}))
		expect("a node's again, in both families", lacks("2 of its backends"),
			"@172.18.0.1 172.18.0.1 invalid IP local false vtep invalid IP state 3 near 0 port 0", "@fd18::1 invalid IP fd18::1 local false vtep invalid IP state 0 near 0 port 0", pod)
		put(model.ServiceBackend{Addr: addr("198.51.100.7"), State: model.ServiceBackendUnready}, model.ServiceBackend{Addr: addr("10.5.0.99"), Pod: "uid99"})
		c.DeleteServiceSlice(model.ServiceSliceKey{Namespace: "shop", Name: "web-6"})
		expect("one that takes nothing, and a pod whose endpoint is not there", "", pod)
		put(model.ServiceBackend{Addr: addr("10.6.0.9"), Pod: "uid9"})
		expect("a pod on a network that is not here", "1 of its backends are pods on no network that is joined with default:default-net, such as 10.6.0.9")
		joined := model.Network{Key: model.NetworkKey{Tenant: "default", Name: "six"}, Encap: model.EncapVXLAN, Tag: 6, ID: 6, Subnet: netip.MustParsePrefix("10.6.0.0/16")}
		c.SetNetwork(joined)
		c.SetGlobal(model.Global{FwdMode: model.FwdRouting, ArpMode: model.ArpProxy})
		c.SetTenant(model.Tenant{Name: "default", Router: 7})
		expect("which is joined now", "", pod)
		c.DeleteNetwork(joined.Key)
		expect("and is gone", "1 of its backends are pods")
		put(model.ServiceBackend{Addr: addr("10.6.0.9")})
		expect("an address there that is no pod's", lacks("1 of its backends are not pods"), slices.Sorted(slices.Values([]string{"@10.6.0.9 10.6.0.9 invalid IP local false vtep invalid IP state 0 near 0 port 0", pod}))...)
		c.SetServiceRanges(model.ServiceRanges{Ranges: []netip.Prefix{netip.MustParsePrefix("10.6.0.0/24")}})
		expect("which is in the range of services' addresses: its own backends would not know who asks", "", pod)
		c.SetServiceRanges(model.ServiceRanges{})
		expect("and is nobody's again", lacks("1 of its backends are not pods"), slices.Sorted(slices.Values([]string{"@10.6.0.9 10.6.0.9 invalid IP local false vtep invalid IP state 0 near 0 port 0", pod}))...)
	}
}

// TestBackendAddressesFindTheirEndpoints: a slice that people write names no pods; whose address is an
// endpoint's of the domain is that endpoint, while it is there.
func TestBackendAddressesFindTheirEndpoints(t *testing.T) {
	c := kubeCluster()
	one, two := podOn(1, "h1"), podOn(2, "h2")
	c.SetService(web())
	c.SetServiceSlice(sliceOf("web-4", webPorts, model.ServiceBackend{Addr: one.IPv4}, model.ServiceBackend{Addr: two.IPv4}))
	expect := func(when string, want ...string) {
		t.Helper()
		got, problems := clusterPics(c)
		var keys []string
		for k := range got["shop/web"].Backends.All() {
			keys = append(keys, string(k.ID))
		}
		if slices.Sort(keys); !slices.Equal(keys, want) || problems != "" {
			t.Errorf("%s: backends %v, problems %q, want %v", when, keys, problems, want)
		}
	}
	expect("nobody is there")
	c.SetEndpoint(one)
	expect("one has come", "pod1")
	c.SetEndpoint(two)
	expect("both are there", "pod1", "pod2")
	c.DeleteEndpoint(one.Key)
	expect("one is gone", "pod2")
	c.SetServiceSlice(sliceOf("web-4", webPorts, model.ServiceBackend{Addr: two.IPv4, Pod: "another"}))
	expect("the address is said to be another pod's")
}

// TestDrainedPodGetsNoNewConnections: an endpoint's drain and its health count for services
// whose slices name it, as for services that select it.
func TestDrainedPodGetsNoNewConnections(t *testing.T) {
	c := kubeCluster()
	e := podOn(1, "h2")
	e.Labels = map[string]string{"app": "web"}
	lb := model.Service{
		Key: model.ServiceKey{Tenant: model.DefaultTenant, Name: "lb"}, Network: clusterNetworkKey, Addrs: []netip.Addr{netip.MustParseAddr("10.5.1.1")},
		Selectors: []model.ServiceSelector{{Key: "app", Value: "web"}}, Ports: []model.ServicePort{{Port: 80, Target: 8080, Protocol: model.ProtoTCP}},
	}
	c.SetService(web())
	c.SetService(lb)
	for _, tc := range []struct {
		change func(*model.Endpoint)
		says   model.ServiceBackendState
		want   string // of the slice's service
		lb     string
	}{
		{func(*model.Endpoint) {}, model.ServiceBackendReady, "state 0", "state 0"},
		{func(e *model.Endpoint) { e.Draining = true }, model.ServiceBackendReady, "state 1", "state 1"},
		{func(e *model.Endpoint) { e.Unhealthy = true }, model.ServiceBackendReady, "state 2", "state 2"},
		{func(e *model.Endpoint) { e.Draining, e.Unhealthy = false, false }, model.ServiceBackendDraining, "state 3", "state 0"},
		{func(e *model.Endpoint) { e.Draining = true }, model.ServiceBackendDraining, "state 1", "state 1"},
	} {
		b := backendOf(e, false)
		b.State = tc.says
		c.SetServiceSlice(sliceOf("web-4", webPorts, b))
		clusterPics(c)
		tc.change(&e)
		c.SetEndpoint(e)
		got, problems := clusterPics(c)
		for name, want := range map[string]string{"shop/web": tc.want, "lb": tc.lb} {
			if texts := backendTexts(got[name]); len(texts) != 1 || !strings.Contains(texts[0], want+" ") || problems != "" {
				t.Errorf("%s: %q, problems %q, want %s", name, texts, problems, want)
			}
		}
	}
}

// TestFirstOfEqualAddressesIsTheBackend: whichever of two endpoints with the address comes
// first.
func TestFirstOfEqualAddressesIsTheBackend(t *testing.T) {
	one, two := podOn(1, "h1"), podOn(2, "h2")
	two.IPv4 = one.IPv4
	for _, order := range [][]model.Endpoint{{one, two}, {two, one}} {
		c := kubeCluster()
		c.SetService(web())
		c.SetServiceSlice(sliceOf("web-4", webPorts, model.ServiceBackend{Addr: one.IPv4}))
		for _, e := range order {
			c.SetEndpoint(e)
		}
		if got, _ := clusterPics(c); got["shop/web"].Backends.Len() != 1 || !strings.HasPrefix(backendTexts(got["shop/web"])[0], "pod1 ") {
			t.Errorf("backends %q", backendTexts(got["shop/web"]))
		}
	}
}

// BenchmarkSliceChange measures a backend that a slice says to drain or not to, among so many
// services with slices.
func BenchmarkSliceChange(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := kubeCluster()
			e := podOn(1, "h2")
			c.SetEndpoint(e)
			for i := range n {
				s := web()
				s.Key.Name = fmt.Sprint("shop/web", i)
				s.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}
				x := sliceOf(fmt.Sprint("web", i, "-4"), webPorts, backendOf(podOn(2+i%200, "h2"), false))
				x.Service = fmt.Sprint("web", i)
				c.SetService(s)
				c.SetServiceSlice(x)
			}
			for i := range 200 {
				c.SetEndpoint(podOn(2+i, "h2"))
			}
			pic, _ := c.Compile(1)
			runtime.GC() // the waste of the preparation is not the subject
			backend := backendOf(e, false)
			i := 0
			for b.Loop() {
				backend.State = []model.ServiceBackendState{model.ServiceBackendReady, model.ServiceBackendDraining}[i%2]
				i++
				x := sliceOf("web3-4", webPorts, backend)
				x.Service = "web3"
				c.SetServiceSlice(x)
				next, _ := c.Compile(int64(i))
				changes := 0
				for range next.Services.Diff(pic.Services) {
					changes++
				}
				if changes != 1 {
					b.Fatalf("%d changes", changes)
				}
				pic = next
			}
		})
	}
}
