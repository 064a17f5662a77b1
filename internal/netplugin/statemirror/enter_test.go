package statemirror

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestOwnEndpointsAreUrgent: endpoints of other hosts can wait for the others of their burst;
// those of this host, and everything that decides who may talk to whom, cannot.
func TestOwnEndpointsAreUrgent(t *testing.T) {
	c := newCluster(t, nil)
	network := model.NetworkKey{Tenant: "blue", Name: "n"}
	key := func(id model.EndpointID) model.EndpointKey { return model.EndpointKey{Network: network, ID: id} }
	endpoint := func(id model.EndpointID, host model.HostName) tables.Change {
		return tables.Change{Key: key(id), Value: model.Endpoint{Key: key(id), Host: host, IPv4: netip.MustParseAddr("10.0.0.1"), MAC: model.MAC{2}}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirrors.start(TenantScope("blue"))
	m := c.mirrors.start(EndpointsScope(network))
	c.Endpoints.hidden[key("hidden")] = c.Guard.since
	for _, test := range []struct {
		name   string
		change tables.Change
		want   urgency
	}{
		{"of another host", endpoint("a", "h2"), whenQuiet},
		{"changed there", endpoint("a", "h3"), whenQuiet},
		{"moved here", endpoint("a", "h1"), atOnce},
		{"moved away", endpoint("a", "h2"), atOnce},
		{"deleted there", tables.Change{Key: key("a")}, whenQuiet},
		{"of this host", endpoint("b", "h1"), atOnce},
		{"deleted here", tables.Change{Key: key("b")}, atOnce},
		{"of this host, not plumbed yet", endpoint("hidden", "h1"), irrelevant},
		{"a rule", tables.Change{Key: model.RuleKey{Tenant: "blue", Policy: "p", Rule: "1"}}, atOnce},
		{"a network", tables.Change{Key: network}, atOnce},
		{"another host is away", tables.Change{Key: tables.AwayTimeKey{Host: "h2"}, Value: tables.AwayTime{Host: "h2"}}, irrelevant},
		{"another host drains", tables.Change{Key: tables.HostDrainKey{Host: "h2"}, Value: tables.HostDrain{Host: "h2"}}, atOnce},
		{"a tenant", tables.Change{Key: model.TenantName("blue")}, irrelevant},
	} {
		if got := c.input.enter(m, test.change); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// TestDrainedHostsReachServices: what the store says of a host that drains reaches the services that
// its endpoints provide, and so does that nothing is heard of it.
func TestDrainedHostsReachServices(t *testing.T) {
	c := newCluster(t, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.mirrors.start(TenantScope("blue"))
	c.comp.Interest.SetFollowed(model.NetworkKey{Tenant: "blue", Name: "n"}, true)
	network := model.Network{Key: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: 7, Encap: model.EncapVXLAN, Subnet: netip.MustParsePrefix("10.1.1.0/24")}
	service := model.Service{
		Key: model.ServiceKey{Tenant: "blue", Name: "s"}, Network: network.Key, Addrs: []netip.Addr{netip.MustParseAddr("10.1.1.9")},
		Selectors: []model.ServiceSelector{{Key: "app", Value: "x"}}, Ports: []model.ServicePort{{Port: 80, Target: 80, Protocol: model.ProtoTCP}},
	}
	state := func(change tables.Change) desired.BackendState {
		t.Helper()
		c.input.enter(m, change)
		pic, _ := c.comp.Compile(1)
		s, ok := pic.Services.Get(service.Key)
		if !ok {
			t.Fatal("the service is not in the desired state")
		}
		b, ok := s.Backends.Get(model.EndpointKey{Network: network.Key, ID: "there"})
		if !ok {
			t.Fatal("it has no provider")
		}
		return b.State
	}
	c.input.enter(m, tables.Change{Key: network.Key, Value: network})
	for i, host := range []model.HostName{"h1", "h2"} {
		k := model.EndpointKey{Network: network.Key, ID: []model.EndpointID{"here", "there"}[i]}
		e := model.Endpoint{Key: k, Host: host, IPv4: netip.AddrFrom4([4]byte{10, 1, 1, byte(i + 1)}), MAC: model.MAC{2, byte(i + 1)}, Labels: map[string]string{"app": "x"}}
		c.input.enter(m, tables.Change{Key: k, Value: e})
		h := model.Host{Name: host, VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})}
		c.input.enter(m, tables.Change{Key: host, Value: h})
	}
	if got := state(tables.Change{Key: service.Key, Value: service}); got != desired.BackendActive {
		t.Errorf("at first: %v", got)
	}
	drain := tables.Change{Key: tables.HostDrainKey{Host: "h2"}, Value: tables.HostDrain{Host: "h2"}}
	if got := state(drain); got != desired.BackendDraining {
		t.Errorf("its host drains: %v", got)
	}
	drain.Value = nil
	if got := state(drain); got != desired.BackendActive {
		t.Errorf("its host drains no more: %v", got)
	}
	kicked := &kickCounter{}
	c.Agent = kicked
	for silent, want := range map[bool]desired.BackendState{true: desired.BackendDraining, false: desired.BackendActive} {
		c.mu.Unlock()
		c.HostInput.SetUnreachable("h2", silent)
		c.mu.Lock()
		if got := state(tables.Change{Key: service.Key, Value: service}); got != want {
			t.Errorf("its host is silent: %v, and it is %v", silent, got)
		}
	}
	if kicked.kicks != 2 {
		t.Errorf("%d passes were asked for, want 2", kicked.kicks)
	}
}

// kickCounter counts the syncs that are requested.
type kickCounter struct {
	fakeAgent
	kicks int
}

func (k *kickCounter) Kick(string) { k.kicks++ }
