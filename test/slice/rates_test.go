//go:build integration

package slice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// TestRuntimesLimitsApply: a container has the limits that its runtime hands over (the capability
// bandwidth), on real traffic, also when netplugin was killed and started again; others
// beside it have none. Only how long it takes at least is asked: nothing is late on a
// machine that is busy.
func TestRuntimesLimitsApply(t *testing.T) {
	shared(t)
	onOne(t, both, podRates)
}

func podRates(t *testing.T, driver string) {
	c := up(t, driver, "rates", 2)
	c.netctl("network create -e vxlan -s 10.1.1.0/24 net")
	limited := spec("slow", "h1", "default/net")
	limited.Bandwidth = map[string]uint64{"ingressRate": 4_000_000, "ingressBurst": 4294967295, "egressRate": 2_000_000, "egressBurst": 80_000}
	c.add(limited, spec("near", "h1", "default/net"), spec("far", "h2", "default/net"))
	const bytes = 500_000
	expect := func(when string) {
		t.Helper()
		for _, tt := range []struct {
			from, to string
			rate     int // bits a second, 0 = no limit
		}{{"slow", "near", 2_000_000}, {"slow", "far", 2_000_000}, {"near", "slow", 4_000_000}, {"far", "slow", 4_000_000}, {"near", "far", 0}} {
			took, err := c.send(tt.from, tt.to, "4", bytes)
			if err != nil {
				t.Fatalf("%s: %s to %s: %v", when, tt.from, tt.to, err)
			}
			// What a burst, and the sockets' and queues' places, take at once is not among it.
			if tt.rate > 0 && took < time.Duration(bytes-50_000)*8*time.Second/time.Duration(tt.rate) {
				t.Errorf("%s: %s to %s: %d bytes took %v at %d bits a second", when, tt.from, tt.to, bytes, took, tt.rate)
			}
			t.Logf("%s: %s to %s: %v", when, tt.from, tt.to, took)
		}
	}
	expect("attached")
	if err := c.host("h1").RestartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("after netplugin's restart")
}

// TestNetProfilesLimitTheirGroups: a net profile reaches the packets of a container of a group that names
// it, and each change of it the packets of one TCP connection that stays: what passes in a
// second, each way, and the mark inside and outside of the tunnel, with ECN's bits. The
// rates of two profiles in turn are a factor apart, and a busy machine may take three times
// as long as either.
func TestNetProfilesLimitTheirGroups(t *testing.T) {
	shared(t)
	onOne(t, both, netProfiles)
}

func netProfiles(t *testing.T, driver string) {
	c := up(t, driver, "profiles", 2)
	const mbit, none = 1_000_000, 0
	c.netctl("network create -e vxlan -s 10.1.1.0/24 net",
		"netprofile create --bandwidth 2mbps --receive-bandwidth 8mbps --dscp 46 gold", "group create --networkprofile gold net web")
	c.add(spec("a", "h1", "default/net/web"), spec("b", "h2", "default/net"))
	out, in, err := c.connect(t.Context(), "a", "b", "4")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer in.Close()

	// passes: it comes to so many bits a second, and stays below.
	passes := func(when string, from, to net.Conn, rate float64) {
		t.Helper()
		least, most := rate/3, rate*1.1
		if rate == none {
			rate, least, most = 20*mbit, 4*mbit, 1e12
		}
		measure := func() float64 {
			bits, err := perSecond(from, to, int(rate/8))
			if err != nil {
				t.Fatalf("%s: the connection that was there before: %v", when, err)
			}
			t.Logf("%s: %.2f Mbit/s", when, bits/mbit)
			return bits
		}
		c.until(when, func(context.Context) error {
			if got := measure(); got < least || got > most {
				return fmt.Errorf("%.2f Mbit/s pass, want %.2f to %.2f", got/mbit, least/mbit, most/mbit)
			}
			return nil
		})
		if got := measure(); got > most {
			t.Errorf("%s: then %.2f Mbit/s, want %.2f at most", when, got/mbit, most/mbit)
		}
	}
	for _, is := range []struct {
		when          string
		change        []string
		send, receive float64
		dscp          byte
	}{
		{"made with it", nil, 2 * mbit, 8 * mbit, 46},
		{"sends more, receives less, another mark", []string{"netprofile create --bandwidth 20mbps --receive-bandwidth 2mbps --dscp 10 gold"}, 20 * mbit, 2 * mbit, 10},
		{"sends less, receives more, no mark", []string{"netprofile create --bandwidth 2mbps --receive-bandwidth 20mbps --dscp 0 gold"}, 2 * mbit, 20 * mbit, 0},
		{"another profile", []string{"netprofile create --receive-bandwidth 2mbps --dscp 34 silver", "group create --networkprofile silver net web"}, none, 2 * mbit, 34},
	} {
		c.netctl(is.change...)
		passes(is.when+": sent", out, in, is.send)
		passes(is.when+": received", in, out, is.receive)
		for ecn := range byte(4) {
			inner, outer := is.dscp<<2|ecn, is.dscp<<2|ecn
			if ecn == 3 {
				outer-- // a tunnel says that its ends can be told, not that they are, as kernels have it
			}
			if is.dscp == 0 { // its own is kept, and stays inside
				inner = 0x80 | ecn
			}
			c.marked(is.when, "a", "b", 0x80|ecn, []byte{outer, inner})
		}
		c.marked(is.when+", who has none", "b", "a", 0x80|1, []byte{1, 0x80 | 1})
	}
}

// perSecond passes bytes by a connection and returns how many bits came in a second.
func perSecond(from io.Writer, to io.Reader, n int) (float64, error) {
	start := time.Now()
	var g errgroup.Group
	g.Go(func() error { _, err := from.Write(make([]byte, n)); return err })
	g.Go(func() error { _, err := io.CopyN(io.Discard, to, int64(n)); return err })
	err := g.Wait()
	return float64(n) * 8 / time.Since(start).Seconds(), err
}

// marked wants a datagram that a container sends with a class to have other ones in the
// physical network: outside and inside of the tunnel.
func (c *cluster) marked(when, from, to string, class byte, want []byte) {
	c.t.Helper()
	at, err := c.Container(to)
	if err != nil {
		c.t.Fatal(err)
	}
	tr, stop := c.trapIn(c.host(at.Host).NS)
	defer stop()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, int(class)) }), err)
	}}
	var conn net.Conn
	if err := c.space(from).Do(func() (err error) {
		conn, err = dialer.DialContext(c.t.Context(), "udp", netip.AddrPortFrom(c.addr(to, "4"), 80).String())
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	said := fmt.Appendf(nil, "%s %d", when, class)
	c.until(fmt.Sprintf("%s: %#x of %s is seen as %#x", when, class, from, want), func(context.Context) error {
		if _, err := conn.Write(said); err != nil {
			return err
		}
		if seen := tr.classes(said); !bytes.Equal(seen, want) {
			return fmt.Errorf("it is %#x", seen)
		}
		return nil
	})
}

// classes returns those of the last frame in VXLAN that ends so: of the outer and of the inner header.
func (tr *trap) classes(end []byte) []byte {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	const outer, port, inner = 14 + 1, 14 + 20 + 2, 14 + 20 + 8 + 8 + 14 + 1
	for _, f := range slices.Backward(tr.frames) {
		if len(f) > inner && bytes.HasSuffix(f, end) && bytes.Equal(f[port:port+2], []byte{4789 >> 8, 4789 & 0xff}) {
			return []byte{f[outer], f[inner]}
		}
	}
	return nil
}
