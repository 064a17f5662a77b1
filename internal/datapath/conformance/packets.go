package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

type namedPacket struct {
	name   string
	packet reference.Packet
}

// origin makes a packet come from an endpoint as h1 sees it: from its port,
// out of the tunnel of its host, or from the uplink.
func origin(top Topology, e model.Endpoint) reference.Packet {
	if e.Host == "h1" {
		return reference.Packet{Port: compile.IfName(e.Key)}
	}
	n := top.Network(e.Key.Network)
	if n.Encap == model.EncapVLAN {
		return reference.Packet{Uplink: true, VLAN: n.Tag}
	}
	for _, h := range top.Hosts {
		if h.Name == e.Host {
			return reference.Packet{VTEP: h.VTEP, Network: n.ID}
		}
	}
	return reference.Packet{}
}

// between makes the first packet of a connection from one endpoint to another.
func between(top Topology, from, to model.Endpoint, proto model.Protocol, v6 bool, sport, dport uint16) reference.Packet {
	p := origin(top, from)
	p.SrcMAC, p.DstMAC, p.Src, p.Dst, p.Proto = from.MAC, to.MAC, from.IPv4, to.IPv4, proto
	if v6 {
		p.Src, p.Dst = from.IPv6, to.IPv6
	}
	switch {
	case proto == model.ProtoICMP:
		p.ICMPID, p.ICMPType = sport, 8
		if v6 {
			p.Proto, p.ICMPType = model.ProtoICMPv6, 128
		}
	case proto.HasPorts():
		p.SrcPort, p.DstPort = sport, dport
		if proto == model.ProtoTCP {
			p.TCPFlags = reference.FlagSYN
		}
	}
	return p
}

// answerTo makes the answer to a packet that between made.
func answerTo(top Topology, p reference.Packet, from, to model.Endpoint) reference.Packet {
	r := origin(top, to)
	r.SrcMAC, r.DstMAC, r.Src, r.Dst, r.Proto = to.MAC, from.MAC, p.Dst, p.Src, p.Proto
	r.SrcPort, r.DstPort, r.ICMPID = p.DstPort, p.SrcPort, p.ICMPID
	switch p.ICMPType {
	case 8:
		r.ICMPType = 0
	case 128:
		r.ICMPType = 129
	}
	if p.Proto == model.ProtoTCP {
		r.TCPFlags = reference.FlagSYN | reference.FlagACK
	}
	return r
}

// exchanges makes, for every pair of endpoints of one network of which at
// least one is on h1, a request and its answer; connections are all new.
func exchanges(top Topology, sport *uint16) []namedPacket {
	var out []namedPacket
	for _, p := range Probes(top) {
		from, to := top.Endpoint(p.From), top.Endpoint(p.To)
		if from.Host != "h1" && to.Host != "h1" || p.From.Network.Tenant == "red" {
			continue
		}
		if *sport++; *sport < 30000 {
			*sport = 30000
		}
		there := between(top, from, to, p.Proto, p.IPv6, *sport, p.Port)
		out = append(out, namedPacket{p.String(), there},
			namedPacket{"answer to " + p.String(), answerTo(top, there, from, to)})
	}
	return out
}

// craftedPackets makes what policies do not decide: ARP, neighbour discovery,
// spoofing, unknown sources and destinations, broadcasts, ICMP errors,
// fragments. No policy is attached. Source ports count up from sport.
func craftedPackets(top Topology, sport uint16) []namedPacket {
	at := func(tenant model.TenantName, network model.NetworkName, id string) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: tenant, Name: network}, ID: model.EndpointID(id)})
	}
	web1, db1, db2, solo1 := at("blue", "vx", "web1"), at("blue", "vx", "db1"), at("blue", "vx", "db2"), at("blue", "vx", "solo1")
	lan1, lan2, lonely := at("blue", "vl", "lan1"), at("blue", "vl", "lan2"), at("blue", "vl", "lonely1")
	red1 := at("red", "vx", "web1")
	vlan := top.Network(lan1.Key.Network).Tag
	vni := top.Network(web1.Key.Network).ID
	strangerMAC := model.MAC{0x02, 0x66, 0, 0, 0, 1}
	stranger := func(e model.Endpoint) netip.Addr { // an unused address of the subnet
		a := e.IPv4.As4()
		a[3] = 250
		return netip.AddrFrom4(a)
	}
	stranger6 := func(e model.Endpoint) netip.Addr {
		a := e.IPv6.As16()
		a[15] = 250
		return netip.AddrFrom16(a)
	}
	var out []namedPacket
	add := func(name string, p reference.Packet, edits ...func(*reference.Packet)) {
		for _, edit := range edits {
			edit(&p)
		}
		out = append(out, namedPacket{name, p})
	}
	arp := func(from model.Endpoint, target netip.Addr) reference.Packet {
		p := origin(top, from)
		p.SrcMAC, p.DstMAC = from.MAC, reference.Broadcast
		p.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: from.MAC, SenderIP: from.IPv4, TargetIP: target}
		return p
	}
	ns := func(from model.Endpoint, target netip.Addr) reference.Packet {
		p := origin(top, from)
		p.SrcMAC, p.Src, p.Proto, p.ICMPType = from.MAC, from.IPv6, model.ProtoICMPv6, reference.NDNeighborSolicit
		p.Dst, p.DstMAC = reference.SolicitedNode(target)
		p.ND = &reference.ND{Target: target, LinkAddr: from.MAC, HasLink: true}
		return p
	}
	for _, x := range []struct {
		name     string
		from, to model.Endpoint
	}{
		{"same host", web1, db1},
		{"other host", web1, db2},
		{"from the other host", db2, web1},
		{"no group", solo1, db1},
		{"VLAN same host", lan1, lonely},
		{"VLAN other host", lan1, lan2},
		{"VLAN from the other host", lan2, lan1},
		{"another tenant's equal address", red1, db1},
		{"itself", web1, web1},
	} {
		add("ARP "+x.name, arp(x.from, x.to.IPv4))
		add("ND "+x.name, ns(x.from, x.to.IPv6))
		add("ND link-local "+x.name, ns(x.from, x.to.MAC.LinkLocal()))
	}
	add("ARP for nobody", arp(web1, stranger(web1)))
	add("ND for nobody", ns(web1, stranger6(web1)))
	add("VLAN ARP for nobody", arp(lan1, stranger(lan1)))
	add("VLAN ND for nobody", ns(lan1, stranger6(lan1)))
	add("ARP probe", arp(web1, db1.IPv4), func(p *reference.Packet) { p.ARP.SenderIP = netip.IPv4Unspecified() })
	add("ARP spoofed address", arp(web1, db1.IPv4), func(p *reference.Packet) { p.ARP.SenderIP = db1.IPv4 })
	add("ARP spoofed hardware", arp(web1, db1.IPv4), func(p *reference.Packet) { p.ARP.SenderMAC = db1.MAC })
	add("ARP spoofed frame", arp(web1, db1.IPv4), func(p *reference.Packet) { p.SrcMAC = db1.MAC })
	add("ARP reply", arp(web1, db1.IPv4), func(p *reference.Packet) {
		p.DstMAC, p.ARP.Op, p.ARP.TargetMAC = db1.MAC, reference.ARPReply, db1.MAC
	})
	add("ARP reply spoofed", arp(web1, db1.IPv4), func(p *reference.Packet) {
		p.DstMAC, p.ARP.Op, p.ARP.SenderIP = db1.MAC, reference.ARPReply, db2.IPv4
	})
	add("DAD for another's address", ns(web1, db1.IPv6), func(p *reference.Packet) { p.Src, p.ND.HasLink = netip.IPv6Unspecified(), false })
	add("DAD for one's own address", ns(web1, web1.IPv6), func(p *reference.Packet) { p.Src, p.ND.HasLink = netip.IPv6Unspecified(), false })
	add("ND from the link-local address", ns(web1, db1.IPv6), func(p *reference.Packet) { p.Src = web1.MAC.LinkLocal() })
	add("ND spoofed source", ns(web1, db1.IPv6), func(p *reference.Packet) { p.Src = db2.IPv6 })
	add("ND spoofed option", ns(web1, db1.IPv6), func(p *reference.Packet) { p.ND.LinkAddr = db2.MAC })
	// Some readers take the first option, some the second, and some neither.
	twice := func(first, second model.MAC) func(*reference.Packet) {
		return func(p *reference.Packet) {
			p.Dst, p.DstMAC, p.ND.LinkAddr, p.ND.Second = db1.IPv6, db1.MAC, first, second
		}
	}
	add("ND spoofed first option of two", ns(web1, db1.IPv6), twice(db2.MAC, web1.MAC))
	add("ND spoofed second option of two", ns(web1, db1.IPv6), twice(web1.MAC, db2.MAC))
	advert := func(target netip.Addr) func(*reference.Packet) {
		return func(p *reference.Packet) {
			p.ICMPType, p.ND.Target, p.Dst, p.DstMAC = reference.NDNeighborAdvert, target, db1.IPv6, db1.MAC
		}
	}
	add("NA", ns(web1, db1.IPv6), advert(web1.IPv6))
	add("NA for another", ns(web1, db1.IPv6), advert(db2.IPv6))
	add("RA from a container", ns(web1, db1.IPv6), func(p *reference.Packet) {
		p.ICMPType, p.ND, p.Dst, p.DstMAC = reference.NDRouterAdvert, nil, netip.IPv6LinkLocalAllNodes(), model.MAC{0x33, 0x33, 0, 0, 0, 1}
		p.Src = web1.MAC.LinkLocal()
	})
	ip := func(from, to model.Endpoint, proto model.Protocol, v6 bool) reference.Packet {
		sport++
		return between(top, from, to, proto, v6, sport, 80)
	}
	add("IPv6 from one's own IPv4 address", ip(web1, db1, model.ProtoUDP, true), func(p *reference.Packet) { p.Src = netip.AddrFrom16(web1.IPv4.As16()) })
	for _, v6 := range []bool{false, true} {
		f := map[bool]string{false: "IPv4 ", true: "IPv6 "}[v6]
		add(f+"spoofed address", ip(web1, db1, model.ProtoUDP, v6), func(p *reference.Packet) {
			if p.Src = db2.IPv4; v6 {
				p.Src = db2.IPv6
			}
		})
		add(f+"spoofed frame", ip(web1, db1, model.ProtoUDP, v6), func(p *reference.Packet) { p.SrcMAC = db2.MAC })
		add(f+"to nobody", ip(web1, db1, model.ProtoUDP, v6), func(p *reference.Packet) { p.DstMAC = strangerMAC })
		add(f+"VLAN to nobody", ip(lan1, lan2, model.ProtoUDP, v6), func(p *reference.Packet) { p.DstMAC = strangerMAC })
		add(f+"to another tenant's MAC", ip(web1, red1, model.ProtoUDP, v6), func(p *reference.Packet) { p.DstMAC = lan1.MAC })
		add(f+"unknown source from a tunnel", ip(db2, web1, model.ProtoUDP, v6), func(p *reference.Packet) {
			if p.Src = stranger(web1); v6 {
				p.Src = stranger6(web1)
			}
			p.SrcMAC = strangerMAC
		})
		add(f+"our own source from a tunnel", ip(db2, web1, model.ProtoUDP, v6), func(p *reference.Packet) {
			if p.Src = db1.IPv4; v6 {
				p.Src = db1.IPv6
			}
		})
		add(f+"external source from the uplink", ip(lan2, lan1, model.ProtoUDP, v6), func(p *reference.Packet) {
			if p.Src = stranger(lan1); v6 {
				p.Src = stranger6(lan1)
			}
			p.SrcMAC = strangerMAC
		})
		add(f+"TCP answer to nothing", answerTo(top, ip(db1, web1, model.ProtoTCP, v6), db1, web1))
		add(f+"echo reply to nothing", answerTo(top, ip(db1, web1, model.ProtoICMP, v6), db1, web1))
		asked := ip(web1, db1, model.ProtoUDP, v6)
		add(f+"request", asked)
		inner := asked
		unreachable := func(from model.Endpoint, about *reference.Packet) reference.Packet {
			p := answerTo(top, asked, web1, from)
			p.SrcPort, p.DstPort, p.Inner = 0, 0, about
			if p.Src, p.Proto, p.ICMPType, p.ICMPCode = from.IPv4, model.ProtoICMP, 3, 3; v6 {
				p.Src, p.Proto, p.ICMPType, p.ICMPCode = from.IPv6, model.ProtoICMPv6, 1, 4
			}
			return p
		}
		add(f+"ICMP error about it", unreachable(db1, &inner))
		add(f+"ICMP error about it by somebody else", unreachable(solo1, &inner))
		other := inner
		other.SrcPort += 10000
		add(f+"ICMP error about nothing", unreachable(db1, &other))
		first := ip(web1, db1, model.ProtoUDP, v6)
		first.Frag = &reference.Fragment{ID: uint32(sport), More: true}
		add(f+"first fragment", first)
		second := first
		second.SrcPort, second.DstPort, second.Frag = 0, 0, &reference.Fragment{ID: uint32(sport), Offset: 1400}
		add(f+"second fragment", second)
		lost := second
		lost.Frag = &reference.Fragment{ID: 99999, Offset: 1400}
		add(f+"fragment without its first", lost)
		add(f+"SCTP", ip(web1, db2, model.ProtoSCTP, v6))
		add(f+"GRE", ip(web1, db1, 47, v6))
	}
	add("broadcast", ip(web1, db1, model.ProtoUDP, false), func(p *reference.Packet) {
		p.DstMAC, p.Dst = reference.Broadcast, netip.MustParseAddr("255.255.255.255")
	})
	add("VLAN multicast", ip(lan1, lan2, model.ProtoUDP, false), func(p *reference.Packet) {
		p.DstMAC, p.Dst = model.MAC{1, 0, 0x5e, 0, 0, 0xfb}, netip.MustParseAddr("224.0.0.251")
	})
	add("unknown tag", reference.Packet{Uplink: true, VLAN: vlan + 1, SrcMAC: lan2.MAC, DstMAC: lan1.MAC, Src: lan2.IPv4, Dst: lan1.IPv4, Proto: model.ProtoUDP, SrcPort: 1, DstPort: 1})
	add("unknown network", reference.Packet{VTEP: netip.MustParseAddr("192.168.7.2"), Network: vni + 100, SrcMAC: db2.MAC, DstMAC: web1.MAC, Src: db2.IPv4, Dst: web1.IPv4, Proto: model.ProtoUDP, SrcPort: 1, DstPort: 1})
	for i := range out {
		out[i].name = fmt.Sprintf("packet %d, %s", i, out[i].name)
	}
	return out
}

// sending is open for tests that send packets: with the interfaces of host h1 in a
// world of a topology and a case.
func sending(t testing.TB, h Harness, top Topology, c Case) (*bench, *World) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	b := open(t, h)
	w, err := NewWorld(top, c)
	if err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	return b, w
}
