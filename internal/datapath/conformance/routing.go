package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testRouting: what docs/design/routing.md says, in both ARP modes: between a
// tenant's networks, beside what goes within one.
func testRouting(t *testing.T, h Harness) {
	t.Helper()
	for i, mode := range []model.ArpMode{model.ArpProxy, model.ArpFlood} {
		top := RoutedTopology()
		top.Global.ArpMode = mode
		if b, w := routing(t, h, top, i == 0); b != nil {
			b.apply(t, w.Desired["h1"])
			sport := uint16(10000 + 2000*i)
			for _, list := range [][]namedPacket{
				routedExchanges(top, &sport), toRouterPackets(top, &sport), fromElsewherePackets(top, &sport),
				craftedPackets(top, 16000+uint16(1000*i)), senders(top, 18000+uint16(1000*i)),
			} {
				for _, x := range list {
					b.compare(t, fmt.Sprintf("%s: %s", mode, x.name), x.packet)
				}
			}
			b.close(t)
		}
	}
}

// routing is sending for a driver that routes; it skips the test when it does not.
// fresh tells that the interfaces are to be made.
func routing(t *testing.T, h Harness, top Topology, fresh bool) (*bench, *World) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	b := open(t, h)
	if !b.drv.Capabilities().Routes {
		t.Skip("the driver does not route")
	}
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	if fresh {
		b.interfaces(t, w.Desired["h1"])
	}
	return b, w
}

// routedExchanges makes, for pairs of both tenants' endpoints, a request and its
// answer by each protocol and family; connections are all new.
func routedExchanges(top Topology, sport *uint16) (out []namedPacket) {
	return exchangesBetween(top, append(crossNetworkPairs(top, "blue", "web1", "web2", "app1", "app2", "lan1", "lan2", "far2"), crossNetworkPairs(top, "red", "web1", "web2", "app1", "app2")...), sport)
}

// exchangesBetween is that for some pairs.
func exchangesBetween(top Topology, pairs [][2]model.Endpoint, sport *uint16) (out []namedPacket) {
	for _, pair := range pairs {
		from, to := pair[0], pair[1]
		for _, v6 := range []bool{false, true} {
			if !bothHave(from, to, v6) {
				continue
			}
			for _, q := range []struct {
				proto model.Protocol
				port  uint16
			}{{model.ProtoTCP, 80}, {model.ProtoUDP, 8080}, {model.ProtoICMP, 0}} {
				*sport++
				there := routed(top, from, to, q.proto, v6, *sport, q.port)
				name := fmt.Sprintf("%s > %s proto %d IPv6 %v", from.Key, to.Key, q.proto, v6)
				out = append(out, namedPacket{name, there}, namedPacket{"answer to " + name, routedAnswer(top, there, from, to)})
			}
		}
	}
	return out
}

// toRouterPackets makes the questions of containers for the router and for
// endpoints, and packets to the router that it drops, answers, or changes on their
// way.
func toRouterPackets(top Topology, sport *uint16) (out []namedPacket) {
	web1, app1, app2, lan1, far2 := at(top, "web1"), at(top, "app1"), at(top, "app2"), at(top, "lan1"), at(top, "far2")
	red1 := ofTenant(top, "red", "app1")
	add := func(name string, p reference.Packet, edits ...func(*reference.Packet)) {
		for _, edit := range edits {
			edit(&p)
		}
		out = append(out, namedPacket{name, p})
	}
	for _, e := range []model.Endpoint{web1, app1, lan1, red1} {
		n, who := top.Network(e.Key.Network), e.Key.String()+" asks for "
		for _, target := range []netip.Addr{n.Gateway, desired.RouterAddr, app2.IPv4, far2.IPv4} {
			if !target.IsValid() {
				continue
			}
			p := origin(top, e)
			p.SrcMAC, p.DstMAC = e.MAC, reference.Broadcast
			p.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: e.MAC, SenderIP: e.IPv4, TargetIP: target}
			add(who+target.String(), p)
			add(who+target.String()+", unicast", p, func(p *reference.Packet) { p.DstMAC = desired.RouterMAC })
			spoofed := *p.ARP
			spoofed.SenderIP = far2.IPv4
			add(who+target.String()+" in another's name", p, func(p *reference.Packet) { p.ARP = &spoofed })
		}
		for _, target := range []netip.Addr{n.Gateway6, desired.RouterMAC.LinkLocal(), app2.IPv6} {
			if !target.IsValid() {
				continue
			}
			p := origin(top, e)
			p.SrcMAC, p.Src, p.Proto, p.ICMPType = e.MAC, e.IPv6, model.ProtoICMPv6, reference.NDNeighborSolicit
			p.Dst, p.DstMAC = reference.SolicitedNode(target)
			p.ND = &reference.ND{Target: target, LinkAddr: e.MAC, HasLink: true}
			add(who+target.String(), p)
			add(who+target.String()+", unicast", p, func(p *reference.Packet) { p.DstMAC, p.Dst = desired.RouterMAC, target })
			add(who+target.String()+", by its link-local address", p, func(p *reference.Packet) { p.Src = e.MAC.LinkLocal() })
			add(who+target.String()+", for a duplicate", p, func(p *reference.Packet) {
				p.Src, p.ND = netip.IPv6Unspecified(), &reference.ND{Target: target}
			})
		}
	}
	for _, v6 := range []bool{false, true} {
		f := map[bool]string{false: "IPv4 ", true: "IPv6 "}[v6]
		ip := func(from, to model.Endpoint, proto model.Protocol) reference.Packet {
			*sport++
			return routed(top, from, to, proto, v6, *sport, 80)
		}
		for _, to := range []model.Endpoint{app1, app2, lan1} { // here, by the tunnel, of another encapsulation
			who := f + "to " + string(to.Key.ID) + " "
			for _, ttl := range []uint8{1, 2, 255} {
				p := ip(web1, to, model.ProtoUDP)
				p.TTL = ttl
				add(fmt.Sprint(who, "ttl ", ttl), p)
			}
			add(who+"by its own MAC", ip(web1, to, model.ProtoUDP), func(p *reference.Packet) { p.DstMAC = to.MAC })
			add(who+"SCTP", ip(web1, to, model.ProtoSCTP))
			add(who+"GRE", ip(web1, to, 47))
		}
		to := func(name string, dst netip.Addr) {
			for _, ttl := range []uint8{1, 64} {
				p := ip(web1, app1, model.ProtoUDP)
				p.Dst, p.TTL = dst, ttl
				add(fmt.Sprintf("%sto %s, ttl %d", f, name, ttl), p)
			}
		}
		net, other := top.Network(web1.Key.Network), top.Network(app1.Key.Network)
		if v6 {
			to("nobody on another network", host6(other, 250))
			to("nobody on the VLAN network", host6(top.Network(lan1.Key.Network), 250))
			to("nobody on its own network", host6(net, 250))
			to("somebody on its own network", at(top, "db1").IPv6)
			to("the router", net.Gateway6)
			to("the router's link-local address", desired.RouterMAC.LinkLocal())
			to("outside", netip.MustParseAddr("2001:db8::7"))
			to("somebody's link-local address", app1.MAC.LinkLocal())
			to("a group", netip.MustParseAddr("ff0e::1"))
			to("itself by loopback", netip.IPv6Loopback())
			to("an IPv4-mapped address on another network", netip.AddrFrom16(app1.IPv4.As16()))
		} else {
			to("nobody on another network", host4(other, 250))
			to("nobody on the VLAN network", host4(top.Network(lan1.Key.Network), 250))
			to("nobody on its own network", host4(net, 250))
			to("somebody on its own network", at(top, "db1").IPv4)
			to("the router", net.Gateway)
			to("the router on another network", host4(top.Network(lan1.Key.Network), 254))
			to("outside", Outside)
			to("a group", netip.MustParseAddr("224.0.0.251"))
			to("everybody", netip.MustParseAddr("255.255.255.255"))
			to("itself by loopback", netip.MustParseAddr("127.0.0.1"))
			to("this network", netip.MustParseAddr("0.0.0.1"))
		}
		spoofed := ip(web1, app1, model.ProtoUDP)
		add(f+"in another's name", spoofed, func(p *reference.Packet) { p.Src = addressOf(app2, v6) })
		add(f+"in the router's name", spoofed, func(p *reference.Packet) { p.SrcMAC = desired.RouterMAC })
		if v6 {
			add("IPv6 from a link-local address", spoofed, func(p *reference.Packet) { p.Src = web1.MAC.LinkLocal() })
		}
		out = append(out, errorsAndFragments(top, f, v6, sport)...)
	}
	return out
}

// errorsAndFragments are ICMP errors about routed packets, and routed datagrams in
// fragments; what the router does not answer is tried with one hop left, too.
func errorsAndFragments(top Topology, f string, v6 bool, sport *uint16) (out []namedPacket) {
	web1 := at(top, "web1")
	app2, app1 := at(top, "app2"), at(top, "app1")
	add := func(name string, p reference.Packet) { out = append(out, namedPacket{f + name, p}) }
	for _, to := range []model.Endpoint{app1, app2} {
		who := string(to.Key.ID) + ": "
		*sport++
		asked := routed(top, web1, to, model.ProtoUDP, v6, *sport, 80)
		add(who+"request", asked)
		refused := func(from model.Endpoint, about reference.Packet) reference.Packet {
			p := routedAnswer(top, asked, web1, to)
			p.SrcPort, p.DstPort, p.Inner = 0, 0, &about
			p.SrcMAC, p.Src = from.MAC, addressOf(from, v6)
			if p.Proto, p.ICMPType, p.ICMPCode = model.ProtoICMP, 3, 3; v6 {
				p.Proto, p.ICMPType, p.ICMPCode = model.ProtoICMPv6, 1, 4
			}
			return p
		}
		last := refused(to, asked)
		add(who+"ICMP error about it", last)
		if last.TTL = 1; to.Host == "h1" {
			add(who+"ICMP error about it with one hop", last)
		}
		add(who+"ICMP error about it by somebody else", refused(at(top, "db2"), asked))
		other := asked
		other.SrcPort += 10000
		add(who+"ICMP error about nothing", refused(to, other))
		first := routed(top, web1, to, model.ProtoUDP, v6, *sport+1000, 80)
		first.Frag = &reference.Fragment{ID: uint32(*sport), More: true}
		second := first
		second.SrcPort, second.DstPort, second.Frag = 0, 0, &reference.Fragment{ID: uint32(*sport), Offset: 1400}
		add(who+"first fragment", first)
		one := second
		one.TTL = 1
		add(who+"second fragment with one hop", one)
		add(who+"second fragment", second)
		lost := second
		lost.Frag = &reference.Fragment{ID: 99998, Offset: 1400}
		add(who+"fragment without its first", lost)
		back := routed(top, to, web1, model.ProtoUDP, v6, *sport+2000, 80)
		back.Frag = &reference.Fragment{ID: uint32(*sport) + 5, More: true}
		rest := back
		rest.SrcPort, rest.DstPort, rest.Frag = 0, 0, &reference.Fragment{ID: uint32(*sport) + 5, Offset: 1400}
		add(who+"first fragment back", back)
		add(who+"second fragment back", rest)
		first.TTL, first.Frag = 1, &reference.Fragment{ID: uint32(*sport) + 9, More: true}
		add(who+"first fragment with one hop", first)
	}
	return out
}

// fromElsewherePackets makes packets that other hosts have routed to host h1, and
// packets that only claim to be such.
func fromElsewherePackets(top Topology, sport *uint16) (out []namedPacket) {
	web1, web2, db2 := at(top, "web1"), at(top, "web2"), at(top, "db2")
	app1, app2 := at(top, "app1"), at(top, "app2")
	lan1, lan2 := at(top, "lan1"), at(top, "lan2")
	red1, red2 := ofTenant(top, "red", "app1"), ofTenant(top, "red", "app2")
	stranger := model.MAC{0x02, 0x66, 0, 0, 0, 5}
	add := func(name string, p reference.Packet, edits ...func(*reference.Packet)) {
		for _, edit := range edits {
			edit(&p)
		}
		out = append(out, namedPacket{name, p})
	}
	for _, v6 := range []bool{false, true} {
		for _, x := range []struct {
			name     string
			from, to model.Endpoint
		}{{"by the tunnel", web2, app1}, {"from the VLAN network", lan2, app1}, {"by the uplink", app2, lan1}} {
			who := fmt.Sprintf("%s, IPv6 %v", x.name, v6)
			*sport++
			p := routed(top, x.from, x.to, model.ProtoUDP, v6, *sport, 80)
			net := top.Network(x.from.Key.Network)
			add(who, p)
			if p.VTEP.IsValid() {
				add(who+", from another host", p, func(p *reference.Packet) { p.VTEP = otherHostAddr })
				add(who+", from this host", p, func(p *reference.Packet) { p.VTEP = top.Hosts[0].VTEP })
				add(who+", with the other tenant's network", p, func(p *reference.Packet) {
					p.Network, p.DstMAC, p.Dst = top.Network(red1.Key.Network).ID, red1.MAC, addressOf(red1, v6)
				})
			}
			for _, mac := range []model.MAC{stranger, desired.RouterMAC, db2.MAC, app2.MAC, lan2.MAC, web1.MAC, red2.MAC, x.to.MAC} {
				add(who+", by "+mac.String(), p, func(p *reference.Packet) { p.SrcMAC = mac })
			}
			for _, e := range []model.Endpoint{db2, web1, red2} {
				add(who+", in the name of "+e.Key.String(), p, func(p *reference.Packet) { p.Src = addressOf(e, v6) })
			}
			add(who+", by and in the name of one of the other tenant", p, func(p *reference.Packet) { p.SrcMAC, p.Src = red2.MAC, addressOf(red2, v6) })
			add(who+", in the name of nobody there", p, func(p *reference.Packet) {
				if p.SrcMAC, p.Src = stranger, host4(net, 250); v6 {
					p.Src = host6(net, 250)
				}
			})
			add(who+", in the name of nobody outside", p, func(p *reference.Packet) {
				if p.SrcMAC, p.Src = stranger, Outside; v6 {
					p.Src = netip.MustParseAddr("2001:db8::7")
				}
			})
			add(who+", to the router", p, func(p *reference.Packet) { p.DstMAC = desired.RouterMAC })
			add(who+", to the router and on", p, func(p *reference.Packet) { p.DstMAC, p.Dst = desired.RouterMAC, addressOf(web1, v6) })
			add(who+", for another network's endpoint", p, func(p *reference.Packet) { p.Dst = addressOf(web1, v6) })
			add(who+", to everybody", p, func(p *reference.Packet) { p.DstMAC = reference.Broadcast })
			add(who+", with one hop", p, func(p *reference.Packet) { p.TTL = 1 })
			add(who+", with the network that it comes from", p, func(p *reference.Packet) {
				if q := inTransit(top, origin(top, x.from), x.from, x.from); q.VTEP.IsValid() || q.Uplink {
					p.VTEP, p.Network, p.Uplink, p.VLAN = q.VTEP, q.Network, q.Uplink, q.VLAN
				}
			})
			if v6 {
				nd := p
				nd.Proto, nd.SrcPort, nd.DstPort, nd.ICMPType = model.ProtoICMPv6, 0, 0, reference.NDNeighborAdvert
				nd.ND = &reference.ND{Target: x.from.IPv6, LinkAddr: x.from.MAC, HasLink: true}
				add(who+", NA", nd)
				nd.ICMPType, nd.ND = reference.NDNeighborSolicit, &reference.ND{Target: x.to.IPv6, LinkAddr: x.from.MAC, HasLink: true}
				add(who+", NS", nd)
			} else {
				arp := reference.Packet{VTEP: p.VTEP, Network: p.Network, Uplink: p.Uplink, VLAN: p.VLAN, SrcMAC: x.from.MAC, DstMAC: reference.Broadcast}
				arp.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: x.from.MAC, SenderIP: x.from.IPv4, TargetIP: x.to.IPv4}
				add(who+", ARP request", arp)
				arp.DstMAC = x.to.MAC
				add(who+", unicast ARP request", arp)
				arp.ARP = &reference.ARP{Op: reference.ARPReply, SenderMAC: x.from.MAC, SenderIP: x.from.IPv4, TargetMAC: x.to.MAC, TargetIP: x.to.IPv4}
				add(who+", ARP reply", arp)
			}
		}
	}
	return out
}
