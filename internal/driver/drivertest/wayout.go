package drivertest

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/oracle"
)

// Outside is an address that is on no network.
var Outside = netip.MustParseAddr("198.51.100.7")

// TunnelPort is the UDP port of tunnels (RFC 7348 section 5).
const TunnelPort = 4789

// WithWayOut gives a compiler of a topology's first host its way out: every
// endpoint there has a private address, in the order of the topology.
func WithWayOut(top Topology, c *compile.Compiler) {
	way := desired.NewPrivate(top.Global.PvtSubnet)
	way.TunnelPort = TunnelPort
	c.SetPrivate(way)
	next := way.Subnet.Addr()
	for _, e := range top.Endpoints {
		if e.Host == top.Hosts[0].Name {
			next = next.Next()
			c.SetPrivateAddress(e.Key, next)
		}
	}
}

// withGateways gives every network its subnet's last address as the gateway.
func withGateways(top Topology) Topology {
	for i := range top.Networks {
		a := top.Networks[i].Subnet.Addr().As4()
		a[3] = 254
		top.Networks[i].Gateway = netip.AddrFrom4(a)
	}
	return top
}

// testWayOut: what goes to and comes from the host's own stack is translated,
// judged and answered as the oracle does it; with and without gateways, in both ARP
// modes, with policies and once without; and after a restart, and not any more when
// the way out goes.
func testWayOut(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil || !h.WayOut {
		t.Skip("the harness has no WayOut")
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
			for i, rules := range [][]model.Rule{nil, wayOutRules()} {
				if i == 0 && (gateways || mode == model.ArpFlood) {
					continue // once without rules is enough
				}
				comp := NewCompiler(top, "h1")
				WithWayOut(top, comp)
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
				for _, x := range wayOutPackets(top, pic, &sport) {
					b.compare(t, what+": "+x.name, x.packet)
				}
			}
		}
	}
	top := StandardTopology()
	comp := NewCompiler(top, "h1")
	WithWayOut(top, comp)
	pic, _ := comp.Compile(1)
	b.apply(t, pic)
	before := b.inspect(t)
	out := between(top, at(top, "web1"), at(top, "web1"), model.ProtoTCP, false, 41000, 80)
	out.DstMAC, out.Dst = desired.RouterMAC, Outside
	b.compare(t, "before the restart", out)
	b.restart(t)
	b.apply(t, pic)
	if after := b.inspect(t); after != before {
		t.Errorf("state after a restart:\n%s\nbefore:\n%s", after, before)
	}
	back := oracle.Packet{Host: true, Src: Outside, Dst: portOf(pic, at(top, "web1")).Private, Proto: model.ProtoTCP, SrcPort: 80, DstPort: 41000, TCPFlags: oracle.FlagSYN | oracle.FlagACK}
	b.compare(t, "the answer after the restart", back)
	comp.SetPrivate(nil)
	pic, _ = comp.Compile(2)
	b.apply(t, pic)
	b.compare(t, "without a way out", out)
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

// wayOutRules stop port 80 outwards and port 8080 inwards for everybody, UDP
// to the outside by address, and TCP from the network's own members: which
// nobody outside is.
func wayOutRules() []model.Rule {
	return []model.Rule{
		{Direction: model.Out, Priority: 10, Action: model.Deny, Protocol: model.ProtoTCP, Port: 80},
		{Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.ProtoTCP, Port: 8080},
		{Direction: model.Out, Priority: 10, Action: model.Deny, Protocol: model.ProtoUDP, Addr: netip.PrefixFrom(Outside, 24).Masked()},
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

// wayOutPackets are tried in order: answers follow their requests.
func wayOutPackets(top Topology, pic desired.Host, sport *uint16) []namedPacket {
	var out []namedPacket
	add := func(name string, p oracle.Packet, edits ...func(*oracle.Packet)) {
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
			p.SrcMAC, p.DstMAC = e.MAC, oracle.Broadcast
			p.ARP = &oracle.ARP{Op: oracle.ARPRequest, SenderMAC: e.MAC, SenderIP: e.IPv4, TargetIP: target}
			add(who+"ARP for router "+target.String(), p)
			add(who+"unicast ARP for router "+target.String(), p, func(p *oracle.Packet) { p.DstMAC = desired.RouterMAC })
			add(who+"spoofed ARP for router "+target.String(), p, func(p *oracle.Packet) {
				a := *p.ARP
				a.SenderIP = Outside
				p.ARP = &a
			})
		}
		router := desired.RouterMAC
		if !net.Router().IsValid() {
			router = model.MAC{0x02, 0x66, 0, 0, 0, 2} // the physical router's
		}
		out = append(out, outwards(top, pic, e, router, sport)...)
		out = append(out, inwards(pic, e, sport)...)
	}
	add("from the host to nobody", oracle.Packet{Host: true, Src: pic.Private.Addr, Dst: pic.Private.Addr.Prev(), Proto: model.ProtoUDP, SrcPort: 1, DstPort: 1})
	return out
}

// outwards are connections that an endpoint begins by a router.
func outwards(top Topology, pic desired.Host, e model.Endpoint, router model.MAC, sport *uint16) []namedPacket {
	var out []namedPacket
	private := portOf(pic, e).Private
	n, _ := pic.Networks.Get(portOf(pic, e).Network)
	who := e.Key.String()
	ask := func(to netip.Addr, proto model.Protocol, port uint16) oracle.Packet {
		*sport++
		p := between(top, e, e, proto, false, *sport, port)
		p.Dst, p.DstMAC = to, router
		return p
	}
	add := func(name string, p oracle.Packet) { out = append(out, namedPacket{who + " " + name, p}) }
	for _, to := range []netip.Addr{Outside, pic.Private.Addr} {
		for _, q := range []oracle.Packet{
			ask(to, model.ProtoTCP, 80), ask(to, model.ProtoTCP, 443), ask(to, model.ProtoTCP, 53), ask(to, model.ProtoUDP, 53),
			ask(to, model.ProtoUDP, 123), ask(to, model.ProtoUDP, TunnelPort), ask(to, model.ProtoTCP, TunnelPort), ask(to, model.ProtoSCTP, 80), ask(to, model.ProtoICMP, 0), ask(to, 47, 0), ask(to, 136, 0),
		} {
			name := fmt.Sprintf("to %s proto %d port %d", to, q.Proto, q.DstPort)
			add(name, q)
			// Answers and errors come by the way that the request took.
			from := oracle.Packet{Host: true, Dst: private}
			if router != desired.RouterMAC && !pic.Private.Diverts(n, to, q.Proto, q.DstPort) {
				from = oracle.Packet{Uplink: true, VLAN: n.Tag, SrcMAC: router, DstMAC: e.MAC, Dst: e.IPv4}
			}
			back := answerTo(top, q, e, e)
			back.Port, back.Host, back.Uplink, back.VLAN = "", from.Host, from.Uplink, from.VLAN
			back.SrcMAC, back.DstMAC, back.Src, back.Dst = from.SrcMAC, from.DstMAC, to, from.Dst
			add(name+", answer", back)
			if q.Proto != model.ProtoTCP && q.Proto != model.ProtoUDP {
				continue
			}
			seen := q // as the router outside quotes it: with the address it has there
			seen.Src = from.Dst
			failed := from
			failed.Src, failed.Proto, failed.ICMPType, failed.ICMPCode, failed.Inner = netip.AddrFrom4([4]byte{203, 0, 113, 1}), model.ProtoICMP, 3, 4, &seen
			add(name+", error about it", failed)
			other := seen
			other.SrcPort += 9000
			failed.ICMPType, failed.ICMPCode, failed.Inner = 11, 0, &other
			add(name+", error about nothing", failed)
		}
	}
	first := ask(Outside, model.ProtoUDP, 4000)
	first.Frag = &oracle.Fragment{ID: uint32(*sport), More: true}
	second := first
	second.SrcPort, second.DstPort, second.Frag = 0, 0, &oracle.Fragment{ID: uint32(*sport), Offset: 1480}
	add("first fragment", first)
	add("second fragment", second)
	second.Frag = &oracle.Fragment{ID: 60000, Offset: 1480}
	add("fragment without its first", second)
	for _, to := range []netip.Addr{ // where no router goes
		netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.AddrFrom4([4]byte{224, 0, 0, 5}), netip.AddrFrom4([4]byte{255, 255, 255, 255}),
		netip.AddrFrom4([4]byte{0, 0, 0, 1}), private, pic.Private.Addr.Prev(), n.Subnet.Addr().Next().Next().Next().Next().Next().Next(),
	} {
		p := ask(to, model.ProtoUDP, 53)
		p.DstMAC = desired.RouterMAC
		add("to "+to.String()+" by the router", p)
	}
	spoofed := ask(Outside, model.ProtoUDP, 53)
	spoofed.Src = private
	add("in the private address's name", spoofed)
	six := between(top, e, e, model.ProtoUDP, true, *sport, 53)
	six.Dst, six.DstMAC = netip.MustParseAddr("2001:db8::7"), desired.RouterMAC
	add("IPv6 by the router", six)
	return out
}

// inwards are connections that the host begins, or forwards, to an endpoint.
func inwards(pic desired.Host, e model.Endpoint, sport *uint16) []namedPacket {
	var out []namedPacket
	port := portOf(pic, e)
	n, _ := pic.Networks.Get(port.Network)
	who := e.Key.String()
	for _, from := range []netip.Addr{pic.Private.Addr, Outside, n.Subnet.Addr().Next().Next()} {
		for _, q := range []oracle.Packet{
			{Proto: model.ProtoTCP, DstPort: 80, TCPFlags: oracle.FlagSYN},
			{Proto: model.ProtoTCP, DstPort: 8080, TCPFlags: oracle.FlagSYN},
			{Proto: model.ProtoUDP, DstPort: 53},
			{Proto: model.ProtoSCTP, DstPort: 80},
			{Proto: model.ProtoICMP, ICMPType: 8, ICMPID: *sport},
			{Proto: model.ProtoTCP, DstPort: 81, TCPFlags: oracle.FlagSYN | oracle.FlagACK},
		} {
			*sport++
			q.Host, q.Src, q.Dst = true, from, port.Private
			if q.Proto.HasPorts() {
				q.SrcPort = *sport
			}
			name := fmt.Sprintf("%s from %s proto %d port %d", who, from, q.Proto, q.DstPort)
			out = append(out, namedPacket{name, q})
			back := oracle.Packet{
				Port: port.IfName, SrcMAC: port.MAC, DstMAC: desired.RouterMAC, Src: port.IPv4, Dst: from, Proto: q.Proto,
				SrcPort: q.DstPort, DstPort: q.SrcPort, ICMPID: q.ICMPID,
			}
			if q.Proto == model.ProtoTCP {
				back.TCPFlags = oracle.FlagSYN | oracle.FlagACK
			}
			out = append(out, namedPacket{name + ", answer", back})
			if q.Proto == model.ProtoUDP {
				seen := q // as the container quotes it
				seen.Dst = port.IPv4
				refused := back
				refused.Proto, refused.SrcPort, refused.DstPort, refused.ICMPType, refused.ICMPCode, refused.Inner = model.ProtoICMP, 0, 0, 3, 3, &seen
				out = append(out, namedPacket{name + ", refused", refused})
			}
		}
	}
	return out
}
