package kube

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

var policies = flag.Int("policies", 500, "how many random policies TestJudge tries")

const tenant = model.DefaultTenant

var network = model.NetworkKey{Tenant: tenant, Name: DefaultNetwork}

// TestJudge: what is compiled of random policies over 30 pods in 6 namespaces lets
// through what the judge does.
func TestJudge(t *testing.T) {
	tried, denied, asked := 0, 0, 0
	for seed := uint64(1); tried < *policies; seed++ {
		g := gen{rand.New(rand.NewPCG(seed, 14))}
		w := g.world()
		tried += len(w.policies) + len(w.cluster)
		verdict := compiled(t, w)
		for range 300 {
			c := g.connection(w)
			want, got := w.allowed(c), verdict(c)
			asked++
			if !want {
				denied++
			}
			if want != got {
				t.Fatalf("seed %d: %s from %s to %s port %d: allowed is %v, want %v\n%s", seed, c.protocol, c.from, c.to, c.port, got, want, w)
			}
		}
	}
	if denied < asked/5 || denied > asked*4/5 {
		t.Errorf("%d of %d denied: the policies say too little", denied, asked)
	}
}

func (e end) String() string {
	if e.pod == nil {
		return e.addr.String()
	}
	return fmt.Sprintf("%s/%s %v %s", e.pod.namespace, e.pod.name, e.pod.labels, e.addr)
}

func (w world) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.namespaces)
	for _, p := range w.policies {
		fmt.Fprintln(&b, p.Namespace, p.Spec.String())
	}
	for _, p := range w.cluster {
		fmt.Fprintf(&b, "%+v\n", p.Spec)
	}
	return b.String()
}

// compiled gives the world to the compiler, by the translation, and returns what the
// picture of the pods' host says of a connection.
func compiled(t *testing.T, w world) func(connection) bool {
	t.Helper()
	c := compile.New("h1")
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
	c.SetNetwork(model.Network{Key: network, Encap: model.EncapVXLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	for name, labels := range w.namespaces {
		c.SetNamespace(Namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	}
	identities := map[*pod]model.Identity{}
	keys := map[*pod]model.EndpointKey{}
	for i := range w.pods {
		p := &w.pods[i]
		id := model.IdentityFirst + model.Identity(i)
		named, _ := NamedPorts(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: p.ports}}}})
		c.SetIdentity(model.IdentityRecord{ID: id, Network: network, Labels: p.labels, Namespace: model.NamespaceName(p.namespace), Ports: named})
		identities[p], keys[p] = id, model.EndpointKey{Network: network, ID: model.EndpointID(p.namespace + "." + p.name)}
		c.SetEndpoint(model.Endpoint{Key: keys[p], Host: "h1", Identity: id, IPv4: p.addr, MAC: model.MAC{2, 2, 10, 1, 0, byte(i)}})
	}
	put := func(n *model.NetworkPolicy, found []Problem) {
		if len(found) > 0 {
			t.Fatalf("problems %v\n%s", found, w)
		}
		if n == nil {
			return
		}
		if err := n.Validate(); err != nil {
			t.Fatalf("%v\n%s", err, w)
		}
		c.SetPolicy(n.Policy)
		for _, r := range n.Rules {
			c.SetRule(r)
		}
	}
	for _, p := range w.policies {
		put(Cluster{}.NetworkPolicy(tenant, p))
	}
	for _, p := range w.cluster {
		put(Cluster{}.ClusterNetworkPolicy(tenant, p))
	}
	pic, _ := c.Compile(1)
	sets := map[model.EndpointKey]*desired.PolicySet{}
	for _, p := range pic.Ports.All() {
		sets[p.Endpoint], _ = pic.PolicySets.Get(p.Policies)
	}
	return func(c connection) bool {
		asks := func(of, peer end, dir model.Direction) bool {
			if of.pod == nil || sets[keys[of.pod]] == nil {
				return true
			}
			id := model.IdentityExternal
			if peer.pod != nil {
				id = identities[peer.pod]
			}
			proto, _ := protocolOf(c.protocol)
			return sets[keys[of.pod]].Judge(dir, desired.Peer{Identity: id, Addr: peer.addr, Network: 7}, proto, uint16(c.port)).Pass
		}
		return asks(c.from, c.to, model.Out) && asks(c.to, c.from, model.In)
	}
}

// gen makes worlds that are small enough for policies to meet.
type gen struct{ *rand.Rand }

func pick[T any](g gen, of ...T) T { return of[g.IntN(len(of))] }

func some[T any](n int, one func() T) (out []T) {
	for range n {
		out = append(out, one())
	}
	return out
}

func (g gen) world() world {
	w := world{namespaces: map[string]map[string]string{}}
	for i := range 6 {
		ns := string(rune('u' + i))
		w.namespaces[ns] = g.labels()
		for j := range 5 {
			w.pods = append(w.pods, pod{
				name: string(rune('a' + j)), namespace: ns, labels: g.labels(), addr: netip.AddrFrom4([4]byte{10, 1, byte(i), byte(1 + j)}),
				ports: []corev1.ContainerPort{
					{Name: "web", Protocol: corev1.ProtocolTCP, ContainerPort: pick[int32](g, 80, 81)},
					{Name: "web", Protocol: corev1.ProtocolUDP, ContainerPort: pick[int32](g, 80, 82)},
					{Name: "sig", Protocol: corev1.ProtocolSCTP, ContainerPort: 80},
				}[:g.IntN(4)],
			})
		}
	}
	for i := range g.IntN(6) {
		w.policies = append(w.policies, g.policy(i))
	}
	for i, p := range g.Perm(20)[:g.IntN(4)] {
		w.cluster = append(w.cluster, g.clusterPolicy(i, int32(pick(g, 0, 990)+p%11)))
	}
	used := map[int32]bool{} // what has one priority may be decided either way
	for _, p := range w.cluster {
		for used[p.Spec.Priority] {
			p.Spec.Priority--
		}
		used[p.Spec.Priority] = true
	}
	return w
}

func (g gen) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "x.io/team"} {
		if g.IntN(3) > 0 {
			out[k] = pick(g, "a", "b", "")
		}
	}
	return out
}

func (g gen) selector() metav1.LabelSelector {
	var s metav1.LabelSelector
	for range g.IntN(3) {
		k := pick(g, "app", "x.io/team")
		switch g.IntN(4) {
		case 0:
			s.MatchLabels = map[string]string{k: pick(g, "a", "b", "")}
		case 1:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: pick(g, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)})
		default:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: k, Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: some(1+g.IntN(2), func() string { return pick(g, "a", "b", "c") }),
			})
		}
	}
	if g.IntN(5) == 0 {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: model.NamespaceNameLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{pick(g, "u", "v")}})
	}
	return s
}

func (g gen) cidr() string {
	return pick(g, "10.1.0.0/16", "10.1.0.0/22", "10.1.2.0/24", "10.1.3.1/32", "0.0.0.0/0", "192.0.2.0/24", "::/0", "2001:db8::/64")
}

func (g gen) policy(i int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: pick(g, "u", "v", "w", "x", "y", "z")}}
	p.Spec.PodSelector = g.selector()
	p.Spec.PolicyTypes = pick(g, nil, nil, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Ingress", "Egress"})
	peer := func() (out networkingv1.NetworkPolicyPeer) {
		switch g.IntN(4) {
		case 0:
			out.IPBlock = &networkingv1.IPBlock{CIDR: g.cidr()}
			switch out.IPBlock.CIDR {
			case "0.0.0.0/0":
				out.IPBlock.Except = pick(g, nil, []string{"10.1.2.0/24"}, []string{"10.1.0.0/23", "192.0.2.7/32"})
			case "10.1.0.0/16":
				out.IPBlock.Except = []string{"10.1.0.0/17"}
			}
		case 1:
			s := g.selector()
			out.NamespaceSelector = &s
		case 2:
			s := g.selector()
			out.NamespaceSelector = &s
			fallthrough
		case 3:
			s := g.selector()
			out.PodSelector = &s
		}
		return out
	}
	port := func() (out networkingv1.NetworkPolicyPort) {
		if g.IntN(4) > 0 {
			proto := g.protocol()
			out.Protocol = &proto
		}
		switch n := intstr.FromInt32(pick[int32](g, 79, 80, 81)); g.IntN(4) {
		case 0:
			n = intstr.FromString(pick(g, "web", "sig"))
			out.Port = &n
		case 1:
			last := n.IntVal + int32(g.IntN(3))
			out.EndPort = &last
			fallthrough
		case 2:
			out.Port = &n
		}
		return out
	}
	for range g.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: some(g.IntN(3), peer), Ports: some(g.IntN(3), port)})
	}
	for range g.IntN(3) {
		r := networkingv1.NetworkPolicyEgressRule{To: some(g.IntN(3), peer), Ports: some(g.IntN(3), port)}
		if slices.ContainsFunc(r.To, func(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock != nil }) { // addresses have no names of ports
			r.Ports = slices.DeleteFunc(r.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port != nil && p.Port.Type == intstr.String })
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

func (g gen) protocol() corev1.Protocol {
	return pick(g, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func (g gen) choice() (namespaces *metav1.LabelSelector, pods *policyv1alpha2.NamespacedPod) {
	s := g.selector()
	if g.IntN(2) == 0 {
		return &s, nil
	}
	return nil, &policyv1alpha2.NamespacedPod{NamespaceSelector: s, PodSelector: g.selector()}
}

func (g gen) clusterPolicy(i int, priority int32) *policyv1alpha2.ClusterNetworkPolicy {
	p := &policyv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}
	p.Spec.Tier, p.Spec.Priority = pick(g, policyv1alpha2.AdminTier, policyv1alpha2.BaselineTier), priority
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = g.choice()
	action := func() policyv1alpha2.ClusterNetworkPolicyRuleAction {
		return pick(g, policyv1alpha2.ClusterNetworkPolicyRuleActionAccept, policyv1alpha2.ClusterNetworkPolicyRuleActionDeny, policyv1alpha2.ClusterNetworkPolicyRuleActionPass)
	}
	port := func() *policyv1alpha2.Port {
		n := pick[int32](g, 79, 80, 81)
		return pick(g, nil, &policyv1alpha2.Port{Number: n}, &policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: n, End: n + 1}})
	}
	protocol := func() (out policyv1alpha2.ClusterNetworkPolicyProtocol) {
		switch g.IntN(4) {
		case 0:
			out.TCP = &policyv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port()}
		case 1:
			out.UDP = &policyv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port()}
		case 2:
			out.SCTP = &policyv1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port()}
		case 3:
			out.DestinationNamedPort = pick(g, "web", "sig", "No Such Name")
		}
		return out
	}
	from := func() (out policyv1alpha2.ClusterNetworkPolicyIngressPeer) {
		out.Namespaces, out.Pods = g.choice()
		return out
	}
	to := func() (out policyv1alpha2.ClusterNetworkPolicyEgressPeer) {
		if g.IntN(3) == 0 {
			out.Networks = some(1+g.IntN(2), func() policyv1alpha2.CIDR { return policyv1alpha2.CIDR(g.cidr()) })
		} else {
			out.Namespaces, out.Pods = g.choice()
		}
		return out
	}
	most := pick(g, 4, 4, 26)
	for range g.IntN(most) {
		p.Spec.Ingress = append(p.Spec.Ingress, policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: action(), From: some(1+g.IntN(2), from), Protocols: some(g.IntN(3), protocol)})
	}
	for range g.IntN(most) {
		r := policyv1alpha2.ClusterNetworkPolicyEgressRule{Action: action(), To: some(1+g.IntN(2), to), Protocols: some(g.IntN(3), protocol)}
		if slices.ContainsFunc(r.To, func(p policyv1alpha2.ClusterNetworkPolicyEgressPeer) bool { return len(p.Networks) > 0 }) {
			r.Protocols = slices.DeleteFunc(r.Protocols, func(p policyv1alpha2.ClusterNetworkPolicyProtocol) bool { return p.DestinationNamedPort != "" })
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

func (g gen) connection(w world) connection {
	end := func() end {
		if g.IntN(8) == 0 {
			return end{addr: netip.MustParseAddr(pick(g, "192.0.2.7", "192.0.2.8", "198.51.100.1", "2001:db8::1"))}
		}
		p := &w.pods[g.IntN(len(w.pods))]
		return end{pod: p, addr: p.addr}
	}
	return connection{from: end(), to: end(), protocol: g.protocol(), port: pick[int32](g, 79, 80, 80, 81, 82)}
}
