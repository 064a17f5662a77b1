package conformance

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// otherHostAddr is the tunnel endpoint of a host that has none of the endpoints.
var otherHostAddr = netip.MustParseAddr("192.168.7.3")

// senders makes frames out of the tunnel from their sender's own host, the same
// frames from another host, or with the MAC of another station; and frames to one
// endpoint's MAC and another one's address. Source ports count up from sport.
func senders(top Topology, sport uint16) []namedPacket {
	at := func(network model.NetworkName, id string) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: network}, ID: model.EndpointID(id)})
	}
	web1, db1, web2, db2, solo1 := at("vx", "web1"), at("vx", "db1"), at("vx", "web2"), at("vx", "db2"), at("vx", "solo1")
	var out []namedPacket
	frame := func(name string, p reference.Packet, edits ...func(*reference.Packet)) {
		for _, edit := range edits {
			edit(&p)
		}
		out = append(out, namedPacket{name, p})
	}
	// From the sender's own host, from other hosts, and from its own host with another MAC.
	from := func(name string, p reference.Packet) {
		frame(name, p)
		frame(name+", from another host", p, func(p *reference.Packet) { p.VTEP = otherHostAddr })
		frame(name+", from this host", p, func(p *reference.Packet) { p.VTEP = top.Hosts[0].VTEP })
		frame(name+", by another station of its host", p, func(p *reference.Packet) { p.SrcMAC = web2.MAC })
		frame(name+", by a stranger", p, func(p *reference.Packet) { p.SrcMAC = model.MAC{0x02, 0x66, 0, 0, 0, 3} })
		frame(name+", by a station of ours", p, func(p *reference.Packet) { p.SrcMAC = db1.MAC })
	}
	for _, v6 := range []bool{false, true} {
		family := map[bool]string{false: "IPv4 ", true: "IPv6 "}[v6]
		ip := func(from, to model.Endpoint, proto model.Protocol, dport uint16) reference.Packet {
			sport++
			return between(top, from, to, proto, v6, sport, dport)
		}
		addr := func(e model.Endpoint) netip.Addr {
			if v6 {
				return e.IPv6
			}
			return e.IPv4
		}
		from(family+"UDP", ip(db2, web1, model.ProtoUDP, 80))
		from(family+"TCP", ip(db2, web1, model.ProtoTCP, 80))
		from(family+"echo", ip(db2, web1, model.ProtoICMP, 0))
		// An established connection is no way in either.
		there := ip(web1, db2, model.ProtoUDP, 81)
		back := answerTo(top, there, web1, db2)
		frame(family+"request", there)
		from(family+"answer", back)

		for _, x := range []struct {
			name         string
			from, by, to model.Endpoint // by: whose MAC; to: whose address
		}{
			{"local by local", web1, db1, solo1},
			{"local by remote", web1, db1, db2},
			{"remote by local", web1, db2, db1},
			{"remote by remote", web1, web2, db2},
			{"from the tunnel, local by local", db2, web1, db1},
			{"VLAN local by local", at("vl", "lan1"), at("vl", "lonely1"), at("vl", "lan2")},
			{"VLAN remote by local", at("vl", "lan1"), at("vl", "lan2"), at("vl", "lonely1")},
			{"VLAN from the uplink", at("vl", "lan2"), at("vl", "lan1"), at("vl", "lonely1")},
		} {
			p := ip(x.from, x.by, model.ProtoUDP, 82)
			frame(family+x.name+": its own address", p)
			frame(family+x.name+": another's address", p, func(p *reference.Packet) { p.Dst = addr(x.to) })
			frame(family+x.name+": nobody's MAC", p, func(p *reference.Packet) { p.DstMAC = model.MAC{0x02, 0x66, 0, 0, 0, 4} })
			answer := answerTo(top, p, x.from, x.by)
			answer.DstMAC = x.to.MAC
			frame(family+x.name+": the answer by another's MAC", answer)
		}
		frame(family+"link-local address by another's MAC", ip(web1, db1, model.ProtoUDP, 83), func(p *reference.Packet) {
			if v6 {
				p.Dst = solo1.MAC.LinkLocal()
			}
		})
	}
	sent := origin(top, db2)
	sent.SrcMAC, sent.DstMAC = db2.MAC, web1.MAC
	arp := sent
	arp.ARP = &reference.ARP{Op: reference.ARPReply, SenderMAC: db2.MAC, SenderIP: db2.IPv4, TargetMAC: web1.MAC, TargetIP: web1.IPv4}
	from("ARP reply", arp)
	ask := arp
	ask.DstMAC, ask.ARP = reference.Broadcast, &reference.ARP{Op: reference.ARPRequest, SenderMAC: db2.MAC, SenderIP: db2.IPv4, TargetIP: web1.IPv4}
	from("ARP request", ask)
	ask.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: db2.MAC, SenderIP: netip.IPv4Unspecified(), TargetIP: web1.IPv4}
	from("ARP probe", ask)
	ask.DstMAC = web1.MAC
	from("unicast ARP probe", ask)
	nd := sent
	nd.Src, nd.Dst, nd.Proto, nd.ICMPType = db2.IPv6, web1.IPv6, model.ProtoICMPv6, reference.NDNeighborAdvert
	nd.ND = &reference.ND{Target: db2.IPv6, LinkAddr: db2.MAC, HasLink: true}
	from("NA", nd)
	frame("NA by another's MAC", nd, func(p *reference.Packet) { p.DstMAC = db1.MAC })
	nd.ICMPType, nd.ND = reference.NDNeighborSolicit, &reference.ND{Target: web1.IPv6, LinkAddr: db2.MAC, HasLink: true}
	from("unicast NS", nd)
	nd.Dst, nd.DstMAC = reference.SolicitedNode(web1.IPv6)
	from("NS", nd)
	nd.Src, nd.ND = netip.IPv6Unspecified(), &reference.ND{Target: web1.IPv6}
	from("duplicate detection", nd)
	return out
}
