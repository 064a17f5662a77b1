package conformance

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// setIdentity gives an endpoint's identity its record, with labels or none.
func (w *fuzzWorld) setIdentity(e model.Endpoint) {
	r := model.IdentityRecord{ID: e.Identity, Network: e.Key.Network, Group: e.Group, Labels: map[string]string{}}
	for _, k := range []string{"app", "env"} {
		if v := pick(w.d, "", "a", "b"); v != "" {
			r.Labels[k] = v
		}
	}
	if r.Namespace = pick(w.d, "", "", model.NamespaceName("x"), "y"); w.d.n(2) == 0 {
		r.Ports = []model.NamedPort{{Name: "dns", Protocol: model.ProtoUDP, Port: 82}, {Name: "web", Protocol: model.ProtoTCP, Port: pick(w.d, uint16(80), 81)}}[w.d.n(2):]
	}
	w.o.identities[e.Identity] = r
	w.each(func(c *compile.Compiler) { c.SetIdentity(r) })
}

// setNamespace makes, changes or deletes a namespace.
func (w *fuzzWorld) setNamespace() {
	n := model.Namespace{Name: pick(w.d, "x", model.NamespaceName("y"))}
	if w.d.n(6) == 0 {
		delete(w.o.namespaces, n.Name)
		w.each(func(c *compile.Compiler) { c.DeleteNamespace(n.Name) })
		return
	}
	if w.d.n(3) > 0 {
		n.Labels = map[string]string{"team": pick(w.d, "a", "b")}
	}
	w.o.namespaces[n.Name] = n
	w.each(func(c *compile.Compiler) { c.SetNamespace(n) })
}

func (w *fuzzWorld) selector(t model.TenantName) model.Selector {
	s := model.Selector{Tenant: t}
	switch w.d.n(6) {
	case 0:
		s.Network = pick(w.d, "n1", "n2", model.NetworkName("n9"))
	case 1:
		s.Group = pick(w.d, "g0", "g1", model.GroupName("g9"))
	}
	if w.d.n(2) == 0 {
		s.MatchLabels = map[string]string{pick(w.d, "app", "env"): pick(w.d, "a", "b")}
	}
	if w.d.n(2) == 0 {
		r := model.Requirement{Key: pick(w.d, "app", "env"), Operator: pick(w.d, model.OpIn, model.OpNotIn, model.OpExists, model.OpDoesNotExist)}
		if r.Operator == model.OpIn || r.Operator == model.OpNotIn {
			r.Values = pick(w.d, []string{"a"}, []string{"b", "c"}, []string{"b", "a"})
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	if w.d.n(4) == 0 {
		s.Namespaces = []model.Requirement{pick(w.d,
			model.Requirement{Key: model.NamespaceNameLabel, Operator: model.OpIn, Values: []string{"x"}},
			model.Requirement{Key: model.NamespaceNameLabel, Operator: model.OpExists},
			model.Requirement{Key: "team", Operator: model.OpIn, Values: []string{"a"}},
			model.Requirement{Key: "team", Operator: model.OpDoesNotExist})}
	}
	return s
}

// setNetworkPolicy makes, changes or deletes a policy by selector.
func (w *fuzzWorld) setNetworkPolicy(t model.TenantName, i int) {
	k := model.PolicyKey{Tenant: t, Name: model.PolicyName(fmt.Sprint("n", i))}
	if w.d.n(8) == 0 {
		delete(w.o.policies, k)
		w.each(func(c *compile.Compiler) { c.DeletePolicy(k) })
		return
	}
	p := model.Policy{
		Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Order: 99 + w.d.n(3), Audit: w.d.n(4) == 0,
		Tier: pick(w.d, model.TierAdmin, model.TierContiv, model.TierKubernetes, model.TierBaseline), Applies: w.selector(t),
		Default: model.Defaults{In: pick(w.d, "", "", model.Allow, model.Deny, model.Pass), Out: pick(w.d, "", "", model.Allow, model.Deny)},
	}
	if w.d.n(60) == 0 {
		p.Tier = 99 // of a newer version
	}
	w.o.policies[k] = p
	w.each(func(c *compile.Compiler) { c.SetPolicy(p) })
}

// setNetworkRule makes, changes or deletes a rule with peers of all kinds.
func (w *fuzzWorld) setNetworkRule(t model.TenantName, policy, rule int) {
	k := model.RuleKey{Tenant: t, Policy: model.PolicyName(fmt.Sprint("n", policy)), Rule: model.RuleID(fmt.Sprint("r", rule))}
	if w.d.n(8) == 0 {
		delete(w.o.rules, k)
		w.each(func(c *compile.Compiler) { c.DeleteRule(k) })
		return
	}
	r := model.PolicyRule{
		Key: k, Direction: pick(w.d, model.In, model.Out), Priority: 1 + w.d.n(3), Log: w.d.n(4) == 0,
		Action: pick(w.d, model.Allow, model.Deny, model.Pass),
	}
	prefix := netip.MustParsePrefix
	for range w.d.n(3) {
		var p model.Peer
		switch w.d.n(6) {
		case 0:
			p.Network = model.NetworkKey{Tenant: t, Name: pick(w.d, "n1", "n2", model.NetworkName("n9"))}
		case 1:
			p.CIDR = prefix("10.0.0.0/16")
			p.Except = pick(w.d, nil, []netip.Prefix{prefix("10.0.0.2/31")}, []netip.Prefix{prefix("10.0.0.1/32"), prefix("10.0.0.128/25")})
		case 2:
			p.CIDR, p.Except = prefix("fd00::/16"), []netip.Prefix{prefix("fd00::2/127")}
		default:
			s := w.selector(t)
			p.Selector = &s
		}
		r.Peers = append(r.Peers, p)
	}
	for range w.d.n(3) {
		r.Ports = append(r.Ports, pick(w.d,
			model.PortMatch{Protocol: model.ProtoTCP, Lo: 80, Hi: 81}, model.PortMatch{Protocol: model.ProtoTCP, Lo: 81, Hi: 4000},
			model.PortMatch{Protocol: model.ProtoUDP, Hi: 65535}, model.PortMatch{Protocol: model.ProtoUDP, Lo: 82, Hi: 82},
			model.PortMatch{Protocol: model.ProtoICMP, Hi: 65535},
			model.PortMatch{Protocol: model.ProtoTCP, Name: "web"}, model.PortMatch{Protocol: model.ProtoUDP, Name: "dns"}))
	}
	w.o.rules[k] = r
	w.each(func(c *compile.Compiler) { c.SetRule(r) })
}

// audited makes the ports of a desired state judged by the set that stands for one
// audited policy beside what is enforced.
func audited(k model.PolicyKey) func(desired.Host) desired.Host {
	return func(h desired.Host) desired.Host {
		for name, p := range h.Ports.All() {
			s, ok := h.PolicySets.Get(p.Policies)
			if !ok || p.Endpoint.Network.Tenant != k.Tenant {
				continue
			}
			_, list, _ := strings.Cut(s.Name, " audit ")
			list, _, _ = strings.Cut(list, " ")
			if i := slices.Index(strings.Split(list, ","), string(k.Name)); i >= 0 && i < len(s.Audits) {
				c := *p
				c.Policies = s.Audits[i]
				h.Ports = h.Ports.Set(name, &c)
			}
		}
		return h
	}
}

// TestAuditedPolicyJudgesAsIfItWereEnforced: the set of an audited policy judges as if the policy,
// alone of all audited ones, were enforced at its place.
func TestAuditedPolicyJudgesAsIfItWereEnforced(t *testing.T) {
	seeds := uint32(1500)
	if testing.Short() {
		seeds /= 10
	}
	sets := 0
	for seed := range seeds {
		k := model.PolicyKey{Tenant: "blue", Name: "n0"}
		w := newFuzzWorld(binary.BigEndian.AppendUint32([]byte("a"), seed), func(h desired.Host) desired.Host {
			for _, s := range h.PolicySets.All() {
				sets += len(s.Audits)
			}
			return audited(k)(h)
		})
		w.o.enforce = k
		if err := w.run(6); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if sets < int(seeds)/4 {
		t.Errorf("%d audits in %d clusters", sets, seeds)
	}
}
