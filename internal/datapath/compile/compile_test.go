package compile

import (
	"fmt"
	"maps"
	"math/rand"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// hostContents is a desired.Host with plain maps, to be compared by contents.
type hostContents struct {
	Header   string
	Networks map[model.NetworkID]desired.Network
	Ports    map[string]desired.Port
	Remotes  map[desired.RemoteKey]desired.Remote
	Sets     map[desired.PolicySetID]desired.PolicySet
	Names    map[desired.DNSKey]desired.DNSRecord
	Subnets  map[model.NetworkKey]desired.DNSNetwork
	Services map[model.ServiceKey]string // all of each as text
	Problems []string
}

func plain[K comparable, V any](m desired.Map[K, *V]) map[K]V {
	out := map[K]V{}
	for k, v := range m.All() {
		out[k] = *v
	}
	return out
}

func contents(h desired.Host, problems []Problem) hostContents {
	p := hostContents{
		Header:  fmt.Sprint(h.Name, h.Revision, h.VTEP, h.FwdMode, h.ArpMode, maps.Collect(h.Tunnels.All())),
		Ports:   plain(h.Ports),
		Names:   plain(h.DNS.Records),
		Subnets: plain(h.DNS.Networks),
		Remotes: plain(h.Remotes), Networks: map[model.NetworkID]desired.Network{}, Sets: map[desired.PolicySetID]desired.PolicySet{},
	}
	for k, v := range h.Networks.All() {
		p.Networks[k] = *v
	}
	for k, v := range h.PolicySets.All() {
		p.Sets[k] = *v
		for _, tier := range slices.Concat(v.In, v.Out) {
			for id, r := range tier.Rules.All() {
				if id != r.ID || slices.ContainsFunc(r.Ports, func(m model.PortMatch) bool { return m.Name != "" }) {
					p.Problems = append(p.Problems, fmt.Sprintf("rule %q has a port by name, or is entered as %q", r.ID, id))
				}
			}
		}
	}
	p.Services = map[model.ServiceKey]string{}
	for k, s := range h.Services.All() {
		p.Services[k] = serviceText(s)
	}
	if len(p.Problems) > 0 {
		panic(p.Problems) // no sequence may come to it
	}
	for _, x := range problems {
		p.Problems = append(p.Problems, x.String())
	}
	return p
}

func serviceText(s *desired.Service) string {
	backends := map[string]desired.Backend{}
	for k, b := range s.Backends.All() {
		backends[k.String()] = *b
	}
	return fmt.Sprint(s.Network, s.IPv4, s.IPv6, s.Ports, s.Affinity, s.ExternalPolicy, s.Exposed, backends)
}

var byValue = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b desired.Tier) bool { return a.Equal(b) }),
}

// inputs is a full set of inputs: what the compiler has been told, as maps.
type inputs map[string]any

func (in inputs) compile(order func(n int) []int) hostContents {
	c := New("h1")
	keys := slices.Sorted(maps.Keys(in))
	for _, i := range order(len(keys)) {
		tell(c, in[keys[i]])
	}
	return contents(c.Compile(7))
}

func key(v any) string {
	switch v := v.(type) {
	case model.Global:
		return "global"
	case model.Host:
		return "host " + string(v.Name)
	case model.Network:
		return "network " + v.Key.String()
	case model.Group:
		return "group " + v.Key.String()
	case model.Policy:
		return "policy " + v.Key.String()
	case model.PolicyRule:
		return "rule " + v.Key.String()
	case model.Endpoint:
		return "endpoint " + v.Key.String()
	case model.IdentityRecord:
		return fmt.Sprintf("identity %s %d", v.Network.Tenant, v.ID)
	case model.Service:
		return "service " + v.Key.String()
	case model.Tenant:
		return "tenant " + string(v.Name)
	case model.Namespace:
		return "namespace " + string(v.Name)
	case model.ServiceSlice:
		return "slice " + v.Key.String()
	case model.ClusterNode:
		return "node " + string(v.Name)
	case model.ServiceRanges:
		return "service ranges"
	}
	return ""
}

func tell(c *Compiler, v any) {
	switch v := v.(type) {
	case model.Global:
		c.SetGlobal(v)
	case model.Host:
		c.SetHost(v)
	case model.Network:
		c.SetNetwork(v)
	case model.Group:
		c.SetGroup(v)
	case model.Policy:
		c.SetPolicy(v)
	case model.PolicyRule:
		c.SetRule(v)
	case model.Endpoint:
		c.SetEndpoint(v)
	case model.IdentityRecord:
		c.SetIdentity(v)
	case model.Service:
		c.SetService(v)
	case model.ServiceSlice:
		c.SetServiceSlice(v)
	case model.ClusterNode:
		c.SetClusterNode(v)
	case model.ServiceRanges:
		c.SetServiceRanges(v)
	case model.Tenant:
		c.SetTenant(v)
	case model.Namespace:
		c.SetNamespace(v)
	}
}

func untell(c *Compiler, v any) {
	switch v := v.(type) {
	case model.Global:
		c.DeleteGlobal()
	case model.Host:
		c.DeleteHost(v.Name)
	case model.Network:
		c.DeleteNetwork(v.Key)
	case model.Group:
		c.DeleteGroup(v.Key)
	case model.Policy:
		c.DeletePolicy(v.Key)
	case model.PolicyRule:
		c.DeleteRule(v.Key)
	case model.Endpoint:
		c.DeleteEndpoint(v.Key)
	case model.IdentityRecord:
		c.DeleteIdentity(v.Network.Tenant, v.ID)
	case model.Service:
		c.DeleteService(v.Key)
	case model.ServiceSlice:
		c.DeleteServiceSlice(v.Key)
	case model.ClusterNode:
		c.DeleteClusterNode(v.Name)
	case model.ServiceRanges:
		c.SetServiceRanges(model.ServiceRanges{})
	case model.Tenant:
		c.DeleteTenant(v.Name)
	case model.Namespace:
		c.DeleteNamespace(v.Name)
	}
}

func choose[T any](rng *rand.Rand, of ...T) T { return of[rng.Intn(len(of))] }

// randomObject makes an object of a small universe in which references are
// often missing, numbers and MACs clash, and enumerations may be unknown.
func randomObject(rng *rand.Rand) any {
	tenant := choose(rng, model.TenantName("blue"), model.DefaultTenant)
	network := model.NetworkKey{Tenant: tenant, Name: choose(rng, model.NetworkName("n1"), "n2", "n3")}
	group := choose(rng, model.GroupName(""), "g1", "g2", "g3")
	policy := choose(rng, model.PolicyName("p1"), "p2", "p3")
	host := choose(rng, model.HostName("h1"), "h1", "h2", "h3", "h4", "")
	identity := model.IdentityFirst + model.Identity(rng.Intn(6))
	switch rng.Intn(30) {
	case 26, 27, 28, 29:
		return randomServiceRow(rng)
	case 0:
		return model.Global{Infra: choose(rng, model.InfraDefault, model.InfraACI), FwdMode: choose(rng, model.FwdBridge, model.FwdRouting, model.FwdRouting), ArpMode: choose(rng, model.ArpProxy, model.ArpFlood)}
	case 1:
		return model.Host{Name: cmpOr(host, "h2"), VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(1 + rng.Intn(4))})}
	case 2, 3:
		return model.Network{
			Key: network, Encap: choose(rng, model.EncapVLAN, model.EncapVXLAN), ID: model.NetworkID(rng.Intn(6)), Tag: uint32(1 + rng.Intn(5)),
			Subnet:  netip.MustParsePrefix(choose(rng, "10.1.0.0/24", "10.2.0.0/24")),
			Subnet6: choose(rng, netip.Prefix{}, netip.MustParsePrefix("fd00::/64")),
		}
	case 4, 5:
		g := model.Group{Key: model.GroupKey{Tenant: tenant, Name: cmpOr(group, "g1")}, Network: network.Name}
		for range rng.Intn(4) {
			g.Policies = append(g.Policies, choose(rng, model.PolicyName("p1"), "p2", "p3"))
		}
		if rng.Intn(2) == 0 {
			g.VLAN, g.Segment = uint16(rng.Intn(4)), model.NetworkID(5+rng.Intn(3)) // some without, some of a network's number
		}
		return g
	case 6:
		return model.ContivPolicy{Key: model.PolicyKey{Tenant: tenant, Name: policy}}.General()
	case 12, 13:
		return randomPolicy(rng, model.PolicyKey{Tenant: tenant, Name: policy})
	case 14, 15:
		return randomRule(rng, model.RuleKey{Tenant: tenant, Policy: policy, Rule: choose(rng, model.RuleID("1"), "2", "3")})
	case 7, 8, 9:
		r := model.Rule{
			Key:       model.RuleKey{Tenant: tenant, Policy: policy, Rule: choose(rng, model.RuleID("1"), "2", "3")},
			Direction: choose(rng, model.In, model.In, model.Out, model.Out, model.Direction("up")), Priority: 1 + rng.Intn(3),
			Action:   choose(rng, model.Allow, model.Deny),
			Protocol: choose(rng, model.AnyProtocol, model.ProtoTCP, model.ProtoICMP, 300),
		}
		switch rng.Intn(4) {
		case 0:
			r.Group = choose(rng, model.GroupName("g1"), "g2", "g3")
		case 1:
			r.Network = network.Name
		case 2:
			r.Addr = netip.MustParsePrefix(choose(rng, "10.1.0.7/24", "fd00::1/128"))
		}
		return r.General()
	case 24:
		n := model.Namespace{Name: choose(rng, model.NamespaceName("x"), "y"), Labels: map[string]string{}}
		for range rng.Intn(3) {
			n.Labels[choose(rng, "a", "b")] = choose(rng, "1", "2")
		}
		return n
	case 10, 16, 25:
		r := model.IdentityRecord{ID: identity, Network: network, Group: group, Labels: map[string]string{}, LabelsLater: rng.Intn(3) == 0}
		for range rng.Intn(3) {
			r.Labels[choose(rng, "a", "b")] = choose(rng, "1", "2")
		}
		if r.Namespace = choose(rng, model.NamespaceName(""), "x", "y"); rng.Intn(2) == 0 {
			r.Ports = []model.NamedPort{{Name: "dns", Protocol: model.ProtoUDP, Port: 53}, {Name: "http", Protocol: model.ProtoTCP, Port: choose(rng, uint16(80), 8080)}}[rng.Intn(2):]
		}
		return r
	case 23:
		x := model.Tenant{Name: tenant, Router: model.RouterID(rng.Intn(3))}
		other := map[model.TenantName]model.TenantName{"blue": model.DefaultTenant, model.DefaultTenant: "blue"}[tenant]
		if rng.Intn(3) == 0 {
			x.Shared = append(x.Shared, model.NetworkKey{Tenant: other, Name: choose(rng, model.NetworkName("n1"), "n2", "n3")})
		}
		return x
	case 11, 17, 18:
		s := model.Service{
			Key: model.ServiceKey{Tenant: tenant, Name: choose(rng, "s1", "s2", "s3")}, Network: network,
		}
		if a := choose(rng, netip.Addr{}, netip.MustParseAddr("10.1.0.100"), netip.MustParseAddr("10.1.0.100"), netip.MustParseAddr("fd00::100")); a.IsValid() {
			s.Addrs = []netip.Addr{a}
		}
		for _, k := range []string{"a", "b"}[:rng.Intn(3)] {
			s.Selectors = append(s.Selectors, model.ServiceSelector{Key: k, Value: choose(rng, "1", "2")})
		}
		if rng.Intn(2) == 0 {
			s.Ports, s.Affinity = []model.ServicePort{{Port: 80, Target: 8080, Protocol: model.ProtoTCP}}, model.NoAffinity
		}
		return s
	}
	e := model.Endpoint{
		Key: model.EndpointKey{Network: network, ID: model.EndpointID(fmt.Sprint("e", rng.Intn(6)))}, Group: group,
		Identity: choose(rng, identity, identity, identity, 0), Host: host,
		IPv4: netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + rng.Intn(6))}), MAC: model.MAC{2, 2, 0, 0, 0, byte(rng.Intn(7))},
		Container: strconv.Itoa(rng.Intn(3)), Name: choose(rng, "", "1", "c1", "c2"),
		Labels: map[string]string{}, Unhealthy: rng.Intn(4) == 0,
	}
	for range rng.Intn(3) {
		e.Labels[choose(rng, "a", "b")] = choose(rng, "1", "2")
	}
	return e
}

// randomSelector makes a selector, now and then one that is not known.
func randomSelector(rng *rand.Rand, t model.TenantName) model.Selector {
	s := model.Selector{Tenant: t}
	switch rng.Intn(6) {
	case 0:
		s.Network = choose(rng, model.NetworkName("n1"), "n2", "n3")
	case 1:
		s.Group = choose(rng, model.GroupName("g1"), "g2", "g3")
	}
	if rng.Intn(3) == 0 {
		s.MatchLabels = map[string]string{choose(rng, "a", "b"): choose(rng, "1", "2")}
	}
	for range rng.Intn(3) {
		s.MatchExpressions = append(s.MatchExpressions, randomRequirement(rng))
	}
	if rng.Intn(3) == 0 {
		s.Namespaces = append(s.Namespaces, randomRequirement(rng))
		if rng.Intn(2) == 0 {
			s.Namespaces = []model.Requirement{{Key: model.NamespaceNameLabel, Operator: model.OpIn, Values: []string{"x"}}}
		}
	}
	return s
}

func randomRequirement(rng *rand.Rand) model.Requirement {
	r := model.Requirement{Key: choose(rng, "a", "b"), Operator: choose(rng, model.OpIn, model.OpNotIn, model.OpExists, model.OpDoesNotExist)}
	if r.Operator == model.OpIn || r.Operator == model.OpNotIn {
		r.Values = choose(rng, []string{"1"}, []string{"2", "1"}, []string{"3"})
	}
	if rng.Intn(20) == 0 {
		r.Operator = "Like"
	}
	return r
}

func randomPolicy(rng *rand.Rand, k model.PolicyKey) model.Policy {
	p := model.Policy{
		Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Order: 99 + rng.Intn(3), Audit: rng.Intn(3) == 0,
		Tier: choose(rng, model.TierAdmin, model.TierContiv, model.TierKubernetes, model.TierBaseline), Applies: randomSelector(rng, k.Tenant),
		Default: model.Defaults{In: choose(rng, "", "", model.Allow, model.Deny, model.Pass), Out: choose(rng, "", model.Allow, model.Deny)},
	}
	switch rng.Intn(20) {
	case 0:
		p.Tier = 99
	case 1:
		p.Default.In = "log"
	}
	return p
}

func randomRule(rng *rand.Rand, k model.RuleKey) model.PolicyRule {
	r := model.PolicyRule{
		Key: k, Direction: choose(rng, model.In, model.Out), Priority: 1 + rng.Intn(3), Log: rng.Intn(4) == 0,
		Action: choose(rng, model.Allow, model.Deny, model.Pass),
	}
	for range rng.Intn(4) {
		var p model.Peer
		switch rng.Intn(8) {
		case 0:
			p.Network = model.NetworkKey{Tenant: k.Tenant, Name: choose(rng, model.NetworkName("n1"), "n2", "n3")}
		case 1:
			p.CIDR, p.Except = netip.MustParsePrefix("10.0.0.0/8"), []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
		case 2:
			if rng.Intn(3) > 0 {
				p.CIDR = netip.MustParsePrefix("fd00::/64")
			} // else a kind of peer that is not known
		default:
			s := randomSelector(rng, k.Tenant)
			p.Selector = &s
		}
		r.Peers = append(r.Peers, p)
	}
	for range rng.Intn(3) {
		m := model.PortMatch{Protocol: choose(rng, model.ProtoTCP, model.ProtoUDP), Lo: 80, Hi: choose(rng, uint16(80), 90)}
		if rng.Intn(3) == 0 {
			m = model.PortMatch{Protocol: m.Protocol, Name: choose(rng, "http", "dns")}
		}
		r.Ports = append(r.Ports, m)
	}
	return r
}

func cmpOr[T ~string](a, b T) T {
	if a != "" {
		return a
	}
	return b
}

func ascending(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func descending(n int) []int {
	out := ascending(n)
	slices.Reverse(out)
	return out
}

// testSequences runs random sequences of changes and compares: compiled after
// each change, after many (squashed), and from scratch in three orders.
func testSequences(t *testing.T, seeds int) {
	t.Helper()
	for seed := range seeds {
		rng := rand.New(rand.NewSource(int64(seed)))
		steps, squashed := New("h1"), New("h1")
		state := inputs{}
		for step := range 300 {
			v := randomObject(rng)
			if k := key(v); rng.Intn(4) == 0 {
				delete(state, k)
				untell(steps, v)
				untell(squashed, v)
			} else {
				state[k] = v
				tell(steps, v)
				tell(squashed, v)
			}
			old, _ := steps.Compile(7)
			frozen := contents(old, nil)
			if step%10 == 9 {
				want := state.compile(ascending)
				for name, got := range map[string]hostContents{
					"step by step": contents(steps.Compile(7)), "squashed": contents(squashed.Compile(7)),
					"from scratch, reversed": state.compile(descending), "from scratch, shuffled": state.compile(rng.Perm),
				} {
					if diff := cmp.Diff(want, got, byValue...); diff != "" {
						t.Fatalf("seed %d step %d: %s differs from scratch (-want +got):\n%s", seed, step, name, diff)
					}
				}
				if diff := cmp.Diff(frozen, contents(old, nil), byValue...); diff != "" {
					t.Fatalf("seed %d step %d: a published state changed:\n%s", seed, step, diff)
				}
			}
		}
		for _, v := range state {
			untell(steps, v)
		}
		steps.Compile(7)
		if maps := left(t, steps); len(maps) > 0 {
			t.Fatalf("seed %d: entries left after everything was deleted: %s", seed, strings.Join(maps, ", "))
		}
		if diff := cmp.Diff(contents(New("h1").Compile(7)), contents(steps.Compile(7)), byValue...); diff != "" {
			t.Fatalf("seed %d: everything deleted (-want +got):\n%s", seed, diff)
		}
	}
}

// TestDesiredStateDependsOnPresentInputsOnly checks that the desired state depends on the present inputs only.
func TestDesiredStateDependsOnPresentInputsOnly(t *testing.T) { testSequences(t, 40) }

// TestIncrementalEqualsFullWithCollidingNumbers checks the same with policy sets whose numbers collide.
func TestIncrementalEqualsFullWithCollidingNumbers(t *testing.T) {
	defer func(old func(string) desired.PolicySetID) { setHash = old }(setHash)
	setHash = func(name string) desired.PolicySetID { return desired.PolicySetID(len(name) % 2) }
	testSequences(t, 40)
}
