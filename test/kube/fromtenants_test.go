//go:build integration

package kube

import (
	"net"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// tenantServicesReach: nodes' processes and clients outside reach services of another tenant's
// pods at cluster addresses and load balancers', under its policies. Node ports are left to the
// cluster's own network, whose services they lead to, whatever their names.
func (n *onNodes) tenantServicesReach(family corev1.IPFamily) {
	ctx, number := n.t.Context(), 200
	if family == corev1.IPv6Protocol {
		number = 210
	}
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	client, a, err := n.Outside(ctx, "outside"+string(family), number)
	must(n.t, err)
	other, _, err := n.Outside(ctx, "other"+string(family), number+1)
	must(n.t, err)
	clientAddr := of(a, family).String()
	addr := func(h *testcluster.Host) string { return of(h.Address, family).String() }
	n.pod("shop", "web", h2.Name, map[string]string{"app": "web"})
	n.runs("shop", "web")
	all := n.service("all", family, nil)
	nobody := n.service("nobody", family, func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "nobody"} })
	n.service("balanced", family, func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	})
	namespace := "z" + strings.ToLower(string(family))
	n.namespace(namespace, nil)
	n.pod(namespace, "web", h1.Name, map[string]string{"app": "web"})
	n.runs(namespace, "web")
	plain := makeService(n.t, n.Client, namespace, "web", func(s *corev1.ServiceSpec) {
		s.Type, s.IPFamilies = corev1.ServiceTypeNodePort, []corev1.IPFamily{family}
	})
	external := n.balanced("shop", "balanced", 1)[0]
	for _, from := range []*testcluster.Namespace{client, other} {
		if out, err := from.Command(ctx, "ip", "route", "add", external, "via", addr(h2)).CombinedOutput(); err != nil {
			n.t.Fatalf("%v: %s", err, out)
		}
	}
	for _, h := range []*testcluster.Host{h1, h2} {
		n.sees(h.Name, addr(h), h.NS, at(all.Spec.ClusterIP, 80))
		n.sees("a client outside, at a node port of the cluster's network", clientAddr, client, at(addr(h), plain.Spec.Ports[0].NodePort))
		n.refused("a client outside, at a tenant's node port", client, at(addr(h), all.Spec.Ports[0].NodePort))
		for _, to := range []string{at(nobody.Spec.ClusterIP, 80), at(all.Spec.ClusterIP, 81)} {
			n.refused(h.Name, h.NS, to)
		}
		until(n.t, h.Name+" reports it", func() bool {
			state, err := h.AgentState(ctx)
			return err == nil && strings.Contains(state.Problems["service of Kubernetes shop/all"], "node ports")
		})
	}
	n.sees("a client outside at a load balancer's address", clientAddr, client, at(external, 80))
	n.policy("shop", nil, "ingress: from a client", func(s *networkingv1.NetworkPolicySpec) {
		s.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{block(single(clientAddr))}}}
	})
	n.sees("a node that no policy names", "", h1.NS, at(all.Spec.ClusterIP, 80))
	n.sees("a client that no policy names", "", other, at(external, 80))
	n.sees("the client that a policy names", clientAddr, client, at(external, 80))
	n.probed(h2, family)
	must(n.t, n.Client.NetworkingV1().NetworkPolicies("shop").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	n.sees(h1.Name, addr(h1), h1.NS, at(all.Spec.ClusterIP, 80))
	n.gone("shop")
	n.gone(namespace)
	for _, name := range []string{"all", "nobody", "balanced"} {
		must(n.t, n.Client.CoreV1().Services("shop").Delete(ctx, name, metav1.DeleteOptions{}))
	}
	must(n.t, n.Client.CoreV1().Services(namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
}

// podsReachOtherTenants: backends of a service of tenant blue see blue's pods as themselves, and
// pods of other tenants as their nodes; a policy of blue judges both.
func (n *onNodes) podsReachOtherTenants() {
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	both := new(corev1.IPFamilyPolicyRequireDualStack)
	n.pod("shop", "web", h2.Name, map[string]string{"app": "web"})
	web := makeService(n.t, n.Client, "shop", "web", func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = both })
	n.namespace("green", map[string]string{"io.contiv.tenant": "green", "io.contiv.network": "net"})
	n.namespace("plain", nil)
	for _, namespace := range []string{"shop", "green", "plain"} {
		for _, h := range n.Lab.Hosts() {
			n.pod(namespace, "at-"+h.Name, h.Name, nil)
		}
	}
	n.runs("shop", "web")
	for _, namespace := range []string{"shop", "green", "plain"} {
		for _, h := range n.Lab.Hosts() {
			own := n.addressesOf(namespace, "at-"+h.Name)
			for _, a := range web.Spec.ClusterIPs {
				family := familyOf(netip.MustParseAddr(a))
				want := own[family]
				if namespace != "shop" {
					want = of(h.Address, family).String()
				}
				n.podSees(namespace, "at-"+h.Name, a, want)
			}
		}
	}
	n.forwardsPort("shop", "web")
	n.netctl("network-policy create --tenant blue --label app=web --default-in deny closed")
	for _, h := range n.Lab.Hosts() {
		for _, namespace := range []string{"shop", "green", "plain"} {
			n.podSees(namespace, "at-"+h.Name, web.Spec.ClusterIPs[0], "")
		}
	}
	n.netctl("network-policy rm --tenant blue closed")
	n.podSees("shop", "at-"+h1.Name, web.Spec.ClusterIPs[0], n.addressesOf("shop", "at-"+h1.Name)[corev1.IPv4Protocol])
	must(n.t, n.Client.CoreV1().Services("shop").Delete(n.t.Context(), "web", metav1.DeleteOptions{}))
	n.gone("green")
	n.gone("plain")
}

// forwardsPort checks that kubectl forwards a port to a pod.
func (n *onNodes) forwardsPort(namespace, name string) {
	n.t.Helper()
	forward := n.Lab.Master.Command(n.t.Context(), os.Getenv(cluster.Program), "kubectl", "--kubeconfig="+n.Control.Kubeconfig, "port-forward", "-n", namespace, name, "18080:80")
	must(n.t, forward.Start())
	until(n.t, "kubectl forwards a port to "+namespace+"/"+name, func() bool { return n.seen(n.Lab.Master, "127.0.0.1:18080") == "127.0.0.1" })
	must(n.t, forward.Process.Kill())
	_ = forward.Wait() // killed
}

// vlanServices: a service of pods on a VLAN network leads its own network's pods to all backends,
// and nodes, clients outside and pods of other tenants to those of the node that they ask.
func (n *onNodes) vlanServices() {
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	n.netctl("network create -t blue -e vlan -s 10.3.0.0/16 lan")
	n.namespace("lan", map[string]string{"io.contiv.tenant": "blue", "io.contiv.network": "lan"})
	n.pod("lan", "web", h2.Name, map[string]string{"app": "web"})
	n.pod("lan", "client", h1.Name, nil)
	n.pod("default", "plain", h1.Name, nil)
	n.runs("lan", "web")
	n.runs("default", "plain")
	web := makeService(n.t, n.Client, "lan", "web", nil)
	to := web.Spec.ClusterIP
	n.podSees("lan", "client", to, n.addressesOf("lan", "client")[corev1.IPv4Protocol])
	n.sees("the pod's node", h2.Address.String(), h2.NS, at(to, 80))
	n.refused("another node", h1.NS, at(to, 80))
	n.podSees("default", "plain", to, "")
	for _, h := range []*testcluster.Host{h1, h2} {
		until(n.t, h.Name+" reports it", func() bool {
			state, err := h.AgentState(n.t.Context())
			return err == nil && strings.Contains(state.Problems["service of Kubernetes lan/web"], "VLAN network blue:lan")
		})
	}
	must(n.t, n.Client.CoreV1().Services("lan").Delete(n.t.Context(), "web", metav1.DeleteOptions{}))
	n.gone("lan")
	n.gone("default")
}

// podSees waits until a server sees a pod as want; empty = it does not answer.
func (n *onNodes) podSees(namespace, name, to, want string) {
	n.t.Helper()
	got := "never asked"
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%s/%s at %s is seen as %q, want %q", namespace, name, to, got, want)
		}
	}()
	until(n.t, namespace+"/"+name+" at "+to+" is seen as "+want, func() bool {
		out, _ := n.Kubectl(n.t.Context(), "exec", "-n", namespace, name, "--", "curl", "-s", "--max-time", "1", "http://"+net.JoinHostPort(to, "80")+"/clientip")
		client, _ := netip.ParseAddrPort(strings.TrimSpace(out))
		got = ""
		if client.IsValid() {
			got = client.Addr().String()
		}
		return got == want
	})
}
