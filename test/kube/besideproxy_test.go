//go:build integration

package kube

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// TestPoliciesBesideKubeProxy: with kube-proxy on each node, one by iptables and one by
// nftables, policies judge pods that use a service as the pods that they are.
func TestPoliciesBesideKubeProxy(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Native: true})
	must(t, n.StartProxy(n.Lab.Hosts()[0], "iptables"))
	must(t, n.StartProxy(n.Lab.Hosts()[1], "nftables"))
	n.policiesApplyBesideProxy()
}

// connections is of how many of a pod's connections, one after another, are made to a place.
const connections = 5

// connects makes connections from a pod of the namespace "proxied".
func (n *onNodes) connects(from, to string) int {
	n.t.Helper()
	script := fmt.Sprintf("n=0; for i in $(seq %d); do /agnhost connect %s --timeout=500ms >/dev/null 2>&1 && n=$((n+1)); done; echo made $n", connections, to)
	out, err := n.Kubectl(n.t.Context(), "exec", "-n", "proxied", from, "--", "sh", "-c", script)
	_, made, found := strings.Cut(strings.TrimSpace(out), "made ")
	got, bad := strconv.Atoi(made)
	if err != nil || !found || bad != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	return got
}

// allOrNone waits until all, or none, of a pod's connections are made.
func (n *onNodes) allOrNone(what string, all bool, from string, places ...string) {
	n.t.Helper()
	want := 0
	if all {
		want = connections
	}
	for _, to := range places {
		until(n.t, fmt.Sprintf("%s: %d of %d connections of %s to %s are made", what, want, connections, from, to), func() bool { return n.connects(from, to) == want })
	}
}

func (n *onNodes) policiesApplyBesideProxy() {
	t := n.t
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	for _, h := range n.Lab.Hosts() {
		until(t, "kube-proxy of "+h.Name+" has rules", func() bool {
			out, _ := h.Run(t.Context(), "nft", "list", "ruleset")
			return strings.Contains(out, "KUBE-SERVICES") || strings.Contains(out, "table ip kube-proxy")
		})
	}
	n.namespace("proxied", nil)
	n.pod("proxied", "near", "h1", map[string]string{"app": "web"})
	n.pod("proxied", "away", "h2", map[string]string{"app": "web"})
	n.pod("proxied", "friend", "h1", map[string]string{"role": "friend"})
	n.pod("proxied", "stranger", "h1", nil)
	for _, p := range []string{"near", "away", "friend", "stranger"} {
		n.runs("proxied", p)
	}
	s := makeService(t, n.Client, "proxied", "web", func(s *corev1.ServiceSpec) {
		s.Type, s.Selector = corev1.ServiceTypeNodePort, map[string]string{"app": "web"}
	}).Spec
	cluster1, node1, node2 := at(s.ClusterIP, 80), at(h1.Address.String(), s.Ports[0].NodePort), at(h2.Address.String(), s.Ports[0].NodePort)
	places := []string{cluster1, node1, node2}
	n.allOrNone("without a policy", true, "stranger", places...)
	client, clientAddr, err := n.Outside(t.Context(), "beside", 230)
	must(t, err)
	for _, to := range places[1:] {
		for range connections {
			n.sees("a client outside", clientAddr.String(), client, to)
		}
	}

	// An external address that is none of the cluster's ranges is kube-proxy's alone.
	const external = "198.51.100.99"
	makeService(t, n.Client, "proxied", "external", func(s *corev1.ServiceSpec) {
		s.Selector, s.ExternalIPs = map[string]string{"app": "web"}, []string{external}
	})
	for _, h := range n.Lab.Hosts() {
		until(t, "kube-proxy of "+h.Name+" leads to the external address", func() bool {
			out, _ := h.Run(t.Context(), "nft", "list", "ruleset")
			return strings.Contains(out, external)
		})
	}
	n.allOrNone("by an external address", false, "stranger", at(external, 80))

	policies := n.Client.NetworkingV1().NetworkPolicies("proxied")
	under := func(name string, spec networkingv1.NetworkPolicySpec, then func()) {
		t.Helper()
		ok[*networkingv1.NetworkPolicy](t)(policies.Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}))
		then()
		must(t, policies.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	web, friend := metav1.LabelSelector{MatchLabels: s.Selector}, metav1.LabelSelector{MatchLabels: map[string]string{"role": "friend"}}
	ingress := func(from networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: web, Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{from}}}}
	}
	egress := func(to networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{to}}},
		}
	}
	under("selector", ingress(networkingv1.NetworkPolicyPeer{PodSelector: &friend}), func() {
		n.allOrNone("ingress by selector", false, "stranger", places...)
		n.allOrNone("ingress by selector", true, "friend", places...)
	})
	under("nodes", ingress(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(h1.Address, 24).Masked().String()}}), func() {
		n.allOrNone("ingress from nodes' addresses", false, "friend", places...)
		n.sees("a client outside that the policy names", clientAddr.String(), client, node1)
	})
	under("backends", egress(networkingv1.NetworkPolicyPeer{PodSelector: &web}), func() {
		n.allOrNone("egress to the backends", true, "stranger", places...)
	})
	under("internet", egress(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{cluster.PodCIDR}}}), func() {
		n.allOrNone("egress to all but pods", false, "stranger", places...)
	})
	n.gone("proxied")
}
