//go:build integration

package bgp

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

var deaths = flag.Int("deaths", 2, "hosts that die in TestHostsWithProvidersAnnounceServices, one after the other")

const (
	serviceIP = "10.9.1.100"
	otherIP   = "50.1.1.3" // the second host's
)

// Hosts with providers of a service announce it, whatever their data plane, and without
// providers none does. A restart of netplugin loses nothing, not even packets of long
// streams to containers, and traffic avoids a host that dies, in one configuration.
func TestHostsWithProvidersAnnounceServices(t *testing.T) {
	h := newHosts(t, testcluster.DriverMixed, 2)
	// As docs/how-to/bgp.md has it.
	vtysh(t, "configure terminal", "bfd", "profile contiv", "receive-interval 250", "transmit-interval 250")
	vtysh(t, "configure terminal", "router bgp 500", "no neighbor 50.1.1.2 bfd", "neighbor 50.1.1.2 bfd profile contiv",
		"neighbor 50.1.1.3 remote-as 65002", "neighbor 50.1.1.3 bfd profile contiv", "neighbor 50.1.1.3 timers connect 1")
	if err := h.ns.Do(func() error { // by connection, not by address
		return os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0)
	}); err != nil {
		t.Fatal(err)
	}
	h.netctl("net create -t default -e vxlan -s 10.9.1.0/24 -g 10.9.1.254 shop",
		"bgp create --router-ip "+routerIP+"/24 --as 65002 --neighbor "+routerAddr+" --neighbor-as 500 h1",
		"bgp create --router-ip "+otherIP+"/24 --as 65002 --neighbor "+routerAddr+" --neighbor-as 500 h2",
		"service create -s shop -l of=shop -p 80:8080:TCP --affinity off --ip "+serviceIP+" shop")
	h.sessions()
	h.ways()
	end := func(s testcluster.ContainerSpec) {
		t.Helper()
		if err := h.DelContainer(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	one := h.provider("one", "h1")
	h.ways(routerIP)
	two := h.provider("two", "h2")
	h.ways(routerIP, otherIP)
	end(one)
	h.ways(otherIP)
	end(two) // the last one
	h.ways()
	h.provider("again", "h1")
	h.ways(routerIP)
	h.provider("too", "h2")
	h.ways(routerIP, otherIP)
	h.sessions()

	containers := map[string]netip.Addr{}
	for _, x := range h.Hosts() {
		name := "in-" + x.Name
		_, a := h.containerOn(name, x.Name)
		h.routes.wait(t, a.IPv4.String(), true)
		until(t, "egress of "+x.Name, func() (bool, string) {
			out, err := x.Run(t.Context(), "ip", "route", "get", beyond)
			return err == nil && strings.Contains(out, "via "+routerAddr), out
		})
		containers[name] = a.IPv4
	}
	stream, streamed := h.dial(), h.streams(containers)
	begun := time.Now()
	for _, x := range h.Hosts() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*deadline)
		killed := time.Now()
		err := x.RestartAgent(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: netplugin killed %s after the streams' begin, and ready at %s", x.Name, killed.Sub(begun), time.Since(begun))
	}
	h.sessions()
	t.Logf("sessions were back at %s", time.Since(begun))
	d := stream()
	t.Logf("two netplugins restarted: %d connections begun, %d failed", d.n, d.failed)
	if d.failed > 0 {
		t.Errorf("%d of %d connections failed while netplugins restarted", d.failed, d.n)
	}
	streamed()
	for _, addr := range append(slices.Collect(maps.Values(containers)), netip.MustParseAddr(serviceIP)) {
		if at := h.routes.went(addr.String()); at.After(d.begin) {
			t.Errorf("FRR lost the route to %s at %s", addr, at)
		}
	}

	var moved, failed []time.Duration
	for i := range *deaths {
		dead, lives := 1+i%2, otherIP
		if dead == 2 {
			lives = routerIP
		}
		stream := h.dial()
		died := time.Now()
		h.ip(h.Fabric.Name, fmt.Sprintf("link set h%dv nomaster", dead), fmt.Sprintf("link set h%d nomaster", dead))
		h.ways(lives)
		moved = append(moved, time.Since(died))
		after, end := h.dial(), time.Now()
		until(t, "connections to the host that lives", func() (bool, string) { return time.Since(end) > time.Second, "" })
		if a := after(); a.failed > 0 {
			t.Errorf("death %d: %d of %d connections failed after the router knew of it", i, a.failed, a.n)
		}
		failed = append(failed, max(0, stream().last.Sub(died)))
		h.ip(h.Fabric.Name, fmt.Sprintf("link set h%dv master trunk", dead), fmt.Sprintf("link set h%d master underlay", dead))
		h.sessions()
		h.ways(routerIP, otherIP)
	}
	slices.Sort(moved)
	slices.Sort(failed)
	t.Logf("%d hosts died: until FRR had no way there median %s, most %s; the last connection that failed began after %s, at most %s",
		len(moved), moved[len(moved)/2], moved[len(moved)-1], failed[len(failed)/2], failed[len(failed)-1])
	if most := failed[len(failed)-1]; *strict && most > time.Second {
		t.Errorf("a connection that began %s after a death failed, want none after 1s", most)
	}
}

func (h *host) provider(name, host string) testcluster.ContainerSpec {
	h.Helper()
	s := testcluster.ContainerSpec{Name: name, Host: host, Tenant: "default", Network: "shop", Labels: map[string]string{"of": "shop"}}
	if _, err := h.AddContainer(h.Context(), s); err != nil {
		h.Fatal(err)
	}
	if _, err := h.Serve(name, "tcp/8080"); err != nil {
		h.Fatal(err)
	}
	return s
}

// ways waits until the router's to the service are by these hosts.
func (h *host) ways(want ...string) {
	h.Helper()
	until(h.T, fmt.Sprintf("ways to the service by %v", want), func() (bool, string) {
		out := run(h.T, "ip", "-n", h.ns.Name, "route", "show", serviceIP)
		for _, hop := range []string{routerIP, otherIP} {
			if strings.Contains(out+" ", "via "+hop+" ") != slices.Contains(want, hop) {
				return false, out + h.netctl("bgp inspect h1") + h.netctl("bgp inspect h2")
			}
		}
		return true, ""
	})
}

// sessions waits until FRR has a session and BFD with both hosts: of one whose session has
// not come back yet it keeps the routes for the restart time, whether it lives or not.
func (h *host) sessions() {
	h.Helper()
	until(h.T, "two sessions and BFD", func() (bool, string) {
		out := vtysh(h.T, "show bgp neighbors")
		return strings.Count(out, "BGP state = Established") == 2 && strings.Count(out, "Status: Up") == 2, out
	})
}

// dialed is what became of connections.
type dialed struct {
	n, failed   int
	begin, last time.Time // last: when the last that failed began
}

// dial connects to the service from the router, each 20 ms, until it is ended. A connection
// whose first packet is lost has failed: TCP would send it again after a second.
func (h *host) dial() (end func() dialed) {
	ctx, cancel := context.WithCancel(h.Context())
	d := dialed{begin: time.Now()}
	var mu sync.Mutex // over d
	var running sync.WaitGroup
	one := func() {
		begin := time.Now()
		short, stop := context.WithTimeout(h.Context(), 900*time.Millisecond)
		defer stop()
		c, err := h.ns.Dial(short, "tcp", netip.AddrPortFrom(netip.MustParseAddr(serviceIP), 80).String())
		mu.Lock()
		defer mu.Unlock()
		if d.n++; err == nil {
			_ = c.Close() // nothing was written
			return
		}
		d.failed++
		if begin.After(d.last) {
			d.last = begin
		}
	}
	running.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				running.Go(one)
			}
		}
	})
	return func() dialed {
		cancel()
		running.Wait()
		return d
	}
}
