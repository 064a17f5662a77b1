package conformance

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Labelled returns a topology whose endpoints have identities of their own, with
// the labels app (their group, or none) and side (their host).
func Labelled(t Topology) Topology {
	id := model.IdentityFirst + 1000
	t.Identities = append([]model.IdentityRecord(nil), t.Identities...)
	t.Endpoints = append([]model.Endpoint(nil), t.Endpoints...)
	for i := range t.Endpoints {
		e := &t.Endpoints[i]
		id++
		e.Identity = id
		labels := map[string]string{"side": string(e.Host)}
		if e.Group != "" {
			labels["app"] = string(e.Group)
		}
		t.Identities = append(t.Identities, model.IdentityRecord{ID: id, Network: e.Key.Network, Group: e.Group, Labels: labels})
	}
	return t
}

// LabelCases returns n random cases on a Labelled topology: two or three policies
// by selector in any tiers, with rules of all kinds of peers, ranges of ports and
// all actions, beside a Contiv policy on the group web. The same seed returns the
// same cases.
func LabelCases(t Topology, seed uint64, n int) (out []Case) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		web := model.GroupKey{Tenant: "blue", Name: "web"}
		c := Case{Name: fmt.Sprintf("labels %d", i), Attach: map[model.GroupKey][]model.PolicyName{}}
		if i%2 == 0 {
			c.Policies = []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}}
			c.Attach[web] = []model.PolicyName{"p1"}
			c.Rules = []model.Rule{{
				Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, Direction: model.In, Priority: 50,
				Action: one(r, model.Allow, model.Deny), Protocol: model.ProtoTCP, Port: 80, Group: "db",
			}}
		}
		for p := range 2 + r.IntN(2) {
			k := model.PolicyKey{Tenant: "blue", Name: model.PolicyName(fmt.Sprint("n", p))}
			c.General = append(c.General, model.Policy{
				Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.Tiers()[r.IntN(4)], Order: 99 + r.IntN(3),
				Applies: randomSelector(r), Audit: r.IntN(6) == 0,
				Default: model.Defaults{In: one(r, "", "", model.Deny, model.Allow), Out: one(r, "", "", "", model.Deny)},
			})
			for i := range 1 + r.IntN(4) {
				c.GeneralRules = append(c.GeneralRules, t.randomRule(r, model.RuleKey{Tenant: "blue", Policy: k.Name, Rule: model.RuleID(strconv.Itoa(i))}))
			}
		}
		out = append(out, c)
	}
	return out
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomSelector(r *rand.Rand) model.Selector {
	s := model.Selector{Tenant: "blue"}
	switch r.IntN(5) {
	case 0:
		s.Group = one(r, model.GroupName("web"), "db", "lan")
	case 1:
		s.Network = one(r, model.NetworkName("vx"), "vl")
	}
	app := []string{"web", "db", "lan"}
	switch r.IntN(5) {
	case 0:
		s.MatchLabels = map[string]string{"app": one(r, app...)}
	case 1:
		s.MatchExpressions = []model.Requirement{{Key: "app", Operator: one(r, model.OpIn, model.OpNotIn), Values: []string{one(r, app...), "solo"}}}
	case 2:
		s.MatchExpressions = []model.Requirement{{Key: "app", Operator: one(r, model.OpExists, model.OpDoesNotExist)}}
	}
	if r.IntN(3) == 0 {
		s.MatchExpressions = append(s.MatchExpressions, model.Requirement{Key: "side", Operator: model.OpIn, Values: []string{one(r, "h1", "h2")}})
	}
	return s
}

func (t Topology) randomRule(r *rand.Rand, k model.RuleKey) model.PolicyRule {
	out := model.PolicyRule{
		Key: k, Direction: one(r, model.In, model.Out), Priority: 1 + r.IntN(3),
		Action: one(r, model.Allow, model.Deny, model.Pass),
	}
	for range r.IntN(3) {
		var p model.Peer
		switch r.IntN(5) {
		case 0:
			p.Network = model.NetworkKey{Tenant: k.Tenant, Name: one(r, model.NetworkName("vx"), "vl")}
		case 1:
			n := t.Networks[r.IntN(2)]
			p.CIDR, p.Except = n.Subnet, []netip.Prefix{netip.PrefixFrom(n.Subnet.Addr().Next(), 32)}
			if r.IntN(2) == 0 {
				p.CIDR, p.Except = n.Subnet6, []netip.Prefix{netip.PrefixFrom(n.Subnet6.Addr(), 127)}
			}
		default:
			s := randomSelector(r)
			p.Selector = &s
		}
		out.Peers = append(out.Peers, p)
	}
	for range r.IntN(3) {
		out.Ports = append(out.Ports, one(r,
			model.PortMatch{Protocol: model.ProtoTCP, Lo: 1, Hi: 100}, model.PortMatch{Protocol: model.ProtoTCP, Lo: 81, Hi: 9000},
			model.PortMatch{Protocol: model.ProtoUDP, Lo: 80, Hi: 80}, model.PortMatch{Protocol: model.ProtoUDP, Lo: 79, Hi: 8080},
			model.PortMatch{Protocol: model.ProtoTCP, Hi: 65535}, model.PortMatch{Protocol: model.ProtoICMP, Hi: 65535}))
	}
	return out
}

// testSelectors compares packets under random policies by selector, tier and
// order, and runs traffic through an endpoint whose labels change.
func testSelectors(t *testing.T, h Harness) {
	t.Helper()
	top := Labelled(StandardTopology())
	b, w := sending(t, h, top, Case{})
	n := 24
	if h.Slow {
		n = 6
	}
	sport := uint16(30000)
	for n, c := range LabelCases(top, 1, n) {
		if err := w.Switch(c); err != nil {
			t.Fatal(err)
		}
		b.apply(t, w.Desired["h1"])
		for i, x := range exchanges(top, &sport) {
			if !h.tries(n, i) {
				continue
			}
			if !b.compare(t, c.Name+": "+x.name, x.packet) {
				break
			}
		}
	}
	b.relabel(t, w)
}

// relabel lets db1 change the label that a policy asks for, there and back, while
// web1 and it talk on a port that both labels may use and on one that one may.
func (b *bench) relabel(t *testing.T, w *World) {
	t.Helper()
	top := w.Topology
	open := func(port uint16, values ...string) model.PolicyRule {
		s := model.Selector{Tenant: "blue", MatchExpressions: []model.Requirement{{Key: "role", Operator: model.OpIn, Values: values}}}
		return model.PolicyRule{
			Key: model.RuleKey{Tenant: "blue", Policy: "n0", Rule: model.RuleID(fmt.Sprint(port))}, Direction: model.In, Priority: 1,
			Action: model.Allow, Peers: []model.Peer{{Selector: &s}}, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: port, Hi: port}},
		}
	}
	if err := w.Switch(Case{
		General: []model.Policy{{
			Key: model.PolicyKey{Tenant: "blue", Name: "n0"}, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv,
			Applies: model.Selector{Tenant: "blue", MatchLabels: map[string]string{"app": "web"}}, Default: model.Defaults{In: model.Deny},
		}},
		GeneralRules: []model.PolicyRule{open(80, "reader", "writer"), open(8080, "writer")},
	}); err != nil {
		t.Fatal(err)
	}
	network := model.NetworkKey{Tenant: "blue", Name: "vx"}
	client := top.Endpoint(model.EndpointKey{Network: network, ID: "db1"})
	server := top.Endpoint(model.EndpointKey{Network: network, ID: "web1"})
	var asks, answers []reference.Packet
	for _, port := range []uint16{80, 8080} {
		p := between(top, client, server, model.ProtoTCP, false, 32000+port, port)
		asks, answers = append(asks, p), append(answers, answerTo(top, p, client, server))
	}
	for i, role := range []string{"writer", "reader", "writer", "", "writer"} {
		e := client
		e.Identity = model.IdentityFirst + 2000 + model.Identity(i)
		err := w.Change(func(c *compile.Compiler) {
			c.SetIdentity(model.IdentityRecord{ID: e.Identity, Network: network, Group: e.Group, Labels: map[string]string{"app": "db", "role": role}})
			c.SetEndpoint(e)
			c.DeleteIdentity("blue", e.Identity-1)
		})
		if err != nil {
			t.Fatal(err)
		}
		b.apply(t, w.Desired["h1"])
		for j := range asks {
			b.compare(t, fmt.Sprintf("db1 as %q, port %d, request", role, asks[j].DstPort), asks[j])
			b.compare(t, fmt.Sprintf("db1 as %q, port %d, answer", role, asks[j].DstPort), answers[j])
			if i == 0 {
				asks[j].TCPFlags, answers[j].TCPFlags = reference.FlagACK, reference.FlagACK
			}
		}
	}
}
