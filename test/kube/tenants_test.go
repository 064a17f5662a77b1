//go:build integration

package kube

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// Pods of other tenants reach the cluster's DNS and the API server: by their host, without
// a word, and where their tenant shares default-net through the data plane, as rules there
// allow. They reach no other pod but so.
func TestPodsOfOtherTenantsReachDNSAndTheAPIServer(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Native: true, DNS: true, Proxy: true}) // which may not stand in the way
	n.namespace("shop", nil)
	pods := map[string]string{}
	for _, h := range []string{"h1", "h2"} {
		n.pod("shop", h, h, map[string]string{"app": "web"})
	}
	for _, tenant := range []string{"blue", "red"} { // both have the same addresses
		n.netctl("tenant create " + tenant)
		n.netctl("network create -t " + tenant + " -e vxlan -s 10.2.0.0/16 own")
		n.namespace(tenant, map[string]string{"io.contiv.tenant": tenant, "io.contiv.network": "own"})
		n.pod(tenant, "a", "h1", nil)
		n.pod(tenant, "b", "h2", nil)
	}
	web := makeService(t, n.Client, "shop", "web", nil).Spec.ClusterIP + ":80"
	for _, p := range []string{"blue/a", "blue/b", "red/a", "red/b", "shop/h1", "shop/h2"} {
		namespace, name, _ := strings.Cut(p, "/")
		pods[p] = n.runs(namespace, name)
	}
	asks := func(when string, pods map[string]string, askers []string, dns, service, pod bool) {
		t.Helper()
		for _, p := range askers {
			n.answers(when, p, apiService, true)
			n.resolves(when, p, dns)
			n.answers(when, p, web, service)
			for _, to := range []string{"shop/h1", "shop/h2"} {
				n.answers(when, p, pods[to]+":80", pod)
			}
		}
	}
	blue, red := []string{"blue/a", "blue/b"}, []string{"red/a", "red/b"}
	for _, mode := range []string{"bridge", "routing"} {
		n.netctl("global set --fwd-mode " + mode)
		asks(mode, pods, append(blue, red...), true, true, false)
	}

	// A ClusterNetworkPolicy between tenants denies nothing, and says so.
	config := ok[*rest.Config](t)(n.Control.Config())
	installCRD(t, config)
	all := clusterPolicies(t, config)
	named := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
	}
	spec := denyAll(1)
	spec.Subject.Namespaces, spec.Ingress[0].From[0].Namespaces = named("shop"), named("red")
	all.create(t, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "apart"}, Spec: spec})
	until(t, "the policy says that it does not deny what comes from tenant red", func() bool {
		o := ok[*unstructured.Unstructured](t)(all.Get(t.Context(), "apart", metav1.GetOptions{}))
		found, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		text := fmt.Sprint(found)
		return strings.Contains(text, "NotAsWritten") && strings.Contains(text, "(red)") && strings.Contains(text, "does not deny them")
	})
	asks("a policy denies it", pods, red[:1], true, true, false)
	must(t, all.Delete(t.Context(), "apart", metav1.DeleteOptions{}))

	// What a tenant shares with default-net only rules there let in.
	n.netctl("tenant create --shared-networks default:default-net blue")
	asks("shared, and no rule", pods, blue, false, false, false)
	asks("another shares", pods, red[:1], true, true, false)
	n.policy("kube-system", map[string]string{"k8s-app": "kube-dns"}, "ingress: to DNS", func(s *networkingv1.NetworkPolicySpec) {
		s.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{portOf("UDP", 53), portOf("TCP", 53)}}}
	})
	asks("DNS is allowed", pods, blue, true, false, false)
	n.policy("shop", nil, "ingress: from blue", func(s *networkingv1.NetworkPolicySpec) {
		s.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{block("10.2.0.0/16")}}}
	})
	asks("the shop is allowed", pods, blue, true, true, true)
	asks("a tenant that shares nothing has another's addresses", pods, red[:1], true, false, false)

	// Policies of their own: by the address of the API server, or, by the host, of its service.
	u := ok[*url.URL](t)(url.Parse(ok[*rest.Config](t)(n.Control.Config()).Host))
	port := ok[int](t)(strconv.Atoi(u.Port()))
	for _, x := range []struct {
		tenant, allows string
		port           int
		reached        bool
	}{
		{"red", u.Hostname(), port, false},
		{"red", "10.96.0.1", 443, true},
		{"blue", "10.96.0.1", 443, false},
		{"blue", u.Hostname(), port, true},
	} {
		n.policy(x.tenant, nil, "egress: to an address", func(s *networkingv1.NetworkPolicySpec) {
			s.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{block(x.allows + "/32")}, Ports: []networkingv1.NetworkPolicyPort{portOf("TCP", x.port)}}}
		})
		when := fmt.Sprintf("egress to %s:%d alone", x.allows, x.port)
		n.answers(when, x.tenant+"/a", apiService, x.reached)
		n.resolves(when, x.tenant+"/a", false)
	}
}

// apiService is where default/kubernetes is asked.
const apiService = "10.96.0.1:443"

func (n *onNodes) netctl(line string) {
	n.t.Helper()
	if out, err := n.Lab.Masters.Netctl(n.t.Context(), strings.Fields(line)...); err != nil {
		n.t.Fatalf("netctl %s: %v: %s", line, err, out)
	}
}

// policy puts the only NetworkPolicy of a namespace, which closes pods in a direction but
// for what it allows.
func (n *onNodes) policy(namespace string, pods map[string]string, what string, allow func(*networkingv1.NetworkPolicySpec)) {
	n.t.Helper()
	all := n.Client.NetworkingV1().NetworkPolicies(namespace)
	must(n.t, all.DeleteCollection(n.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "only"}}
	p.Spec.PodSelector.MatchLabels = pods
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if strings.HasPrefix(what, "egress") {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	}
	allow(&p.Spec)
	ok[*networkingv1.NetworkPolicy](n.t)(all.Create(n.t.Context(), p, metav1.CreateOptions{}))
}

func block(prefix string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: prefix}}
}

func portOf(protocol string, port int) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.Protocol(protocol)), Port: new(intstr.FromInt(port))}
}

// resolves: a pod asks the cluster's DNS, by the address that its resolv.conf names, and
// is answered, or not.
func (n *onNodes) resolves(when, pod string, want bool) {
	n.t.Helper()
	namespace, name, _ := strings.Cut(pod, "/")
	until(n.t, fmt.Sprintf("%s: that the cluster's DNS answers %s is %v", when, pod, want), func() bool {
		out, err := n.Kubectl(n.t.Context(), "exec", "-n", namespace, name, "--", "dig", "+search", "+short", "+time=1", "+tries=1", "kubernetes.default")
		return (err == nil && out == "10.96.0.1\n") == want
	})
}

// answers: a pod's connection begins within a second, or not.
func (n *onNodes) answers(when, pod, to string, want bool) {
	n.t.Helper()
	namespace, name, _ := strings.Cut(pod, "/")
	until(n.t, fmt.Sprintf("%s: that %s reaches %s is %v", when, pod, to, want), func() bool {
		out, err := n.Kubectl(n.t.Context(), "exec", "-n", namespace, name, "--", "/agnhost", "connect", to, "--timeout=1s")
		if err != nil && !strings.Contains(out, "TIMEOUT") && !strings.Contains(out, "REFUSED") && !strings.Contains(out, "OTHER") {
			n.t.Fatalf("%v: %s", err, out)
		}
		return (err == nil) == want
	})
}
