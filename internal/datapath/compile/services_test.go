package compile

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// shop makes the i-th service of the network of cluster, which the i-th provider
// has the label of.
func shop(i int) model.Service {
	return model.Service{
		Key: model.ServiceKey{Tenant: "blue", Name: fmt.Sprint("shop", i)}, Network: model.NetworkKey{Tenant: "blue", Name: "n1"},
		Addrs:     []netip.Addr{netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})},
		Selectors: []model.ServiceSelector{{Key: "tier", Value: "web"}, {Key: "app", Value: fmt.Sprint("shop", i)}},
		Ports:     []model.ServicePort{{Port: 443, Target: 8443, Protocol: model.ProtoTCP}, {Port: 80, Target: 8080, Protocol: model.ProtoTCP}},
	}
}

func provides(e model.Endpoint, i int) model.Endpoint {
	e.Labels = map[string]string{"tier": "web", "app": fmt.Sprint("shop", i), "else": "x"}
	return e
}

// TestProvidersAreSelectedByLabels: who provides a service is who has its labels, here and elsewhere,
// in the state that its health says, while the network is in the desired state.
func TestProvidersAreSelectedByLabels(t *testing.T) {
	c := New("h1")
	remote := cluster(c, 3)
	c.SetService(shop(1))
	get := func() *desired.Service {
		t.Helper()
		pic, _ := c.Compile(1)
		s, _ := pic.Services.Get(shop(1).Key)
		return s
	}
	expect := func(when string, want map[model.EndpointKey]desired.Backend) {
		t.Helper()
		got := map[model.EndpointKey]desired.Backend{}
		for k, b := range get().Backends.All() {
			got[k] = *b
		}
		if diff := cmp.Diff(want, got, byValue...); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("nobody has its labels", map[model.EndpointKey]desired.Backend{})
	want := desired.Service{
		Key: shop(1).Key, Network: 7, IPv4: shop(1).Addrs[0], Affinity: 3 * time.Hour,
		Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}, {Protocol: model.ProtoTCP, Port: 443, Backend: 8443}},
	}
	if got := get(); !got.Equal(&want) {
		t.Errorf("service %+v, want %+v", got, want)
	}
	there := provides(remote(0), 1)
	c.SetEndpoint(there)
	backend := desired.Backend{Network: 7, IPv4: there.IPv4, Identity: 300, VTEP: netip.AddrFrom4([4]byte{192, 168, 0, 2})}
	expect("one elsewhere", map[model.EndpointKey]desired.Backend{there.Key: backend})
	here := provides(remote(1), 1)
	here.Host = "h1"
	c.SetEndpoint(here)
	local := desired.Backend{Network: 7, IPv4: here.IPv4, Identity: 300, Local: true}
	both := map[model.EndpointKey]desired.Backend{there.Key: backend, here.Key: local}
	expect("and one here", both)
	for _, step := range []struct {
		what          string
		ill, draining bool
		state         desired.BackendState
	}{
		{"one is ill", true, false, desired.BackendUnhealthy},
		{"one is ill and drains", true, true, desired.BackendUnhealthy},
		{"one drains", false, true, desired.BackendDraining},
		{"one serves again", false, false, desired.BackendActive},
		{"and is ill again", true, false, desired.BackendUnhealthy},
	} {
		there.Unhealthy, there.Draining, backend.State = step.ill, step.draining, step.state
		c.SetEndpoint(there)
		both[there.Key] = backend
		expect(step.what, both)
	}
	c.SetEndpoint(provides(there, 2))
	delete(both, there.Key)
	expect("one has another label", both)
	s := shop(1)
	s.Selectors = shop(2).Selectors
	c.SetService(s)
	expect("it selects others", map[model.EndpointKey]desired.Backend{there.Key: backend})
	c.DeleteEndpoint(there.Key)
	expect("one is gone", map[model.EndpointKey]desired.Backend{})
	s.Affinity, s.Addrs = model.NoAffinity, append(s.Addrs, netip.MustParseAddr("fd00::1"))
	c.SetService(s)
	if got := get(); got.Affinity != 0 || got.IPv6 != s.Addrs[1] || got.IPv4 != s.Addrs[0] {
		t.Errorf("service %+v", got)
	}
	c.DeleteNetwork(here.Key.Network)
	if get() != nil {
		t.Error("a service without its network is in the desired state")
	}
}

// TestProviderOfTheSameName: an endpoint that goes and one of the same key that comes
// with it, before anybody looks, is one provider, the new one. Which of both is looked at
// first is chance.
func TestProviderOfTheSameName(t *testing.T) {
	c := New("h1")
	remote := cluster(c, 0)
	c.SetService(shop(1))
	old := provides(remote(0), 1)
	for i := range 50 {
		c.SetEndpoint(old)
		c.Compile(1)
		c.DeleteEndpoint(old.Key)
		now := provides(remote(i+1), 1)
		now.Key = old.Key
		c.SetEndpoint(now)
		pic, _ := c.Compile(2)
		s, _ := pic.Services.Get(shop(1).Key)
		if b, there := s.Backends.Get(old.Key); !there || b.IPv4 != now.IPv4 || s.Backends.Len() != 1 {
			t.Fatalf("round %d: the provider is %+v, want %s", i, b, now.IPv4)
		}
		c.DeleteEndpoint(old.Key)
	}
}

// TestNoTunnelLeadsToProvidersOnVLANs: no tunnel leads to a provider elsewhere on a VLAN network.
func TestNoTunnelLeadsToProvidersOnVLANs(t *testing.T) {
	c := New("h1")
	there := provides(cluster(c, 3)(0), 1)
	c.SetNetwork(model.Network{Key: there.Key.Network, Encap: model.EncapVLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.0.0.0/8")})
	c.SetService(shop(1))
	c.SetEndpoint(there)
	pic, _ := c.Compile(1)
	s, _ := pic.Services.Get(shop(1).Key)
	if b, ok := s.Backends.Get(there.Key); !ok || b.IPv4 != there.IPv4 || b.VTEP.IsValid() {
		t.Errorf("backend %+v, want one without a tunnel", b)
	}
}

// TestExcessProvidersAreReported: the first ones are chosen among, and the host says so.
func TestExcessProvidersAreReported(t *testing.T) {
	c := New("h1")
	remote := cluster(c, 0)
	c.SetService(shop(1))
	for i := range desired.MaxBackends + 1 {
		e := provides(remote(i), 1)
		e.Key.ID = model.EndpointID(fmt.Sprintf("p%05d", i))
		c.SetEndpoint(e)
	}
	pic, problems := c.Compile(1)
	s, _ := pic.Services.Get(shop(1).Key)
	last := model.EndpointKey{Network: remote(0).Key.Network, ID: model.EndpointID(fmt.Sprintf("p%05d", desired.MaxBackends))}
	if _, there := s.Backends.Get(last); there || s.Backends.Len() != desired.MaxBackends {
		t.Errorf("%d backends, the last of all among them: %v", s.Backends.Len(), there)
	}
	said := false
	for _, p := range problems {
		said = said || p.Object == "service blue:shop1"
	}
	if !said {
		t.Errorf("problems %v", problems)
	}
	c.DeleteEndpoint(last)
	if _, problems = c.Compile(2); len(problems) != 0 {
		t.Errorf("problems %v when it is gone", problems)
	}
}

// BenchmarkProviderChange measures a provider that turns unhealthy or healthy, among so many
// services on its network.
func BenchmarkProviderChange(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := New("h1")
			remote := cluster(c, 1000)
			for i := range n {
				c.SetService(shop(i))
				c.SetEndpoint(provides(remote(i), i))
			}
			pic, _ := c.Compile(1)
			runtime.GC() // the waste of the preparation is not the subject
			e := provides(remote(3), 3)
			i := 0
			for b.Loop() {
				i++
				e.Unhealthy = i%2 == 1
				c.SetEndpoint(e)
				next, _ := c.Compile(int64(i))
				changes := diff(pic, next)
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

// TestClosedServiceKeepsAddressesWithoutOwner: of a deleted service with two addresses one has
// another owner, an endpoint or a service of its tenant, and the other one is closed.
func TestClosedServiceKeepsAddressesWithoutOwner(t *testing.T) {
	c := New("h1")
	e := cluster(c, 3)(0)
	s := shop(1)
	six := netip.MustParseAddr("fd00::1")
	s.Addrs = append(s.Addrs, six)
	c.SetService(s)
	c.SetEndpoint(e)
	expect := func(when string, want ...netip.Addr) {
		t.Helper()
		left := c.Services.Close(s.Key)
		pic, _ := c.Compile(1)
		got, there := pic.Services.Get(s.Key)
		if !slices.Equal(left, want) || there != (len(want) > 0) || there && (got.IPv4.IsValid() != (len(want) == 2) || got.IPv6 != six || len(got.Ports) > 0) {
			t.Errorf("%s: %v are closed, %+v", when, left, got)
		}
		if _, named := pic.DNS.Records.Get(desired.DNSKey{Service: s.Key}); named {
			t.Errorf("%s: it has a name", when)
		}
		c.SetService(s)
	}
	expect("without other owners", s.Addrs...)
	other := shop(2)
	other.Addrs = s.Addrs[:1]
	c.SetService(other)
	expect("with a service", six)
	c.DeleteService(other.Key)
	green := other
	green.Key.Tenant, green.Network.Tenant = "green", "green"
	c.SetService(green)
	expect("with a service of another tenant", s.Addrs...)
	e.IPv4 = s.Addrs[0]
	c.SetEndpoint(e)
	expect("with an endpoint", six)
	other.Addrs = s.Addrs
	c.SetService(other)
	expect("with owners of both")
}
