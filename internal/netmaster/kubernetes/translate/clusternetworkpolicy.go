package translate

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A ClusterNetworkPolicy has one of 1,001 priorities, and up to 25 rules a direction
// that decide in their sequence; a policy of model has one of 201 orders, and 100
// priorities. So five priorities share an order, and each has levels of its own. A
// level holds rules that come one after the other in the sequence in which model
// decides what has one priority: deny, pass, allow. 25 rules take 17 levels at most.
const (
	prioritiesOfOrder = 5
	levels            = 100 / prioritiesOfOrder
	lastPriority      = model.MaxOrder*prioritiesOfOrder + prioritiesOfOrder - 1
)

// clusterRule is a rule of either direction.
type clusterRule struct {
	field     string
	id        string
	direction model.Direction
	action    policyv1beta1.ClusterNetworkPolicyRuleAction
	peers     []policyv1beta1.ClusterNetworkPolicyEgressPeer // one of ingress lacks some fields
	side      string
	protocols []policyv1beta1.ClusterNetworkPolicyProtocol
}

// ClusterNetworkPolicy says what a ClusterNetworkPolicy means to the pods of a
// tenant; nil when it means nothing to them. Peers are pods of the same tenant, and
// addresses.
func (c Cluster) ClusterNetworkPolicy(t model.TenantName, in *policyv1beta1.ClusterNetworkPolicy) (*model.NetworkPolicy, []Problem) {
	var found problems
	p := model.Policy{
		Key: model.PolicyKey{Tenant: t, Name: ClusterNetworkPolicyName(in.Name)}, Kind: model.KindNetwork, Owner: model.OwnerKubernetes,
	}
	switch in.Spec.Tier {
	case policyv1beta1.AdminTier:
		p.Tier = model.TierAdmin
	case policyv1beta1.BaselineTier:
		p.Tier = model.TierBaseline
	default:
		found.add("spec.tier", "%q is not known: the policy has no effect", in.Spec.Tier)
		return nil, found
	}
	priority := int(in.Spec.Priority)
	if priority < 0 || priority > lastPriority {
		found.add("spec.priority", "%d is not between 0 and %d: the nearest is taken", priority, lastPriority)
		priority = min(max(priority, 0), lastPriority)
	}
	p.Order = priority / prioritiesOfOrder
	top := 100 - priority%prioritiesOfOrder*levels // the highest of its levels

	subject, closed := c.subject(t, in.Spec.Subject, &found)
	if subject == nil {
		return nil, found
	}
	p.Applies = *subject
	out := &model.NetworkPolicy{Policy: p}
	ingress, egress := clusterRules(in.Spec)
	for _, rules := range [][]clusterRule{ingress, egress} {
		var list []model.PolicyRule
		level, last := 0, 0
		for _, r := range rules {
			d := c.decide(t, r, &found)
			if d.action.Rank() < last {
				level++
			}
			last = d.action.Rank()
			d.priority = top - level
			list = append(list, d.rules(p.Key)...)
		}
		switch {
		case len(rules) == 0: // there is nothing to close
		case level >= levels:
			found.add("spec."+map[model.Direction]string{model.In: "ingress", model.Out: "egress"}[rules[0].direction], "changes between actions %d times, at most %d can be had: everything is denied", level, levels-1)
			fallthrough
		case closed:
			list = everything(rules[0].id, rules[0].direction, top).rules(p.Key)
		}
		out.Rules = append(out.Rules, list...)
	}
	if len(out.Rules) == 0 {
		return nil, found
	}
	return out, found
}

// subject reads which pods a policy applies to: nil = none; closed = these, and perhaps not
// all of them.
func (c Cluster) subject(t model.TenantName, in policyv1beta1.ClusterNetworkPolicySubject, found *problems) (s *model.Selector, closed bool) {
	who, ok := c.namespacesOrPods(t, in.Namespaces, in.Pods)
	switch {
	case !ok:
		found.add("spec.subject", "is not known: the policy has no effect")
		return nil, false
	case who.nobody:
		return nil, false
	case who.wrong != "":
		found.add("spec.subject", "%s: all pods that it could be about are denied what its rules are about", who.wrong)
		who = c.pods(t, nil, nil)
		if in.Pods != nil {
			if narrow := c.pods(t, nil, requirements(&in.Pods.NamespaceSelector)); narrow.wrong == "" {
				who = narrow
			}
		}
		return &who.selector, true
	}
	return &who.selector, false
}

// namespacesOrPods reads a choice of pods; false unless exactly one is said.
func (c Cluster) namespacesOrPods(t model.TenantName, namespaces *metav1.LabelSelector, pods *policyv1beta1.NamespacedPod) (podSelector, bool) {
	switch {
	case namespaces != nil && pods == nil:
		return c.pods(t, nil, requirements(namespaces)), true
	case pods != nil && namespaces == nil:
		return c.pods(t, &pods.PodSelector, requirements(&pods.NamespaceSelector)), true
	}
	return podSelector{}, false
}

func clusterRules(s policyv1beta1.ClusterNetworkPolicySpec) (ingress, egress []clusterRule) {
	for i, r := range s.Ingress {
		next := clusterRule{
			field: fmt.Sprintf("ingress[%d]", i), id: fmt.Sprintf("in-%d", i), direction: model.In, action: r.Action, side: "from", protocols: r.Protocols,
		}
		for _, p := range r.From {
			next.peers = append(next.peers, policyv1beta1.ClusterNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		ingress = append(ingress, next)
	}
	for i, r := range s.Egress {
		egress = append(egress, clusterRule{
			field: fmt.Sprintf("egress[%d]", i), id: fmt.Sprintf("out-%d", i), direction: model.Out, action: r.Action, side: "to", protocols: r.Protocols, peers: r.To,
		})
	}
	return ingress, egress
}

// decide reads a rule. One of which something is not known is failed closed, as the
// specification says: it accepts nothing, or denies everything.
func (c Cluster) decide(t model.TenantName, r clusterRule, found *problems) parsedRule {
	d := parsedRule{id: r.id, direction: r.direction, anyPort: len(r.protocols) == 0}
	bad := func(at, why string) {
		effect := "everything is denied"
		if d.action == model.Allow {
			effect = "nothing is accepted"
		}
		found.add("spec."+r.field+at, "%s: by this rule %s", why, effect)
	}
	before := len(*found)
	switch r.action {
	case policyv1beta1.ClusterNetworkPolicyRuleActionAccept:
		d.action = model.Allow
	case policyv1beta1.ClusterNetworkPolicyRuleActionDeny:
		d.action = model.Deny
	case policyv1beta1.ClusterNetworkPolicyRuleActionPass:
		d.action = model.Pass
	default:
		bad(".action", fmt.Sprintf("%q is not known", r.action))
	}
	if len(r.peers) == 0 {
		bad("."+r.side, "must not be empty")
	}
	for i, p := range r.peers {
		peers, wrong := c.clusterPolicyPeer(t, p)
		if wrong != "" {
			bad(fmt.Sprintf(".%s[%d]", r.side, i), wrong)
		}
		d.peers = append(d.peers, peers...)
	}
	addresses := slices.ContainsFunc(d.peers, func(p model.Peer) bool { return p.CIDR.IsValid() })
	for i, p := range r.protocols {
		ports, ok := clusterPolicyPorts(p)
		switch {
		case addresses && p.DestinationNamedPort != "":
			bad(fmt.Sprintf(".protocols[%d]", i), "networks have no names of ports")
		case !ok:
			bad(fmt.Sprintf(".protocols[%d]", i), "is no port, name of a port or range of TCP, UDP or SCTP")
		}
		d.ports = append(d.ports, ports...)
	}
	switch {
	case len(*found) == before:
		return d
	case d.action == model.Allow:
		d.peers, d.anyPeer = nil, false
		return d
	}
	return everything(r.id, r.direction, 0)
}

// clusterPolicyPeer reads a peer; none where it matches no endpoint.
func (c Cluster) clusterPolicyPeer(t model.TenantName, p policyv1beta1.ClusterNetworkPolicyEgressPeer) (peers []model.Peer, wrong string) {
	if p.Nodes != nil || len(p.DomainNames) > 0 {
		return nil, "nodes and domainNames, which are experimental, cannot be had"
	}
	if len(p.Networks) > 0 && p.Namespaces == nil && p.Pods == nil {
		for _, n := range p.Networks {
			peer, _, err := block(string(n), nil)
			if err != nil {
				return nil, cause(err)
			}
			peers = append(peers, peer)
		}
		return peers, ""
	}
	who, ok := c.namespacesOrPods(t, p.Namespaces, p.Pods)
	switch {
	case !ok || len(p.Networks) > 0:
		return nil, "must be exactly one of namespaces, pods and networks"
	case who.wrong != "":
		return nil, who.wrong
	case who.nobody:
		return nil, ""
	}
	return []model.Peer{{Selector: &who.selector}}, ""
}
