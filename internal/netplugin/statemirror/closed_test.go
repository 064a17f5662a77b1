package statemirror

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// countingAgent counts how often it is to apply soon, and what it has lost.
type countingAgent struct {
	fakeAgent
	soon, lost int
}

func (a *countingAgent) Soon(string) { a.soon++ }
func (a *countingAgent) OnLost()     { a.lost++ }

// TestDeletedServiceRefusesForAWhile deletes services whose addresses have no owner
// afterwards, another service, or an endpoint.
func TestDeletedServiceRefusesForAWhile(t *testing.T) {
	x := newManualState(t)
	network := testEndpoint.Key.Network
	service := func(name string, last byte) model.Service {
		return model.Service{
			Key: model.ServiceKey{Tenant: network.Tenant, Name: name}, Network: network,
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 1, last})}, Ports: []model.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Target: 8080}},
		}
	}
	rev := store.Revision(20)
	deliver := func(m *mirror, events ...store.Event) {
		t.Helper()
		rev++
		for i := range events {
			events[i].KV.Mod = rev
		}
		x.deliver(m, store.Batch{Revision: rev, Events: events})
	}
	gone := func(name string) store.Event {
		return store.Event{KV: store.KV{Key: tables.LoadBalancers.Key(service(name, 0).Key)}}
	}
	has := func(when string, want map[string]int) {
		t.Helper()
		for name := range x.services.closed {
			if ports, there := want[name.Name]; !there || ports > 0 {
				t.Errorf("%s: %s is remembered as closed", when, name)
			}
		}
		pic, _ := x.comp.Compile(1)
		if pic.Services.Len() != len(want) {
			t.Errorf("%s: %d services, want %d", when, pic.Services.Len(), len(want))
		}
		for name, ports := range want {
			s, there := pic.Services.Get(service(name, 0).Key)
			if !there || len(s.Ports) != ports {
				t.Errorf("%s: %s is there: %v, %+v; want %d ports", when, name, there, s, ports)
			}
		}
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		deliver(x.rest, row(t, tables.LoadBalancers, service(name, 100+byte(i)), rev))
	}
	deliver(x.rest, gone("a"))
	has("deleted", map[string]int{"a": 0, "b": 1, "c": 1, "d": 1})
	if pic, _ := x.comp.Compile(1); pic.DNS.Records.Len() == 0 {
		t.Error("no names")
	} else {
		for k := range pic.DNS.Records.All() {
			if k.Service.Name == "a" {
				t.Error("a deleted service has a name")
			}
		}
	}
	deliver(x.rest, gone("b"), row(t, tables.LoadBalancers, service("after", 101), rev))
	deliver(x.rest, row(t, tables.LoadBalancers, service("before", 102), rev), gone("c"))
	has("with other services at their addresses", map[string]int{"a": 0, "after": 1, "before": 1, "d": 1})
	deliver(x.rest, gone("d"))
	e := x.added
	e.IPv4 = service("d", 103).Addrs[0]
	deliver(x.single, row(t, tables.Endpoints, e, rev))
	has("with an endpoint at its address", map[string]int{"a": 0, "after": 1, "before": 1})
	deliver(x.rest, row(t, tables.LoadBalancers, service("a", 104), rev))
	has("made again with another address", map[string]int{"a": 1, "after": 1, "before": 1})
	deliver(x.rest, gone("after"))
	agent := &countingAgent{}
	x.services.Agent = agent
	x.services.forgetClosed(time.Hour)
	has("soon after", map[string]int{"a": 1, "after": 0, "before": 1})
	x.services.forgetClosed(0)
	has("later", map[string]int{"a": 1, "before": 1})
	if agent.soon != 1 {
		t.Errorf("the agent is to apply %d times", agent.soon)
	}
	x.services.close(service("a", 0).Key, false)
	has("missing in a list", map[string]int{"before": 1})
}

// TestDeletedServiceOfKubernetesRefusesForAWhile: likewise, until the address is another
// service's.
func TestDeletedServiceOfKubernetesRefusesForAWhile(t *testing.T) {
	x := newManualState(t)
	key := model.NetworkKey{Tenant: model.DefaultTenant, Name: model.ClusterNetwork}
	x.comp.Interest.SetFollowed(key, true)
	x.comp.SetNetwork(model.Network{Key: key, Encap: model.EncapVXLAN, Tag: 5, ID: 5, Subnet: netip.MustParsePrefix("10.5.0.0/16")})
	global := x.mirrors.start(Scope{})
	global.ready = true
	service := func(name string) model.Service {
		return model.Service{
			Key: model.ClusterServiceKey{Namespace: "shop", Name: name}.ServiceKey(), Network: key,
			Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Ports: []model.ServicePort{{Protocol: model.ProtoTCP, Port: 80}},
			Balanced: []netip.Addr{netip.MustParseAddr("203.0.113.7")},
		}
	}
	enter := func(ch tables.Change) {
		x.mirrors.live = true
		defer func() { x.mirrors.live = false }()
		x.input.enter(global, ch)
	}
	change := func(name string, there bool) {
		ch := tables.Change{Key: tables.ClusterServices.KeyOf(service(name))}
		if there {
			ch.Value = service(name)
		}
		enter(ch)
	}
	has := func(when string, want map[string]bool) {
		t.Helper()
		pic, problems := x.comp.Compile(1)
		if pic.Services.Len() != len(want) {
			t.Errorf("%s: %d services, want %d; problems %v", when, pic.Services.Len(), len(want), problems)
		}
		for name, open := range want {
			s, there := pic.Services.Get(service(name).Key)
			if ports := slices.IndexFunc(s.Frontends, func(f desired.Frontend) bool { return f.Port != 0 }) >= 0; !there || ports != open || s.IPv4.IsValid() == open || len(s.Frontends) == 0 {
				t.Errorf("%s: %s is there: %v, %+v; want it open: %v", when, name, there, s, open)
			}
		}
	}
	change("web", true)
	has("at first", map[string]bool{"web": true})
	change("web", false)
	has("deleted", map[string]bool{"web": false})
	change("after", true)
	has("with another service at its address", map[string]bool{"after": true})
	change("after", false)
	has("that is deleted too", map[string]bool{"after": false})
	x.services.forgetClosed(0)
	has("later", map[string]bool{})

	// Another service gets one of two addresses: the other one still refuses.
	change("web", true)
	change("web", false)
	other := service("other")
	other.Addrs = []netip.Addr{netip.MustParseAddr("10.96.0.11")}
	enter(tables.Change{Key: tables.ClusterServices.KeyOf(other), Value: other})
	pic, _ := x.comp.Compile(1)
	web, _ := pic.Services.Get(service("web").Key)
	if left := x.services.closed[web.Key].addrs; web.IPv4 != service("").Addrs[0] || len(web.Frontends) > 0 || !slices.Equal(left, service("").Addrs) {
		t.Errorf("with another service at one address: %v are remembered, and the service is %+v", left, web)
	}
}
