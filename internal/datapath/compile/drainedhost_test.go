package compile

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestDrainedHostGetsNoNewConnections: providers on a host that drains get no new connections; others are
// not concerned, and who is unhealthy stays so.
func TestDrainedHostGetsNoNewConnections(t *testing.T) {
	c := New("h1")
	remote := cluster(c, 3)
	c.SetService(shop(1))
	there, ill, here := provides(remote(0), 1), provides(remote(1), 1), provides(remote(2), 1)
	ill.Host, ill.Unhealthy, here.Host = there.Host, true, "h1"
	c.SetEndpoint(there)
	c.SetEndpoint(ill)
	c.SetEndpoint(here)
	expect := func(when string, want desired.BackendState) {
		t.Helper()
		pic, _ := c.Compile(1)
		s, _ := pic.Services.Get(shop(1).Key)
		a, _ := s.Backends.Get(there.Key)
		b, _ := s.Backends.Get(ill.Key)
		o, _ := s.Backends.Get(here.Key)
		if a == nil || b == nil || o == nil || a.State != want || b.State != desired.BackendUnhealthy || o.State != desired.BackendActive {
			t.Errorf("%s: there %+v, want %v; ill %+v; here %+v", when, a, want, b, o)
		}
	}
	expect("at first", desired.BackendActive)
	c.Hosts.SetDrained(there.Host, true)
	expect("it drains", desired.BackendDraining)
	c.Hosts.SetDrained(there.Host, true)
	c.Hosts.SetDrained(there.Host, false)
	expect("it drains no more", desired.BackendActive)
	c.Hosts.SetDrained(there.Host, true)
	expect("it drains again", desired.BackendDraining)
	moved := there
	moved.Host = "h3"
	c.SetEndpoint(moved)
	expect("it is on another host", desired.BackendActive)
	c.Hosts.SetDrained("h3", true)
	expect("which drains", desired.BackendDraining)
	c.Hosts.SetDrained("h1", true)
	pic, _ := c.Compile(1)
	s, _ := pic.Services.Get(shop(1).Key)
	if b, _ := s.Backends.Get(here.Key); b.State != desired.BackendDraining {
		t.Errorf("this host drains, and its own provider is %v", b.State)
	}
}

// TestHostWithoutHeartbeatIsDrained: a host that is silent is set aside as one that drains, and neither
// word takes the other back.
func TestHostWithoutHeartbeatIsDrained(t *testing.T) {
	c := New("h1")
	remote := cluster(c, 1)
	c.SetService(shop(1))
	there := provides(remote(0), 1)
	c.SetEndpoint(there)
	for i, step := range []struct {
		silent, drains bool
		want           desired.BackendState
	}{
		{false, false, desired.BackendActive},
		{true, false, desired.BackendDraining},
		{true, true, desired.BackendDraining},
		{false, true, desired.BackendDraining},
		{true, true, desired.BackendDraining},
		{true, false, desired.BackendDraining},
		{false, false, desired.BackendActive},
	} {
		c.Hosts.SetUnhealthy(there.Host, step.silent)
		c.Hosts.SetDrained(there.Host, step.drains)
		pic, _ := c.Compile(1)
		s, _ := pic.Services.Get(shop(1).Key)
		if b, _ := s.Backends.Get(there.Key); b == nil || b.State != step.want {
			t.Errorf("step %d, %+v: %+v", i, step, b)
		}
	}
}
