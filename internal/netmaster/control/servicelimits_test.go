package control

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Bad services are refused by what is wrong with them, and nothing changes.
func TestBadServicesAreRefused(t *testing.T) {
	c := newCluster(t)
	gateway := with(network("n", "10.1.0.0/24"), func(n *model.Network) { n.Gateway = addr("10.1.0.254") })
	c.put(gateway, network("full", "10.2.0.0/30"), pooled("g", "n", "10.1.0.10-10.1.0.19"))
	c.put(service("one", "n", "10.1.0.5", "a=b"), service("f1", "full", "", "a=b"), service("f2", "full", "", "a=b"))
	c.create(endpoint("n", "e", withIP("10.1.0.6")))
	for _, tc := range []struct {
		service model.Service
		kind    error
		part    string
	}{
		{service("x", "full", "", "a=b"), model.ErrExhausted, "network default:full"},
		{service("x", "n", "10.1.0.6", "a=b"), model.ErrConflict, `endpoint "e"`},
		{service("x", "n", "10.1.0.5", "a=b"), model.ErrConflict, `"one"`},
		{service("x", "n", "10.1.0.254", "a=b"), model.ErrInvalid, "gateway"},
		{service("x", "n", "10.9.0.1", "a=b"), model.ErrInvalid, "inside the subnet"},
		{service("x", "n", "10.1.0.255", "a=b"), model.ErrInvalid, "broadcast"},
		{service("x", "n", "10.1.0.12", "a=b"), model.ErrConflict, `pool of endpoint group "g"`},
		{service("x", "nosuch", "", "a=b"), model.ErrNotFound, "nosuch"},
		{service("one", "full", "", "a=b"), model.ErrConflict, "networkName"},
		{service("x", "n", ""), model.ErrInvalid, "selectors"},
		{with(service("x", "n", "", "a=b"), func(s *model.Service) { s.Ports = append(s.Ports, s.Ports[0]) }), model.ErrInvalid, "once"},
		{with(service("x", "n", "", "a=b"), func(s *model.Service) { s.Ports = nil }), model.ErrInvalid, "ports"},
		{service("a_b", "n", "", "a=b"), model.ErrInvalid, "serviceName"},
		{service("ONE", "n", "", "a=b"), model.ErrConflict, `"one" has the same name in other letter case`},
	} {
		c.refused(tc.kind, tc.part, func() error { return c.try(tc.service) })
	}
	c.refused(model.ErrConflict, `service "one"`, func() error { return c.try(endpoint("n", "x", withIP("10.1.0.5"))) })
	c.put(service("nobody", "n", "", "no=body")) // accepted: its providers may come
	if s, _ := c.fresh().Services.Get(svcKey("nobody")); len(c.fresh().Services.Providers(s)) != 0 {
		t.Error("somebody provides it")
	}
	checkKinds(t, c)
}

// Of names that differ in capitals only one is taken, in one list too; when it goes
// another may come in the same step, what exists already may change, and other tenants
// have names of their own.
func TestServiceNamesDiffer(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"), service("Shop", "n", "", "a=b"))
	list := func(names ...string) error {
		var changes []Change
		for _, name := range names {
			changes = append(changes, c.Services.ChangeService(valid(service(name, "n", "", "a=b"))))
		}
		_, _, _, err := c.Apply(testContext(t), Admin(), changes, false, nil)
		return err
	}
	c.fresh()
	before := c.dump()
	c.refused(model.ErrConflict, `"Shop" has the same name`, func() error { return list("shop") })
	c.refused(model.ErrConflict, `has the same name in other letter case`, func() error { return list("db", "DB") })
	if diff := cmp.Diff(before, c.dump()); diff != "" {
		t.Errorf("a refusal changed (-before +after):\n%s", diff)
	}
	c.ok(list("Shop")) // itself
	c.put(service("Shop", "n", "", "a=c"))
	c.ok(c.remove(svcKey("Shop")))
	c.put(service("shop", "n", "", "a=b"))
	c.fresh()

	v := c.fresh() // as if it had been made before names were refused
	v.mu.Lock()
	v.Services.servicesByName.put(svcKey("shop"), svcKey("SHOP"), true)
	v.mu.Unlock()
	c.put(service("shop", "n", "", "a=c"))
}

// What hosts could not hold is refused with what there is and the limit: alone, in
// one list, and where ports are added; what takes no more than before is not.
func TestServicesBeyondLimitsAreRefused(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16", "2001:db8::/64"), service("one", "n", "", "a=b"))
	v := c.fresh()
	v.mu.Lock()
	v.Services.serviceFrontends = model.MaxServiceFrontends - 2 // as if there were others
	v.mu.Unlock()
	second, err := model.ParseServicePort("81:81:tcp")
	c.ok(err)
	more := with(service("one", "n", "", "a=b"), func(s *model.Service) { s.Ports = append(s.Ports, second) })
	list := func(all ...model.Service) error {
		var changes []Change
		for _, s := range all {
			changes = append(changes, c.Services.ChangeService(valid(s)))
		}
		_, _, _, err := c.Apply(testContext(t), Admin(), changes, false, nil)
		return err
	}
	c.refused(model.ErrExhausted, strconv.Itoa(model.MaxServiceFrontends), func() error { return list(service("two", "n", "", "a=b"), service("three", "n", "", "a=b")) })
	c.put(more)
	c.fresh()
	c.refused(model.ErrExhausted, "ports: with 2 at its addresses all services would have 65538", func() error { return c.try(service("two", "n", "", "a=b")) })
	c.put(service("one", "n", "", "a=c")) // fewer

	v = c.fresh()
	v.mu.Lock()
	all := v.Services.serviceRows.all
	for i := len(all); i < model.MaxServices-1; i++ {
		all[svcKey(fmt.Sprint("s", i))] = model.Service{}
	}
	v.Services.serviceFrontends = 0
	v.mu.Unlock()
	c.refused(model.ErrExhausted, "there are 16384 services", func() error { return list(service("two", "n", "", "a=b"), service("three", "n", "", "a=b")) })
	c.put(service("two", "n", "", "a=b"))
	c.fresh()
	c.put(service("two", "n", "", "a=c"))
	c.refused(model.ErrExhausted, "there are 16384 services", func() error { return c.try(service("three", "n", "", "a=b")) })
}

// More providers than are chosen among are refused when a service comes or selects
// others; the same labels beside another are not counted.
func TestProvidersBeyondLimitsAreRefused(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16"), service("one", "n", "", "a=b"))
	v := c.fresh()
	v.mu.Lock()
	for i := range model.MaxProviders + 1 {
		e := model.Endpoint{Key: model.EndpointKey{Network: netKey("n"), ID: model.EndpointID(fmt.Sprint("e", i))}, Labels: map[string]string{"a": "b"}}
		if i == 0 {
			e.Labels["c"] = "d"
		}
		v.Endpoints.endpoints[e.Key] = e
		v.Services.indexLabels(e, true)
	}
	v.mu.Unlock()
	c.refused(model.ErrExhausted, "4097 endpoints", func() error { return c.try(service("two", "n", "", "a=b")) })
	c.put(service("two", "n", "", "a=b", "c=d"))
	c.put(with(service("one", "n", "", "a=b"), func(s *model.Service) { s.Affinity = 60 })) // there already
	c.refused(model.ErrExhausted, "4097 endpoints", func() error { return c.try(service("two", "n", "", "a=b")) })
}

// Services that come and go leave nothing behind.
func TestServicesComeAndGo(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24", "2001:db8::/64"))
	c.create(endpoint("n", "e", labelled("a=b")))
	kept := func() map[string]string { // but for what says that something was written
		all := c.dump()
		for k := range all {
			if !strings.HasPrefix(k, store.Root+"state/") {
				delete(all, k)
			}
		}
		return all
	}
	before := kept()
	for i := range 200 {
		name := fmt.Sprint("s", i)
		c.put(service(name, "n", "", "a=b"), with(service(name, "n", "10.1.0.200", "a=b"), func(s *model.Service) { s.ReqAddr6 = addr("2001:db8::200") }))
		c.ok(c.remove(svcKey(name)))
	}
	if after := kept(); len(before) == 0 || len(after) != len(before) {
		for k := range after {
			if _, ok := before[k]; !ok {
				t.Errorf("left: %s", k)
			}
		}
		t.Errorf("%d rows before, %d after", len(before), len(after))
	}
	v := c.fresh()
	v.mu.Lock()
	if n := v.Services.serviceFrontends; n != 0 || len(v.Services.servicesOfNetwork) != 0 || len(v.Addresses.space(netKey("n")).owners) != 2 {
		t.Errorf("the view has %d ports, %v, %v", n, v.Services.servicesOfNetwork, v.Addresses.space(netKey("n")).owners)
	}
	v.mu.Unlock()
	checkKinds(t, c)
	c.ok(c.remove(model.EndpointKey{Network: netKey("n"), ID: "e"}))
	c.ok(c.remove(netKey("n"))) // nothing refers to it
}
