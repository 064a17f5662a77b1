//go:build integration

package kube

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// tenantServicesReach: nodes' processes and clients outside reach services of other tenants' pods
// at cluster addresses, load balancers', external ones that tenants share, and node ports, under
// the policies of each tenant.
func (n *onNodes) tenantServicesReach(family corev1.IPFamily) {
	ctx, number, shared := n.t.Context(), 200, "10.251.0.1"
	if family == corev1.IPv6Protocol {
		number, shared = 210, "fd00:251::1"
	}
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	outside := func(name string, number int) (*testcluster.Namespace, string) {
		ns, a, err := n.Outside(ctx, name+string(family), number)
		must(n.t, err)
		return ns, of(a, family).String()
	}
	client, clientAddr := outside("outside", number)
	other, otherAddr := outside("other", number+1)
	addr := func(h *testcluster.Host) string { return of(h.Address, family).String() }
	n.pod("shop", "web", h2.Name, map[string]string{"app": "web"})
	n.runs("shop", "web")
	all := n.service("all", family, func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{shared} })
	nobody := n.service("nobody", family, func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "nobody"} })
	local := n.service("balanced", family, func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	}).Spec.Ports[0].NodePort
	second := func(prefix string, labels map[string]string, change func(*corev1.ServiceSpec)) (namespace string, s *corev1.Service) {
		namespace = prefix + strings.ToLower(string(family))
		n.namespace(namespace, labels)
		n.pod(namespace, "web", h1.Name, map[string]string{"app": "web"})
		n.runs(namespace, "web")
		return namespace, makeService(n.t, n.Client, namespace, "web", func(s *corev1.ServiceSpec) {
			s.Type, s.IPFamilies = corev1.ServiceTypeNodePort, []corev1.IPFamily{family}
			change(s)
		})
	}
	plains, plain := second("z", nil, func(*corev1.ServiceSpec) {})
	greens, green := second("g", map[string]string{"io.contiv.tenant": "green", "io.contiv.network": "net"}, func(s *corev1.ServiceSpec) {
		s.Ports, s.ExternalIPs = []corev1.ServicePort{{Port: 81, TargetPort: intstr.FromInt32(80)}}, []string{shared}
	})
	external := n.balanced("shop", "balanced", 1)[0]
	for _, from := range []*testcluster.Namespace{client, other} {
		for to, by := range map[string]*testcluster.Host{external: h2, shared: h1} {
			if out, err := from.Command(ctx, "ip", "route", "add", to, "via", addr(by)).CombinedOutput(); err != nil {
				n.t.Fatalf("%v: %s", err, out)
			}
		}
	}
	blueAt, greenAt := []string{at(shared, 80)}, []string{at(shared, 81)}
	for _, h := range []*testcluster.Host{h1, h2} {
		blueAt, greenAt = append(blueAt, at(addr(h), all.Spec.Ports[0].NodePort)), append(greenAt, at(addr(h), green.Spec.Ports[0].NodePort))
	}
	for _, h := range []*testcluster.Host{h1, h2} {
		for _, to := range append(slices.Concat(blueAt, greenAt), at(all.Spec.ClusterIP, 80), at(green.Spec.ClusterIP, 81)) {
			n.sees(h.Name, addr(h), h.NS, to)
		}
		n.sees("a client outside, at a node port of the cluster's network", clientAddr, client, at(addr(h), plain.Spec.Ports[0].NodePort))
		for _, to := range []string{at(nobody.Spec.ClusterIP, 80), at(all.Spec.ClusterIP, 81)} {
			n.refused(h.Name, h.NS, to)
		}
		n.refused("a client outside, at a node port without a pod", client, at(addr(h), nobody.Spec.Ports[0].NodePort))
	}
	for _, to := range append(slices.Concat(blueAt, greenAt), at(external, 80), at(addr(h2), local)) {
		n.sees("a client outside", clientAddr, client, to)
	}
	if got := n.seen(client, at(addr(h1), local)); got != "" {
		n.t.Errorf("a node without a backend of the service takes a client outside, who is seen as %s", got)
	}
	for namespace, who := range map[string]string{"shop": clientAddr, greens: otherAddr} {
		n.policy(namespace, nil, "ingress: from a client", func(s *networkingv1.NetworkPolicySpec) {
			s.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{block(single(who))}}}
		})
	}
	n.sees("a node that no policy names", "", h1.NS, at(all.Spec.ClusterIP, 80))
	for _, to := range append(blueAt, at(external, 80)) {
		n.sees("the client that blue's policy names", clientAddr, client, to)
		n.sees("a client that blue's policy does not name", "", other, to)
	}
	for _, to := range greenAt {
		n.sees("the client that green's policy names", otherAddr, other, to)
		n.sees("a client that green's policy does not name", "", client, to)
	}
	n.probed(h2, family)
	must(n.t, n.Client.NetworkingV1().NetworkPolicies("shop").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	n.sees(h1.Name, addr(h1), h1.NS, at(all.Spec.ClusterIP, 80))
	n.gone("shop")
	for _, name := range []string{"all", "nobody", "balanced"} {
		must(n.t, n.Client.CoreV1().Services("shop").Delete(ctx, name, metav1.DeleteOptions{}))
	}
	for _, namespace := range []string{plains, greens} {
		n.gone(namespace)
		must(n.t, n.Client.CoreV1().Services(namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
	}
}

// podsReachOtherTenants: backends of a service of tenant blue see blue's pods as themselves, and
// pods of other tenants as their nodes; a policy of blue judges both.
func (n *onNodes) podsReachOtherTenants() {
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	both := new(corev1.IPFamilyPolicyRequireDualStack)
	n.pod("shop", "web", h2.Name, map[string]string{"app": "web"})
	web := makeService(n.t, n.Client, "shop", "web", func(s *corev1.ServiceSpec) {
		s.Type, s.IPFamilyPolicy = corev1.ServiceTypeNodePort, both
	})
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
				n.podSees(namespace, "at-"+h.Name, at(a, 80), want)
				for _, o := range n.Lab.Hosts() {
					if namespace == "shop" || namespace == "green" && o != h {
						n.podSees(namespace, "at-"+h.Name, at(of(o.Address, family).String(), web.Spec.Ports[0].NodePort), want)
					}
				}
			}
		}
	}
	n.forwardsPort("shop", "web")
	n.netctl("network-policy create --tenant blue --label app=web --default-in deny closed")
	for _, h := range n.Lab.Hosts() {
		for _, namespace := range []string{"shop", "green", "plain"} {
			n.podSees(namespace, "at-"+h.Name, at(web.Spec.ClusterIPs[0], 80), "")
		}
	}
	n.netctl("network-policy rm --tenant blue closed")
	n.podSees("shop", "at-"+h1.Name, at(web.Spec.ClusterIPs[0], 80), n.addressesOf("shop", "at-"+h1.Name)[corev1.IPv4Protocol])
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
	to := at(web.Spec.ClusterIP, 80)
	n.podSees("lan", "client", to, n.addressesOf("lan", "client")[corev1.IPv4Protocol])
	n.sees("the pod's node", h2.Address.String(), h2.NS, to)
	n.refused("another node", h1.NS, to)
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
		out, _ := n.Kubectl(n.t.Context(), "exec", "-n", namespace, name, "--", "curl", "-s", "--max-time", "1", "http://"+to+"/clientip")
		client, _ := netip.ParseAddrPort(strings.TrimSpace(out))
		got = ""
		if client.IsValid() {
			got = client.Addr().String()
		}
		return got == want
	})
}
