package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// externalClients are addresses of clients outside, and some that no such client has.
var externalClients = []netip.Addr{
	netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("203.0.113.200"), netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("10.1.0.2"),
	netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.3.3"), netip.MustParseAddr("172.19.3.3"),
	netip.MustParseAddr("2001:db8:9::9"), netip.MustParseAddr("fd00::200"), netip.MustParseAddr("fd00:1::1"), netip.MustParseAddr("fe80::9"), netip.MustParseAddr("fd6d:809b:d5b4::ac13:303"),
}

// nodeAddr is the address of a host of fuzzWorld at which node ports are.
func nodeAddr(h model.HostName) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, 0, byte(1 + slices.Index(fuzzHosts, h))})
}

// openOutside gives the hosts of a world egress, and node ports.
func (w *fuzzWorld) openOutside() {
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	way.TunnelPort = TunnelPort
	w.each(func(c *compile.Compiler) {
		c.Egress.SetPrivate(way)
		for _, h := range fuzzHosts {
			c.SetClusterNode(model.ClusterNode{Name: model.NodeName(h), Addrs: []netip.Addr{nodeAddr(h)}})
		}
	})
	private := way.Subnet.Addr()
	for _, p := range w.parties {
		if p.Host != "" && p.addr.Is4() {
			private = private.Next()
			for _, h := range fuzzHosts {
				w.comps[h].Egress.SetPrivateAddress(p.Key, private)
			}
		}
	}
}

// fuzzServices are the services of fuzzWorld.
var fuzzServices = []model.ClusterServiceKey{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "b"}}

// setService makes a service another one.
func (w *fuzzWorld) setService(i int) {
	d, k := w.d, fuzzServices[i]
	at := func(prefix string) netip.Addr {
		a := netip.MustParseAddr(prefix)
		for range i + 1 {
			a = a.Next()
		}
		return a
	}
	s := model.Service{
		Key: k.ServiceKey(), Network: model.NetworkKey{Tenant: pick(d, model.TenantName("blue"), "red"), Name: pick(d, model.NetworkName("n1"), "n2")},
		Addrs: []netip.Addr{at("10.96.0.0"), at("fd96::")}, Affinity: model.NoAffinity,
		Balanced: []netip.Addr{at("203.0.113.0"), at("2001:db8:1::")}, External: []netip.Addr{at("198.51.100.0")},
		InsideLocal: d.n(3) == 0, OutsideLocal: d.n(3) == 0,
	}
	if d.n(2) == 0 {
		s.OnlySources = true
		s.Sources = pick(d, nil, []netip.Prefix{netip.MustParsePrefix("8.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}, []netip.Prefix{netip.MustParsePrefix("9.9.9.9/32")})
	}
	own := d.n(2) == 0 // of all ports of its addresses
	for _, p := range []model.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Target: 81, Node: uint16(30080 + i)}, {Name: "dns", Protocol: model.ProtoUDP, Port: 53, Target: 80}} {
		if !own {
			p.Target = 0
		}
		s.Ports = append(s.Ports, p)
	}
	w.each(func(c *compile.Compiler) { c.SetService(s) })
	for j, v6 := range []bool{false, true, false} {
		slice := model.ServiceSlice{Key: model.ServiceSliceKey{Namespace: k.Namespace, Name: fmt.Sprint(k.Name, j)}, Service: k.Name}
		slice.Ports = []model.SlicePort{{Protocol: model.ProtoTCP, Port: pick(d, uint16(80), 81, 81)}, {Name: "dns", Protocol: model.ProtoUDP, Port: 80}}
		for _, p := range w.parties { // endpoints of the domain: others are external backends
			_, known := w.o.networks[p.Key.Network]
			if known && p.Host != "" && p.addr.Is6() == v6 && p.Key.Network.Tenant == s.Network.Tenant && (p.Key.Network == s.Network || w.o.joined[s.Network.Tenant]) && d.n(3) == 0 {
				slice.Backends = append(slice.Backends, model.ServiceBackend{
					Addr: p.addr, Node: model.NodeName(p.Host), State: pick(d, model.ServiceBackendReady, model.ServiceBackendReady, model.ServiceBackendDraining, model.ServiceBackendUnready),
				})
			}
		}
		slices.SortFunc(slice.Backends, func(a, b model.ServiceBackend) int { return a.Addr.Compare(b.Addr) })
		w.each(func(c *compile.Compiler) { c.SetServiceSlice(slice) })
	}
}

// asServices returns the state of the whole cluster, for questions about services.
func (w *fuzzWorld) asServices(c *reachability.Cluster) {
	state, _ := w.whole.Compile(1)
	c.HostOf = func(k model.EndpointKey) model.Host {
		for _, p := range w.parties {
			if p.Key == k {
				return model.Host{Name: p.Host}
			}
		}
		return model.Host{}
	}
	c.Update(state)
}

// reached reports whether a backend on any of some hosts, or the only one that is asked, gets a
// request, and its answer comes back.
func (w *fuzzWorld) reached(q reference.Request, to party, at ...model.HostName) (bool, string) {
	text := ""
	for _, h := range at {
		for _, o := range fuzzHosts {
			w.fabric.Host(o).ForgetConnections()
			w.fabric.Host(o).Prefer(to.addr)
		}
		q.Host = h
		out := w.fabric.Ask(q)
		if text += fmt.Sprintf("%s: %v; ", h, out.Hops); out.Answered && out.By == (reference.Arrival{Host: to.Host, Port: compile.IfName(to.Key)}) {
			return true, text
		}
	}
	return false, text
}

// agreeOnService asks a service for one of its possible backends: of the reference data plane, as
// a client outside and as an endpoint, and of the answers.
func (w *fuzzWorld) agreeOnService(c *reachability.Cluster, seen map[string]int) error {
	d := w.d
	ends := slices.DeleteFunc(slices.Clone(w.parties), func(p party) bool { return p.Host == "" })
	i := d.n(len(fuzzServices))
	parts := c.Parts(fuzzServices[i].ServiceKey())
	to := ends[d.n(len(ends))]
	if backends := slices.DeleteFunc(slices.Clone(ends), func(p party) bool {
		return !slices.ContainsFunc(parts, func(k model.ServiceKey) bool {
			return slices.ContainsFunc(c.BackendsOf(k), func(b *desired.Port) bool { return b.Endpoint == p.Key })
		})
	}); len(backends) > 0 && d.n(4) > 0 {
		to = backends[d.n(len(backends))]
	}
	v6 := to.addr.Is6()
	at := pick(d, netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)}), netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)}), netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)}), netip.IPv4Unspecified())
	if v6 {
		at = pick(d, netip.AddrFrom16([16]byte{0xfd, 0x96, 15: byte(i + 1)}), netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 5: 1, 15: byte(i + 1)}))
	}
	q := reference.Request{Dst: at, Proto: pick(d, model.ProtoTCP, model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP), SrcPort: 3000}
	switch q.DstPort = pick(d, uint16(80), 80, 53, 81); {
	case at.IsUnspecified():
		q.DstPort = uint16(30080 + i)
	case q.Proto == model.ProtoUDP:
		q.DstPort = 53
	}
	allowed := func(p reachability.Part, port uint16) bool { return p.Allowed && p.Ports.Has(q.Proto, port) }

	q.Src = externalClients[d.n(len(externalClients))]
	if q.Src.Is6() == v6 {
		said, why := false, []any{}
		for _, k := range parts {
			for _, port := range c.OutsideToService(netip.PrefixFrom(q.Src, q.Src.BitLen()), k) {
				for _, b := range port.Backends {
					if port.Addr == at && port.Protocol == q.Proto && port.Port == q.DstPort && b.Key == to.Key {
						a := b.Clients[0]
						why = append(why, b)
						said = said || len(a.Parts) > 0 && allowed(a.Parts[0], b.Port)
					}
				}
			}
		}
		got, hops := false, ""
		if at.IsUnspecified() {
			for _, h := range fuzzHosts {
				q.Dst = nodeAddr(h)
				by, more := w.reached(q, to, h)
				got, hops = got || by, hops+more
			}
		} else {
			got, hops = w.reached(q, to, fuzzHosts...)
		}
		if got != said {
			return fmt.Errorf("%s by service %s at %s:%d to %s: the reference data plane says %v: %s; the answer is %v %+v", q.Src, parts, at, q.DstPort, to.Key, got, hops, said, why)
		}
		seen[fmt.Sprintf("outside to a service %v", got)]++
	}

	from := ends[d.n(len(ends))]
	a, ok := c.Port(from.Key)
	if from.addr.Is6() != v6 || !ok {
		return nil
	}
	said, why := false, []any{}
	for _, k := range parts {
		for _, port := range c.ToService(a, k, v6) {
			for _, b := range port.Backends {
				if port.Addr == at && port.Protocol == q.Proto && port.Port == q.DstPort && b.Key == to.Key {
					why = append(why, b)
					said = said || allowed(b.Part, b.Port)
				}
			}
		}
	}
	q.Src, q.Port, q.Dst = netip.Addr{}, compile.IfName(from.Key), at
	asked := []netip.Addr{at}
	if at.IsUnspecified() {
		asked = []netip.Addr{nodeAddr("h1"), nodeAddr("h2")}
	}
	got, hops := false, ""
	for _, q.Dst = range asked {
		by, more := w.reached(q, to, from.Host)
		got, hops = got || by, hops+more
	}
	if got != said {
		return fmt.Errorf("%s by service %s at %s:%d to %s: the reference data plane says %v: %s; the answer is %v %+v", from.Key, parts, at, q.DstPort, to.Key, got, hops, said, why)
	}
	seen[fmt.Sprintf("inside to a service %v", got)]++
	return nil
}

// agreeOnEgress does so for an endpoint and addresses outside that it reaches by its host, and for
// what the host sends to it.
func (w *fuzzWorld) agreeOnEgress(c *reachability.Cluster, seen map[string]int) error {
	end := w.parties[w.d.n(len(w.parties))]
	port, ok := c.Port(end.Key)
	there, q := externalClients[w.d.n(len(externalClients))], asked[w.d.n(len(asked))]
	if end.Host == "" || !ok || end.addr.Is4() != there.Is4() {
		return nil
	}
	said := q.Proto
	if said == model.ProtoICMP && there.Is6() {
		said = model.ProtoICMPv6
	}
	prefix := netip.PrefixFrom(there, there.BitLen())
	for dir, answers := range map[string][]reachability.Outside{"to": c.ToOutside(port, prefix), "from": c.FromOutside(prefix, port)} {
		answer := answers[0].Answer
		if answer.Route == reachability.RoutePhysical || answer.Gap == reachability.GapAddress && dir == "from" { // no client of a host's is there
			continue
		}
		for _, h := range fuzzHosts {
			w.fabric.Host(h).ForgetConnections()
		}
		ask := reference.Request{Host: end.Host, Port: compile.IfName(end.Key), Dst: there, Proto: q.Proto, SrcPort: 3000, DstPort: q.DstPort}
		want := reference.Arrival{Host: end.Host}
		if dir == "from" {
			private := w.private(end, there.Is6())
			ask, want.Port = reference.Request{Host: end.Host, Src: there, Dst: private, Proto: q.Proto, SrcPort: 3000, DstPort: q.DstPort}, compile.IfName(end.Key)
		}
		out := w.fabric.Ask(ask)
		if passes := out.Answered && out.By == want; passes != allowedBy(answer).Has(said, q.DstPort) {
			return fmt.Errorf("%s %s %s, %+v: the reference data plane says %v: %v; the answer is %+v", end.Key, dir, there, ask, passes, out.Hops, answer)
		}
		seen[fmt.Sprintf("%s outside %v by %s%s", dir, out.Answered, answer.Route, answer.Gap)]++
	}
	return nil
}

// private is the NAT address of an endpoint on its host.
func (w *fuzzWorld) private(p party, v6 bool) netip.Addr {
	state, _ := w.comps[p.Host].Compile(1)
	port, ok := state.Ports.Get(compile.IfName(p.Key))
	switch {
	case !ok:
		return netip.Addr{}
	case v6:
		return port.Private6
	}
	return port.Private
}

// TestReachabilityOfServicesIsWhatTheReferenceDataPlaneDoes compares answers about services, and
// about what lies behind hosts, with packets in random clusters while they change: 100,000 of
// them with -full.
func TestReachabilityOfServicesIsWhatTheReferenceDataPlaneDoes(t *testing.T) {
	seeds := uint32(100000)
	if !Full() {
		seeds /= 400
	}
	seen := map[string]int{}
	for seed := range seeds {
		w := newFuzzWorld(binary.BigEndian.AppendUint32([]byte("s"), seed), nil)
		w.openOutside()
		c := reachability.NewCluster()
		for i := range fuzzServices {
			w.setService(i)
		}
		for range 3 {
			if err := w.apply(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.asServices(c)
			for range 24 {
				if err := errors.Join(w.agreeOnService(c, seen), w.agreeOnEgress(c, seen)); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			w.change()
			for i := range fuzzServices {
				w.setService(i)
			}
		}
	}
	for _, must := range []string{
		"outside to a service true", "outside to a service false", "inside to a service true", "inside to a service false",
		"to outside true by host", "to outside false by host", "from outside true by host", "from outside false by host",
	} {
		if seen[must] == 0 {
			t.Errorf("no connection was %q: %v", must, seen)
		}
	}
	t.Logf("%d clusters: %v", seeds, seen)
}
