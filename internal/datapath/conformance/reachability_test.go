package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// setEndpoint enters an endpoint in all compilers.
func (w *fuzzWorld) setEndpoint(e model.Endpoint) {
	for _, h := range fuzzHosts {
		w.comps[h].SetEndpoint(e)
	}
	w.whole.SetEndpoint(compile.OnWhole(e))
}

// asked are connections on either side of each bound of the rules of fuzzWorld.
var asked = []reference.Probe{
	{Proto: model.ProtoTCP, DstPort: 79},
	{Proto: model.ProtoTCP, DstPort: 80},
	{Proto: model.ProtoTCP, DstPort: 81},
	{Proto: model.ProtoTCP, DstPort: 82},
	{Proto: model.ProtoUDP, DstPort: 80},
	{Proto: model.ProtoUDP, DstPort: 81},
	{Proto: model.ProtoSCTP, DstPort: 80},
	{Proto: model.ProtoICMP},
	{Proto: 47},
}

// allowedBy is all that an answer allows.
func allowedBy(a reachability.Answer) (out reachability.Ports) {
	for _, p := range a.Parts {
		if p.Allowed {
			out = out.Or(p.Ports)
		}
	}
	return out
}

// agreeOnReachability asks some pairs of endpoints of the reference data plane, and compares
// the answers with those for the whole cluster.
func (w *fuzzWorld) agreeOnReachability(c *reachability.Cluster, pairs int, seen map[string]int) error {
	state, _ := w.whole.Compile(1)
	c.Update(state)
	ends := slices.DeleteFunc(slices.Clone(w.parties), func(p party) bool { return p.Host == "" })
	for range pairs {
		from, to := ends[w.d.n(len(ends))], ends[w.d.n(len(ends))]
		a, okA := c.Port(from.Key)
		b, okB := c.Port(to.Key)
		v6 := to.addr.Is6()
		var answer reachability.Answer
		if okA && okB {
			answer = c.Between(a, b, v6)
		}
		allowed := allowedBy(answer)
		for _, q := range asked {
			for _, h := range fuzzHosts {
				w.fabric.Host(h).ForgetConnections()
			}
			q.FromHost, q.FromPort, q.ToHost, q.ToPort, q.IPv6 = from.Host, compile.IfName(from.Key), to.Host, compile.IfName(to.Key), v6
			q.SrcPort = 3000
			said := q.Proto
			if said == model.ProtoICMP && v6 {
				said = model.ProtoICMPv6
			}
			reached, hops := w.fabric.Reach(q)
			if reached != allowed.Has(said, q.DstPort) {
				return fmt.Errorf("%s to %s, %+v: the reference data plane says %v: %v; the answer is %+v", from.Key, to.Key, q, reached, hops, answer)
			}
			seen[fmt.Sprintf("%v by %s%s", reached, answer.Route, answer.Gap)]++
		}
	}
	return nil
}

// agreeOnOutside does so for endpoints and machines of the physical network.
func (w *fuzzWorld) agreeOnOutside(c *reachability.Cluster, pairs int, seen map[string]int) error {
	for range pairs {
		end, out := w.parties[w.d.n(len(w.parties))], w.parties[w.d.n(len(w.parties))]
		port, ok := c.Port(end.Key)
		if end.Host == "" || out.Host != "" || !ok || end.addr.Is4() != out.addr.Is4() || end.Key.Network != out.Key.Network {
			continue
		}
		q := asked[w.d.n(len(asked))]
		said := q.Proto
		if said == model.ProtoICMP && end.addr.Is6() {
			said = model.ProtoICMPv6
		}
		for dir, p := range map[string]oPacket{"to": {from: end, to: out}, "from": {from: out, to: end}} {
			answers := c.ToOutside(port, netip.PrefixFrom(out.addr, out.addr.BitLen()))
			if dir == "from" {
				answers = c.FromOutside(netip.PrefixFrom(out.addr, out.addr.BitLen()), port)
			}
			if answers[0].Route == reachability.RouteHost { // these hosts have no egress
				continue
			}
			if p.proto, p.sport, p.dpt = q.Proto, 3000, q.DstPort; p.proto == model.ProtoICMP {
				p.dpt = p.sport
			}
			for _, h := range fuzzHosts {
				w.fabric.Host(h).ForgetConnections()
			}
			passes, hops := w.send(p)
			if passes != allowedBy(answers[0].Answer).Has(said, q.DstPort) {
				return fmt.Errorf("%s: the reference data plane says %v: %v; the answer is %+v", p, passes, hops, answers)
			}
			seen[fmt.Sprintf("%s outside %v by %s%s", dir, passes, answers[0].Route, answers[0].Gap)]++
		}
	}
	return nil
}

// TestReachabilityIsWhatTheReferenceDataPlaneDoes compares exact answers with packets in
// random clusters while they change: 100,000 of them with -full.
func TestReachabilityIsWhatTheReferenceDataPlaneDoes(t *testing.T) {
	seeds := uint32(100000)
	if !Full() {
		seeds /= 100
	}
	seen := map[string]int{}
	for seed := range seeds {
		w := newFuzzWorld(binary.BigEndian.AppendUint32([]byte("r"), seed), nil)
		if at := w.d.n(len(w.parties)); seed%8 == 0 && w.parties[at].Host != "" {
			w.parties[at].Identity = model.IdentityUnknown
			w.setEndpoint(w.parties[at].Endpoint)
		}
		c := reachability.NewCluster()
		for range 3 {
			if err := w.apply(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := errors.Join(w.agreeOnReachability(c, 12, seen), w.agreeOnOutside(c, 24, seen)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.change()
		}
	}
	for _, must := range []string{
		"true by network", "false by network", "true by router", "false by router", "false by noneother-tenant", "false by nonenot-routed",
		"false by nonesame-endpoint", "false by noneunknown-identity",
		"to outside true by physical-network", "to outside false by physical-network", "from outside true by physical-network", "from outside false by physical-network",
	} {
		if seen[must] == 0 {
			t.Errorf("no connection was %q: %v", must, seen)
		}
	}
	t.Logf("%d clusters: %v", seeds, seen)
}
