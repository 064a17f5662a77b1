package ovs

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// shared are addresses that services share.
var shared = []netip.Addr{netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:9::9")}

// faced gives a service frontends instead of addresses: 80 leads to 8080 by TCP, 8053 to
// itself by UDP.
func faced(s *desired.Service, at ...netip.Addr) *desired.Service {
	s.IPv4, s.IPv6, s.Ports = netip.Addr{}, netip.Addr{}, nil
	for _, a := range at {
		s.Frontends = append(s.Frontends,
			desired.Frontend{Addr: a, Protocol: model.ProtoTCP, Port: 80, Backend: 8080},
			desired.Frontend{Addr: a, Protocol: model.ProtoUDP, Port: 8053, Backend: 8053})
	}
	slices.SortFunc(s.Frontends, desired.CompareFrontends)
	return s
}

// TestFrontendsServeContainers tries frontends with containers' own stacks, at addresses that services
// share and at those of a node, where all else is the node's: big datagrams and ICMP
// errors too, which show no ports at first.
func TestFrontendsServeContainers(t *testing.T) {
	l, _, out := newEgress(t)
	defer func() { _ = l.drv.Close() }()
	a, b := l.boxes[0], l.boxes[1]
	nodes := []netip.Addr{outside, outside6}
	for _, n := range nodes {
		l.pic.NodeAddrs = l.pic.NodeAddrs.Set(n, struct{}{})
	}
	l.echo(t, b, 8080)
	l.echo(t, out, 8080)
	l.serve(t, faced(l.served(200, b), append(slices.Clone(shared), netip.IPv4Unspecified(), netip.IPv6Unspecified())...))
	for _, at := range append(slices.Clone(shared), nodes...) {
		c, err := l.dial(t, a, at, 80, 5*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		if err := bulk(c, 1<<20); err != nil {
			t.Errorf("%s: a megabyte: %v", at, err)
		}
		c.Close()
		client := l.udp(t, a, 0, netip.AddrPortFrom(at, 8053))
		for _, size := range []int{64, 4000, 20000} {
			if peer, err := l.datagramsBy(t, client, b, 8053, size); err != nil || peer != a.port.IPv4 && peer != a.port.IPv6 {
				t.Errorf("%s: a datagram of %d bytes: %v, from %s", at, size, err, peer)
			}
		}
		if slices.Contains(shared, at) {
			if _, err := l.datagrams(t, a, b, at, 4000); err != nil {
				t.Errorf("%s: a big datagram is the first: %v", at, err)
			}
			l.refusesClients(t, a, at)
			continue
		}
		where := b // in user space later fragments show no ports, so a node gets them
		if !ovstest.Kernel() {
			where = out
		}
		if _, err := l.datagrams(t, a, where, at, 4000); err != nil {
			t.Errorf("%s: a big datagram is the first: %v", at, err)
		}
		for _, size := range []int{64, 4000} {
			if _, err := l.datagramsBy(t, l.udp(t, a, 0, netip.AddrPortFrom(at, 8054)), out, 8054, size); err != nil {
				t.Errorf("%s: a datagram of %d bytes to the node itself: %v", at, size, err)
			}
		}
		if o, err := l.in(a, "ping", "-c", "2", "-i", "0.2", "-W", "2", "-s", "4000", at.String()).CombinedOutput(); err != nil {
			t.Errorf("ping %s: %v\n%s", at, err, o)
		}
		if c, err = l.dial(t, a, at, 8080, 5*time.Second); err != nil {
			t.Errorf("%s: the node itself: %v", at, err)
			continue
		}
		if err := bulk(c, 1<<20); err != nil {
			t.Errorf("%s: a megabyte to the node itself: %v", at, err)
		}
		c.Close()
		if err := l.icmpError(t, a, at, 64); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: datagram to the node's closed port = %v, want refused", at, err)
		}
	}
}

// TestFrontendsWithTheSameBackendsShareAGroup: frontends that choose among the same backends do so by one group, and
// nodes and node ports add up.
func TestFrontendsWithTheSameBackendsShareAGroup(t *testing.T) {
	l := newServed(t)
	all := append(slices.Clone(shared), netip.IPv4Unspecified(), netip.IPv6Unspecified())
	l.serve(t, faced(l.served(200, l.boxes[1:]...), all...))
	groups := func() int { return len(l.drv.flows.pic.services.groups.have) }
	one, flows := groups(), len(l.drv.flows.pic.ledger.installed)
	want := 4 // of each protocol and family
	if !ovstest.Kernel() {
		want += 2 // for fragments of UDP
	}
	if one != want {
		t.Errorf("%d groups, want %d", one, want)
	}
	s := faced(l.served(200, l.boxes[1:]...), append(all, shared[0].Next(), shared[1].Next())...)
	l.serve(t, s)
	if n := groups(); n != one {
		t.Errorf("with more frontends %d groups, want %d", n, one)
	}
	l.serve(t, faced(l.served(200, l.boxes[1:]...), all...))
	for i := range 20 {
		l.pic.NodeAddrs = l.pic.NodeAddrs.Set(netip.AddrFrom4([4]byte{10, 20, 0, byte(i)}), struct{}{})
	}
	l.apply(t)
	if n := len(l.drv.flows.pic.ledger.installed); n != flows+20 {
		t.Errorf("20 nodes more made %d flows of %d", n, flows)
	}
	l.serve(t)
	if n := groups(); n != 0 || len(l.drv.flows.pic.services.frontends.vips)+len(l.drv.flows.pic.services.frontends.owners)+len(l.drv.flows.pic.services.frontends.open)+len(l.drv.flows.pic.services.frontends.named) != 0 {
		t.Errorf("%d groups are left, and %+v", n, l.drv.flows.pic.services.frontends)
	}
}
