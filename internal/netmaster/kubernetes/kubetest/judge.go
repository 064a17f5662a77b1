package kubetest

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"
)

// World is what there is in a cluster.
type World struct {
	Namespaces map[string]map[string]string // labels by name
	Pods       []Pod
	Policies   []*networkingv1.NetworkPolicy
	Cluster    []*policyv1beta1.ClusterNetworkPolicy // of different priorities, so that their order is defined
}

// Pod is what policies ask about a pod.
type Pod struct {
	Name, Namespace string
	Labels          map[string]string
	Ports           []corev1.ContainerPort
	Addr            netip.Addr
}

// End is one side of a connection: a pod, or an address that no pod has.
type End struct {
	Pod  *Pod
	Addr netip.Addr
}

// Connection is asked about.
type Connection struct {
	From, To End
	Protocol corev1.Protocol
	Port     int32
}

// selects has the meaning of Kubernetes' own library.
func selects(s *metav1.LabelSelector, on map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && sel.Matches(labels.Set(on))
}

func (w World) labelsOf(namespace string) map[string]string {
	out := map[string]string{"kubernetes.io/metadata.name": namespace}
	maps.Copy(out, w.Namespaces[namespace])
	return out
}

// Allowed: both what leaves the one and what enters the other has to be allowed.
func (w World) Allowed(c Connection) bool { return w.egress(c) && w.ingress(c) }

func (w World) egress(c Connection) bool {
	return c.From.Pod == nil || w.decide(c, c.From.Pod, c.To, true)
}

func (w World) ingress(c Connection) bool {
	return c.To.Pod == nil || w.decide(c, c.To.Pod, c.From, false)
}

// decide asks the tiers one after the other about a pod that policies may select.
func (w World) decide(c Connection, subject *Pod, peer End, egress bool) bool {
	if verdict := w.tier(policyv1beta1.AdminTier, c, subject, peer, egress); verdict != "" {
		return verdict == policyv1beta1.ClusterNetworkPolicyRuleActionAccept
	}
	if isolated, allowed := w.networkPolicies(c, subject, peer, egress); isolated {
		return allowed
	}
	return w.tier(policyv1beta1.BaselineTier, c, subject, peer, egress) != policyv1beta1.ClusterNetworkPolicyRuleActionDeny
}

func (w World) networkPolicies(c Connection, subject *Pod, peer End, egress bool) (isolated, allowed bool) {
	for _, p := range w.Policies {
		if p.Namespace != subject.Namespace || !selects(&p.Spec.PodSelector, subject.Labels) {
			continue
		}
		about := !egress || len(p.Spec.Egress) > 0
		if len(p.Spec.PolicyTypes) > 0 {
			want := networkingv1.PolicyTypeIngress
			if egress {
				want = networkingv1.PolicyTypeEgress
			}
			about = slices.Contains(p.Spec.PolicyTypes, want)
		}
		if !about {
			continue
		}
		isolated = true
		if egress {
			for _, r := range p.Spec.Egress {
				allowed = allowed || w.peers(p.Namespace, r.To, peer) && ports(c, r.Ports)
			}
		} else {
			for _, r := range p.Spec.Ingress {
				allowed = allowed || w.peers(p.Namespace, r.From, peer) && ports(c, r.Ports)
			}
		}
	}
	return isolated, allowed
}

func (w World) peers(namespace string, peers []networkingv1.NetworkPolicyPeer, e End) bool {
	if len(peers) == 0 {
		return true
	}
	return slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			return inside(p.IPBlock.CIDR, e.Addr) && !slices.ContainsFunc(p.IPBlock.Except, func(x string) bool { return inside(x, e.Addr) })
		}
		if e.Pod == nil || p.PodSelector != nil && !selects(p.PodSelector, e.Pod.Labels) {
			return false
		}
		if p.NamespaceSelector != nil {
			return selects(p.NamespaceSelector, w.labelsOf(e.Pod.Namespace))
		}
		return e.Pod.Namespace == namespace
	})
}

func inside(cidr string, a netip.Addr) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Contains(a)
}

func ports(c Connection, ports []networkingv1.NetworkPolicyPort) bool {
	if len(ports) == 0 {
		return true
	}
	return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		switch {
		case protocol != c.Protocol:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return named(c, p.Port.StrVal)
		case p.EndPort != nil:
			return p.Port.IntVal <= c.Port && c.Port <= *p.EndPort
		}
		return p.Port.IntVal == c.Port
	})
}

// named: names are those of the container ports of the pod that is asked.
func named(c Connection, name string) bool {
	return c.To.Pod != nil && slices.ContainsFunc(c.To.Pod.Ports, func(p corev1.ContainerPort) bool {
		return p.Name == name && p.Protocol == c.Protocol && p.ContainerPort == c.Port
	})
}

// tier returns the decision of a tier's ClusterNetworkPolicies; "" = the next tier decides.
// Policies have different priorities here, so that their order is defined.
func (w World) tier(t policyv1beta1.Tier, c Connection, subject *Pod, peer End, egress bool) policyv1beta1.ClusterNetworkPolicyRuleAction {
	all := slices.Clone(w.Cluster)
	slices.SortFunc(all, func(a, b *policyv1beta1.ClusterNetworkPolicy) int { return int(a.Spec.Priority - b.Spec.Priority) })
	for _, p := range all {
		if p.Spec.Tier != t || !w.choice(p.Spec.Subject.Namespaces, p.Spec.Subject.Pods, subject) {
			continue
		}
		var action policyv1beta1.ClusterNetworkPolicyRuleAction
		if egress {
			for _, r := range p.Spec.Egress {
				if w.clusterPeers(r.To, peer) && protocols(c, r.Protocols) {
					action = r.Action
					break
				}
			}
		} else {
			for _, r := range p.Spec.Ingress {
				var from []policyv1beta1.ClusterNetworkPolicyEgressPeer
				for _, f := range r.From {
					from = append(from, policyv1beta1.ClusterNetworkPolicyEgressPeer{Namespaces: f.Namespaces, Pods: f.Pods})
				}
				if w.clusterPeers(from, peer) && protocols(c, r.Protocols) {
					action = r.Action
					break
				}
			}
		}
		switch action {
		case policyv1beta1.ClusterNetworkPolicyRuleActionPass:
			return ""
		case "":
		default:
			return action
		}
	}
	return ""
}

func (w World) choice(namespaces *metav1.LabelSelector, pods *policyv1beta1.NamespacedPod, of *Pod) bool {
	if namespaces != nil {
		return selects(namespaces, w.labelsOf(of.Namespace))
	}
	return selects(&pods.NamespaceSelector, w.labelsOf(of.Namespace)) && selects(&pods.PodSelector, of.Labels)
}

func (w World) clusterPeers(peers []policyv1beta1.ClusterNetworkPolicyEgressPeer, e End) bool {
	return slices.ContainsFunc(peers, func(p policyv1beta1.ClusterNetworkPolicyEgressPeer) bool {
		if len(p.Networks) > 0 {
			return slices.ContainsFunc(p.Networks, func(n policyv1beta1.CIDR) bool { return inside(string(n), e.Addr) })
		}
		return e.Pod != nil && w.choice(p.Namespaces, p.Pods, e.Pod)
	})
}

func protocols(c Connection, all []policyv1beta1.ClusterNetworkPolicyProtocol) bool {
	if len(all) == 0 {
		return true
	}
	number := func(p *policyv1beta1.Port) bool {
		return p == nil || p.Number == c.Port || p.Range != nil && p.Range.Start <= c.Port && c.Port <= p.Range.End
	}
	return slices.ContainsFunc(all, func(p policyv1beta1.ClusterNetworkPolicyProtocol) bool {
		switch {
		case p.TCP != nil:
			return c.Protocol == corev1.ProtocolTCP && number(p.TCP.DestinationPort)
		case p.UDP != nil:
			return c.Protocol == corev1.ProtocolUDP && number(p.UDP.DestinationPort)
		case p.SCTP != nil:
			return c.Protocol == corev1.ProtocolSCTP && number(p.SCTP.DestinationPort)
		}
		return named(c, p.DestinationNamedPort)
	})
}
