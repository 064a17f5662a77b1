//go:build integration

package slice

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestOnlyItsHostSendsForAnEndpoint checks that only an endpoint's own host can send for it through the tunnel:
// not a container, by egress, to its own or to another host, and not another host's stack.
// The tenant's own traffic is not lost. The endpoint's own host can, which shows that the
// packets are valid.
func TestOnlyItsHostSendsForAnEndpoint(t *testing.T) {
	shared(t)
	on(t, 2, both, injection)
}

func injection(t *testing.T, driver string) {
	c := up(t, driver, "inj", 3)
	c.netctl("tenant create blue", "tenant create green",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 vx",
		"network create -t green -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 vx")
	c.add(spec("evil", "h1", "blue/vx"), spec("g1", "h1", "green/vx"), spec("g2", "h2", "green/vx"), spec("g3", "h3", "green/vx"))
	c.wants("g3 g1 udp/80", testcluster.OK)
	c.wants("g3 g2 udp/80", testcluster.OK)
	c.wants("g1 g2 udp/80", testcluster.OK)

	at := map[string]*trap{}
	for _, name := range []string{"g1", "g2"} {
		at[name] = c.trap(name)
	}
	ctx, stop := context.WithCancel(t.Context())
	pings := make(chan testcluster.PingStats, 2)
	for _, to := range []string{"g2", "g1"} {
		go func() {
			s, err := c.space("g3").Ping(ctx, c.addr(to, "4"), 10*time.Millisecond)
			if err != nil {
				t.Error(err)
			}
			pings <- s
		}()
	}

	// send lets a space send every frame to a host's tunnel, on every VNI.
	send := func(space *testcluster.Namespace, to netip.Addr, frames [][]byte) {
		t.Helper()
		var conn net.Conn
		if err := space.Do(func() (err error) {
			conn, err = new(net.Dialer).DialContext(t.Context(), "udp", netip.AddrPortFrom(to, 4789).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for vni := range byte(4) {
			for _, f := range frames {
				if _, err := conn.Write(append([]byte{8, 0, 0, 0, 0, 0, vni + 1, 0}, f...)); err != nil {
					t.Logf("send: %v", err) // the ICMP error for the frame before, which is not read
				}
			}
		}
	}
	h1, h2, h3 := c.host("h1"), c.host("h2"), c.host("h3")
	attacks := []struct {
		name   string
		from   *testcluster.Namespace
		to     netip.Addr
		as     string
		victim string
		host   *testcluster.Namespace // the endpoint's own host, which may send and tries after the attack; nil = it does not try
	}{
		{"a container to another host, as an endpoint of its own host", c.space("evil"), h2.Address, "g1", "g2", h1.NS},
		{"a container to another host, as an endpoint of a third", c.space("evil"), h2.Address, "g3", "g2", h3.NS},
		{"a container to its own host", c.space("evil"), h1.Address, "g2", "g1", h2.NS},
		{"a container to its own host as the router", c.space("evil"), routerAddr, "g2", "g1", nil},
		{"another host's stack", h3.NS, h2.Address, "g1", "g2", nil},
		{"another host's stack, to the first", h3.NS, h1.Address, "g2", "g1", nil},
	}
	for i := range byte(20 * len(attacks)) {
		x := attacks[int(i)%len(attacks)]
		bad := c.forged(2*i, x.as, x.victim)
		send(x.from, x.to, bad)
		if x.host != nil {
			good := c.forged(2*i+1, x.as, x.victim)
			send(x.host, x.to, good)
			at[x.victim].want(good[0], "from the endpoint's own host") // behind what was sent before
		} else {
			c.wants(x.as+" "+x.victim+" udp/80", testcluster.OK)
		}
		for _, f := range bad {
			if at[x.victim].has(f) {
				t.Errorf("%s: %s got %x in the name of %s", x.name, x.victim, f, x.as)
			}
		}
	}
	stop()
	for range 2 {
		if s := <-pings; s.Lost() > 0 {
			t.Errorf("ping every 10 ms meanwhile: %s", s)
		}
	}
}

// forged makes frames in the name of one container for another: UDP, and ARP and
// neighbour discovery that claim its address, over both families. Behind the length
// that its packet says, each ends with a mark.
func (c *cluster) forged(mark byte, as, victim string) [][]byte {
	c.t.Helper()
	from, to := c.station(as), c.station(victim)
	udp := reference.Packet{
		SrcMAC: from.mac, DstMAC: to.mac, Src: from.ip4, Dst: to.ip4, Proto: model.ProtoUDP,
		SrcPort: 20000, DstPort: 80,
	}
	udp6 := udp
	udp6.Src, udp6.Dst = from.ip6, to.ip6
	arp := reference.Packet{SrcMAC: from.mac, DstMAC: to.mac, ARP: &reference.ARP{
		Op: reference.ARPReply, SenderMAC: from.mac, SenderIP: from.ip4, TargetMAC: to.mac, TargetIP: to.ip4,
	}}
	nd := reference.Packet{
		SrcMAC: from.mac, DstMAC: to.mac, Src: from.ip6, Dst: to.ip6, Proto: model.ProtoICMPv6,
		ICMPType: reference.NDNeighborAdvert, ND: &reference.ND{Target: from.ip6, LinkAddr: from.mac, HasLink: true},
	}
	var out [][]byte
	for _, p := range []reference.Packet{udp, udp6, arp, nd} {
		out = append(out, append(conformance.Frame(p), 'f', 'o', 'r', 'g', 'e', 'd', mark))
	}
	return out
}

type station struct {
	mac      model.MAC
	ip4, ip6 netip.Addr
}

func (c *cluster) station(name string) station {
	c.t.Helper()
	var mac model.MAC
	err := c.space(name).Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = model.MAC(i.HardwareAddr)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return station{mac, c.addr(name, "4"), c.addr(name, "6")}
}

// trap keeps every frame that arrives at a container's interface.
type trap struct {
	t      *testing.T
	mu     sync.Mutex
	frames [][]byte
}

func (c *cluster) trap(name string) *trap {
	c.t.Helper()
	tr, stop := c.trapIn(c.space(name))
	c.t.Cleanup(stop)
	return tr
}

// trapIn keeps every frame that arrives at or leaves a namespace, until it is stopped.
func (c *cluster) trapIn(ns *testcluster.Namespace) (tr *trap, stop func()) {
	c.t.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300); err != nil { // ETH_P_ALL, in network order
			return err
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	})
	if err != nil {
		c.t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	tr = &trap{t: c.t}
	go func() {
		defer close(ended)
		b := make([]byte, 2048)
		for {
			select {
			case <-done:
				return
			default:
			}
			if n, _, err := unix.Recvfrom(fd, b, 0); err == nil {
				tr.mu.Lock()
				tr.frames = append(tr.frames, bytes.Clone(b[:n]))
				tr.mu.Unlock()
			}
		}
	}()
	return tr, func() { close(done); <-ended; _ = unix.Close(fd) }
}

func (tr *trap) has(f []byte) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.ContainsFunc(tr.frames, func(g []byte) bool { return bytes.HasPrefix(g, f) })
}

// want waits for a frame.
func (tr *trap) want(f []byte, what string) {
	tr.t.Helper()
	ctx, cancel := context.WithTimeout(tr.t.Context(), 5*time.Second)
	defer cancel()
	if err := testcluster.Until(ctx, "a frame "+what, func(context.Context) error {
		if !tr.has(f) {
			return errors.New("it has not come")
		}
		return nil
	}); err != nil {
		tr.t.Error(err)
	}
}
