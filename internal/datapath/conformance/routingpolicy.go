package conformance

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testRoutingPolicy: both ends of a routed connection are judged with each other's
// true identity, network and address; within a network as ever.
func testRoutingPolicy(t *testing.T, h Harness) {
	t.Helper()
	top := RoutedTopology()
	b, w := routing(t, h, top, true)
	sport := uint16(20000)
	for n, c := range RoutedCases(top) {
		if err := w.Switch(c); err != nil {
			t.Fatal(err)
		}
		b.apply(t, w.Desired["h1"])
		list := routedExchanges(top, &sport)
		for i, x := range append(list, exchanges(top, &sport)...) {
			if every := map[bool]int{false: 5, true: 25}[h.Slow]; i >= len(list) && i/2%every != 0 || !h.tries(n, i) {
				continue
			}
			b.compare(t, c.Name+": "+x.name, x.packet)
		}
	}
}

// RoutedCases are policies on RoutedTopology that distinguish endpoints of other networks
// by group, network and address, in both directions.
func RoutedCases(top Topology) (out []Case) {
	add := func(name string, subject model.GroupName, rules ...model.Rule) {
		c := Case{
			Name: name, Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
			Attach: map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: subject}: {"p1"}},
		}
		for i, r := range rules {
			r.Key = model.RuleKey{Tenant: "blue", Policy: "p1", Rule: model.RuleID(strconv.Itoa(i + 1))}
			if r.Protocol == 0 {
				r.Protocol = model.AnyProtocol
			}
			c.Rules = append(c.Rules, r)
		}
		out = append(out, c)
	}
	only := func(dir model.Direction, r model.Rule) []model.Rule {
		r.Direction, r.Priority, r.Action = dir, 20, model.Allow
		return []model.Rule{{Direction: dir, Priority: 10, Action: model.Deny, Protocol: model.AnyProtocol}, r}
	}
	but := func(dir model.Direction, r model.Rule) model.Rule {
		r.Direction, r.Priority, r.Action = dir, 10, model.Deny
		return r
	}
	vx := top.Network(at(top, "web1").Key.Network)
	add("a group of another network is denied", "app", but(model.In, model.Rule{Group: "web"}))
	add("only a group of another network is allowed", "app", only(model.In, model.Rule{Group: "lan"})...)
	add("a group that is elsewhere alone is allowed", "app", only(model.Out, model.Rule{Group: "far"})...)
	add("only a network is allowed", "app", only(model.In, model.Rule{Network: "vx"})...)
	add("a VLAN network is denied", "app", but(model.In, model.Rule{Network: "vl", Protocol: model.ProtoTCP}), but(model.Out, model.Rule{Network: "vl", Protocol: model.ProtoUDP}))
	add("its own network alone is allowed", "lan", only(model.In, model.Rule{Network: "vl"})...)
	add("a network is denied", "web", but(model.Out, model.Rule{Network: "vy", Protocol: model.ProtoTCP, Port: 80}), but(model.In, model.Rule{Network: "vl", Protocol: model.ProtoICMP}))
	add("a subnet alone is allowed", "lan", only(model.In, model.Rule{Addr: vx.Subnet})...)
	add("a subnet of IPv6 is denied", "lan", but(model.In, model.Rule{Addr: vx.Subnet6}), but(model.Out, model.Rule{Addr: vx.Subnet6}))
	add("an address is denied", "web", but(model.Out, model.Rule{Addr: netip.PrefixFrom(at(top, "app2").IPv4, 32)}), but(model.In, model.Rule{Addr: netip.PrefixFrom(at(top, "lan2").IPv4, 32)}))
	add("a port alone is allowed", "app", only(model.In, model.Rule{Protocol: model.ProtoTCP, Port: 80})...)
	return out
}

// testRoutingLive: networks are joined and parted with connections under way, a
// restart changes nothing, and subnets that overlap or do not hold an endpoint's
// address open nothing.
func testRoutingLive(t *testing.T, h Harness) {
	t.Helper()
	top := RoutedTopology()
	b, w := routing(t, h, top, true)
	joined := w.Desired["h1"]
	parted := joined
	for id, n := range joined.Networks.All() {
		alone := *n
		alone.Joined = 0
		parted.Networks = parted.Networks.Set(id, &alone)
	}
	tcp := func(from, to string, sport uint16, v6 bool) (there, back reference.Packet) {
		a, z := at(top, from), at(top, to)
		there = routed(top, a, z, model.ProtoTCP, v6, sport, 80)
		return there, routedAnswer(top, there, a, z)
	}
	sport := uint16(25000)
	pairs := [][2]string{{"web1", "db1"}, {"web1", "db2"}, {"web1", "app1"}, {"web1", "app2"}, {"lan1", "app2"}, {"app2", "lan1"}, {"lan1", "lan2"}}
	for round, pic := range []desired.Host{parted, joined, parted, joined} {
		b.apply(t, pic)
		for i, pair := range pairs {
			there, back := tcp(pair[0], pair[1], 24000+uint16(i), i%2 == 0)
			if there.TCPFlags = reference.FlagACK; round == 0 {
				there.TCPFlags = reference.FlagSYN
			}
			what := "change " + strconv.Itoa(round) + ": " + pair[0] + " > " + pair[1]
			b.compare(t, what, there)
			back.TCPFlags = reference.FlagACK
			if round%2 == 1 || at(top, pair[0]).Key.Network == at(top, pair[1]).Key.Network {
				b.compare(t, what+", answer", back)
			}
		}
	}
	before := b.inspect(t)
	b.restart(t)
	b.apply(t, joined)
	if after := b.inspect(t); after != before {
		t.Errorf("state after a restart:\n%s\nbefore:\n%s", after, before)
	}
	for i, pair := range pairs {
		_, back := tcp(pair[0], pair[1], 24000+uint16(i), i%2 == 0)
		b.compare(t, "after the restart: "+pair[1]+" answers "+pair[0], back)
	}
	for _, x := range []struct{ name, subnet, subnet6 string }{
		{"a subnet that holds another one", "10.1.0.0/16", "fd00::/16"},
		{"a subnet that holds none of its addresses", "10.9.0.0/24", "fd09::/64"},
	} {
		pic := joined
		n, _ := pic.Networks.Get(top.Network(at(top, "app1").Key.Network).ID)
		other := *n
		other.Subnet, other.Subnet6 = netip.MustParsePrefix(x.subnet), netip.MustParsePrefix(x.subnet6)
		pic.Networks = pic.Networks.Set(n.ID, &other)
		b.apply(t, pic)
		for _, pair := range append(pairs, [2]string{"app1", "web1"}, [2]string{"app1", "lan2"}, [2]string{"app1", "app2"}, [2]string{"lan1", "web2"}) {
			for _, v6 := range []bool{false, true} {
				sport++
				there, _ := tcp(pair[0], pair[1], sport, v6)
				b.compare(t, x.name+": "+pair[0]+" > "+pair[1], there)
			}
		}
	}
}

// testRoutingEgress: egress leads where no network of the tenant is, and
// nowhere else.
func testRoutingEgress(t *testing.T, h Harness) {
	t.Helper()
	if !h.Egress {
		t.Skip("the harness has no Egress")
	}
	top := RoutedTopology()
	b, _ := routing(t, h, top, false)
	comp := NewCompiler(top, "h1")
	WithEgress(top, comp, h.Egress6)
	pic, _ := comp.Compile(1)
	b.interfaces(t, pic)
	b.apply(t, pic)
	sport := uint16(44000)
	list := append(egressPacketSequence(top, pic, &sport), toRouterPackets(top, &sport)...)
	list = append(list, routedExchanges(top, &sport)...)
	for _, id := range []string{"web1", "app1", "lan1"} {
		port := portOf(pic, at(top, id))
		for _, from := range []string{"web2", "app2", "lan2", "far2"} {
			e := at(top, from)
			for _, q := range []reference.Packet{{Src: e.IPv4, Dst: port.Private}, {Src: e.IPv6, Dst: port.Private6}} {
				if !q.Src.IsValid() || !q.Dst.IsValid() {
					continue
				}
				sport++
				q.Host, q.Proto, q.SrcPort, q.DstPort = true, model.ProtoUDP, sport, 80
				list = append(list, namedPacket{"from the host to " + id + " in the name of " + from, q})
			}
		}
	}
	for _, x := range list {
		b.compare(t, x.name, x.packet)
	}
}
