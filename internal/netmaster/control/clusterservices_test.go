package control

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

func clusterService(name string, addrs ...string) model.Service {
	s := model.Service{
		Key: model.ClusterServiceKey{Namespace: "ns", Name: name}.ServiceKey(), Owner: model.OwnerKubernetes,
		Network: model.ClusterNetworkKey, Affinity: model.NoAffinity,
	}
	for _, a := range addrs {
		s.Addrs = append(s.Addrs, addr(a))
	}
	return s
}

func slice(name, service string, addrs ...string) model.ServiceSlice {
	s := model.ServiceSlice{Key: model.ServiceSliceKey{Namespace: "ns", Name: name}, Service: service}
	for _, a := range addrs {
		s.Backends = append(s.Backends, model.ServiceBackend{Addr: addr(a)})
	}
	return s
}

// TestLeaderWritesClusterRowsOnce: rows are written once, by who leads, found by their service, and go.
func TestLeaderWritesClusterRowsOnce(t *testing.T) {
	c := newCluster(t)
	ctx, fence := testContext(t), c.leader()
	rows := ClusterRows{
		Services: []model.Valid[model.Service]{valid(clusterService("a", "10.96.0.1")), valid(clusterService("b"))},
		Slices:   []model.Valid[model.ServiceSlice]{valid(slice("a-1", "a", "10.1.0.1")), valid(slice("a-2", "a")), valid(slice("b-1", "b"))},
		Nodes:    []model.Valid[model.ClusterNode]{valid(model.ClusterNode{Name: "n1", Addrs: []netip.Addr{addr("192.168.7.1")}})},
	}
	put := func(rows ClusterRows) store.Revision {
		t.Helper()
		c.ok(c.Kubernetes.PutClusterRows(ctx, fence, rows))
		return c.fresh().Revision()
	}
	if first := put(rows); put(rows) != first {
		t.Error("what is there is written again")
	}
	names := func() string {
		v := c.fresh()
		var out []string
		for _, s := range v.Kubernetes.ClusterServices() {
			out = append(out, s.Key.Name)
			for _, x := range v.Kubernetes.SlicesOf(s.Key) {
				out = append(out, x.Key.Name)
			}
		}
		return fmt.Sprint(out, len(v.Kubernetes.ServiceSlices()), len(v.Kubernetes.ClusterNodes()))
	}
	if got := names(); got != "[ns/a a-1 a-2 ns/b b-1] 3 1" {
		t.Error(got)
	}
	put(ClusterRows{Slices: []model.Valid[model.ServiceSlice]{valid(slice("a-2", "b"))}}) // it is another's now
	if got := names(); got != "[ns/a a-1 ns/b a-2 b-1] 3 1" {
		t.Error(got)
	}
	checkMirror(t, c)
	c.Kubernetes.Reserve(map[netip.Addr]string{addr("192.168.7.3"): "is the address of the store", addr("10.96.0.9"): "is the address of a netmaster"})
	for at, whose := range map[string]string{
		"192.168.7.1": "is an address of node n1", "192.168.7.2": "", "192.168.7.3": "is the address of the store", "10.96.0.9": "is the address of a netmaster",
	} {
		if got := c.fresh().AddressOwners.DescribeOwner(addr(at)); got != whose {
			t.Errorf("%s %q, want %q", at, got, whose)
		}
	}
	if got := c.fresh().AddressOwners.DescribeServiceOwner(addr("10.96.0.1")); got != "is the cluster address of service ns/a" {
		t.Error(got)
	}
	put(ClusterRows{
		NoServices: []model.ClusterServiceKey{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "b"}}, NoNodes: []model.NodeName{"n1"},
		NoSlices: []model.ServiceSliceKey{{Namespace: "ns", Name: "a-1"}, {Namespace: "ns", Name: "a-2"}, {Namespace: "ns", Name: "b-1"}},
	})
	if got := names(); got != "[] 0 0" {
		t.Error(got)
	}
	v := c.fresh()
	if v.AddressOwners.DescribeOwner(addr("192.168.7.1"))+v.AddressOwners.DescribeServiceOwner(addr("10.96.0.1")) != "" || len(v.Kubernetes.slicesOfService) > 0 {
		t.Error("what is gone is found")
	}
	checkMirror(t, c)
	if err := c.Kubernetes.PutClusterRows(ctx, Leader{Key: "/test/other", Create: 1}, rows); !errors.Is(err, store.ErrFenced) {
		t.Errorf("who does not lead writes: %v", err)
	}
	if err := c.Kubernetes.PutClusterRows(ctx, fence, ClusterRows{Services: make([]model.Valid[model.Service], 1)}); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("what nobody has validated: %v", err)
	}
}

// TestNetworksDoNotOverlapServiceRanges: no network overlaps a range of services' addresses. An existing one
// stays, and the owner of an address names it.
func TestNetworksDoNotOverlapServiceRanges(t *testing.T) {
	c := newCluster(t)
	fence := c.leader()
	c.put(network("old", "10.97.0.0/16"))
	prefixes := func(texts ...string) (r model.ServiceRanges) {
		for _, p := range texts {
			r.Ranges = append(r.Ranges, netip.MustParsePrefix(p))
		}
		return r
	}
	c.fresh()
	changed := c.Networks.NetworksChanged()
	c.ok(c.Kubernetes.PutServiceRanges(testContext(t), fence, valid(prefixes("10.96.0.0/15", "fd00:96::/112"))))
	c.refused(model.ErrConflict, `subnet "10.96.7.0/24": overlaps 10.96.0.0/15, Kubernetes' range of service addresses`, func() error { return c.try(network("n", "10.96.7.0/24")) })
	c.refused(model.ErrConflict, `ipv6Subnet "fd00:96::/64": overlaps fd00:96::/112`, func() error { return c.try(network("n", "10.5.0.0/24", "fd00:96::/64")) })
	c.put(network("old", "10.97.0.0/16")) // as it is
	if got := c.fresh().AddressOwners.DescribeOwner(addr("10.97.0.9")); got != "lies in network default:old" {
		t.Error(got)
	}
	if got := c.fresh().AddressOwners.DescribeServiceOwner(addr("10.96.0.9")); got != "lies in the services' range 10.96.0.0/15" {
		t.Error(got)
	}
	select {
	case <-changed:
		t.Error("no network has changed")
	default:
	}
	c.put(network("n", "10.5.0.0/24"))
	c.fresh()
	select {
	case <-changed:
	default:
		t.Error("a network has come, and nobody is told")
	}
	rev := c.fresh().Revision()
	c.ok(c.Kubernetes.PutServiceRanges(testContext(t), fence, valid(prefixes("10.96.0.0/15", "fd00:96::/112"))))
	if c.fresh().Revision() != rev {
		t.Error("what is there is written again")
	}
	c.ok(c.Kubernetes.PutServiceRanges(testContext(t), fence, valid(prefixes())))
	c.put(network("n2", "10.96.7.0/24"))
	checkMirror(t, c)
}

// pool parses a pool.
func pool(t *testing.T, texts ...string) model.AddressPool {
	t.Helper()
	p, err := model.ParseAddressPool("pool", texts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPoolAddressesAreAssignedOnce: who gets which addresses of the pool, and keeps or loses them.
func TestPoolAddressesAreAssignedOnce(t *testing.T) {
	c := newCluster(t)
	fence := c.leader()
	c.put(network("net", "203.0.113.8/30"))
	c.fresh()
	p := pool(t, "203.0.113.8-203.0.113.14", "2001:db8::/126")
	k := func(name string) model.ClusterServiceKey {
		return model.ClusterServiceKey{Namespace: "ns", Name: name}
	}
	for _, step := range []struct {
		wish    PoolRequest
		want    string
		problem string
	}{
		// .8 to .11 are the network's.
		{PoolRequest{Service: k("a"), Pool: p, V4: true}, "[203.0.113.12]", ""},
		{PoolRequest{Service: k("a"), Pool: p, V4: true}, "[203.0.113.12]", ""},
		{PoolRequest{Service: k("a"), Pool: p, V4: true, V6: true}, "[203.0.113.12 2001:db8::1]", ""},
		{PoolRequest{Service: k("b"), Pool: p, V4: true, V6: true, Addr: addr("203.0.113.12")}, "[2001:db8::2]", "203.0.113.12 belongs to service ns/a"},
		{PoolRequest{Service: k("b"), Pool: p, V4: true, Addr: addr("203.0.113.14")}, "[203.0.113.14]", ""},
		{PoolRequest{Service: k("b"), Pool: p, V4: true, Addr: addr("203.0.113.9")}, "[]", "203.0.113.9 lies in network default:net"},
		{PoolRequest{Service: k("b"), Pool: p, V4: true, Addr: addr("198.51.100.1")}, "[]", "198.51.100.1 is not in the load balancers' pool"},
		{PoolRequest{Service: k("b"), Pool: p, V4: true}, "[203.0.113.13]", ""},
		{PoolRequest{Service: k("c"), Pool: p, V4: true}, "[203.0.113.14]", ""},
		{PoolRequest{Service: k("d"), Pool: p, V4: true, V6: true}, "[2001:db8::3]", "the load balancers' pool has no free IPv4 address"},
		{PoolRequest{Service: k("a"), Pool: p, V6: true}, "[2001:db8::1]", ""}, // it has one family now
		{PoolRequest{Service: k("d"), Pool: p, V4: true, V6: true}, "[203.0.113.12 2001:db8::3]", ""},
		{PoolRequest{Service: k("a"), Pool: pool(t, "198.51.100.0/30"), V4: true, V6: true}, "[198.51.100.1]", ""}, // another pool
		{PoolRequest{Service: k("a")}, "[]", ""},
	} {
		got, err := c.Kubernetes.Balance(testContext(t), fence, step.wish)
		text := fmt.Sprint(got)
		if got == nil {
			text = "[]"
		}
		if text != step.want || step.problem == "" && err != nil || step.problem != "" && (err == nil || !strings.Contains(err.Error(), step.problem)) {
			t.Errorf("%+v: %s, %v; want %s, %s", step.wish, text, err, step.want, step.problem)
		}
		if v := c.fresh(); !slices.Equal(v.AddressOwners.BalancedAddrs(step.wish.Service), got) {
			t.Errorf("%s has %v in the store, and was given %v", step.wish.Service, v.AddressOwners.BalancedAddrs(step.wish.Service), got)
		}
	}
	if got := len(c.fresh().AddressOwners.BalancedServices()); got != 3 {
		t.Errorf("%d services have addresses, want 3", got)
	}
	checkMirror(t, c)
	if _, err := c.Kubernetes.Balance(testContext(t), Leader{Key: "/test/other", Create: 1}, PoolRequest{Service: k("a"), Pool: p, V6: true}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("who does not lead gives addresses: %v", err)
	}
}

// TestReplicasAllocateDifferentAddresses: many at once, by two replicas, get different addresses, and one that
// was freed is not the next one given.
func TestReplicasAllocateDifferentAddresses(t *testing.T) {
	a := newCluster(t)
	b := onStore(t, a.st)
	fence := a.leader()
	p := pool(t, "198.51.100.0/24")
	var mu sync.Mutex
	owner := map[netip.Addr]int{}
	var g sync.WaitGroup
	for i := range 100 {
		g.Go(func() {
			c := []*harness{a, b}[i%2]
			got, err := c.Kubernetes.Balance(testContext(t), fence, PoolRequest{Service: model.ClusterServiceKey{Namespace: "ns", Name: fmt.Sprint("s", i)}, Pool: p, V4: true})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || len(got) != 1 {
				t.Errorf("%d: %v %v", i, got, err)
				return
			}
			if other, taken := owner[got[0]]; taken {
				t.Errorf("%s is %d's and %d's", got[0], other, i)
			}
			owner[got[0]] = i
		})
	}
	g.Wait()
	k := model.ClusterServiceKey{Namespace: "ns", Name: "s0"}
	before := a.fresh().AddressOwners.BalancedAddrs(k)
	if _, err := a.Kubernetes.Balance(testContext(t), fence, PoolRequest{Service: k}); err != nil {
		t.Fatal(err)
	}
	a.fresh()
	k.Name = "next"
	got, err := a.Kubernetes.Balance(testContext(t), fence, PoolRequest{Service: k, Pool: p, V4: true})
	if err != nil || slices.Equal(got, before) {
		t.Errorf("%v %v, and %v was freed a moment ago", got, err, before)
	}
	checkMirror(t, a)
}

// TestClusterServicesCountAgainstLimits: services of Kubernetes take of what a host holds, in front of
// load-balanced ones, and give it back.
func TestClusterServicesCountAgainstLimits(t *testing.T) {
	c := newCluster(t)
	fence := c.leader()
	c.put(network("n", "10.1.0.0/16"))
	var full ClusterRows
	for i := range model.MaxServiceFrontends / model.MaxClusterPorts {
		s := clusterService(fmt.Sprint("s", i), netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String())
		for p := range model.MaxClusterPorts {
			s.Ports = append(s.Ports, model.ServicePort{Protocol: model.ProtoTCP, Port: uint16(p + 1)})
		}
		if full.Services = append(full.Services, valid(s)); len(full.Services) == 16 {
			c.ok(c.Kubernetes.PutClusterRows(testContext(t), fence, full))
			full.Services = nil
		}
	}
	if services, frontends := c.fresh().Services.CountServices(); services != 256 || frontends != model.MaxServiceFrontends {
		t.Errorf("%d services, %d pairs", services, frontends)
	}
	c.refused(model.ErrExhausted, "ports: with 1 at its addresses all services would have 65537", func() error { return c.try(service("web", "n", "", "a=b")) })
	one := clusterService("s0", "10.96.0.0")
	c.ok(c.Kubernetes.PutClusterRows(testContext(t), fence, ClusterRows{Services: []model.Valid[model.Service]{valid(one)}}))
	c.fresh()
	c.put(service("web", "n", "", "a=b"))
	if services, frontends := c.fresh().Services.CountServices(); services != 257 || frontends != model.MaxServiceFrontends-model.MaxClusterPorts+1 {
		t.Errorf("%d services, %d pairs", services, frontends)
	}
	checkMirror(t, c)
}
