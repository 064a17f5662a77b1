package conformance

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// dice turns bytes into choices, so that the fuzzer steers them; when the bytes
// run out it goes on with a generator seeded by them.
type dice struct {
	data  []byte
	state uint64
}

func newDice(data []byte) *dice {
	h := fnv.New64a()
	h.Write(data)
	return &dice{data, h.Sum64() | 1}
}

func (d *dice) n(n int) int {
	if len(d.data) > 0 {
		b := d.data[0]
		d.data = d.data[1:]
		return int(b) % n
	}
	d.state ^= d.state << 13 // xorshift64
	d.state ^= d.state >> 7
	d.state ^= d.state << 17
	return int(d.state >> 33 % uint64(n))
}

func pick[T any](d *dice, of ...T) T { return of[d.n(len(of))] }

// fuzzWorld is a random cluster in both worlds: compilers and reference data planes, and the naive judge.
type fuzzWorld struct {
	d       *dice
	o       *naive
	comps   map[model.HostName]*compile.Compiler
	whole   *compile.Compiler // see compile.NewWhole
	fabric  reference.Fabric
	parties []party // IPv4 and IPv6 ones
	mutate  func(desired.Host) desired.Host
	forget  bool // the Fakes lose their connections after every packet
	packets int
	last    *oPacket
	ident   uint16
	moved   model.Identity
}

var fuzzHosts = []model.HostName{"h1", "h2"}

// each runs fn on all compilers.
func (w *fuzzWorld) each(fn func(*compile.Compiler)) {
	for _, h := range fuzzHosts {
		fn(w.comps[h])
	}
	fn(w.whole)
}

func newFuzzWorld(data []byte, mutate func(desired.Host) desired.Host) *fuzzWorld {
	w := &fuzzWorld{d: newDice(data), comps: map[model.HostName]*compile.Compiler{}, whole: compile.NewWhole(), mutate: mutate, o: &naive{
		networks: map[model.NetworkKey]model.Network{}, groups: map[model.GroupKey]model.Group{},
		policies: map[model.PolicyKey]model.Policy{}, rules: map[model.RuleKey]model.PolicyRule{},
		identities: map[model.Identity]model.IdentityRecord{}, namespaces: map[model.NamespaceName]model.Namespace{}, seen: map[model.HostName]map[conn]bool{},
		joined: map[model.TenantName]bool{},
	}}
	w.o.parties = func() []party { return w.parties }
	for _, h := range fuzzHosts {
		w.comps[h] = compile.New(h)
		w.fabric.Add(h, reference.New())
	}
	for i, h := range fuzzHosts {
		w.each(func(c *compile.Compiler) {
			c.SetHost(model.Host{Name: h, VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})})
		})
	}
	mode := pick(w.d, model.ArpProxy, model.ArpFlood)
	w.each(func(c *compile.Compiler) { c.SetGlobal(model.Global{FwdMode: model.FwdRouting, ArpMode: mode}) })
	for range 2 {
		w.setNamespace()
	}
	id := model.IdentityFirst
	netID := model.NetworkID(0)
	for _, tenant := range []model.TenantName{"blue", "red"} {
		w.setRouter(tenant, w.d.n(2) == 0)
		for i, name := range []model.NetworkName{"n1", "n2"} {
			netID++
			n := model.Network{
				Key: model.NetworkKey{Tenant: tenant, Name: name}, ID: netID, Tag: uint32(netID) + 10,
				Encap:   pick(w.d, model.EncapVXLAN, model.EncapVLAN),
				Subnet:  netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 24),
				Subnet6: netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: byte(i)}), 64),
			}
			if w.d.n(12) > 0 {
				w.o.networks[n.Key] = n
				w.each(func(c *compile.Compiler) { c.SetNetwork(n) })
			}
			w.addParties(n, &id)
		}
		for p := range 2 {
			w.setPolicy(model.PolicyKey{Tenant: tenant, Name: model.PolicyName(fmt.Sprint("p", p))})
			for r := range w.d.n(4) {
				w.setRule(tenant, p, r)
			}
		}
		for p := range w.d.n(4) {
			w.setNetworkPolicy(tenant, p)
			for r := range w.d.n(4) {
				w.setNetworkRule(tenant, p, r)
			}
		}
		for g := range 3 {
			w.setGroup(tenant, g)
		}
	}
	return w
}

func (w *fuzzWorld) addParties(n model.Network, id *model.Identity) {
	for i := range 2 + w.d.n(3) {
		*id++
		e := model.Endpoint{
			Key: model.EndpointKey{Network: n.Key, ID: model.EndpointID(fmt.Sprint("e", i))}, Identity: *id,
			Host:  pick(w.d, fuzzHosts...),
			Group: pick(w.d, "", "g0", "g0", "g1", "g2", model.GroupName("g9")),
			IPv4:  host4(n, byte(i+1)), IPv6: host6(n, byte(i+1)),
		}
		e.MAC = model.EndpointMAC(n.Key, e.IPv4, e.IPv6)
		if w.d.n(15) > 0 {
			w.setIdentity(e)
		}
		w.setEndpoint(e)
		w.parties = append(w.parties, party{e, e.IPv4}, party{e, e.IPv6})
	}
	outside := model.Endpoint{Key: model.EndpointKey{Network: n.Key}, MAC: model.MAC{2, 9, 9, 9, 9, byte(n.ID)}}
	w.parties = append(w.parties, party{outside, host4(n, 200)}, party{outside, netip.AddrFrom4([4]byte{8, 8, 8, 8})}, party{outside, host6(n, 200)})
}

func (w *fuzzWorld) setPolicy(k model.PolicyKey) {
	if w.d.n(12) == 0 {
		delete(w.o.policies, k)
		w.each(func(c *compile.Compiler) { c.DeletePolicy(k) })
		return
	}
	p := model.ContivPolicy{Key: k}.General()
	w.o.policies[k] = p
	w.each(func(c *compile.Compiler) { c.SetPolicy(p) })
}

func (w *fuzzWorld) setGroup(tenant model.TenantName, i int) {
	g := model.Group{Key: model.GroupKey{Tenant: tenant, Name: model.GroupName(fmt.Sprint("g", i))}, Network: "n1"}
	switch w.d.n(12) {
	case 0:
		delete(w.o.groups, g.Key)
		w.each(func(c *compile.Compiler) { c.DeleteGroup(g.Key) })
		return
	case 1, 2, 3, 4:
		g.Policies = []model.PolicyName{"p0"}
	case 5, 6:
		g.Policies = []model.PolicyName{"p1"}
	case 7, 8, 9:
		g.Policies = []model.PolicyName{"p1", "p0"}
	}
	w.o.groups[g.Key] = g
	w.each(func(c *compile.Compiler) { c.SetGroup(g) })
}

func (w *fuzzWorld) setRule(tenant model.TenantName, policy, rule int) {
	k := model.RuleKey{Tenant: tenant, Policy: model.PolicyName(fmt.Sprint("p", policy)), Rule: model.RuleID(fmt.Sprint("r", rule))}
	if w.d.n(8) == 0 {
		delete(w.o.rules, k)
		w.each(func(c *compile.Compiler) { c.DeleteRule(k) })
		return
	}
	r := model.Rule{
		Key: k, Direction: pick(w.d, model.In, model.Out), Priority: 1 + w.d.n(3), Action: pick(w.d, model.Allow, model.Deny, model.Deny),
		Protocol: pick(w.d, model.AnyProtocol, model.ProtoTCP, model.ProtoUDP, model.ProtoICMP, 47),
	}
	if r.Protocol.HasPorts() && w.d.n(2) == 0 {
		r.Port = pick(w.d, uint16(80), 81)
	}
	net := model.Network{Subnet: netip.MustParsePrefix("10.0.0.0/24"), Subnet6: netip.MustParsePrefix("fd00::/64")}
	switch w.d.n(8) {
	case 0, 1:
	case 2, 3:
		r.Group = pick(w.d, "g0", "g1", "g2", model.GroupName("g9"))
	case 4:
		r.Network = pick(w.d, "n1", "n2", model.NetworkName("n9"))
	case 5:
		r.Addr = netip.PrefixFrom(host4(net, byte(1+w.d.n(3))), pick(w.d, 32, 31, 24))
	case 6:
		r.Addr = netip.PrefixFrom(host6(net, byte(1+w.d.n(3))), pick(w.d, 128, 127, 64))
	case 7:
		r.Addr = pick(w.d, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("8.0.0.0/8"))
	}
	w.o.rules[k] = r.General()
	w.each(func(c *compile.Compiler) { c.SetRule(r.General()) })
}

// apply compiles and applies on all hosts.
func (w *fuzzWorld) apply() error {
	for _, h := range fuzzHosts {
		pic, _ := w.comps[h].Compile(1)
		if w.mutate != nil {
			pic = w.mutate(pic)
		}
		report, err := w.fabric.Host(h).Apply(context.Background(), pic)
		if err != nil {
			return err
		}
		if err := Failed(report); err != nil {
			return err
		}
	}
	return nil
}

// setRouter gives a tenant a router, or none.
func (w *fuzzWorld) setRouter(tenant model.TenantName, joined bool) {
	t := model.Tenant{Name: tenant}
	if w.o.joined[tenant] = joined; joined {
		t.Router = map[model.TenantName]model.RouterID{"blue": 1, "red": 2}[tenant]
	}
	w.each(func(c *compile.Compiler) { c.SetTenant(t) })
}

// changeMode joins or parts a tenant's networks; its connections are over.
func (w *fuzzWorld) changeMode(tenant model.TenantName) {
	w.setRouter(tenant, !w.o.joined[tenant])
	for _, seen := range w.o.seen {
		maps.DeleteFunc(seen, func(c conn, _ bool) bool { return c.net.Tenant == tenant })
	}
	w.last = nil
}

// run lives through random changes and packets; it returns a description of
// the first packet that the two worlds judge differently.
func (w *fuzzWorld) run(rounds int) error {
	for range rounds {
		if err := w.apply(); err != nil {
			return err
		}
		for range 24 {
			p := w.packet()
			if w.forget {
				for _, h := range fuzzHosts {
					w.fabric.Host(h).ForgetConnections()
				}
			}
			got, hops := w.send(p)
			if want := w.o.delivered(p); got != want {
				return fmt.Errorf("packet %s: naive %v, reference %v: %v", p, want, got, hops)
			}
			w.packets++
			w.last = &p
		}
		w.change()
	}
	return nil
}

// change makes one random change.
func (w *fuzzWorld) change() {
	tenant := pick(w.d, model.TenantName("blue"), "red")
	switch w.d.n(8) {
	case 7:
		w.setNamespace()
	case 6:
		w.changeMode(tenant)
	case 3:
		w.changeEndpoint()
	case 4:
		w.setNetworkRule(tenant, w.d.n(3), w.d.n(4))
	case 5:
		w.setNetworkPolicy(tenant, w.d.n(3))
	case 0:
		w.setRule(tenant, w.d.n(2), w.d.n(4))
	case 1:
		w.setGroup(tenant, w.d.n(3))
	case 2:
		w.setPolicy(model.PolicyKey{Tenant: tenant, Name: pick(w.d, model.PolicyName("p0"), "p1")})
	}
}

// changeEndpoint moves an endpoint to another host or another group; with a
// move its connections are over.
func (w *fuzzWorld) changeEndpoint() {
	e := w.parties[w.d.n(len(w.parties))].Endpoint
	if e.Host == "" {
		return
	}
	if w.d.n(2) == 0 {
		e.Host = fuzzHosts[1-slices.Index(fuzzHosts, e.Host)]
		for _, seen := range w.o.seen {
			maps.DeleteFunc(seen, func(c conn, _ bool) bool {
				return c.net == w.o.space(e.Key.Network) && (c.a == e.IPv4 || c.b == e.IPv4 || c.a == e.IPv6 || c.b == e.IPv6)
			})
		}
	} else {
		w.moved++
		e.Group, e.Identity = pick(w.d, "", "g0", "g1", model.GroupName("g9")), 1000+w.moved
		w.setIdentity(e)
	}
	w.setEndpoint(e)
	for i := range w.parties {
		if w.parties[i].Key == e.Key {
			w.parties[i].Endpoint = e
		}
	}
	w.last = nil // its parties may be out of date
}

// packet makes the next packet: often an answer or an error to the last one.
func (w *fuzzWorld) packet() oPacket {
	if l := w.last; l != nil && l.about == nil && w.d.n(2) == 0 {
		back := oPacket{from: l.to, to: l.from, proto: l.proto, sport: l.dpt, dpt: l.sport}
		switch w.d.n(4) {
		case 0:
			back.about, back.proto, back.sport, back.dpt = l, model.ProtoICMP, 0, 0
		case 1:
			return *l // again
		case 2: // the same the other way: a connection of its own, unless it answers
		default:
			back.answer = l.proto == model.ProtoTCP || l.proto == model.ProtoICMP
		}
		return back
	}
	for {
		from := w.parties[w.d.n(len(w.parties))]
		var to []party
		for _, p := range w.parties {
			if p.addr.Is4() == from.addr.Is4() && p.Key != from.Key && (p.Key.Network == from.Key.Network || w.d.n(w.strays(from, p)) == 0) {
				to = append(to, p)
			}
		}
		to = slices.DeleteFunc(to, func(p party) bool { return p.Host == "" && from.Host == "" })
		if len(to) == 0 {
			continue
		}
		w.ident++
		p := oPacket{from: from, to: to[w.d.n(len(to))], sport: 1000 + w.ident}
		if !w.routed(p) {
			p.to = w.inNetwork(from.Key.Network, p.to)
		}
		if p.to.Key == from.Key {
			continue
		}
		p.proto = pick(w.d, model.ProtoTCP, model.ProtoUDP, model.ProtoICMP, 47)
		switch {
		case p.proto.HasPorts():
			p.dpt = pick(w.d, uint16(80), 81, 82)
		case p.proto == model.ProtoICMP:
			p.dpt = p.sport
		default:
			p.sport = 0
		}
		return p
	}
}

// routed reports whether a packet goes by the router: to another network that is joined.
func (w *fuzzWorld) routed(p oPacket) bool {
	from, to := p.from.Key.Network, p.to.Key.Network
	return p.from.Host != "" && from != to && w.o.space(from) == w.o.space(to)
}

// strays is how seldom a packet goes to another network.
func (w *fuzzWorld) strays(from, to party) int {
	if w.routed(oPacket{from: from, to: to}) {
		return 2
	}
	return 16
}

// inNetwork is who has the address of p when it is used in network k: the endpoint
// of k with that address, or somebody outside.
func (w *fuzzWorld) inNetwork(k model.NetworkKey, p party) party {
	if p.Key.Network == k {
		return p
	}
	for _, o := range w.parties {
		if o.Key.Network == k && o.addr == p.addr && o.MAC == p.MAC {
			return o
		}
	}
	p.Key, p.Host, p.Group, p.Identity = model.EndpointKey{Network: k}, "", "", 0
	p.MAC[0], p.MAC[1] = 2, 9 // no endpoint's
	return p
}

// frame is the packet as the reference data plane takes it, without where it comes from.
func frame(p oPacket) reference.Packet {
	f := reference.Packet{
		SrcMAC: p.from.MAC, DstMAC: p.to.MAC, Src: p.from.addr, Dst: p.to.addr,
		Proto: p.proto, SrcPort: p.sport, DstPort: p.dpt,
	}
	if p.proto == model.ProtoTCP {
		if f.TCPFlags = reference.FlagACK; p.answer {
			f.TCPFlags |= reference.FlagSYN
		}
	}
	if p.proto == model.ProtoICMP {
		v6 := p.from.addr.Is6()
		if f.ICMPID, f.SrcPort, f.DstPort = p.sport, 0, 0; v6 {
			f.Proto = model.ProtoICMPv6
		}
		switch {
		case p.about != nil:
			inner := frame(*p.about)
			if f.Inner, f.ICMPType = &inner, 3; v6 {
				f.ICMPType = 1
			}
		case p.answer:
			if f.ICMPType = 0; v6 {
				f.ICMPType = 129
			}
		default:
			if f.ICMPType = 8; v6 {
				f.ICMPType = 128
			}
		}
	}
	return f
}

// send sends a packet through the Fakes and tells whether it arrived.
func (w *fuzzWorld) send(p oPacket) (bool, []reference.Hop) {
	f := frame(p)
	if w.routed(p) {
		f.DstMAC = desired.RouterMAC
	}
	n, known := w.o.networks[p.from.Key.Network]
	if p.from.Host == "" { // from outside: every host sees it
		f.Uplink, f.VLAN = true, n.Tag
		if !known || n.Encap != model.EncapVLAN {
			return false, nil
		}
		v := w.fabric.Host(p.to.Host).Send(f)
		return slices.Equal(v.Ports, []string{compile.IfName(p.to.Key)}), []reference.Hop{{Host: p.to.Host, Verdict: v}}
	}
	f.Port = compile.IfName(p.from.Key)
	arrived, hops := w.fabric.Send(p.from.Host, f)
	if p.to.Host == "" {
		return hops[0].Verdict.Uplink && len(arrived) == 0, hops
	}
	// There and nowhere else: not at another tenant's equal address either.
	return slices.Equal(arrived, []reference.Arrival{{Host: p.to.Host, Port: compile.IfName(p.to.Key)}}), hops
}

// FuzzDifferential compares compile and the reference data plane with the naive judge on random
// clusters, policies, changes and packets.
func FuzzDifferential(f *testing.F) {
	for i := range uint32(16) {
		f.Add(binary.BigEndian.AppendUint32(nil, i))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := newFuzzWorld(data, nil).run(4); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReferenceAgreesInRandomClusters runs the same with fixed seeds: 10,000 clusters with -full, else a
// fifth of them, in the first few hundred of which each of TestRandomClustersFindSeededFaults's
// faults would be found.
func TestReferenceAgreesInRandomClusters(t *testing.T) {
	seeds := uint32(10000)
	if !Full() {
		seeds /= 5
	}
	packets, began := 0, time.Now()
	for seed := range seeds {
		w := newFuzzWorld(binary.BigEndian.AppendUint32([]byte("t"), seed), nil)
		if err := w.run(6); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		packets += w.packets
	}
	t.Logf("%d clusters, %d packets, %.0f packets/s", seeds, packets, float64(packets)/time.Since(began).Seconds())
}
