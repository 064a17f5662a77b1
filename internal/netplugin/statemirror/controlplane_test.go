package statemirror

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestControlPlaneAddressesAreFollowed: what containers are kept from follows the registry,
// the hosts' records and the store's members; an address that is named no more
// is kept for a while; nothing is programmed before all has been heard.
func TestControlPlaneAddressesAreFollowed(t *testing.T) {
	st := memory.New()
	c := newCluster(t, st)
	p := NewControlPlane(c, ControlConfig{
		Netmasters: "http://127.0.0.1:9998, 198.51.100.5",
		Listening:  func() []string { return []string{"127.0.0.1:9006", "127.0.0.1:6060"} },
		Addresses: func(context.Context) ([]string, error) {
			return []string{"198.51.100.6:2380", "localhost:2379", "198.51.100.6:2379"}, errors.New("not all are known")
		},
	})
	if p.Known() {
		t.Error("all is known before anybody has said anything")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	register := func(name, hostname, addr string, port int) *cluster.Registration {
		t.Helper()
		r, err := cluster.Register(t.Context(), st, cluster.Service{ServiceName: name, HostAddr: addr, Port: port, Hostname: hostname}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	have := func(what string, ports []uint16, targets ...string) {
		t.Helper()
		deadline := time.After(time.Minute)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			k, machines := p.Want(true)
			missing := ""
			for _, port := range ports {
				if !slices.Contains(k.Ports, port) {
					missing = "port"
				}
			}
			for _, x := range targets {
				at := netip.MustParseAddrPort(x)
				if _, known := slices.BinarySearchFunc(machines, at.Addr(), netip.Addr.Compare); !known || !slices.Contains(k.Targets, at) {
					missing = x
				}
			}
			if missing == "" {
				return
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s: %s is missing in %+v", what, missing, k)
			}
		}
	}
	have("flags and store", []uint16{9998, 2379, 6060}, "198.51.100.5:80", "198.51.100.6:2379", "198.51.100.6:2380")
	select {
	case <-p.ready:
	case <-time.After(time.Minute):
		t.Fatal("not all sources are heard")
	}

	one := register("netmaster", "m1", "198.51.100.1", 9999)
	register("netmaster.rpc", "m1", "198.51.100.1", 9001)
	have("registry", nil, "198.51.100.1:9999", "198.51.100.1:9001")
	// A machine with more addresses, on which the store is as well.
	register(cluster.ListenService, "m6", "198.51.100.66", 9999)
	register(cluster.ListenService, "m6", "198.51.100.6", 9999)
	register(cluster.ListenService, "m6", "2001:db8::6", 9999)
	have("machines", nil, "198.51.100.66:9999", "198.51.100.66:2379", "[2001:db8::6]:2380")

	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	register("netmaster", "m2", "198.51.100.2", 9999)
	have("one has gone, another come", nil, "198.51.100.1:9999", "198.51.100.2:9999")
	p.mu.Lock()
	for ap := range p.previous {
		p.previous[ap] = time.Now().Add(-2 * controlGrace)
	}
	p.mu.Unlock()
	if k, _ := p.Want(true); slices.Contains(k.Targets, netip.MustParseAddrPort("198.51.100.1:9999")) {
		t.Errorf("what is gone for long is still kept: %v", k.Targets)
	}

	// What another host reports is never a port of this one.
	registry := []cluster.Service{
		{ServiceName: cluster.ListenService, Role: "netplugin", HostAddr: "127.0.0.1", Port: 8080, Hostname: "h3"},
		{ServiceName: cluster.ListenService, Role: "netplugin", HostAddr: "198.51.100.3", Port: 8081, Hostname: "h3"},
	}
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		for _, s := range registry {
			if err := s.Put(tx, nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.Hosts.hosts["h3"] = model.Host{Name: "h3", Control: netip.MustParseAddr("127.0.0.1"), VTEP: netip.MustParseAddr("198.51.100.3")}
	c.Hosts.version++
	c.mu.Unlock()
	have("another host", nil, "198.51.100.3:8081")
	if k, _ := p.Want(true); slices.Contains(k.Ports, 8080) || slices.Contains(k.Ports, 8081) {
		t.Errorf("another host's ports count as this one's: %v", k.Ports)
	}

	c.mu.Lock()
	c.Hosts.hosts["h2"] = model.Host{Name: "h2", Control: netip.MustParseAddr("198.51.100.2"), VTEP: netip.MustParseAddr("203.0.113.2")}
	c.Hosts.version++
	c.mu.Unlock()
	have("a host that is a netmaster's machine", nil, "203.0.113.2:9999", "203.0.113.2:9006", "198.51.100.2:9006")
}

// TestHostProtectsItsOwnAddresses: a host keeps its containers from all of its own
// addresses by itself: netmasters enter only those of it that are enrolled.
func TestHostProtectsItsOwnAddresses(t *testing.T) {
	listens := []string{"0.0.0.0:7777"}
	own := cluster.Reachable(listens)
	if len(own) == 0 {
		t.Skip("this machine has no address but its loopback's")
	}
	p := NewControlPlane(newCluster(t, memory.New()), ControlConfig{Listening: func() []string { return listens }})
	k, _ := p.Want(true)
	for _, ap := range own {
		if !slices.Contains(k.Targets, ap) || !slices.Contains(p.denied.denied, ap) {
			t.Errorf("containers reach %s: targets %v, past the host %v", ap, k.Targets, p.denied.denied)
		}
	}
}
