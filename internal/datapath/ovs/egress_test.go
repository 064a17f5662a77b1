package ovs

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// outside and outside6 are addresses beyond the host, which routes back to private
// addresses.
var (
	outside  = netip.MustParseAddr("203.0.113.2")
	outside6 = netip.MustParseAddr("2001:db8:7::2")
)

// way is what differs between egress of IPv4 and of IPv6.
type way struct {
	name          string
	host, outside netip.Addr
	private       func(*box) netip.Addr
	near, far     string // prefixes to be denied: one with the outside in it, and another one
}

func (l *live) ways() []way {
	return []way{
		{"IPv4", l.pic.HostNAT.Addr, outside, func(b *box) netip.Addr { return b.port.Private }, "203.0.113.0/24", "198.51.100.0/24"},
		{"IPv6", l.pic.HostNAT.Addr6, outside6, func(b *box) netip.Addr { return b.port.Private6 }, "2001:db8:7::/64", "2001:db8:8::/64"},
	}
}

// newEgress is a switch with three boxes that have egress, the third one of
// another tenant with the address of the first, and a host outside.
func newEgress(t testing.TB) (l *live, host, out *box) {
	t.Helper()
	l = newLive(t, 2)
	red := &desired.Network{
		ID: 8, Key: model.NetworkKey{Tenant: "red", Name: "vx"}, Encap: model.EncapVXLAN, Tag: 800, Subnet: l.net.Subnet, Subnet6: l.net.Subnet6,
	}
	l.pic.Networks = l.pic.Networks.Set(8, red)
	l.addBoxOn(t, red, 2, 1)
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	l.pic.HostNAT = way
	for i, b := range l.boxes {
		p := *b.port
		p.Private = netip.AddrFrom4([4]byte{172, 19, 0, byte(i + 1)})
		p.Private6 = way.Private6(p.Private)
		b.port = &p
		l.pic.Ports = l.pic.Ports.Set(p.IfName, &p)
		l.Run("ip", "-n", b.ns, "route", "add", "default", "via", desired.RouterAddr.String(), "dev", "eth0", "onlink")
		l.Run("ip", "-n", b.ns, "route", "add", "default", "via", desired.RouterMAC.LinkLocal().String(), "dev", "eth0")
	}
	l.apply(t)
	l.Run("ip", "-n", l.NS, "addr", "add", way.Addr.String()+"/16", "dev", way.Interface)
	l.Run("ip", "-n", l.NS, "addr", "add", way.Addr6.String()+"/96", "dev", way.Interface, "nodad")
	l.Run("ip", "-n", l.NS, "link", "set", way.Interface, "arp", "off", "up")
	l.Run("ip", "netns", "exec", l.NS, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")

	host, out = &box{ns: l.NS}, &box{ns: l.NS + "out"}
	l.Run("ip", "netns", "add", out.ns)
	t.Cleanup(func() { _, _ = l.Try("ip", "netns", "del", out.ns) })
	l.Run("ip", "-n", l.NS, "link", "add", "out0", "type", "veth", "peer", "name", "eth0", "netns", out.ns)
	for _, args := range [][]string{
		{"-n", l.NS, "addr", "add", "203.0.113.1/24", "dev", "out0"},
		{"-n", l.NS, "addr", "add", "2001:db8:7::1/64", "dev", "out0", "nodad"},
		{"-n", l.NS, "link", "set", "out0", "up"},
		{"-n", out.ns, "addr", "add", outside.String() + "/24", "dev", "eth0"},
		{"-n", out.ns, "addr", "add", outside6.String() + "/64", "dev", "eth0", "nodad"},
		{"-n", out.ns, "link", "set", "eth0", "up"},
		{"-n", out.ns, "route", "add", "172.19.0.0/16", "via", "203.0.113.1"},
		{"-n", out.ns, "route", "add", way.Subnet6.String(), "via", "2001:db8:7::1"},
	} {
		l.Run(append([]string{"ip"}, args...)...)
	}
	return l, host, out
}

// udp opens a datagram socket in a box; connected when to is valid.
func (l *live) udp(t testing.TB, b *box, port int, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c net.Conn
	if err := inNamespace(b.ns, func() (err error) {
		if to.IsValid() {
			c, err = new(net.Dialer).DialContext(t.Context(), "udp", to.String())
			return err
		}
		p, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", ":"+strconv.Itoa(port))
		if err == nil {
			c = p.(net.Conn)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}

// datagrams sends one datagram there and back and returns who the receiver saw.
func (l *live) datagrams(t testing.TB, from, at *box, to netip.Addr, size int) (netip.Addr, error) {
	t.Helper()
	return l.datagramsBy(t, l.udp(t, from, 0, netip.AddrPortFrom(to, 8053)), at, 8053, size)
}

// datagramsBy sends one there by a client's socket, to who listens at a port, and back.
func (l *live) datagramsBy(t testing.TB, client *net.UDPConn, at *box, port, size int) (netip.Addr, error) {
	t.Helper()
	server := l.udp(t, at, port, netip.AddrPort{})
	defer server.Close()
	for _, c := range []*net.UDPConn{server, client} {
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	}
	sent, got := bytes.Repeat([]byte("0123456789abcdef"), size/16), make([]byte, size)
	if _, err := client.Write(sent); err != nil {
		return netip.Addr{}, err
	}
	n, peer, err := server.ReadFromUDPAddrPort(got)
	if err != nil || !bytes.Equal(got[:n], sent) {
		return netip.Addr{}, errors.Join(errors.New("there"), err)
	}
	if _, err := server.WriteToUDPAddrPort(sent, peer); err != nil {
		return netip.Addr{}, err
	}
	if n, err = client.Read(got); err != nil || !bytes.Equal(got[:n], sent) {
		return netip.Addr{}, errors.Join(errors.New("back"), err)
	}
	return peer.Addr().Unmap(), nil
}

// icmpError sends datagrams to a port and returns the error that comes back.
func (l *live) icmpError(t testing.TB, from *box, to netip.Addr, ttl int) error {
	t.Helper()
	c := l.udp(t, from, 0, netip.AddrPortFrom(to, 9))
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if to.Is6() {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, ttl)
			return
		}
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl)
	})
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// TestEgressWorksThroughSockets sends everything that a container may send out of the host, and
// what comes in, through real sockets: small and big, errors included, from two
// tenants with equal addresses at once.
func TestEgressWorksThroughSockets(t *testing.T) {
	l, host, out := newEgress(t)
	defer l.drv.Close()
	a, red := l.boxes[0], l.boxes[2]
	for _, b := range []*box{host, out, a, red} {
		l.echo(t, b, 8080)
	}
	for _, w := range l.ways() {
		t.Run(w.name, func(t *testing.T) {
			for _, x := range []struct {
				name     string
				from, at *box
				to, seen netip.Addr
			}{
				{"to the host", a, host, w.host, w.private(a)},
				{"to the outside", a, out, w.outside, w.private(a)},
				{"to the outside, other tenant", red, out, w.outside, w.private(red)},
				{"from the host", host, a, w.private(a), w.host},
				{"from the host, other tenant", host, red, w.private(red), w.host},
				{"from the outside", out, a, w.private(a), w.outside},
			} {
				t.Run(x.name, func(t *testing.T) {
					for _, size := range []int{16, 4000} { // the second one in fragments
						if got, err := l.datagrams(t, x.from, x.at, x.to, size); err != nil || got != x.seen {
							t.Errorf("datagram of %d bytes: seen from %v, %v; want %v", size, got, err, x.seen)
						}
					}
					c, err := l.dial(t, x.from, x.to, 8080, 3*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if err := bulk(c, 4<<20); err != nil {
						t.Error(err)
					}
					if err := l.icmpError(t, x.from, x.to, 64); !errors.Is(err, syscall.ECONNREFUSED) {
						t.Errorf("datagram to a closed port = %v, want refused", err)
					}
				})
			}
			if err := l.icmpError(t, a, w.outside, 1); !errors.Is(err, syscall.EHOSTUNREACH) {
				t.Errorf("datagram whose time is over on the host = %v, want host unreachable", err)
			}
			for from, to := range map[*box]netip.Addr{a: w.outside, red: w.host, host: w.private(a), out: w.private(red)} {
				if o, err := l.in(from, "ping", "-c", "2", "-i", "0.2", "-W", "2", "-s", "4000", to.String()).CombinedOutput(); err != nil {
					t.Errorf("ping %s: %v\n%s", to, err, o)
				}
			}
			// No container reaches another one through the host.
			if _, err := l.datagrams(t, a, red, w.private(red), 16); err == nil {
				t.Error("a container reaches another tenant's by its private address")
			}
		})
	}
}

// bulk writes n bytes to an echoing peer and reads them back.
func bulk(c net.Conn, n int) error {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	want := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		failed <- err
	}()
	got := make([]byte, 0, n)
	for b := make([]byte, 1<<16); len(got) < n; {
		m, err := c.Read(b)
		if err != nil {
			return errors.Join(err, <-failed)
		}
		got = append(got, b[:m]...)
	}
	if !bytes.Equal(got, want) {
		return errors.New("what came back differs from what was sent")
	}
	return <-failed
}

// TestEgressFollowsTheRules: rules judge both directions, also of what is established,
// and egress closes and opens with the desired state.
func TestEgressFollowsTheRules(t *testing.T) {
	l, _, out := newEgress(t)
	defer l.drv.Close()
	l.echo(t, out, 8080)
	l.echo(t, l.boxes[0], 8080)
	for _, w := range l.ways() {
		t.Run(w.name, func(t *testing.T) { l.wayOutPolicy(t, w, out) })
	}
	// Without egress nothing gets out.
	ways, link := l.ways(), l.pic.HostNAT.Interface
	l.pic.HostNAT = nil
	l.apply(t)
	l.awaitLink(t, link, false)
	for _, w := range ways {
		if c, err := l.dial(t, l.boxes[0], w.outside, 8080, 300*time.Millisecond); err == nil {
			c.Close()
			t.Errorf("%s: there is egress that is not wanted", w.name)
		}
	}
}

func (l *live) wayOutPolicy(t *testing.T, w way, out *box) {
	t.Helper()
	a := l.boxes[0]
	private := w.private(a)
	leaving, err := l.dial(t, a, w.outside, 8080, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer leaving.Close()
	coming, err := l.dial(t, out, private, 8080, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer coming.Close()
	tier := func(c string, deny bool) []desired.Tier {
		r := desired.Rule{ID: "r", Priority: 5, Action: model.Allow, CIDRs: []desired.CIDR{{Prefix: netip.MustParsePrefix(c)}}}
		if deny {
			r.Action = model.Deny
		}
		return []desired.Tier{{Tier: model.TierContiv, Default: model.Pass, Rules: desired.RulesOf(r)}}
	}
	set := func(s *desired.PolicySet) {
		p := *a.port
		l.pic.PolicySets = desired.Map[desired.PolicySetID, *desired.PolicySet]{}
		if p.Policies = 0; s != nil {
			p.Policies, s.ID, s.Name = 5, 5, "p"
			l.pic.PolicySets = l.pic.PolicySets.Set(5, s)
		}
		l.pic.Ports = l.pic.Ports.Set(p.IfName, &p)
		l.apply(t)
	}
	check := func(what string, outOpen, inOpen bool) {
		t.Helper()
		for _, x := range []struct {
			name string
			c    net.Conn
			from *box
			to   netip.Addr
			want bool
		}{{"out", leaving, a, w.outside, outOpen}, {"in", coming, out, private, inOpen}} {
			wait := 300 * time.Millisecond
			if x.want {
				wait = 5 * time.Second
			}
			begin := func() error {
				c, err := l.dial(t, x.from, x.to, 8080, wait)
				if err == nil {
					c.Close()
				}
				return err
			}
			for start := time.Now(); ovstest.Kernel() && !x.want && begin() == nil && time.Since(start) < 5*time.Second; { // revalidation follows
			}
			if err := roundTrip(x.c, wait); (err == nil) != x.want {
				t.Errorf("%s: established, %s: %v, want open: %v", what, x.name, err, x.want)
			}
			if err := begin(); (err == nil) != x.want {
				t.Errorf("%s: new, %s: %v, want open: %v", what, x.name, err, x.want)
			}
		}
	}
	check("no policy", true, true)
	set(&desired.PolicySet{Out: tier(w.near, true)})
	check("out denied", false, true)
	set(nil)
	drain(leaving)
	check("out denied no more", true, true)
	set(&desired.PolicySet{In: tier(w.near, true)})
	check("in denied", true, false)
	set(&desired.PolicySet{In: tier(w.far, true), Out: tier(w.far, true)})
	drain(coming)
	check("others denied", true, true)
	if err := l.icmpError(t, a, w.outside, 64); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("datagram to a closed port = %v, want refused", err)
	}
}

// awaitLink waits until the switch has made an interface, or removed it.
func (l *live) awaitLink(t testing.TB, name string, there bool) {
	t.Helper()
	for start := time.Now(); ; {
		if err := inNamespace(l.NS, func() error { _, err := interfaceIndex(name); return err }); (err == nil) == there {
			return
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("interface %s: want there = %v", name, there)
		}
	}
}

// drain reads what a connection delivers late.
func drain(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = c.Read(make([]byte, 64))
}

// TestEgressConnectionsSurviveRestarts: connections through the host survive a restart of the
// driver without a loss; after a crash of the switch new ones work again and
// established ones go on.
func TestEgressConnectionsSurviveRestarts(t *testing.T) {
	l, _, out := newEgress(t)
	a := l.boxes[0]
	l.echo(t, out, 8080)
	c, err := l.dial(t, a, outside, 8080, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop := l.ping(t, a, outside)
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := roundTrip(c, time.Second); err != nil {
		t.Errorf("without a driver: %v", err)
	}
	l.open(t)
	defer func() { l.drv.Close() }()
	if rep := l.apply(t); rep.Changes != 0 {
		t.Errorf("a restart made %d changes", rep.Changes)
	}
	if err := roundTrip(c, time.Second); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if sent, got := stop(); got < sent-1 || got == 0 { // the last one may be under way
		t.Errorf("ping: %d of %d answered", got, sent)
	}

	l.KillSwitch()
	l.StartSwitch() // the host's interface has stayed, with its address
	for start := time.Now(); ; {
		n, err := l.dial(t, a, outside, 8080, 100*time.Millisecond)
		if err == nil {
			n.Close()
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("no new connection after the switch's start: %v", err)
		}
	}
	if err := roundTrip(c, 5*time.Second); err != nil {
		t.Errorf("the established connection: %v", err)
	}
}
