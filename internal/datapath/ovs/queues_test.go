package ovs

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/datapath/shaping"
	"github.com/contiv/netplugin/v2/internal/model"
)

// linksOf reaches a namespace's interfaces.
func linksOf(t testing.TB, ns string) *netlink.Handle {
	t.Helper()
	at, err := netns.GetFromName(ns)
	if err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err = errors.Join(err, at.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// newShapedLive is newLive with a driver that reaches the interfaces of its switch.
func newShapedLive(t testing.TB, n int) *live {
	t.Helper()
	l := newLive(t, n)
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	l.cfg.links = linksOf(t, l.NS)
	l.open(t)
	l.apply(t)
	return l
}

// burstOf is how many datagrams burst sends: far more than a limit's bucket and queue
// hold, and less than what the switch's packet sockets hold.
const burstOf = 60

// burst is conformance.Burst from one box to another.
func (l *live) burst(t *testing.T, from, to *box, addr netip.Addr) (n int, took time.Duration, classes []int) {
	t.Helper()
	in := func(b *box) func(func() error) error {
		return func(do func() error) error { return inNamespace(b.ns, do) }
	}
	return conformance.Burst(t, burstOf, in(from), in(to), addr)
}

// rate gives a box a rate, or takes it away, and wants an Apply of the same to change
// nothing.
func (l *live) rate(t *testing.T, b *box, r *desired.Rate) {
	t.Helper()
	l.pic.Bandwidth = l.pic.Bandwidth.Delete(b.port.IfName)
	if r != nil {
		l.pic.Bandwidth = l.pic.Bandwidth.Set(b.port.IfName, r)
	}
	if rep := l.apply(t); len(rep.Problems) > 0 {
		t.Errorf("problems: %v", rep.Problems)
	}
	if rep := l.apply(t); rep.Changes != 0 {
		t.Errorf("the same again: %d changes", rep.Changes)
	}
}

// traces are what there is for ports with a limit, on the host and in the switch.
func (l *live) traces() (out []string) {
	all := l.Run("ip", "-n", l.NS, "-o", "link", "show") + l.Run("tc", "-n", l.NS, "qdisc", "show") + l.Vsctl("list-ports", DefaultBridge)
	for s := range strings.SplitSeq(all, "\n") {
		if strings.Contains(s, ": "+nearPrefix) || strings.HasPrefix(s, farPrefix) || strings.Contains(s, "tbf") || strings.Contains(s, "clsact") || strings.Contains(s, markedName) {
			out = append(out, s)
		}
	}
	return out
}

// A rate limits what an endpoint sends and receives and marks what it sends; it comes,
// changes and goes, and netplugin with it, while a connection goes on, and leaves nothing
// behind. Ports without one have nothing of it.
func TestRateLimitsAndMarksAPort(t *testing.T) {
	ovstest.Require(t, "tc")
	l := newShapedLive(t, 2)
	defer func() { _ = l.drv.Close() }()
	a, b := l.boxes[0], l.boxes[1]
	l.echo(t, b, 80)
	conn, err := l.dial(t, a, b.port.IPv4, 80, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	small := desired.Limit{Bits: 500_000}
	number := func() string { return l.Ofctl(DefaultBridge, "dump-flows", "table=0", "--no-stats") }
	look := func(when string, limited bool, class int, addrs ...netip.Addr) {
		t.Helper()
		for _, to := range addrs {
			n, took, classes := l.burst(t, a, b, to)
			sent := int(took.Seconds() * float64(small.Bits) / 8 / 1000) // while the burst was on its way
			if n == 0 || limited && n > burstOf/3+sent || !limited && n < burstOf*3/4 || !slices.Equal(classes, []int{class}) {
				t.Errorf("%s: %d of %d datagrams to %s passed, classes %v, sent in %v, want them limited: %v, and class %d; the switch counts:\n%s\n%s", when, n, burstOf, to, classes, took, limited, class,
					l.Appctl("coverage/show"), l.Run("tc", "-n", l.NS, "-s", "qdisc", "show"))
			}
		}
		if err := roundTrip(conn, time.Minute); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	again := func() {
		t.Helper()
		if err := l.drv.Close(); err != nil {
			t.Fatal(err)
		}
		l.open(t)
		if rep := l.apply(t); rep.Changes != 0 {
			t.Errorf("a restart made %d changes", rep.Changes)
		}
	}
	const dscp, marked = 46, 46<<2 | 1
	v4, v6 := b.port.IPv4, b.port.IPv6
	look("no rate", false, 1, v4)
	if some := l.traces(); len(some) > 0 {
		t.Errorf("without a rate: %q", some)
	}
	bare := number()
	l.rate(t, a, &desired.Rate{Send: small})
	look("a limit of what it sends", true, 1, v4)
	if now := number(); now != bare {
		t.Errorf("a limit has changed flows:\n%s\nwant\n%s", now, bare)
	}
	l.rate(t, a, &desired.Rate{Send: desired.Limit{Bits: 10_000_000_000, Burst: 2_000_000}, DSCP: dscp})
	look("a higher one, and a mark", false, marked, v4, v6)
	l.rate(t, a, &desired.Rate{Send: desired.Limit{Bits: model.MaxRate}, Receive: desired.Limit{Bits: model.MaxRate}})
	look("one beyond every link", false, 1, v4)
	l.rate(t, a, &desired.Rate{Send: desired.Limit{Bits: 10_000_000_000, Burst: 1}})
	look("a burst below a packet", false, 1, v4)
	l.rate(t, a, &desired.Rate{Send: small, DSCP: dscp})
	look("a lower one", true, marked, v6)
	again()
	look("another netplugin", true, marked, v4)
	l.rate(t, b, &desired.Rate{Receive: small})
	l.rate(t, a, nil)
	look("a limit of what it receives", true, 1, v4, v6)
	l.rate(t, b, nil)
	look("no rate again", false, 1, v4)
	if left := l.traces(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// What goes while netplugin is away, and the endpoint's interface itself.
	l.rate(t, a, &desired.Rate{Send: small, Receive: small})
	l.rate(t, b, &desired.Rate{Send: small, Receive: small})
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	l.Run("ip", "-n", l.NS, "link", "del", a.port.IfName)
	l.pic.Ports = l.pic.Ports.Delete(a.port.IfName)
	l.pic.Bandwidth = l.pic.Bandwidth.Delete(a.port.IfName)
	l.open(t)
	l.apply(t)
	if left := strings.Join(l.traces(), "\n"); strings.Count(left, ": "+nearPrefix) != 1 || strings.Count(left, "qdisc tbf c01a") != 2 {
		t.Errorf("of one endpoint's limits there are:\n%s", left)
	}
	// The switch does not see the interface of a port with a limit.
	l.Run("ip", "-n", l.NS, "link", "set", b.port.IfName, "down")
	for deadline := time.After(time.Minute); ; {
		select {
		case <-l.drv.Events():
		case <-deadline:
			t.Fatal("no event tells that an interface was set down")
		}
		if l.drv.portStatus(t, l.pic, b.port.IfName) != nil {
			break
		}
	}
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	old, err := Leftovers(t.Context(), l.cfg)
	if err != nil || old == nil {
		t.Fatal(old, err)
	}
	if err := old.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := l.Run("ip", "-n", l.NS, "-o", "link", "show") + l.Run("tc", "-n", l.NS, "qdisc", "show"); strings.Contains(left, ": "+nearPrefix) || strings.Contains(left, "tbf") || strings.Contains(left, "clsact") {
		t.Errorf("removed, and there is:\n%s", left)
	}
	l.open(t)
}

// TestRemovedPairIsMadeAgain: a port whose pair somebody takes away has another one that the switch
// uses, with the same number.
func TestRemovedPairIsMadeAgain(t *testing.T) {
	l := newShapedLive(t, 2)
	defer func() { _ = l.drv.Close() }()
	a, b := l.boxes[0], l.boxes[1]
	l.echo(t, b, 80)
	l.rate(t, a, &desired.Rate{Send: desired.Limit{Bits: 1_000_000_000}})
	conn, err := l.dial(t, a, b.port.IPv4, 80, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	flows := func() string {
		all := strings.Split(l.Ofctl(DefaultBridge, "dump-flows", "table=0", "--no-stats"), "\n")
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	before := flows()
	for _, prefix := range []string{nearPrefix, farPrefix} {
		l.Run("ip", "-n", l.NS, "link", "del", shaping.DeviceName(prefix, a.port.IfName))
		eventually(t, prefix+": the port stands again", func() bool { // its watch may be at it too
			l.drv.mu.Lock()
			l.drv.bandwidth.shapeSeen = time.Time{} // as when its watch has seen it
			l.drv.mu.Unlock()
			l.pic.Revision++
			return l.drv.portStatus(t, l.pic, a.port.IfName) == nil
		})
		if err := roundTrip(conn, time.Minute); err != nil {
			t.Fatalf("%s: %v", prefix, err)
		}
		if now := flows(); now != before {
			t.Errorf("%s: flows\n%s\nwant\n%s", prefix, now, before)
		}
	}
}

func (d *Driver) portStatus(t *testing.T, pic desired.Host, name string) error {
	t.Helper()
	rep, err := d.Apply(t.Context(), pic)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := rep.Ports.Get(name)
	return s.Err
}

// A port that marks shows its class to the physical network. A container's own marks stay
// inside, and ECN is copied to the outside.
func TestDSCPIsVisibleOutside(t *testing.T) {
	r := newRig(t)
	pic, _ := conformance.NewCompiler(conformance.StandardTopology(), "h1").Compile(1)
	for name, p := range pic.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	drv := r.open(t)
	defer drv.Close()
	var from *desired.Port
	var to *desired.Remote
	for _, to = range pic.Remotes.All() {
		for _, p := range pic.Ports.All() {
			if n, _ := pic.Networks.Get(p.Network); p.Network == to.Network && n.Encap == model.EncapVXLAN {
				from = p
			}
		}
		if from != nil {
			break
		}
	}
	outer := func(six bool, class byte) (outside, inside byte) {
		t.Helper()
		p := reference.Packet{Port: from.IfName, SrcMAC: from.MAC, DstMAC: to.MAC, Src: from.IPv4, Dst: to.IPv4, Proto: model.ProtoUDP, SrcPort: 9, DstPort: 9}
		if six {
			p.Src, p.Dst = from.IPv6, to.IPv6
		}
		f := conformance.Frame(p)
		if six {
			f[14], f[15] = f[14]|class>>4, class<<4
		} else { // the header's checksum changes by as much (RFC 1624)
			sum := ^(uint32(f[24])<<8|uint32(f[25]))&0xffff + uint32(class)
			sum = ^(sum&0xffff + sum>>16)
			f[15], f[24], f[25] = class, byte(sum>>8), byte(sum)
		}
		r.wires[underlayWire].receive()
		if err := r.wires[from.IfName].send(f); err != nil {
			t.Fatal(err)
		}
		r.bounce(t, r.wires[from.IfName], func([]byte) {})
		for _, g := range r.wires[underlayWire].receive() {
			if _, _, inner, ok := conformance.Unwrap(g, DefaultVXLANPort); ok {
				if six {
					return g[15], inner[14]<<4 | inner[15]>>4
				}
				return g[15], inner[15]
			}
		}
		t.Fatal("nothing came to the other host")
		return 0, 0
	}
	apply := func(rate *desired.Rate) {
		t.Helper()
		pic.Bandwidth = desired.Map[string, *desired.Rate]{}
		if rate != nil {
			pic.Bandwidth = pic.Bandwidth.Set(from.IfName, rate)
		}
		if rep, err := drv.Apply(t.Context(), pic); err != nil || len(rep.Problems) > 0 {
			t.Fatal(rep.Problems, err)
		}
	}
	for _, tc := range []struct {
		rate            *desired.Rate
		class           byte
		outside, inside byte
	}{
		{nil, 0x48 | 1, 1, 0x48 | 1},
		{&desired.Rate{DSCP: 46}, 0x48 | 1, 46<<2 | 1, 46<<2 | 1},
		{&desired.Rate{DSCP: 10}, 2, 10<<2 | 2, 10<<2 | 2},
		{nil, 0x48, 0, 0x48},
	} {
		apply(tc.rate)
		for _, six := range []bool{false, true} {
			if outside, inside := outer(six, tc.class); outside != tc.outside || inside != tc.inside {
				t.Errorf("%+v, IPv6 %v, sent as %#x: %#x outside, %#x inside, want %#x, %#x", tc.rate, six, tc.class, outside, inside, tc.outside, tc.inside)
			}
		}
	}
	if s := r.Vsctl("list-ports", DefaultBridge); strings.Contains(s, markedName) {
		t.Errorf("nothing marks, and there are the ports %s", s)
	}
}
