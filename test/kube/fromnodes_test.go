//go:build integration

package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/lab"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// Two nodes without kube-proxy serve to their own processes, and to a client outside.
func TestServicesFromNodes(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Services: true, Masters: []string{"--load-balancer-pool", "10.250.0.224/28"}})
	n.namespace("shop", nil)
	t.Run("Reach", n.in((*onNodes).servicesReach))
	n.gone("shop")
	n.nothing()
}

// outside is a machine on the nodes' network that is none.
func (n *onNodes) outside(name string, number int) (*lab.Namespace, string) {
	n.t.Helper()
	ns := ok[*lab.Namespace](n.t)(n.AddNamespace(name))
	return ns, ok[netip.Addr](n.t)(n.JoinUnderlay(ns, number)).String()
}

// seen asks a pod by HTTP as whom it sees who asks; empty = no answer.
func (n *onNodes) seen(from *lab.Namespace, at string) string {
	n.t.Helper()
	out, err := from.Command(n.t.Context(), "curl", "-s", "--max-time", "2", "http://"+at+"/clientip").CombinedOutput()
	if err != nil {
		return ""
	}
	client, err := netip.ParseAddrPort(string(out))
	if err != nil {
		n.t.Fatalf("%s answers %q", at, out)
	}
	return client.Addr().String()
}

func (n *onNodes) sees(who, want string, from *lab.Namespace, at string) {
	n.t.Helper()
	got := "never asked"
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%s at %s is seen as %q, want %q", who, at, got, want)
		}
	}()
	until(n.t, fmt.Sprintf("%s at %s is seen as %q", who, at, want), func() bool { got = n.seen(from, at); return got == want })
}

func (n *onNodes) service(name string, change func(*corev1.ServiceSpec)) (address string, port int32) {
	n.t.Helper()
	s := makeService(n.t, n.Client, "shop", name, func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		if change != nil {
			change(s)
		}
	})
	return s.Spec.ClusterIP, s.Spec.Ports[0].NodePort
}

func (n *onNodes) servicesReach() {
	ctx := n.t.Context()
	h1, h2 := n.Hosts()[0], n.Hosts()[1]
	client, clientAddr := n.outside("outside", 200)
	n.pod("shop", "web", "h2", map[string]string{"app": "web"})
	n.runs("shop", "web")
	all, port := n.service("all", nil)
	_, local := n.service("local", func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	balanced := makeService(n.t, n.Client, "shop", "balanced", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	})
	nobody, closed := n.service("nobody", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "nobody"} })
	at := func(h *lab.Host, port int32) string { return fmt.Sprintf("%s:%d", h.Address, port) }
	for _, h := range []*lab.Host{h1, h2} {
		n.sees(h.Name, h.Address.String(), h.NS, all+":80")
		n.sees(h.Name, h.Address.String(), h.NS, at(h, port))
		n.sees(h.Name+" where the policy is local", h.Address.String(), h.NS, at(h, local))
		n.sees("a client outside", clientAddr, client, at(h, port))
		for _, to := range []string{nobody + ":80", all + ":81", at(h, closed)} {
			out, err := h.NS.Command(ctx, "curl", "-sS", "--max-time", "5", "http://"+to).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "refused") && !strings.Contains(string(out), "Couldn't connect") {
				n.t.Errorf("%s at %s: %v, %s; want that it is refused", h.Name, to, err, out)
			}
		}
	}
	for _, h := range n.Hosts() { // its backend is no pod
		until(n.t, h.Name+" reaches the API server by its service", func() bool {
			out, _ := h.NS.Command(ctx, "curl", "-sk", "--max-time", "2", "https://10.96.0.1/version").CombinedOutput()
			return strings.Contains(string(out), "gitVersion") || strings.Contains(string(out), "Unauthorized") || strings.Contains(string(out), "Forbidden")
		})
	}
	n.sees("h1 at the other node", h1.Address.String(), h1.NS, at(h2, port))
	n.sees("the pod's node at the other node", h1.Address.String(), h2.NS, at(h1, port))
	n.sees("a client outside where there is a backend", clientAddr, client, at(h2, local))
	if got := n.seen(client, at(h1, local)); got != "" {
		n.t.Errorf("a node without a backend of the service takes a client outside, who is seen as %s", got)
	}

	// A load balancer's address, which a router leads to a node; and whether that has a backend.
	if out, err := client.Command(ctx, "ip", "route", "add", "10.250.0.225/32", "via", h2.Address.String()).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	n.sees("a client outside at a load balancer's address", clientAddr, client, "10.250.0.225:80")
	for _, x := range []struct {
		h    *lab.Host
		want string
	}{{h1, `"localEndpoints":0,"serviceProxyHealthy":true} 503`}, {h2, `"localEndpoints":1,"serviceProxyHealthy":true} 200`}} {
		until(n.t, "the health check port of "+x.h.Name+" says "+x.want, func() bool {
			out, _ := client.Command(ctx, "curl", "-s", "--max-time", "2", "-w", " %{http_code}", "http://"+at(x.h, balanced.Spec.HealthCheckNodePort)+"/").CombinedOutput()
			return strings.Contains(strings.ReplaceAll(string(out), "\n", ""), x.want)
		})
	}

	// Under default deny only the client whom a policy names.
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	deny.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	deny.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: clientAddr + "/32"}}}}}
	ok[*networkingv1.NetworkPolicy](n.t)(n.Client.NetworkingV1().NetworkPolicies("shop").Create(ctx, deny, metav1.CreateOptions{}))
	n.sees("a node that no policy names", "", h1.NS, all+":80")
	n.sees("the pod's own node, by a service", "", h2.NS, all+":80")
	other, _ := n.outside("other", 201)
	for _, h := range []*lab.Host{h1, h2} {
		n.sees("the client that a policy names", clientAddr, client, at(h, port))
		n.sees("a client that no policy names", "", other, at(h, port))
	}
	if err := n.Client.NetworkingV1().NetworkPolicies("shop").Delete(ctx, "deny", metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
	n.sees("h1", h1.Address.String(), h1.NS, all+":80")

	// A second backend, and none: each node notices.
	n.pod("shop", "web2", "h1", map[string]string{"app": "web"})
	n.runs("shop", "web2")
	n.sees("a client outside where there is a backend now", clientAddr, client, at(h1, local))
	for _, p := range []string{"web", "web2"} {
		if err := n.Client.CoreV1().Pods("shop").Delete(ctx, p, metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.sees("h1", "", h1.NS, all+":80")
	for _, s := range []string{"all", "local", "nobody", "balanced"} {
		if err := n.Client.CoreV1().Services("shop").Delete(ctx, s, metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	for _, h := range n.Hosts() {
		until(n.t, "nothing is left of the services on "+h.Name, func() bool {
			out := ok[string](n.t)(h.Run(ctx, "nft", "list", "ruleset"))
			return !slices.ContainsFunc([]string{all, nobody, fmt.Sprint(port), fmt.Sprint(closed)}, func(s string) bool { return strings.Contains(out, s) })
		})
	}
}
