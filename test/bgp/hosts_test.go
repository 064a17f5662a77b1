//go:build integration

package bgp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

const (
	routerAddr = "50.1.1.200"
	routerIP   = "50.1.1.2"
)

const routerConfig = `frr defaults traditional
log stdout warnings
router bgp 500
 bgp router-id 50.1.1.200
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 50.1.1.2 remote-as 65002
 neighbor 50.1.1.2 bfd 3 1000 1000
 neighbor 50.1.1.2 timers connect 1
 address-family ipv4 unicast
  network 10.50.0.0/16
 exit-address-family
`

// host is a lab with one netplugin, and FRR untagged on its uplink.
type host struct {
	*testing.T
	*lab.Lab
	ns     *lab.Namespace // FRR's
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
	bin := t.TempDir()
	if err := lab.Build(ctx, ".", bin); err != nil {
		t.Fatal(err)
	}
	cfg := lab.Config{Name: "bgp", Dir: t.TempDir(), BinDir: bin, Hosts: hosts, Driver: driver, Embedded: true}
	if missing := cfg.Missing(); len(missing) > 0 {
		t.Skip(missing[0])
	}
	l, err := lab.Up(ctx, cfg)
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
	h.ip(name, "link set lo up", "addr add 10.50.0.1/32 dev lo", "addr add "+routerAddr+"/24 dev lan0", "link set lan0 up")
	frrIn(t, name, routerConfig, routerIP)
	h.routes = follow(t, name)
	h.netctl("global set --fwd-mode routing", "tenant create blue", "net create -t blue -e vlan -p 100 -s 10.1.1.0/24 -g 10.1.1.254 net", "group create -t blue net web")
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
		if out, err = h.Netctl(h.Context(), strings.Fields(line)...); err != nil {
			h.Fatalf("netctl %s: %v: %s", line, err, out)
		}
	}
	return out
}

func (h *host) container(name string) (lab.ContainerSpec, *lab.Attachment) {
	h.Helper()
	s := lab.ContainerSpec{Name: name, Host: "h1", Tenant: "blue", Network: "net", Group: "web"}
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
		l, err = (&net.ListenConfig{}).Listen(h.Context(), "tcp", "10.50.0.1:0")
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
func TestHosts(t *testing.T) {
	for _, driver := range []string{lab.DriverEBPF, lab.DriverOVS} {
		t.Run(driver, func(t *testing.T) { testHost(t, driver) })
	}
}

func testHost(t *testing.T, driver string) {
	t.Helper()
	h := newHost(t, driver)
	_, first := h.container("first")
	h.netctl("bgp create --router-ip " + routerIP + "/24 --as 65002 --neighbor " + routerAddr + " --neighbor-as 500 h1")
	h.routes.wait(t, first.IPv4.String(), true)
	one := h.Hosts()[0]
	until(t, "the learned route", func() (bool, string) {
		out, err := one.Run(t.Context(), "ip", "route", "show", "proto", "198")
		return err == nil && strings.Contains(out, "10.50.0.0/16 via "+routerAddr), out + h.netctl("bgp inspect h1")
	})
	if from := h.caller("first"); from != first.IPv4 {
		t.Errorf("the router's network sees %s, want the container's own %s", from, first.IPv4)
	}

	var took []time.Duration
	var last lab.ContainerSpec
	var lastAt netip.Addr
	for i := range 20 {
		s, a := h.container(fmt.Sprintf("c%d", i))
		done := time.Now()
		took = append(took, max(0, h.routes.wait(t, a.IPv4.String(), true).Sub(done)))
		last, lastAt = s, a.IPv4
	}
	slices.Sort(took)
	t.Logf("from a container's start until FRR had its route: median %s, most of 20 %s", took[10], took[19])
	begin := time.Now()
	if err := h.DelContainer(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	t.Logf("from the begin of a container's end until FRR had no route: %s", h.routes.wait(t, lastAt.String(), false).Sub(begin))

	space, err := h.Space("first")
	if err != nil {
		t.Fatal(err)
	}
	pinged := time.Now()
	in, errIn := h.ns.StartPing(first.IPv4, 20*time.Millisecond)
	out, errOut := space.StartPing(netip.MustParseAddr("10.50.0.1"), 20*time.Millisecond)
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
	for what, p := range map[string]*lab.Pinger{"in": in, "out": out} {
		err := p.Stop()
		if stats := p.Between(pinged, time.Now()); err != nil || stats.Lost() > 0 || stats.Sent < 10 {
			t.Errorf("pings %s during a restart: %s: %v", what, stats, err)
		}
	}
	if at := h.routes.went(first.IPv4.String()); !at.IsZero() {
		t.Errorf("FRR lost the route at %s", at)
	}

	h.netctl("bgp rm h1")
	h.routes.wait(t, first.IPv4.String(), false)
	until(t, "nothing of BGP", func() (bool, string) {
		out, err := one.Run(t.Context(), "ip", "addr")
		return err == nil && !strings.Contains(out, routerIP) && !strings.Contains(out, "contivr0"), out
	})
}
