//go:build integration

package slice

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestMulticastReachesItsMembersOnly checks that datagrams to a group reach the containers that have joined it,
// on the sender's host and on another one, by IPv4 and IPv6, on VXLAN and VLAN networks, in
// either ARP mode. They reach no others: none that has not joined or has left, none on
// other networks, none past a policy. A restart of netplugin loses no membership.
func TestMulticastReachesItsMembersOnly(t *testing.T) {
	shared(t)
	on(t, 2, both, func(t *testing.T, driver string) {
		modes := []string{"proxy", "flood"}
		if driver == testcluster.DriverOVS {
			slices.Reverse(modes)
		}
		for i, mode := range modes {
			if i == 0 || conformance.Full() {
				t.Run(mode, func(t *testing.T) { multicasting(t, driver, mode) })
			}
		}
	})
}

const groupPort = 5000

// hearer is a container that listens.
type hearer struct {
	t      *testing.T
	ns     *testcluster.Namespace
	raw    int // sees all that comes in
	joined map[netip.Addr]net.PacketConn
}

func (c *cluster) hearer(name string) *hearer {
	c.t.Helper()
	h := &hearer{t: c.t, ns: c.space(name), joined: map[netip.Addr]net.PacketConn{}}
	err := h.ns.Do(func() (err error) {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		if h.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return unix.Bind(h.raw, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: eth0.Index}) // all protocols
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		for _, s := range h.joined {
			_ = s.Close()
		}
		_ = unix.Close(h.raw)
	})
	return h
}

// join joins a group by a socket of its own, or leaves it.
func (h *hearer) join(group netip.Addr, join bool) {
	h.t.Helper()
	if !join {
		_ = h.joined[group].Close() // nothing is lost with it
		delete(h.joined, group)
		return
	}
	err := h.ns.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		s, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", netip.AddrPortFrom(group, groupPort).String())
		if err != nil {
			return err
		}
		h.joined[group] = s
		if group.Is4() {
			return ipv4.NewPacketConn(s).JoinGroup(eth0, &net.UDPAddr{IP: group.AsSlice()})
		}
		return ipv6.NewPacketConn(s).JoinGroup(eth0, &net.UDPAddr{IP: group.AsSlice()})
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// came reports whether something came to its interface: what says is in a packet.
func (h *hearer) came(says []byte) bool {
	b := make([]byte, 2048)
	found := false
	for {
		n, from, err := unix.Recvfrom(h.raw, b, 0)
		if err != nil {
			return found
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype != unix.PACKET_OUTGOING {
			found = found || bytes.Contains(b[:n], says)
		}
	}
}

// reads waits a moment for a datagram.
func (h *hearer) reads(group netip.Addr, says []byte) bool {
	s := h.joined[group]
	if err := s.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		h.t.Fatal(err)
	}
	b := make([]byte, 2048)
	for {
		n, _, err := s.ReadFrom(b)
		if err != nil {
			return false
		}
		if bytes.Equal(b[:n], says) {
			return true
		}
	}
}

// sends sends to a group.
func (h *hearer) sends(group netip.Addr, says []byte) error {
	return h.ns.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		listen := "0.0.0.0:0"
		if group.Is6() {
			listen = "[::]:0"
		}
		s, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", listen)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(group, groupPort))
		if group.Is4() {
			if err := ipv4.NewPacketConn(s).SetMulticastInterface(eth0); err != nil { // its TTL is 1
				return err
			}
		} else if err := ipv6.NewPacketConn(s).SetMulticastInterface(eth0); err != nil {
			return err
		}
		_, err = s.WriteTo(says, to)
		return err
	})
}

func multicasting(t *testing.T, driver, mode string) {
	c := up(t, driver, "mcast"+mode[:1], 2)
	c.netctl("global set --arp-mode "+mode, "network create -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 -g 10.1.1.254 one", "network create -e vxlan -s 10.1.2.0/24 --subnetv6 fd00:2::/64 two",
		"network create -e vlan -s 10.1.3.0/24 tagged", "policy create guard", "group create -p guard one guarded")
	names := map[string]string{
		"a": "h1 default/one", "b": "h1 default/one/guarded", "x": "h1 default/one", "c": "h2 default/one", "d": "h2 default/one",
		"r": "h1 default/two", "s": "h2 default/two", "v": "h1 default/tagged", "w": "h2 default/tagged", "y": "h2 default/tagged",
	}
	var specs []testcluster.ContainerSpec
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var host, where string
		if _, err := fmt.Sscan(names[name], &host, &where); err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec(name, host, where))
	}
	c.add(specs...)
	all := map[string]*hearer{}
	for name := range names {
		all[name] = c.hearer(name)
	}
	number := 0
	hear := func(when, from string, group netip.Addr, members ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := testcluster.Until(ctx, fmt.Sprintf("%s: %s to %v", when, from, group), func(context.Context) error {
			number++
			says := fmt.Appendf(nil, "word %d of %s.", number, from)
			if err := all[from].sends(group, says); err != nil {
				return err
			}
			for _, m := range members {
				if !all[m].reads(group, says) {
					return fmt.Errorf("%s does not hear it", m)
				}
			}
			for name, h := range all {
				if came := h.came(says); came != slices.Contains(members, name) {
					return fmt.Errorf("it came to %s: %v", name, came)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	g4, g6, some := netip.MustParseAddr("239.1.1.1"), netip.MustParseAddr("ff05::1:1"), netip.MustParseAddr("239.1.1.9")
	for _, name := range []string{"b", "c", "r", "s", "w"} {
		all[name].join(g4, true)
		if name != "w" {
			all[name].join(g6, true)
		}
	}
	all["d"].join(some, true)
	hear("at first", "a", g4, "b", "c")
	hear("at first", "a", g6, "b", "c")
	hear("at first", "x", some, "d")
	hear("at first", "s", g6, "r")
	hear("at first", "v", g4, "w")

	all["b"].join(g4, false)
	hear("b has left", "a", g4, "c")
	all["b"].join(g4, true)
	hear("b is back", "a", g4, "b", "c")
	c.netctl(fmt.Sprintf("policy rule-add -d in -j deny -l udp -P %d guard 1", groupPort))
	hear("b is guarded", "a", g4, "c")
	hear("b is guarded", "a", g6, "c")
	c.netctl("policy rule-rm guard 1")
	hear("b is open", "a", g4, "b", "c")

	h2 := c.host("h2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, "h2 to have its members kept", func(context.Context) error {
		kept, err := os.ReadFile(filepath.Join(h2.StateDir(), "multicast.json"))
		if err == nil && (!bytes.Contains(kept, []byte(g4.String())) || !bytes.Contains(kept, []byte(some.String()))) {
			err = fmt.Errorf("it has %s", kept)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- h2.RestartAgent(ctx) }()
	for done, lost := false, 0; !done; {
		select {
		case err := <-restarted:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
		number++
		says := fmt.Appendf(nil, "word %d of a.", number)
		if err := all["a"].sends(g4, says); err != nil {
			t.Fatal(err)
		}
		if lost++; all["c"].reads(g4, says) {
			lost = 0
		}
		if lost > 3 { // of a busy switch in user space one may be
			t.Fatal("members hear nothing while netplugin starts again")
		}
	}
	hear("after a restart", "a", g4, "b", "c")
	hear("after a restart", "a", some, "d")
}
