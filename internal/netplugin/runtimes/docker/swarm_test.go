package docker

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestManagerNetworksFollowTheCluster: a manager's networks follow the cluster's; an engine that is no
// manager, or that takes the networks for its own, is reported.
func TestManagerNetworksFollowTheCluster(t *testing.T) {
	p, c, d := newEngineBed(t)
	d.scope = "swarm"
	s := &Swarm{name: "netplugin", engine: p.engine, source: c, log: slog.New(slog.DiscardHandler)}
	compare := func() error {
		t.Helper()
		problems := map[string]string{}
		err := s.compare(t.Context(), problems)
		if len(problems) > 0 {
			t.Errorf("problems: %v", problems)
		}
		return err
	}
	if err := compare(); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "docker swarm init") || len(d.nets) > 0 {
		t.Errorf("no manager: %v, networks %v", err, d.names())
	}
	d.manager = true
	for range 2 {
		if err := compare(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"lone_blue", "net1", "web"}, d.names()); diff != "" || d.made != 3 {
			t.Errorf("%d networks made (-want +got):\n%s", d.made, diff)
		}
		for _, n := range d.nets {
			if len(n.IPAM.Config) != 1 {
				t.Errorf("network %s has subnets %v, want that of IPv4", n.Name, n.IPAM.Config)
			}
		}
	}
	if got := swarmName(Ref{Network: model.NetworkKey{Tenant: "blue", Name: "a.b"}}); got != "a__b_blue" {
		t.Errorf("network a.b of tenant blue is %s", got)
	}
	delete(c.groups, model.GroupKey{Tenant: "default", Name: "web"})
	if err := compare(); err != nil || slices.Contains(d.names(), "web") {
		t.Errorf("%v, networks %v", err, d.names())
	}
	clear(d.nets)
	d.scope = "local"
	if err := compare(); err != nil {
		t.Fatal(err)
	}
	if err := compare(); err == nil || !strings.Contains(err.Error(), "restart the engine") || len(d.nets) > 0 {
		t.Errorf("local scope: %v, networks %v", err, d.names())
	}
	d.scope, s.wrongScope = "swarm", time.Now().Add(-scopeRetry)
	if err := compare(); err != nil || len(d.nets) != 2 {
		t.Errorf("%v, networks %v", err, d.names())
	}
}

// TestLastScopeIsRemembered: what the engine was told the last time is remembered.
func TestLastScopeIsRemembered(t *testing.T) {
	b := newBed(t)
	b.is("NetworkDriver.GetCapabilities", "", `{"Scope":"local","ConnectivityScope":"global"}`)
	b.stop()
	b.cfg.Global = true
	p, err := New(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.checkScope(); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "its networks are local, but --docker-scope is global now") {
		t.Errorf("mismatch: %v", err)
	}
	if _, err := p.socket.capabilities(t.Context(), empty{}); err != nil { // the engine was restarted
		t.Fatal(err)
	}
	if err := p.checkScope(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestManagerReservesForItsWorkers: a manager reserves for its workers, and a worker may ask for
// the address that is reserved; it is free after as many releases as requests.
func TestManagerReservesForItsWorkers(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Global = true })
	b.is("NetworkDriver.CreateNetwork", netOne, `{}`)
	request := `{"PoolID":"` + pool1 + `","Address":"10.1.1.1"}`
	b.is("IpamDriver.RequestAddress", `{"PoolID":"`+pool1+`"}`, `{"Address":"10.1.1.1/24","Data":{}}`) // manager
	b.is("IpamDriver.RequestAddress", request, `{"Address":"10.1.1.1/24","Data":{}}`)                  // worker
	b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e1","Interface":{"Address":"10.1.1.1/24"}}`, `{"Interface":{"MacAddress":"02:02:0a:01:01:01"}}`)
	b.is("NetworkDriver.DeleteEndpoint", `{"NetworkID":"n1","EndpointID":"e1"}`, `{}`)
	b.is("IpamDriver.RequestAddress", request, `{"Address":"10.1.1.1/24","Data":{}}`) // the next task
	b.is("IpamDriver.ReleaseAddress", request, `{}`)                                  // the last one
	if !b.c.reserved[b.c.next.Prev()] {
		t.Error("the release of a task's address took the next one's")
	}
	b.is("IpamDriver.ReleaseAddress", request, `{}`)
	if len(b.c.reserved) != 0 || len(b.c.AttachedBy(attach.SourceDocker)) != 0 {
		t.Errorf("left: %v", b.c.reserved)
	}
}
