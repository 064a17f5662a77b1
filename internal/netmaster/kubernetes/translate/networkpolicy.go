package translate

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// allowPriority is the priority of all rules of NetworkPolicies, which only allow.
const allowPriority = 1

// NetworkPolicy translates a NetworkPolicy for the pods of a tenant; nil when it selects no
// possible pod. Peers are pods of the same tenant, and addresses.
func (c Cluster) NetworkPolicy(t model.TenantName, in *networkingv1.NetworkPolicy) (*model.NetworkPolicy, []Problem) {
	var found problems
	key := model.PolicyKey{Tenant: t, Name: NetworkPolicyName(in.Namespace, in.Name)}
	out := &model.NetworkPolicy{Policy: model.Policy{
		Key: key, Kind: model.KindNetwork, Owner: model.OwnerKubernetes, Tier: model.TierKubernetes, Order: model.OrderContiv,
	}}
	applies := c.pods(t, &in.Spec.PodSelector, inNamespace(in.Namespace))
	switch {
	case applies.nobody:
		return nil, nil
	case applies.wrong != "":
		found.add("spec.podSelector", "%s: all pods of the namespace are denied what this policy is about", applies.wrong)
		applies.selector = model.Selector{Tenant: t, Namespaces: inNamespace(in.Namespace)}
	}
	out.Policy.Applies = applies.selector
	ingress, egress := policyTypes(in.Spec, &found)
	if ingress {
		out.Policy.Default.In = model.Deny
		for i, r := range in.Spec.Ingress {
			d := c.allow(t, in.Namespace, fmt.Sprintf("spec.ingress[%d]", i), "from", r.From, r.Ports, &found)
			d.id, d.direction = fmt.Sprintf("in-%d", i), model.In
			out.Rules = append(out.Rules, d.rules(key)...)
		}
	}
	if egress {
		out.Policy.Default.Out = model.Deny
		for i, r := range in.Spec.Egress {
			d := c.allow(t, in.Namespace, fmt.Sprintf("spec.egress[%d]", i), "to", r.To, r.Ports, &found)
			d.id, d.direction = fmt.Sprintf("out-%d", i), model.Out
			if d.namesOfAddresses() {
				found.add(fmt.Sprintf("spec.egress[%d].ports", i), "addresses have no names of ports: a name allows nothing to an ipBlock")
			}
			out.Rules = append(out.Rules, d.rules(key)...)
		}
	}
	if applies.wrong != "" { // else pods would get what was never meant for them
		out.Rules = nil
	}
	if len(out.Rules) > model.MaxNetworkPolicyRules {
		found.add("spec", "%d rules, at most %d can be had: nothing is allowed", len(out.Rules), model.MaxNetworkPolicyRules)
		out.Rules = nil
	}
	return out, found
}

// policyTypes returns the directions of a policy: the named ones, else ingress, and egress
// if it has rules for it.
func policyTypes(s networkingv1.NetworkPolicySpec, found *problems) (ingress, egress bool) {
	for i, p := range s.PolicyTypes {
		switch p {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			found.add(fmt.Sprintf("spec.policyTypes[%d]", i), "%q is not known: both directions are denied by default", p)
			ingress, egress = true, true
		}
	}
	if len(s.PolicyTypes) == 0 {
		ingress, egress = true, len(s.Egress) > 0
	}
	return ingress, egress
}

// allow reads a rule of a NetworkPolicy. Unsupported parts of it allow nothing.
func (c Cluster) allow(
	t model.TenantName, namespace, field, side string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, found *problems,
) parsedRule {
	d := parsedRule{action: model.Allow, priority: allowPriority, anyPeer: len(peers) == 0, anyPort: len(ports) == 0}
	for i, p := range peers {
		peer, nobody, wrong := c.networkPolicyPeer(t, namespace, p)
		switch {
		case wrong != "":
			found.add(fmt.Sprintf("%s.%s[%d]", field, side, i), "%s: it allows nobody", wrong)
		case !nobody:
			d.peers = append(d.peers, peer)
		}
	}
	for i, p := range ports {
		m, ok := networkPolicyPort(p)
		if !ok {
			found.add(fmt.Sprintf("%s.ports[%d]", field, i), "is no port, name of a port or range of TCP, UDP or SCTP: it allows nothing")
			continue
		}
		if !slices.Contains(d.ports, m) {
			d.ports = append(d.ports, m)
		}
	}
	return d
}

func (c Cluster) networkPolicyPeer(t model.TenantName, namespace string, p networkingv1.NetworkPolicyPeer) (peer model.Peer, nobody bool, wrong string) {
	var who podSelector
	switch {
	case p.IPBlock != nil && p.PodSelector == nil && p.NamespaceSelector == nil:
		peer, nobody, err := block(p.IPBlock.CIDR, p.IPBlock.Except)
		if err != nil {
			return peer, nobody, cause(err)
		}
		return peer, nobody, ""
	case p.IPBlock != nil, p.PodSelector == nil && p.NamespaceSelector == nil:
		return peer, false, "must be pods, namespaces, both, or a block of addresses"
	case p.NamespaceSelector != nil:
		who = c.pods(t, p.PodSelector, requirements(p.NamespaceSelector))
	default:
		who = c.pods(t, p.PodSelector, inNamespace(namespace))
	}
	return model.Peer{Selector: &who.selector}, who.nobody, who.wrong
}
