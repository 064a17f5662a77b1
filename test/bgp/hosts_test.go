//go:build integration

package bgp

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

var (
	births = flag.Int("births", 20, "containers whose routes' times TestRoutesOfHostsLiveThroughARestart measures")
	strict = flag.Bool("strict", false, "TestRoutesOfHostsLiveThroughARestart fails above 100 ms until routers have a route (99th percentile), TestHostsWithProvidersAnnounceServices above 1 s until a death has moved traffic: on a quiet machine")
)

const (
	routerAddr = "50.1.1.200"
	routerIP   = "50.1.1.2"
	beyond     = "10.50.0.1" // behind the router
)

// routerConfig is FRR's: IPv4 by an IPv4 session and IPv6 by one of its own, where BIRD
// has both by one.
const routerConfig = `frr defaults traditional
log stdout warnings
router bgp 500
 bgp router-id 50.1.1.200
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 50.1.1.2 remote-as 65002
 neighbor 50.1.1.2 bfd 3 1000 1000
 neighbor 50.1.1.2 timers connect 1
 neighbor fd50::2 remote-as 65002
 neighbor fd50::2 timers connect 1
 address-family ipv4 unicast
  network 10.50.0.0/16
  no neighbor fd50::2 activate
 exit-address-family
 address-family ipv6 unicast
  network fd60::/32
  neighbor fd50::2 activate
 exit-address-family
`

// host is a lab with one netplugin, and FRR untagged on its uplink.
type host struct {
	*testing.T
	*testcluster.Lab
	ns     *testcluster.Namespace // FRR's
	routes *routes
}

func newHost(t *testing.T, driver string) *host {
	t.Helper()
	return newHosts(t, driver, 1)
}

func newHosts(t *testing.T, driver string, hosts int) *host {
	t.Helper()
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	bin := os.Getenv("CONTIV_TEST_BIN") // the programs, if they are built already
	if bin == "" {
		bin = t.TempDir()
		if err := testcluster.Build(ctx, ".", bin); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testcluster.Config{Name: "bgp", Dir: t.TempDir(), BinDir: bin, Hosts: hosts, Driver: driver, Embedded: true}
	if missing := cfg.Missing(); len(missing) > 0 {
		t.Skip(missing[0])
	}
	l, err := testcluster.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	h := &host{T: t, Lab: l}
	if h.ns, err = l.AddNamespace("router"); err != nil {
		t.Fatal(err)
	}
	name := h.ns.Name
	h.ip(l.Fabric.Name, "link add router0 type veth peer name lan0 netns "+name, "link set router0 master trunk up")
	h.ip(name, "link set lo up", "addr add "+beyond+"/32 dev lo", "addr add "+routerAddr+"/24 dev lan0", "addr add fd50::200/64 dev lan0 nodad", "link set lan0 up")
	frrIn(t, name, routerConfig, routerIP)
	h.routes = follow(t, name)
	h.netctl("global set --fwd-mode routing", "tenant create blue", "net create -t blue -e vlan -p 100 -s 10.1.1.0/24 -g 10.1.1.254 -s6 fd01::/64 -g6 fd01::1 net", "group create -t blue net web")
	return h
}

const birdNeighbor = `
protocol bgp %s {
  local as 501;
  neighbor %s as 65002;
  connect retry time 1;
  error wait time 1, 2;
  ipv4 { import all; export where source = RTS_STATIC; next hop self; };
  ipv6 { import all; export where source = RTS_STATIC; next hop address fd50::201; };
}
`

const birdRouter = `router id 50.1.1.201;
protocol device { }
protocol direct { interface "lan0"; ipv4; ipv6; }
protocol kernel { ipv4 { export all; }; }
protocol kernel { ipv6 { export all; }; }
protocol static { ipv6; route fd60::/32 blackhole; }
`

// addBIRD puts BIRD beside FRR on the uplinks, as 50.1.1.201 and fd50::201 of AS 501.
func (h *host) addBIRD(config string) (routes *routes, configure func(string)) {
	h.Helper()
	ns, err := h.AddNamespace("bird")
	if err != nil {
		h.Fatal(err)
	}
	h.ip(h.Fabric.Name, "link add bird0 type veth peer name lan0 netns "+ns.Name, "link set bird0 master trunk up")
	h.ip(ns.Name, "link set lo up", "addr add 50.1.1.201/24 dev lan0", "addr add fd50::201/64 dev lan0 nodad", "link set lan0 up")
	configure = birdIn(h.T, ns.Name, config)
	return follow(h.T, ns.Name), configure
}

func (h *host) ip(ns string, lines ...string) {
	h.Helper()
	for _, line := range lines {
		run(h.T, "ip", append([]string{"-n", ns}, strings.Fields(line)...)...)
	}
}

func (h *host) netctl(lines ...string) (out string) {
	h.Helper()
	for _, line := range lines {
		var err error
		if out, err = h.Masters.Netctl(h.Context(), strings.Fields(line)...); err != nil {
			h.Fatalf("netctl %s: %v: %s", line, err, out)
		}
	}
	return out
}

func (h *host) container(name string) (testcluster.ContainerSpec, *testcluster.Attachment) {
	h.Helper()
	return h.containerOn(name, "h1")
}

func (h *host) containerOn(name, host string) (testcluster.ContainerSpec, *testcluster.Attachment) {
	h.Helper()
	s := testcluster.ContainerSpec{Name: name, Host: host, Tenant: "blue", Network: "net", Group: "web"}
	a, err := h.AddContainer(h.Context(), s)
	if err != nil {
		h.Fatal(err)
	}
	return s, a
}

// caller is the address that a server beyond the router sees of a container.
func (h *host) caller(container string) netip.Addr {
	h.Helper()
	var l net.Listener
	if err := h.ns.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(h.Context(), "tcp", beyond+":0")
		return err
	}); err != nil {
		h.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it is not used any more
	space, err := h.Space(container)
	if err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(h.Context(), deadline)
	defer cancel()
	c, err := space.Dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		h.Fatalf("%s does not reach the router's network: %v", container, err)
	}
	defer func() { _ = c.Close() }() // nothing was written
	other, err := l.Accept()
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = other.Close() }() // nothing was written
	return netip.MustParseAddrPort(other.RemoteAddr().String()).Addr()
}

// A real netplugin tells FRR of its containers, follows its routes, and traffic between
// them lives through its restart.
func TestRoutesOfHostsLiveThroughARestart(t *testing.T) {
	for _, driver := range []string{testcluster.DriverEBPF, testcluster.DriverOVS} {
		t.Run(driver, func(t *testing.T) { testHost(t, driver) })
	}
}

func testHost(t *testing.T, driver string) {
	t.Helper()
	h := newHost(t, driver)
	inBIRD, configure := h.addBIRD(birdRouter + fmt.Sprintf(birdNeighbor, "h1", routerIP))
	one := h.Hosts()[0]
	if out, err := one.Run(t.Context(), "sysctl", "-w", "net.ipv6.conf.eth1.disable_ipv6=0"); err != nil { // the lab has none
		t.Fatal(err, out)
	}
	_, first := h.container("first")
	h.netctl("bgp create --router-ip " + routerIP + "/24 --router-ip6 fd50::2/64 --as 65002 --neighbor " + routerAddr + " --neighbor-as 500 --neighbors 50.1.1.201@501,fd50::200@500 h1")
	known := func(there bool) {
		t.Helper()
		for _, a := range []netip.Addr{first.IPv4, first.IPv6} {
			h.routes.wait(t, a.String(), there)
			inBIRD.wait(t, a.String(), there)
		}
	}
	known(true)
	followed := func(family string, want ...string) {
		t.Helper()
		until(t, fmt.Sprintf("learned routes %v", want), func() (bool, string) {
			out, err := one.Run(t.Context(), "ip", family, "route", "show", "proto", "198")
			words := strings.Join(strings.Fields(out), " ")
			for _, w := range want {
				err = errors.Join(err, within(words, w))
			}
			return err == nil, out + h.netctl("bgp inspect h1")
		})
	}
	followed("-4", "10.50.0.0/16 via "+routerAddr)
	followed("-6", "fd60::/32 metric 20", "nexthop via fd50::200", "nexthop via fd50::201")
	if from := h.caller("first"); from != first.IPv4 {
		t.Errorf("the router's network sees %s, want the container's own %s", from, first.IPv4)
	}

	// Of two routers with one prefix both are ways.
	static := "protocol static { ipv4; route 10.50.0.0/16 blackhole; route 10.60.0.0/16 blackhole; }\n"
	configure(birdRouter + static + fmt.Sprintf(birdNeighbor, "h1", routerIP))
	followed("-4", "10.60.0.0/16 via 50.1.1.201", "10.50.0.0/16 metric 20 nexthop via "+routerAddr, "nexthop via 50.1.1.201")
	configure(strings.ReplaceAll(birdRouter, "fd60::", "fd70::") + fmt.Sprintf(birdNeighbor, "h1", routerIP))
	followed("-4", "10.50.0.0/16 via "+routerAddr)
	followed("-6", "fd60::/32 via fd50::200", "fd70::/32 via fd50::201")

	var came, cameBIRD, went, wentBIRD []time.Duration
	for i := range *births {
		s, a := h.container(fmt.Sprintf("c%d", i))
		done := time.Now()
		came = append(came, max(0, h.routes.wait(t, a.IPv4.String(), true).Sub(done)))
		cameBIRD = append(cameBIRD, max(0, inBIRD.wait(t, a.IPv4.String(), true).Sub(done)))
		if err := h.DelContainer(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		done = time.Now()
		went = append(went, max(0, h.routes.wait(t, a.IPv4.String(), false).Sub(done)))
		wentBIRD = append(wentBIRD, max(0, inBIRD.wait(t, a.IPv4.String(), false).Sub(done)))
		if took := max(came[i], cameBIRD[i], went[i], wentBIRD[i]); took > time.Second {
			t.Logf("container %d: %s: %s%s", i, took, vtysh(t, "show bgp summary", "show bfd peers counters"), h.netctl("bgp inspect h1"))
		}
	}
	t.Logf("from CNI's answer until the router's kernel had a container's route, or had it no more, of %d containers; %s", *births, load())
	for _, x := range []struct {
		what string
		took []time.Duration
		held bool
	}{{"FRR, start", came, true}, {"BIRD, start", cameBIRD, true}, {"FRR, end", went, false}, {"BIRD, end", wentBIRD, false}} {
		slices.Sort(x.took)
		n := len(x.took)
		p99 := x.took[(n*99+99)/100-1]
		t.Logf("%s: median %s, 99th percentile %s, most %s", x.what, x.took[n/2], p99, x.took[n-1])
		if *strict && x.held && p99 > 100*time.Millisecond {
			t.Errorf("%s: 99th percentile %s, want 100ms at most", x.what, p99)
		}
	}

	space, err := h.Space("first")
	if err != nil {
		t.Fatal(err)
	}
	pinged := time.Now()
	in, errIn := h.ns.StartPing(first.IPv4, 20*time.Millisecond)
	out, errOut := space.StartPing(netip.MustParseAddr(beyond), 20*time.Millisecond)
	if errIn != nil || errOut != nil {
		t.Fatal(errIn, errOut)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*deadline)
	defer cancel()
	if err := one.RestartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	_, after := h.container("after")
	h.routes.wait(t, after.IPv4.String(), true)
	inBIRD.wait(t, after.IPv4.String(), true)
	for what, p := range map[string]*testcluster.Pinger{"in": in, "out": out} {
		err := p.Stop()
		if stats := p.Between(pinged, time.Now()); err != nil || stats.Lost() > 0 || stats.Sent < 10 {
			t.Errorf("pings %s during a restart: %s: %v", what, stats, err)
		}
	}
	if at := h.routes.went(first.IPv4.String()); !at.IsZero() {
		t.Errorf("FRR lost the route at %s", at)
	}
	if at := inBIRD.went(first.IPv4.String()); !at.IsZero() {
		t.Errorf("BIRD lost the route at %s", at)
	}

	h.netctl("bgp rm h1")
	known(false)
	until(t, "nothing of BGP", func() (bool, string) {
		out, err := one.Run(t.Context(), "ip", "addr")
		return err == nil && !strings.Contains(out, routerIP) && !strings.Contains(out, "contivr0"), out
	})
}

// load is what the machine did meanwhile, in words.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d CPUs, load average %s", runtime.NumCPU(), strings.Fields(string(b))[0])
}

// within is an error unless a text has a part.
func within(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("no %q", part)
	}
	return nil
}
