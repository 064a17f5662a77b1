package conformance

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Outside and Outside6 are addresses that are on no network.
var (
	Outside  = netip.MustParseAddr("198.51.100.7")
	Outside6 = netip.MustParseAddr("2001:db8::7")
)

// TunnelPort is the UDP port of tunnels (RFC 7348 section 5).
const TunnelPort = 4789

// WithEgress gives a compiler of a topology's first host its egress, with six by
// IPv6 too: every endpoint there has a private address, in the order of the
// topology.
func WithEgress(top Topology, c *compile.Compiler, six bool) {
	way := desired.NewHostNAT(top.Global.PvtSubnet)
	if six {
		way.WithIPv6()
	}
	way.TunnelPort = TunnelPort
	c.Egress.SetPrivate(way)
	next := way.Subnet.Addr()
	for _, e := range top.Endpoints {
		if e.Host == top.Hosts[0].Name {
			next = next.Next()
			c.Egress.SetPrivateAddress(e.Key, next)
		}
	}
}

// withGateways gives every network an address of each subnet as the gateway.
func withGateways(top Topology) Topology {
	for i := range top.Networks {
		a := top.Networks[i].Subnet.Addr().As4()
		a[3] = 254
		top.Networks[i].Gateway = netip.AddrFrom4(a)
		b := top.Networks[i].Subnet6.Addr().As16()
		b[15] = 254
		top.Networks[i].Gateway6 = netip.AddrFrom16(b)
	}
	return top
}

// testEgress: packets to and from the host's own stack are translated, judged and
// answered as the reference data plane does it: with and without gateways, in both ARP modes,
// with policies and once without, and after a restart; not any more when the way
// out goes.
func testEgress(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil || !h.Egress {
		t.Skip("the harness has no Egress")
	}
	b := open(t, h)
	sport, made := uint16(42000), false
	for _, mode := range []model.ArpMode{model.ArpProxy, model.ArpFlood} {
		for _, gateways := range []bool{false, true} {
			top := StandardTopology()
			if gateways {
				top = withGateways(top)
			}
			top.Global.ArpMode = mode
			for i, rules := range [][]model.Rule{nil, egressRules()} {
				if i == 0 && (gateways || mode == model.ArpFlood) {
					continue // once without rules is enough
				}
				comp := NewCompiler(top, "h1")
				WithEgress(top, comp, h.Egress6)
				if rules != nil {
					attachRules(top, comp, rules)
				}
				pic, _ := comp.Compile(1)
				if !made {
					b.interfaces(t, pic)
					made = true
				}
				b.apply(t, pic)
				what := fmt.Sprintf("%s, gateways %v, rules %v", mode, gateways, i == 1)
				for _, x := range egressPacketSequence(top, pic, &sport) {
					if h.Differs[ClientsErrors] != "" && strings.HasSuffix(x.name, refusesAnswer) {
						continue
					}
					b.compare(t, what+": "+x.name, x.packet)
				}
			}
		}
	}
	top := StandardTopology()
	comp := NewCompiler(top, "h1")
	WithEgress(top, comp, h.Egress6)
	pic, _ := comp.Compile(1)
	b.apply(t, pic)
	before := b.inspect(t)
	out := between(top, at(top, "web1"), at(top, "web1"), model.ProtoTCP, false, 41000, 80)
	out.DstMAC, out.Dst = desired.RouterMAC, Outside
	b.compare(t, "before the restart", out)
	out6 := between(top, at(top, "web1"), at(top, "web1"), model.ProtoTCP, true, 41001, 80)
	out6.DstMAC, out6.Dst = desired.RouterMAC, Outside6
	b.compare(t, "IPv6 before the restart", out6)
	b.restart(t)
	b.apply(t, pic)
	if after := b.inspect(t); after != before {
		t.Errorf("state after a restart:\n%s\nbefore:\n%s", after, before)
	}
	back := reference.Packet{Host: true, Src: Outside, Dst: portOf(pic, at(top, "web1")).Private, Proto: model.ProtoTCP, SrcPort: 80, DstPort: 41000, TCPFlags: reference.FlagSYN | reference.FlagACK}
	b.compare(t, "the answer after the restart", back)
	if h.Egress6 {
		back.Src, back.Dst, back.DstPort = Outside6, portOf(pic, at(top, "web1")).Private6, 41001
		b.compare(t, "the answer by IPv6 after the restart", back)
		way := *pic.HostNAT
		way.Subnet6, way.Addr6 = netip.Prefix{}, netip.Addr{}
		comp.Egress.SetPrivate(&way)
		pic, _ = comp.Compile(2)
		b.apply(t, pic)
		b.compare(t, "IPv6 without egress", out6)
		b.compare(t, "IPv4 beside it", out)
	}
	comp.Egress.SetPrivate(nil)
	pic, _ = comp.Compile(2)
	b.apply(t, pic)
	b.compare(t, "without egress", out)
}

// attachRules puts rules into a policy of blue's groups web and lan.
func attachRules(top Topology, c *compile.Compiler, rules []model.Rule) {
	c.SetPolicy(model.ContivPolicy{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}.General())
	for _, g := range top.Groups {
		if g.Key.Tenant == "blue" && g.Key.Name != "db" {
			g.Policies = []model.PolicyName{"p1"}
			c.SetGroup(g)
		}
	}
	for i, r := range rules {
		r.Key = model.RuleKey{Tenant: "blue", Policy: "p1", Rule: model.RuleID(strconv.Itoa(i + 1))}
		c.SetRule(r.General())
	}
}

// egressRules deny port 80 outwards and port 8080 inwards for all peers, UDP outwards by
// address, and SCTP from the members of a network, which has no external member.
func egressRules() []model.Rule {
	return []model.Rule{
		{Direction: model.Out, Priority: 10, Action: model.Deny, Protocol: model.ProtoTCP, Port: 80},
		{Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.ProtoTCP, Port: 8080},
		{Direction: model.Out, Priority: 10, Action: model.Deny, Protocol: model.ProtoUDP, Addr: netip.PrefixFrom(Outside, 24).Masked()},
		{Direction: model.Out, Priority: 10, Action: model.Deny, Protocol: model.ProtoUDP, Addr: netip.PrefixFrom(Outside6, 64).Masked()},
		{Direction: model.In, Priority: 5, Action: model.Deny, Protocol: model.ProtoSCTP, Network: "vx"},
		{Direction: model.In, Priority: 5, Action: model.Deny, Protocol: model.ProtoSCTP, Network: "vl"},
	}
}

func at(top Topology, id string) model.Endpoint {
	for _, e := range top.Endpoints {
		if e.Key.ID == model.EndpointID(id) {
			return e
		}
	}
	return model.Endpoint{}
}

func portOf(pic desired.Host, e model.Endpoint) *desired.Port {
	p, _ := pic.Ports.Get(compile.IfName(e.Key))
	return p
}

// egressPacketSequence are tried in order: answers follow their requests.
func egressPacketSequence(top Topology, pic desired.Host, sport *uint16) []namedPacket {
	var out []namedPacket
	add := func(name string, p reference.Packet, edits ...func(*reference.Packet)) {
		for _, edit := range edits {
			edit(&p)
		}
		out = append(out, namedPacket{name, p})
	}
	web1, lan1 := at(top, "web1"), at(top, "lan1")
	red1 := top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "red", Name: "vx"}, ID: "web1"})
	for _, e := range []model.Endpoint{web1, red1, lan1} {
		who := e.Key.String() + " "
		net, _ := pic.Networks.Get(portOf(pic, e).Network)
		for _, target := range []netip.Addr{desired.RouterAddr, top.Network(e.Key.Network).Gateway} {
			if !target.IsValid() {
				continue
			}
			p := origin(top, e)
			p.SrcMAC, p.DstMAC = e.MAC, reference.Broadcast
			p.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: e.MAC, SenderIP: e.IPv4, TargetIP: target}
			add(who+"ARP for router "+target.String(), p)
			add(who+"unicast ARP for router "+target.String(), p, func(p *reference.Packet) { p.DstMAC = desired.RouterMAC })
			add(who+"spoofed ARP for router "+target.String(), p, func(p *reference.Packet) {
				a := *p.ARP
				a.SenderIP = Outside
				p.ARP = &a
			})
		}
		for _, target := range []netip.Addr{desired.RouterMAC.LinkLocal(), top.Network(e.Key.Network).Gateway6} {
			if !target.IsValid() {
				continue
			}
			p := origin(top, e)
			p.SrcMAC, p.DstMAC = e.MAC, model.MAC{0x33, 0x33, 0xff, 0, 0, 1}
			p.Src, p.Dst, p.Proto, p.ICMPType = e.IPv6, netip.MustParseAddr("ff02::1:ff00:1"), model.ProtoICMPv6, reference.NDNeighborSolicit
			p.ND = &reference.ND{Target: target, LinkAddr: e.MAC, HasLink: true}
			add(who+"ND for router "+target.String(), p)
			add(who+"unicast ND for router "+target.String(), p, func(p *reference.Packet) { p.Dst, p.DstMAC = target, desired.RouterMAC })
			add(who+"duplicate detection of router "+target.String(), p, func(p *reference.Packet) {
				p.Src, p.ND = netip.IPv6Unspecified(), &reference.ND{Target: target}
			})
			add(who+"spoofed ND for router "+target.String(), p, func(p *reference.Packet) { p.Src = Outside6 })
			add(who+"advertisement to router "+target.String(), p, func(p *reference.Packet) {
				p.Dst, p.DstMAC, p.ICMPType = target, desired.RouterMAC, reference.NDNeighborAdvert
				p.ND = &reference.ND{Target: e.IPv6, LinkAddr: e.MAC, HasLink: true}
			})
		}
		for _, x := range families(pic) {
			if !x.here.IsValid() {
				continue
			}
			router := desired.RouterMAC
			if !x.router(net).IsValid() {
				router = model.MAC{0x02, 0x66, 0, 0, 0, 2} // the physical router's
			}
			out = append(out, outwards(top, pic, x, e, router, sport)...)
			out = append(out, inwards(pic, x, e, sport)...)
		}
		six := between(top, e, e, model.ProtoUDP, true, *sport, 53)
		six.Dst, six.DstMAC = Outside6, desired.RouterMAC
		add(who+"IPv6 by the router", six)
	}
	for _, x := range families(pic) {
		if x.here.IsValid() {
			add("from the host to nobody", reference.Packet{Host: true, Src: x.here, Dst: x.here.Prev(), Proto: model.ProtoUDP, SrcPort: 1, DstPort: 1})
		}
	}
	return out
}

// family is what differs between egress of IPv4 and of IPv6.
type family struct {
	six                   bool
	here, outside         netip.Addr // the host's private address, and one beyond it
	beyond                netip.Addr // a router there
	icmp                  model.Protocol
	echo                  uint8    // ICMP type of a request
	tooBig                [2]uint8 // ICMP type and code
	timeExceeded, refused [2]uint8 // time exceeded, port unreachable
	nowhere               []netip.Addr
}

func families(pic desired.Host) []family {
	var nowhere [2][]netip.Addr
	for i, list := range [][]string{
		{"127.0.0.1", "224.0.0.5", "255.255.255.255", "0.0.0.1"},
		{"::1", "::", "::ffff:198.51.100.7", "fe80::7", desired.RouterMAC.LinkLocal().String()},
	} {
		for _, a := range list {
			nowhere[i] = append(nowhere[i], netip.MustParseAddr(a))
		}
	}
	addr := netip.MustParseAddr
	return []family{
		{false, pic.HostNAT.Addr, Outside, addr("203.0.113.1"), model.ProtoICMP, 8, [2]uint8{3, 4}, [2]uint8{11, 0}, [2]uint8{3, 3}, nowhere[0]},
		{true, pic.HostNAT.Addr6, Outside6, addr("2001:db8:1::1"), model.ProtoICMPv6, 128, [2]uint8{2, 0}, [2]uint8{3, 0}, [2]uint8{1, 4}, nowhere[1]},
	}
}

func (x family) router(n *desired.Network) netip.Addr {
	if x.six {
		return n.Router6()
	}
	return n.Router()
}

// addrs are a port's own and private addresses, and its network's subnet.
func (x family) addrs(pic desired.Host, port *desired.Port) (own, private netip.Addr, subnet netip.Prefix) {
	n, _ := pic.Networks.Get(port.Network)
	if x.six {
		return port.IPv6, port.Private6, n.Subnet6
	}
	return port.IPv4, port.Private, n.Subnet
}

// outwards are connections that an endpoint begins by a router.
func outwards(top Topology, pic desired.Host, x family, e model.Endpoint, router model.MAC, sport *uint16) []namedPacket {
	var out []namedPacket
	own, private, subnet := x.addrs(pic, portOf(pic, e))
	n, _ := pic.Networks.Get(portOf(pic, e).Network)
	who := e.Key.String()
	ask := func(to netip.Addr, proto model.Protocol, port uint16) reference.Packet {
		*sport++
		p := between(top, e, e, proto, x.six, *sport, port)
		p.Dst, p.DstMAC = to, router
		return p
	}
	add := func(name string, p reference.Packet) { out = append(out, namedPacket{who + " " + name, p}) }
	for _, to := range []netip.Addr{x.outside, x.here} {
		for _, q := range []reference.Packet{
			ask(to, model.ProtoTCP, 80), ask(to, model.ProtoTCP, 443), ask(to, model.ProtoTCP, 53), ask(to, model.ProtoUDP, 53),
			ask(to, model.ProtoUDP, 123), ask(to, model.ProtoUDP, TunnelPort), ask(to, model.ProtoTCP, TunnelPort), ask(to, model.ProtoSCTP, 80), ask(to, model.ProtoICMP, 0), ask(to, 47, 0), ask(to, 136, 0),
		} {
			name := fmt.Sprintf("to %s proto %d port %d", to, q.Proto, q.DstPort)
			add(name, q)
			// Answers and errors come by the way that the request took.
			from := reference.Packet{Host: true, Dst: private}
			if router != desired.RouterMAC && !pic.HostNAT.Diverts(n, to, q.Proto, q.DstPort) {
				from = reference.Packet{Uplink: true, VLAN: n.Tag, SrcMAC: router, DstMAC: e.MAC, Dst: own}
			}
			back := answerTo(top, q, e, e)
			back.Port, back.Host, back.Uplink, back.VLAN = "", from.Host, from.Uplink, from.VLAN
			back.SrcMAC, back.DstMAC, back.Src, back.Dst = from.SrcMAC, from.DstMAC, to, from.Dst
			add(name+", answer", back)
			if q.Proto != model.ProtoTCP && q.Proto != model.ProtoUDP {
				continue
			}
			// What is refused of a diverted answer goes to the physical router, which knows nothing of it.
			if q.Proto == model.ProtoUDP && from.Host == (router == desired.RouterMAC) {
				refused := q
				refused.Proto, refused.SrcPort, refused.DstPort, refused.ICMPType, refused.ICMPCode = x.icmp, 0, 0, x.refused[0], x.refused[1]
				refused.Inner = &reference.Packet{Src: to, Dst: own, Proto: q.Proto, SrcPort: q.DstPort, DstPort: q.SrcPort}
				add(name+refusesAnswer, refused)
			}
			seen := q // as the router outside quotes it: with the address it has there
			seen.Src = from.Dst
			failed := from
			failed.Src, failed.Proto, failed.ICMPType, failed.ICMPCode, failed.Inner = x.beyond, x.icmp, x.tooBig[0], x.tooBig[1], &seen
			add(name+", error about it", failed)
			other := seen
			other.SrcPort += 9000
			failed.ICMPType, failed.ICMPCode, failed.Inner = x.timeExceeded[0], x.timeExceeded[1], &other
			add(name+", error about nothing", failed)
		}
	}
	first := ask(x.outside, model.ProtoUDP, 4000)
	first.Frag = &reference.Fragment{ID: uint32(*sport), More: true}
	second := first
	second.SrcPort, second.DstPort, second.Frag = 0, 0, &reference.Fragment{ID: uint32(*sport), Offset: 1400}
	add("first fragment", first)
	add("second fragment", second)
	second.Frag = &reference.Fragment{ID: 60000, Offset: 1400}
	add("fragment without its first", second)
	stranger := subnet.Addr().Next().Next().Next().Next().Next().Next()
	for _, to := range append([]netip.Addr{private, x.here.Prev(), stranger}, x.nowhere...) { // where no router goes
		p := ask(to, model.ProtoUDP, 53)
		// Of an IPv4-mapped address eBPF asks the rules for IPv4 (docs/design/ebpf-datapath.md).
		if router != desired.RouterMAC && !to.Is4In6() {
			add("to "+to.String()+" by the physical router", p)
		}
		p.DstMAC = desired.RouterMAC
		add("to "+to.String()+" by the router", p)
	}
	spoofed := ask(x.outside, model.ProtoUDP, 53)
	spoofed.Src = private
	add("in the private address's name", spoofed)
	for _, to := range []netip.Addr{x.outside, x.here} {
		if !x.six {
			break
		}
		local := ask(to, model.ProtoUDP, 53)
		local.Src = e.MAC.LinkLocal()
		add("in the link-local address's name to "+to.String(), local)
		advert := ask(to, x.icmp, 0)
		advert.ICMPType, advert.ICMPID = reference.NDNeighborAdvert, 0
		advert.ND = &reference.ND{Target: own, LinkAddr: e.MAC, HasLink: true}
		add("an advertisement to "+to.String(), advert)
	}
	return out
}

// refusesAnswer ends the names of a client's ICMP errors about what it got.
const refusesAnswer = ", answer refused"

// inwards are connections that the host begins, or forwards, to an endpoint.
func inwards(pic desired.Host, x family, e model.Endpoint, sport *uint16) []namedPacket {
	var out []namedPacket
	port := portOf(pic, e)
	own, private, subnet := x.addrs(pic, port)
	who := e.Key.String()
	senders := []netip.Addr{x.here, x.outside, subnet.Addr().Next().Next()}
	if x.six {
		senders = append(senders, desired.RouterMAC.LinkLocal(), e.MAC.LinkLocal())
	}
	if x.six {
		nd := reference.Packet{Host: true, Src: x.outside, Dst: private, Proto: x.icmp, ICMPType: reference.NDNeighborSolicit, ND: &reference.ND{Target: own}}
		out = append(out, namedPacket{who + " neighbour discovery by the host", nd})
	}
	for i, from := range append(senders, x.here) {
		for _, q := range []reference.Packet{
			{Proto: model.ProtoTCP, DstPort: 80, TCPFlags: reference.FlagSYN},
			{Proto: model.ProtoTCP, DstPort: 8080, TCPFlags: reference.FlagSYN},
			{Proto: model.ProtoUDP, DstPort: 53},
			{Proto: model.ProtoSCTP, DstPort: 80},
			{Proto: x.icmp, ICMPType: x.echo, ICMPID: *sport},
			{Proto: model.ProtoTCP, DstPort: 81, TCPFlags: reference.FlagSYN | reference.FlagACK},
		} {
			*sport++
			q.Host, q.Src, q.Dst = true, from, private
			q.Own = i == len(senders) // a socket of the host
			if q.Proto.HasPorts() {
				q.SrcPort = *sport
			}
			name := fmt.Sprintf("%s from %s proto %d port %d", who, from, q.Proto, q.DstPort)
			if q.Own {
				name += " by a socket"
			}
			out = append(out, namedPacket{name, q})
			back := reference.Packet{
				Port: port.IfName, SrcMAC: port.MAC, DstMAC: desired.RouterMAC, Src: own, Dst: from, Proto: q.Proto,
				SrcPort: q.DstPort, DstPort: q.SrcPort, ICMPID: q.ICMPID,
			}
			if x.six && q.Proto == x.icmp {
				back.ICMPType = 129
			}
			if q.Proto == model.ProtoTCP {
				back.TCPFlags = reference.FlagSYN | reference.FlagACK
			}
			out = append(out, namedPacket{name + ", answer", back})
			if q.Proto == model.ProtoUDP {
				seen := q // as the container quotes it
				seen.Dst = own
				refused := back
				refused.Proto, refused.SrcPort, refused.DstPort, refused.ICMPType, refused.ICMPCode, refused.Inner = x.icmp, 0, 0, x.refused[0], x.refused[1], &seen
				out = append(out, namedPacket{name + ", refused", refused})
			}
		}
	}
	return out
}
