package reference

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// routedState is a desired state of a tenant with three networks that are joined: 1
// with the port a and 2 with the port b on VXLAN, 3 on VLAN with the port c; each
// has a remote endpoint whose address ends in 9. edit changes it.
func routedState(edit func(*desired.Host)) desired.Host {
	h := desired.Host{Name: "h1", Revision: 1, VTEP: vtep1, FwdMode: model.FwdRouting, ArpMode: model.ArpProxy}
	for i, encap := range []model.Encap{model.EncapVXLAN, model.EncapVXLAN, model.EncapVLAN} {
		id, n := model.NetworkID(i+1), byte(i+1)
		h.Networks = h.Networks.Set(id, &desired.Network{
			ID: id, Encap: encap, Tag: uint32(100 + i), Joined: 7, Gateway: netip.AddrFrom4([4]byte{10, 0, n, 254}),
			Subnet:  netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, n, 0}), 24),
			Subnet6: netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: n}), 64),
		})
		port := &desired.Port{IfName: string('a' + rune(i)), Network: id, MAC: model.MAC{2, n, 1}, Identity: 300 + model.Identity(i)}
		port.IPv4, port.IPv6 = netip.AddrFrom4([4]byte{10, 0, n, 1}), netip.AddrFrom16([16]byte{0: 0xfd, 3: n, 15: 1})
		h.Ports = h.Ports.Set(port.IfName, port)
		r := &desired.Remote{Network: id, MAC: model.MAC{2, n, 9}, Identity: 310 + model.Identity(i), VTEP: vtep2}
		r.IPv4, r.IPv6 = netip.AddrFrom4([4]byte{10, 0, n, 9}), netip.AddrFrom16([16]byte{0: 0xfd, 3: n, 15: 9})
		h.Remotes = h.Remotes.Set(keyOf(r), r)
	}
	if edit != nil {
		edit(&h)
	}
	return h
}

// editNetwork changes one network of a desired state.
func editNetwork(id model.NetworkID, edit func(*desired.Network)) func(*desired.Host) {
	return func(h *desired.Host) {
		old, _ := h.Networks.Get(id)
		n := *old
		edit(&n)
		h.Networks = h.Networks.Set(id, &n)
	}
}

// TestRouterAnswersInItsName pins what the router answers, and in whose name.
func TestRouterAnswersInItsName(t *testing.T) {
	f := New()
	mustApply(t, f, routedState(nil))
	for _, x := range []struct {
		dst, router string
		ttl         uint8
		drop        string
		what        [2]uint8
	}{
		{"10.0.2.1", "10.0.1.254", 1, driver.DropTTL, [2]uint8{11, 0}},
		{"10.0.2.77", "10.0.1.254", 1, driver.DropTTL, [2]uint8{11, 0}},
		{"10.0.2.77", "10.0.1.254", 2, driver.DropUnknownDest, [2]uint8{3, 1}},
		{"10.0.3.77", "10.0.1.254", 2, driver.DropUnknownDest, [2]uint8{3, 1}},
		{"10.0.2.254", "10.0.1.254", 2, driver.DropUnknownDest, [2]uint8{3, 1}},
		{"192.0.2.1", "10.0.1.254", 1, driver.DropUnknownDest, [2]uint8{3, 0}},
		{"10.0.1.77", "", 2, driver.DropUnknownDest, [2]uint8{}},
		{"10.0.1.254", "", 1, driver.DropUnknownDest, [2]uint8{}},
		{"224.0.0.5", "", 2, driver.DropUnknownDest, [2]uint8{}},
		{"fd00:0200::1", "", 2, driver.DropUnknownDest, [2]uint8{1, 0}},
		{"fd00:2::1", "fe80::1:ff:fe00:1", 1, driver.DropTTL, [2]uint8{3, 0}},
		{"fd00:2::77", "fe80::1:ff:fe00:1", 2, driver.DropUnknownDest, [2]uint8{1, 3}},
		{"2001:db8::1", "fe80::1:ff:fe00:1", 2, driver.DropUnknownDest, [2]uint8{1, 0}},
		{"fe80::1:ff:fe00:1", "", 2, driver.DropUnknownDest, [2]uint8{}},
	} {
		p := Packet{Port: "a", SrcMAC: model.MAC{2, 1, 1}, DstMAC: desired.RouterMAC, Src: ip("10.0.1.1"), Dst: ip(x.dst), TTL: x.ttl, Proto: model.ProtoUDP, SrcPort: 5, DstPort: 6}
		if p.Dst.Is6() {
			p.Src = ip("fd00:1::1")
		}
		v := f.Send(p)
		switch a := v.Answer; {
		case v.Drop != x.drop:
			t.Errorf("%s, ttl %d: %s", x.dst, x.ttl, v)
		case x.router == "":
		case a == nil || a.Src != ip(x.router) || a.Dst != p.Src || a.SrcMAC != desired.RouterMAC || a.DstMAC != p.SrcMAC ||
			[2]uint8{a.ICMPType, a.ICMPCode} != x.what || a.Inner == nil || a.Inner.Dst != p.Dst || a.Inner.SrcPort != 5:
			t.Errorf("%s, ttl %d: %s %+v", x.dst, x.ttl, v, a)
		}
		if x.what == ([2]uint8{}) && v.Answer != nil {
			t.Errorf("%s, ttl %d: %s", x.dst, x.ttl, v)
		}
	}
}

// TestRoutedPacketsLoseOneHop: what is on its way is sent with the MAC of its sender, and is
// delivered from the router's; the TTL counts one router.
func TestRoutedPacketsLoseOneHop(t *testing.T) {
	f := New()
	mustApply(t, f, routedState(nil))
	p := Packet{Port: "a", SrcMAC: model.MAC{2, 1, 1}, DstMAC: desired.RouterMAC, Src: ip("10.0.1.1"), TTL: 9, Proto: model.ProtoUDP, SrcPort: 5, DstPort: 6}
	p.Dst = ip("10.0.2.9")
	if v := f.Send(p); len(v.VTEPs) != 1 || v.Network != 2 || v.Sent.SrcMAC != p.SrcMAC || v.Sent.DstMAC != (model.MAC{2, 2, 9}) || v.Sent.TTL != 8 {
		t.Errorf("by the tunnel: %s %+v", v, v.Sent)
	}
	p.Dst = ip("10.0.3.9")
	if v := f.Send(p); !v.Uplink || v.VLAN != 102 || v.Sent.SrcMAC != p.SrcMAC || v.Sent.DstMAC != (model.MAC{2, 3, 9}) || v.Sent.TTL != 8 {
		t.Errorf("by the uplink: %s %+v", v, v.Sent)
	}
	p.Dst = ip("10.0.2.1")
	if v := f.Send(p); len(v.Ports) != 1 || v.Sent.SrcMAC != desired.RouterMAC || v.Sent.DstMAC != (model.MAC{2, 2, 1}) || v.Sent.TTL != 8 {
		t.Errorf("here: %s %+v", v, v.Sent)
	}
	back := Packet{VTEP: vtep2, Network: 1, SrcMAC: model.MAC{2, 2, 9}, DstMAC: p.SrcMAC, Src: ip("10.0.2.9"), Dst: p.Src, TTL: 8, Proto: model.ProtoUDP, SrcPort: 6, DstPort: 5}
	if v := f.Send(back); len(v.Ports) != 1 || v.Sent.SrcMAC != desired.RouterMAC || v.Sent.TTL != 8 {
		t.Errorf("back: %s %+v", v, v.Sent)
	}
	back.VTEP = vtep1
	if v := f.Send(back); v.Drop != driver.DropUnknownSource {
		t.Errorf("back from another host: %s", v)
	}
}

// TestUnidentifiedEndpointsAreNotRouted: the packets of an endpoint whose identity is not known are not
// routed, here or from elsewhere.
func TestUnidentifiedEndpointsAreNotRouted(t *testing.T) {
	f := New()
	mustApply(t, f, routedState(func(h *desired.Host) {
		p, _ := h.Ports.Get("c")
		port := *p
		port.Identity = model.IdentityUnknown
		h.Ports = h.Ports.Set("c", &port)
		r, _ := h.Remotes.Get(desired.RemoteKey{Network: 2, MAC: model.MAC{2, 2, 9}})
		remote := *r
		remote.Identity = model.IdentityUnknown
		h.Remotes = h.Remotes.Set(keyOf(&remote), &remote)
	}))
	p := Packet{Port: "c", SrcMAC: model.MAC{2, 3, 1}, DstMAC: desired.RouterMAC, Src: ip("10.0.3.1"), Dst: ip("10.0.1.1"), Proto: model.ProtoUDP, SrcPort: 5, DstPort: 6}
	if v := f.Send(p); v.Drop != driver.DropUnknownSource {
		t.Errorf("from a port: %s", v)
	}
	p = Packet{Uplink: true, VLAN: 102, SrcMAC: model.MAC{2, 2, 9}, DstMAC: model.MAC{2, 3, 1}, Src: ip("10.0.2.9"), Dst: ip("10.0.3.1"), Proto: model.ProtoUDP, SrcPort: 5, DstPort: 6}
	if v := f.Send(p); v.Drop != driver.DropSpoof {
		t.Errorf("by the uplink: %s", v)
	}
}

// TestAddressBelongsToOneEndpointOfADomain: an address is one endpoint's in all of a domain, another
// tenant's in its own; a network that leaves the domain has its own addresses.
func TestAddressBelongsToOneEndpointOfADomain(t *testing.T) {
	twice := func(h *desired.Host) {
		r := &desired.Remote{Network: 2, MAC: model.MAC{2, 2, 8}, IPv4: ip("10.0.1.1"), Identity: 320, VTEP: vtep2}
		h.Remotes = h.Remotes.Set(keyOf(r), r)
	}
	f := New()
	refused := func(h desired.Host) bool {
		t.Helper()
		problems := mustApply(t, f, h).Problems
		return len(problems) == 1 && errors.Is(problems[0].Err, model.ErrExists)
	}
	for i, want := range []bool{true, false, true, false} {
		h := routedState(twice)
		if !want {
			editNetwork(2, func(n *desired.Network) { n.Joined = model.RouterID(i / 2 * 8) })(&h)
		}
		if refused(h) != want {
			t.Errorf("round %d: refused %v, want %v", i, !want, want)
		}
	}
	if refused(routedState(nil)) {
		t.Error("refused without it")
	}
}

// TestChangedDomainForgetsItsConnections: the connections of a network that joins or leaves a domain are
// forgotten, others go on.
func TestChangedDomainForgetsItsConnections(t *testing.T) {
	f := New()
	mustApply(t, f, routedState(nil))
	there := Packet{Port: "a", SrcMAC: model.MAC{2, 1, 1}, DstMAC: desired.RouterMAC, Src: ip("10.0.1.1"), Dst: ip("10.0.2.1"), Proto: model.ProtoTCP, SrcPort: 5, DstPort: 6, TCPFlags: FlagSYN}
	other := there
	other.Port, other.SrcMAC, other.Src, other.SrcPort = "c", model.MAC{2, 3, 1}, ip("10.0.3.1"), 7
	answered := func(p Packet) bool {
		p.Src, p.Dst, p.SrcPort, p.DstPort, p.TCPFlags = p.Dst, p.Src, p.DstPort, p.SrcPort, FlagSYN|FlagACK
		p.Port, p.SrcMAC = "b", model.MAC{2, 2, 1}
		return f.Send(p).Passed()
	}
	for _, p := range []Packet{there, other} {
		if v := f.Send(p); !v.Passed() || !answered(p) {
			t.Fatalf("%s > %s: %s", p.Src, p.Dst, v)
		}
	}
	mustApply(t, f, routedState(editNetwork(1, func(n *desired.Network) { n.Joined = 0 })))
	if answered(there) || !answered(other) {
		t.Errorf("network 1 has left: answers %v %v, want false true", answered(there), answered(other))
	}
	mustApply(t, f, routedState(nil))
	if answered(there) || !answered(other) {
		t.Errorf("network 1 is back: answers %v %v, want false true", answered(there), answered(other))
	}
}

// TestOverlappingSubnetsOpenNothing: subnets that overlap, or do not hold an endpoint's address,
// open nothing: see docs/design/routing.md.
func TestOverlappingSubnetsOpenNothing(t *testing.T) {
	for _, x := range []struct {
		name, subnet2 string
		from, dst     string
		network       model.NetworkID // that it is routed to; 0 = to none
	}{
		{"overlap, held by both", "10.0.0.0/16", "b", "10.0.1.9", 0},
		{"overlap, held by the other alone", "10.0.0.0/16", "a", "10.0.2.9", 2},
		{"overlap, from a third network", "10.0.0.0/16", "c", "10.0.1.9", 1},
		{"not held, to it", "10.9.0.0/24", "a", "10.0.2.9", 0},
		{"not held, from it", "10.9.0.0/24", "b", "10.0.1.9", 0},
	} {
		f := New()
		mustApply(t, f, routedState(editNetwork(2, func(n *desired.Network) { n.Subnet = netip.MustParsePrefix(x.subnet2) })))
		from, _ := f.port(x.from)
		p := Packet{Port: x.from, SrcMAC: from.MAC, DstMAC: desired.RouterMAC, Src: from.IPv4, Dst: ip(x.dst), Proto: model.ProtoUDP, SrcPort: 5, DstPort: 6}
		if v := f.Send(p); v.Network != x.network || (x.network == 0) == v.Passed() {
			t.Errorf("%s: %s on network %d", x.name, v, v.Network)
		}
	}
}

// TestRoutedPacketsComeByTheirSendersHost: only packets for one station come from another network,
// and by no other way than their sender's host.
func TestRoutedPacketsComeByTheirSendersHost(t *testing.T) {
	f := New()
	mustApply(t, f, routedState(func(h *desired.Host) {
		h.ArpMode, h.HostNAT = model.ArpFlood, desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
		p, _ := h.Ports.Get("a")
		port := *p
		port.Private = ip("172.19.0.1")
		h.Ports = h.Ports.Set("a", &port)
		twin := &desired.Remote{Network: 1, MAC: model.MAC{2, 2, 9}, IPv4: ip("10.0.1.8"), Identity: 320, VTEP: vtep2}
		h.Remotes = h.Remotes.Set(keyOf(twin), twin)
		stray := &desired.Remote{Network: 2, MAC: model.MAC{2, 2, 8}, IPv4: ip("10.0.3.8"), Identity: 321, VTEP: vtep2}
		h.Remotes = h.Remotes.Set(keyOf(stray), stray)
	}))
	from := Packet{VTEP: vtep2, Network: 1, SrcMAC: model.MAC{2, 2, 9}, DstMAC: model.MAC{2, 1, 1}, Src: ip("10.0.2.9"), Dst: ip("10.0.1.1"), Proto: model.ProtoUDP, SrcPort: 5, DstPort: 6}
	to := Packet{Port: "a", SrcMAC: model.MAC{2, 1, 1}, DstMAC: desired.RouterMAC, Src: ip("10.0.1.1"), Dst: ip("10.0.3.8"), Proto: model.ProtoUDP, SrcPort: 5, DstPort: 6}
	for _, x := range []struct {
		name string
		p    Packet
		edit func(*Packet)
		drop string
	}{
		{"a packet", from, func(*Packet) {}, ""},
		{"a broadcast", from, func(p *Packet) { p.DstMAC, p.Dst = Broadcast, ip("255.255.255.255") }, driver.DropUnknownSource},
		{"ARP", from, func(p *Packet) {
			p.ARP = &ARP{Op: ARPReply, SenderMAC: p.SrcMAC, SenderIP: p.Src, TargetMAC: p.DstMAC, TargetIP: p.Dst}
		}, driver.DropUnknownSource},
		{"neighbour discovery", from, func(p *Packet) {
			p.Src, p.Dst, p.Proto, p.ICMPType = ip("fd00:2::9"), ip("fd00:1::1"), model.ProtoICMPv6, NDNeighborAdvert
			p.ND = &ND{Target: p.Src, LinkAddr: p.SrcMAC, HasLink: true}
		}, driver.DropUnknownSource},
		{"from the host", from, func(p *Packet) { p.VTEP, p.Network, p.Host, p.Dst = netip.Addr{}, 0, true, ip("172.19.0.1") }, driver.DropSpoof},
		{"to an address that its network does not hold", to, func(*Packet) {}, driver.DropUnknownDest},
		{"to a twin's MAC on the own network", to, func(p *Packet) { p.DstMAC, p.Dst = model.MAC{2, 2, 9}, ip("10.0.2.9") }, driver.DropUnknownDest},
	} {
		p := x.p
		x.edit(&p)
		if v := f.Send(p); v.Drop != x.drop {
			t.Errorf("%s: %s, want %q", x.name, v, x.drop)
		}
	}
}
