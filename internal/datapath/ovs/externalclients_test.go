package ovs

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestExternalClientsReachServices tries an exposed service with the stacks of the host and of a
// machine that the host forwards for: bytes of TCP, datagrams of any size, refusals,
// a restart of the driver, and the service's end.
func TestExternalClientsReachServices(t *testing.T) {
	l, host, out := newEgress(t)
	defer func() { _ = l.drv.Close() }()
	b := l.boxes[1]
	l.echo(t, b, 8080)
	s := l.served(200, b)
	s.Exposed = true
	l.serve(t, s)
	for _, vip := range []netip.Addr{s.IPv4, s.IPv6} {
		via := "203.0.113.1"
		if vip.Is6() {
			via = "2001:db8:7::1"
		}
		l.Run("ip", "-n", l.NS, "route", "add", vip.String(), "dev", desired.HostInterface)
		l.Run("ip", "-n", out.ns, "route", "add", vip.String(), "via", via)
	}
	var living []net.Conn
	for _, from := range []struct {
		name  string
		box   *box
		addrs []netip.Addr
	}{
		{"the host", host, []netip.Addr{l.pic.HostNAT.Addr, l.pic.HostNAT.Addr6}},
		{"beyond it", out, []netip.Addr{outside, outside6}},
	} {
		for _, vip := range []netip.Addr{s.IPv4, s.IPv6} {
			what := from.name + ", " + vip.String()
			c, err := l.dial(t, from.box, vip, 80, 5*time.Second)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			defer c.Close()
			if err := bulk(c, 1<<20); err != nil {
				t.Errorf("%s: a megabyte: %v", what, err)
			}
			for _, size := range []int{64, 4000, 20000} {
				if peer, err := l.datagrams(t, from.box, b, vip, size); err != nil || !slices.Contains(from.addrs, peer) {
					t.Errorf("%s: a datagram of %d bytes: %v, from %s", what, size, err, peer)
				}
			}
			l.refusesClients(t, from.box, vip)
			living = append(living, c)
		}
	}
	goOn := func(when string) {
		t.Helper()
		for i, c := range living {
			if err := roundTrip(c, 5*time.Second); err != nil {
				t.Fatalf("%s, connection %d: %v", when, i, err)
			}
		}
	}
	_ = l.drv.Close()
	l.open(t)
	if rep := l.apply(t); rep.Changes != 0 {
		t.Errorf("a restart of the driver: %d changes", rep.Changes)
	}
	goOn("after a restart of the driver")
	l.serve(t)
	for i, c := range living {
		if roundTrip(c, 300*time.Millisecond) == nil {
			t.Errorf("connection %d goes on without its service", i)
		}
	}
	l.nothingLeft(t)
}

// TestRepliesToExternalClientsNeedNoEgress: a container on a joined network without egress answers
// a client that came by another host, by that host, also after a restart of the
// driver, and is refused else.
func TestRepliesToExternalClientsNeedNoEgress(t *testing.T) {
	r := newRig(t)
	n := &desired.Network{
		ID: 7, Encap: model.EncapVXLAN, Tag: 700, Joined: 3,
		Subnet: netip.MustParsePrefix("10.9.0.0/24"), Subnet6: netip.MustParsePrefix("fd09::/64"),
	}
	r.networks[n.ID] = n.Tag
	p := &desired.Port{
		IfName: "cvjoined", Network: 7, MAC: model.MAC{2, 2, 10, 9, 0, 1}, Identity: 300,
		IPv4: netip.MustParseAddr("10.9.0.1"), IPv6: netip.MustParseAddr("fd09::1"),
	}
	r.addWire(t, p.IfName, p.MAC)
	h := desired.Host{Name: "h1", VTEP: vtep1, ArpMode: model.ArpProxy}
	h.Tunnels = h.Tunnels.Set(vtep2, "h2")
	h.Networks, h.Ports = h.Networks.Set(n.ID, n), h.Ports.Set(p.IfName, p)
	d := r.open(t)
	apply := func() {
		t.Helper()
		if _, err := d.Apply(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	for _, x := range []struct{ client, own netip.Addr }{{conformance.Outside, p.IPv4}, {conformance.Outside6, p.IPv6}} {
		there := reference.Packet{
			VTEP: vtep2, Network: n.ID, SrcMAC: desired.RouterMAC, DstMAC: p.MAC, Src: x.client, Dst: x.own,
			Proto: model.ProtoUDP, SrcPort: 4000, DstPort: 53,
		}
		back := reference.Packet{
			Port: p.IfName, SrcMAC: p.MAC, DstMAC: desired.RouterMAC, Src: x.own, Dst: x.client,
			Proto: model.ProtoUDP, SrcPort: 53, DstPort: 4000,
		}
		answered := func(when string) {
			t.Helper()
			if v := r.inject(t, back); !slices.Equal(v.VTEPs, []netip.Addr{vtep2}) || v.Network != n.ID || v.Sent == nil || v.Sent.SrcMAC != desired.RouterMAC {
				t.Errorf("%s, %s: %s (%+v), want it back by %s", x.client, when, v, v.Sent, vtep2)
			}
		}
		refused := func(when string) {
			t.Helper()
			if v := r.inject(t, back); len(v.VTEPs) > 0 || v.Answer == nil || v.Answer.Inner == nil {
				t.Errorf("%s, %s: %s (%+v), want it refused", x.client, when, v, v.Answer)
			}
		}
		refused("before anybody asked")
		if v := r.inject(t, there); !slices.Equal(v.Ports, []string{p.IfName}) {
			t.Fatalf("%s: %s, want it at the container", x.client, v)
		}
		answered("at once")
		_ = d.Close()
		d = r.open(t)
		apply()
		answered("after a restart of the driver")
		back.DstPort++
		refused("to another port")
		back.DstPort--
		was := h.Tunnels
		h.Tunnels = h.Tunnels.Delete(vtep2)
		apply()
		if v := r.inject(t, back); len(v.VTEPs) > 0 {
			t.Errorf("%s: to a host that is gone: %s", x.client, v)
		}
		h.Tunnels = was
		apply()
	}
	_ = d.Close()
}
