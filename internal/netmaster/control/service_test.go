package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

func svcKey(s string) model.ServiceKey { return model.ServiceKey(npKey(s)) }

// service makes one with port 80 and the selectors "key=value".
func service(key, net, ip string, selectors ...string) model.Service {
	s := model.Service{Key: svcKey(key)}
	s.Network = model.NetworkKey{Tenant: s.Key.Tenant, Name: model.NetworkName(net)}
	if ip != "" {
		s.ReqAddr = addr(ip)
	}
	for _, text := range selectors {
		sel, err := model.ParseServiceSelector(text)
		if err != nil {
			panic(err)
		}
		s.Selectors = append(s.Selectors, sel)
	}
	p, err := model.ParseServicePort("80:8080:TCP")
	if err != nil {
		panic(err)
	}
	s.Ports = append(s.Ports, p)
	return s
}

func labelled(labels ...string) func(*model.Endpoint) {
	return func(e *model.Endpoint) {
		e.Labels = map[string]string{}
		for _, l := range labels {
			k, v, _ := strings.Cut(l, "=")
			e.Labels[k] = v
		}
	}
}

// Providers are the endpoints of the service's network with all its labels:
// found as labels come and go, and found again by a netmaster that starts.
func TestProvidersFollowLabels(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16"), network("other", "10.2.0.0/16"), service("web", "n", "", "app=web", "tier=front"), service("all", "n", "", "app=web"))
	c.create(endpoint("n", "e1", labelled("app=web", "tier=front", "x=y")))
	c.create(endpoint("n", "e2", labelled("app=web")))
	c.create(endpoint("n", "e3"))
	c.create(endpoint("other", "e4", labelled("app=web", "tier=front")))
	want := func(c *harness, service string, ids ...model.EndpointID) {
		t.Helper()
		v := c.fresh()
		s, ok := v.Services.Get(svcKey(service))
		if !ok {
			t.Fatal("no service")
		}
		got := []model.EndpointID{}
		for _, e := range v.Services.Providers(s) {
			got = append(got, e.Key.ID)
			if !slices.ContainsFunc(v.Services.ServicesOf(e), func(o model.Service) bool { return o.Key == s.Key }) {
				t.Errorf("endpoint %s does not know that it provides %s", e.Key, s.Key)
			}
		}
		if d := cmp.Diff(append([]model.EndpointID{}, ids...), got); d != "" {
			t.Error(d)
		}
	}
	want(c, "web", "e1")
	want(c, "all", "e1", "e2")
	update := func(id model.EndpointID, u EndpointUpdate) {
		u.Key = model.EndpointKey{Network: netKey("n"), ID: id}
		c.ok(err2(c.Endpoints.UpdateEndpoint(testContext(t), Admin(), u)))
	}
	update("e3", EndpointUpdate{Container: "c3", Labels: map[string]string{"app": "web", "tier": "front"}})
	want(c, "web", "e1", "e3")
	update("e3", EndpointUpdate{Removed: []string{"app", "none"}})
	want(c, "web", "e1")
	update("e3", EndpointUpdate{Labels: map[string]string{"app": "web"}, Removed: []string{"app"}})
	want(c, "web", "e1", "e3")
	update("e2", EndpointUpdate{Labels: map[string]string{"tier": "back"}})
	want(c, "web", "e1", "e3")
	update("e1", EndpointUpdate{Stopped: true})
	want(c, "web", "e3")
	c.put(service("web", "n", "", "tier=back"))
	want(c, "web", "e2")
	restarted := onStore(t, c.st.Client())
	want(restarted, "web", "e2")
	want(restarted, "all", "e2", "e3")
	c.ok(c.remove(model.EndpointKey{Network: netKey("n"), ID: "e2"}))
	want(c, "web")
	checkKinds(t, c)
}

// An endpoint drains until it is undrained, or its container ends; reports of a runtime do
// not change that.
func TestDrainLastsUntilUndrained(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"))
	e := c.create(endpoint("n", "e", labelled("app=web")))
	drains := func(want bool) {
		t.Helper()
		if got, _ := c.fresh().Endpoints.Get(e.Key); got.Draining != want {
			t.Errorf("it drains: %v, want %v", got.Draining, want)
		}
	}
	drain := func(on bool) {
		t.Helper()
		got, _, err := c.Endpoints.DrainEndpoint(testContext(t), Admin(), e.Key, on)
		if c.ok(err); got.Draining != on || got.Key != e.Key {
			t.Errorf("%+v", got)
		}
	}
	drain(true)
	drains(true)
	before := c.dump()
	drain(true) // once more
	if diff := cmp.Diff(before, c.dump()); diff != "" {
		t.Errorf("said again, and something has changed: %s", diff)
	}
	c.ok(err2(c.Endpoints.UpdateEndpoint(testContext(t), Admin(), EndpointUpdate{Key: e.Key, Labels: map[string]string{"tier": "x"}})))
	drains(true)
	drain(false)
	drains(false)
	drain(true)
	c.ok(err2(c.Endpoints.UpdateEndpoint(testContext(t), Admin(), EndpointUpdate{Key: e.Key, Stopped: true})))
	drains(false)
	gone := model.EndpointKey{Network: netKey("n"), ID: "gone"}
	c.refused(model.ErrNotFound, "gone", func() error {
		_, _, err := c.Endpoints.DrainEndpoint(testContext(t), Admin(), gone, true)
		return err
	})
}

// A service keeps its address through changes, takes another that it asks for,
// and frees what it had.
func TestServiceKeepsItsAddress(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/29"), network("six", "2001:db8::/64"), pooled("g", "n", "10.1.0.1-10.1.0.2"))
	vip := func(want string) {
		t.Helper()
		s, _ := c.fresh().Services.Get(svcKey("s"))
		if len(s.Addrs) != 1 || s.Addrs[0].String() != want {
			t.Errorf("the addresses are %s, want %s", s.Addrs, want)
		}
	}
	c.put(service("s", "n", "", "a=b"))
	vip("10.1.0.3") // not in the pool
	c.put(service("s", "n", "", "a=c"))
	vip("10.1.0.3")
	c.put(service("s", "n", "10.1.0.6", "a=c"))
	vip("10.1.0.6")
	c.put(service("s", "n", "", "a=d"))
	vip("10.1.0.6")
	if e := c.create(endpoint("n", "e", withIP("10.1.0.3"))); e.IPv4 != addr("10.1.0.3") {
		t.Error(e.IPv4)
	}
	c.put(AddressRequest{Network: netKey("n"), Preferred: addr("10.1.0.4")}, service("s", "n", "10.1.0.4", "a=d")) // reserved for anybody
	vip("10.1.0.4")
	c.put(service("six", "six", "", "a=b"))
	if s, _ := c.fresh().Services.Get(svcKey("six")); len(s.Addrs) != 1 || !s.Addrs[0].Is6() {
		t.Errorf("the addresses are %s", s.Addrs)
	}
	checkKinds(t, c)
}

// One address to one of 16 services and endpoints, asked for at once through
// three replicas.
func TestServiceAddressAtOnce(t *testing.T) {
	cs := replicas(t, 3)
	cs[0].put(network("n", "10.1.0.0/24"))
	for _, c := range cs {
		c.fresh()
	}
	errs := parallel(16, func(i int) error {
		if i%2 == 0 {
			return cs[i%3].try(service(fmt.Sprintf("s%d", i), "n", "10.1.0.9", "a=b"))
		}
		return cs[i%3].try(endpoint("n", fmt.Sprintf("e%d", i), withIP("10.1.0.9")))
	})
	if n := outcomes(t, errs, model.ErrConflict); n != 1 {
		t.Errorf("%d have the address", n)
	}
	checkInvariants(t, cs[1])
	checkKinds(t, cs[1])
}
