package kubetest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"
)

func (e End) String() string {
	if e.Pod == nil {
		return e.Addr.String()
	}
	return fmt.Sprintf("%s/%s %v %s", e.Pod.Namespace, e.Pod.Name, e.Pod.Labels, e.Addr)
}

func (w World) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.Namespaces)
	for _, p := range w.Policies {
		fmt.Fprintln(&b, p.Namespace, p.Spec.String())
	}
	for _, p := range w.Cluster {
		fmt.Fprintf(&b, "%+v\n", p.Spec)
	}
	return b.String()
}

// Random makes worlds that are small enough for policies to meet: 30 pods in 6
// namespaces, with addresses of 10.1.0.0/16. The same source makes the same ones.
type Random struct{ *rand.Rand }

func pick[T any](g Random, of ...T) T { return of[g.IntN(len(of))] }

func some[T any](n int, one func() T) (out []T) {
	for range n {
		out = append(out, one())
	}
	return out
}

// World makes a world.
func (g Random) World() World {
	w := World{Namespaces: map[string]map[string]string{}}
	for i := range 6 {
		ns := string(rune('u' + i))
		w.Namespaces[ns] = g.labels()
		for j := range 5 {
			w.Pods = append(w.Pods, Pod{
				Name: string(rune('a' + j)), Namespace: ns, Labels: g.labels(), Addr: netip.AddrFrom4([4]byte{10, 1, byte(i), byte(1 + j)}),
				Ports: []corev1.ContainerPort{
					{Name: "web", Protocol: corev1.ProtocolTCP, ContainerPort: pick[int32](g, 80, 81)},
					{Name: "web", Protocol: corev1.ProtocolUDP, ContainerPort: pick[int32](g, 80, 82)},
					{Name: "sig", Protocol: corev1.ProtocolSCTP, ContainerPort: 80},
				}[:g.IntN(4)],
			})
		}
	}
	for i := range g.IntN(6) {
		w.Policies = append(w.Policies, g.policy(i))
	}
	for i, p := range g.Perm(20)[:g.IntN(4)] {
		w.Cluster = append(w.Cluster, g.clusterPolicy(i, int32(pick(g, 0, 990)+p%11)))
	}
	used := map[int32]bool{} // what has one priority may be decided either way
	for _, p := range w.Cluster {
		for used[p.Spec.Priority] {
			p.Spec.Priority--
		}
		used[p.Spec.Priority] = true
	}
	return w
}

func (g Random) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "x.io/team"} {
		if g.IntN(3) > 0 {
			out[k] = pick(g, "a", "b", "")
		}
	}
	return out
}

func (g Random) selector() metav1.LabelSelector {
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
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{pick(g, "u", "v")}})
	}
	return s
}

func (g Random) cidr() string {
	return pick(g, "10.1.0.0/16", "10.1.0.0/22", "10.1.2.0/24", "10.1.3.1/32", "0.0.0.0/0", "192.0.2.0/24", "::/0", "2001:db8::/64")
}

func (g Random) policy(i int) *networkingv1.NetworkPolicy {
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

func (g Random) protocol() corev1.Protocol {
	return pick(g, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func (g Random) choice() (namespaces *metav1.LabelSelector, pods *policyv1beta1.NamespacedPod) {
	s := g.selector()
	if g.IntN(2) == 0 {
		return &s, nil
	}
	return nil, &policyv1beta1.NamespacedPod{NamespaceSelector: s, PodSelector: g.selector()}
}

func (g Random) clusterPolicy(i int, priority int32) *policyv1beta1.ClusterNetworkPolicy {
	p := &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}
	p.Spec.Tier, p.Spec.Priority = pick(g, policyv1beta1.AdminTier, policyv1beta1.BaselineTier), priority
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = g.choice()
	action := func() policyv1beta1.ClusterNetworkPolicyRuleAction {
		return pick(g, policyv1beta1.ClusterNetworkPolicyRuleActionAccept, policyv1beta1.ClusterNetworkPolicyRuleActionDeny, policyv1beta1.ClusterNetworkPolicyRuleActionPass)
	}
	port := func() *policyv1beta1.Port {
		n := pick[int32](g, 79, 80, 81)
		return pick(g, nil, &policyv1beta1.Port{Number: n}, &policyv1beta1.Port{Range: &policyv1beta1.PortRange{Start: n, End: n + 1}})
	}
	protocol := func() (out policyv1beta1.ClusterNetworkPolicyProtocol) {
		switch g.IntN(4) {
		case 0:
			out.TCP = &policyv1beta1.ClusterNetworkPolicyProtocolTCP{DestinationPort: port()}
		case 1:
			out.UDP = &policyv1beta1.ClusterNetworkPolicyProtocolUDP{DestinationPort: port()}
		case 2:
			out.SCTP = &policyv1beta1.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port()}
		case 3:
			out.DestinationNamedPort = pick(g, "web", "sig", "No Such Name")
		}
		return out
	}
	from := func() (out policyv1beta1.ClusterNetworkPolicyIngressPeer) {
		out.Namespaces, out.Pods = g.choice()
		return out
	}
	to := func() (out policyv1beta1.ClusterNetworkPolicyEgressPeer) {
		if g.IntN(3) == 0 {
			out.Networks = some(1+g.IntN(2), func() policyv1beta1.CIDR { return policyv1beta1.CIDR(g.cidr()) })
		} else {
			out.Namespaces, out.Pods = g.choice()
		}
		return out
	}
	most := pick(g, 4, 4, 26)
	for range g.IntN(most) {
		p.Spec.Ingress = append(p.Spec.Ingress, policyv1beta1.ClusterNetworkPolicyIngressRule{Action: action(), From: some(1+g.IntN(2), from), Protocols: some(g.IntN(3), protocol)})
	}
	for range g.IntN(most) {
		r := policyv1beta1.ClusterNetworkPolicyEgressRule{Action: action(), To: some(1+g.IntN(2), to), Protocols: some(g.IntN(3), protocol)}
		if slices.ContainsFunc(r.To, func(p policyv1beta1.ClusterNetworkPolicyEgressPeer) bool { return len(p.Networks) > 0 }) {
			r.Protocols = slices.DeleteFunc(r.Protocols, func(p policyv1beta1.ClusterNetworkPolicyProtocol) bool { return p.DestinationNamedPort != "" })
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

// Connection asks something of a world: between pods, or with an address outside.
func (g Random) Connection(w World) Connection {
	end := func() End {
		if g.IntN(8) == 0 {
			return End{Addr: netip.MustParseAddr(pick(g, "192.0.2.7", "192.0.2.8", "198.51.100.1", "2001:db8::1"))}
		}
		p := &w.Pods[g.IntN(len(w.Pods))]
		return End{Pod: p, Addr: p.Addr}
	}
	return Connection{From: end(), To: end(), Protocol: g.protocol(), Port: pick[int32](g, 79, 80, 80, 81, 82)}
}
