//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// routedNames are the containers of TestTenantsNetworksAreRoutedTogether, the same in both tenants: on each
// host one of each network.
var routedNames = []string{"a1", "a2", "b1", "b2", "v1", "v2"}

// TestTenantsNetworksAreRoutedTogether joins two tenants of equal subnets, each of two VXLAN networks, with and
// without a gateway, and a VLAN network, over two hosts, while containers run. It checks
// who reaches whom before and after, what the switch costs existing connections, policy by
// a group of another network, the error for a packet without hops left, and a restart of
// netplugin under routed traffic.
func TestTenantsNetworksAreRoutedTogether(t *testing.T) {
	on(t, 1, []string{testcluster.DriverMixed, testcluster.DriverEBPF, testcluster.DriverOVS}, anywhere(routing))
}

func routing(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "route", 2, in(where))
	var specs []testcluster.ContainerSpec
	for _, tenant := range []string{"blue", "red"} {
		c.netctl("tenant create "+tenant,
			"network create -t "+tenant+" -e vxlan -s 10.1.1.0/24 -g 10.1.1.254 --subnetv6 fd00:1::/64 --gatewayv6 fd00:1::fe a",
			"network create -t "+tenant+" -e vxlan -s 10.1.2.0/24 --subnetv6 fd00:2::/64 b",
			"network create -t "+tenant+" -e vlan -s 10.1.3.0/24 -g 10.1.3.254 --subnetv6 fd00:3::/64 --gatewayv6 fd00:3::fe v",
			"group create -t "+tenant+" a ga", "group create -t "+tenant+" b gb", "group create -t "+tenant+" v gv")
		for _, name := range routedNames {
			network := name[:1]
			s := spec(tenant+"-"+name, "h"+name[1:], tenant+"/"+network+"/g"+network)
			s.Listen = []string{"tcp/80"}
			specs = append(specs, s)
		}
	}
	c.netctl("global set --fwd-mode routing")
	c.add(specs...)

	// Switched under traffic within a network, and between two.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	within, across := c.ping("blue-a1", "blue-a2"), c.ping("blue-a1", "blue-b2")
	out, in, err := c.connect(ctx, "blue-a1", "blue-a2", "4")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer in.Close()
	c.reach("in mode routing", true)
	switches := map[string]time.Time{}
	switched := func(mode string, reached testcluster.Verdict) {
		t.Helper()
		start := time.Now()
		switches[mode] = start
		c.netctl("global set --fwd-mode " + mode)
		c.wants("blue-a1 blue-b2 tcp/80", reached)
		c.wants("blue-b2 blue-v1 tcp/80", reached)
		took := time.Since(start)
		if err := carries(out, in); err != nil {
			t.Errorf("a connection within a network, which was there before mode %s: %v", mode, err)
		}
		t.Logf("to mode %s: seen after %v", mode, took.Round(time.Millisecond))
	}
	switched("bridge", testcluster.Denied)
	c.reach("in mode bridge", false)
	switched("routing", testcluster.OK)
	c.reach("in mode routing again", true)

	// One hop too few.
	for _, hop := range []struct{ from, to, router string }{
		{"blue-a1", "blue-b2", "10.1.1.254"},
		{"blue-b1", "blue-a1", desired.RouterAddr.String()},
		{"blue-v2", "blue-a1", "10.1.3.254"},
		{"red-a1", "red-b2", "10.1.1.254"},
	} {
		c.expires(hop.from, hop.to, "4", netip.MustParseAddr(hop.router), 11)
	}
	c.expires("blue-a1", "blue-b2", "6", netip.MustParseAddr("fd00:1::fe"), 3)
	c.expires("blue-v1", "blue-b2", "6", netip.MustParseAddr("fd00:3::fe"), 3)

	// Policy knows who comes from another network, on either host.
	c.netctl("policy create -t blue p",
		"policy rule-add -t blue -d in -p 1 -j deny p nobody",
		"policy rule-add -t blue -d in -p 10 -g ga -j allow p a",
		"group create -t blue -p p b gb")
	for _, to := range []string{"b1", "b2"} {
		for _, family := range []string{" tcp/80 4", " tcp/80 6"} {
			c.wants("blue-a1 blue-"+to+family, testcluster.OK)
			c.wants("blue-a2 blue-"+to+family, testcluster.OK)
			c.wants("blue-v1 blue-"+to+family, testcluster.Denied)
			c.wants("red-v1 red-"+to+family, testcluster.OK)
		}
	}

	// A restart of netplugin is nothing to routed packets.
	quiet := func(f func()) testcluster.PingStats {
		start := time.Now()
		f()
		return across.Between(start, time.Now())
	}
	before := quiet(func() { c.reachOf("red", "before the restarts", true) })
	got := quiet(func() {
		for _, h := range c.Hosts() {
			if err := h.RestartAgent(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got.Gap > 2*before.Gap+300*time.Millisecond || got.Sent < 20 {
		t.Errorf("restarts of netplugin: %s; without %s", got, before)
	}
	t.Logf("restarts of netplugin: %s; without %s", got, before)
	c.reachOf("red", "after the restarts", true)
	for mode, at := range switches { // all that was sent then has been answered, or is lost
		p := within.Between(at.Add(-200*time.Millisecond), at.Add(time.Second))
		t.Logf("to mode %s: within a network, around it, %s", mode, p)
		if p.Gap > 500*time.Millisecond || p.Received == 0 {
			t.Errorf("to mode %s: pings within a network: %s", mode, p)
		}
	}
	for _, p := range []*testcluster.Pinger{within, across} {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// ping starts one between two containers.
func (c *cluster) ping(from, to string) *testcluster.Pinger {
	c.t.Helper()
	p, err := c.space(from).StartPing(c.addr(to, "4"), 10*time.Millisecond)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = p.Stop() }) // again, where nothing failed before
	return p
}

// carries sends a little over a connection and waits for it.
func carries(out, in net.Conn) error {
	end := time.Now().Add(3 * time.Second)
	_, err := out.Write([]byte("x"))
	buf := make([]byte, 1)
	err = errors.Join(err, in.SetReadDeadline(end))
	if err == nil {
		_, err = in.Read(buf)
	}
	return err
}

// reach asks all pairs of both tenants: within a network always, between networks
// when joined, the asked container of the same tenant has to answer.
func (c *cluster) reach(when string, joined bool) {
	c.t.Helper()
	for _, tenant := range []string{"blue", "red"} {
		c.reachOf(tenant, when, joined)
	}
}

func (c *cluster) reachOf(tenant, when string, joined bool) {
	c.t.Helper()
	var qs []testcluster.Question
	for _, from := range routedNames {
		for _, to := range routedNames {
			for _, family := range []string{"4", "6"} {
				if from != to {
					qs = append(qs, c.question(fmt.Sprintf("%s-%s %s-%s tcp/80 %s", tenant, from, tenant, to, family)))
				}
			}
		}
	}
	wrong := func(q testcluster.Question, a testcluster.Answer) bool {
		n := len(tenant) + 1
		if joined || q.From[n] == q.To[n] {
			return a.Verdict != testcluster.OK || a.From != q.To
		}
		return a.Verdict == testcluster.OK
	}
	for i, a := range c.AskAll(c.t.Context(), qs, 500*time.Millisecond) {
		if !wrong(qs[i], a) {
			continue
		}
		ns := c.space(qs[i].From)
		if again := ns.Probe(c.t.Context(), qs[i].Target, 3*time.Second); wrong(qs[i], again) {
			c.t.Errorf("%s: %s to %s, %s: %s, from %q", when, qs[i].From, qs[i].To, qs[i].Target, again, again.From)
		}
	}
}

// expires sends a datagram that may make one hop, and wants the router to answer
// that this is too few.
func (c *cluster) expires(from, to, family string, router netip.Addr, icmpType byte) {
	c.t.Helper()
	target := netip.AddrPortFrom(c.addr(to, family), 9)
	var got netip.Addr
	var gotType byte
	err := c.space(from).Do(func() (err error) {
		got, gotType, err = oneHop(target)
		return err
	})
	if err != nil || got != router || gotType != icmpType {
		c.t.Errorf("%s to %s with one hop: %v answers type %d, want %v with %d (%v)", from, to, got, gotType, router, icmpType, err)
	}
}

// oneHop sends a datagram with one hop and returns who answers it, and how (ICMP type).
func oneHop(to netip.AddrPort) (from netip.Addr, icmpType byte, err error) {
	family, level, hops, recvErr := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TTL, unix.IP_RECVERR
	var sa unix.Sockaddr
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		family, level, hops, recvErr = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_RECVERR
		sa = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return from, 0, err
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.SetsockoptInt(fd, level, hops, 1), unix.SetsockoptInt(fd, level, recvErr, 1)); err != nil {
		return from, 0, err
	}
	for range 5 { // the answer is bounded, and the first packet may wait for a neighbour
		if err := unix.Sendto(fd, []byte("x"), 0, sa); err != nil && !errors.Is(err, unix.EHOSTUNREACH) {
			return from, 0, err
		}
		ready := []unix.PollFd{{Fd: int32(fd)}}
		if _, err := unix.Poll(ready, 500); err != nil && !errors.Is(err, unix.EINTR) {
			return from, 0, err
		}
		oob := make([]byte, 512)
		_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 64), oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return from, 0, err
		}
		all, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			return from, 0, err
		}
		for _, m := range all {
			// struct sock_extended_err of linux/errqueue.h: the ICMP type is its sixth byte,
			// and behind its 16 the offender's socket address.
			at, size := 16+4, 4
			if family == unix.AF_INET6 {
				at, size = 16+8, 16
			}
			if int(m.Header.Level) == level && int(m.Header.Type) == recvErr && len(m.Data) >= at+size {
				from, _ = netip.AddrFromSlice(m.Data[at : at+size])
				return from, m.Data[5], nil
			}
		}
	}
	return from, 0, errors.New("no answer")
}
