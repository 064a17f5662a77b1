//go:build integration

package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// Two nodes without kube-proxy serve to their own processes, and to a client outside, by
// both families of addresses.
func TestNodesServeTheirOwnProcesses(t *testing.T) {
	testServicesFromNodes(t, cluster.NodesConfig{Native: true}, nil)
}

// TestServicesFromNodesOfPodsBehindTheDataPlane: so they do where the nodes' stacks do not
// know the pods' addresses.
func TestServicesFromNodesOfPodsBehindTheDataPlane(t *testing.T) {
	testServicesFromNodes(t, cluster.NodesConfig{}, nil)
}

// TestServicesFromNodesOfOtherTenantsPods: so they do where the pods are of other tenants; as do
// a tenant's own pods, and pods of others as clients from outside.
func TestServicesFromNodesOfOtherTenantsPods(t *testing.T) {
	testServicesFromNodes(t, cluster.NodesConfig{Native: true, Secure: true}, map[string]string{"io.contiv.tenant": "blue", "io.contiv.network": "net"})
}

// testServicesFromNodes has the services' pods in a namespace with some labels.
func testServicesFromNodes(t *testing.T, c cluster.NodesConfig, labels map[string]string) {
	t.Helper()
	c.Dual, c.Masters = true, []string{"--load-balancer-pool", "10.250.0.224/28,fd00:250::e0/124", "--external-ip-ranges", "10.251.0.0/24,fd00:251::/64"}
	n := nodes(t, c)
	if labels != nil {
		n.netctl("tenant create blue")
		n.netctl("tenant create green")
		for _, tenant := range []string{"blue", "green"} {
			n.netctl("network create -t " + tenant + " -e vxlan -s 10.2.0.0/16 --subnetv6 fd00:2::/64 net")
		}
	}
	n.namespace("shop", labels)
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		t.Run(string(family), n.in(func(n *onNodes) {
			if labels != nil {
				n.tenantServicesReach(family)
			} else {
				n.servicesReach(family, c.Native)
			}
		}))
	}
	if labels != nil {
		t.Run("Pods", n.in((*onNodes).podsReachOtherTenants))
		t.Run("VLAN", n.in((*onNodes).vlanServices))
	} else {
		t.Run("Control", n.in((*onNodes).controlStaysShut))
	}
	n.gone("shop")
	n.nothing()
}

// of is the address of one family of the machine that has an address.
func of(a netip.Addr, family corev1.IPFamily) netip.Addr {
	if family == corev1.IPv6Protocol {
		return cluster.Address6(a)
	}
	return a
}

// at is a place as URLs and connect take it.
func at(a string, port int32) string {
	return netip.AddrPortFrom(netip.MustParseAddr(a), uint16(port)).String()
}

// seen asks a pod by HTTP as whom it sees who asks; empty = no answer.
func (n *onNodes) seen(from *testcluster.Namespace, at string) string {
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

func (n *onNodes) sees(who, want string, from *testcluster.Namespace, at string) {
	n.t.Helper()
	got := "never asked"
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%s at %s is seen as %q, want %q", who, at, got, want)
		}
	}()
	until(n.t, fmt.Sprintf("%s at %s is seen as %q", who, at, want), func() bool { got = n.seen(from, at); return got == want })
}

// refused checks that a client is refused, rather than left without an answer.
func (n *onNodes) refused(who string, from *testcluster.Namespace, at string) {
	n.t.Helper()
	out, err := from.Command(n.t.Context(), "curl", "-sS", "--max-time", "5", "http://"+at).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "refused") && !strings.Contains(string(out), "Couldn't connect") {
		n.t.Errorf("%s at %s: %v, %s; want that it is refused", who, at, err, out)
	}
}

func (n *onNodes) service(name string, family corev1.IPFamily, change func(*corev1.ServiceSpec)) *corev1.Service {
	n.t.Helper()
	return makeService(n.t, n.Client, "shop", name, func(s *corev1.ServiceSpec) {
		s.Type, s.IPFamilies = corev1.ServiceTypeNodePort, []corev1.IPFamily{family}
		if change != nil {
			change(s)
		}
	})
}

func (n *onNodes) servicesReach(family corev1.IPFamily, routed bool) {
	ctx := n.t.Context()
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	six := family == corev1.IPv6Protocol
	number := 200
	if six {
		number = 210
	}
	outside := func(name string, number int) (*testcluster.Namespace, string) {
		ns, a, err := n.Outside(ctx, name, number)
		if err != nil {
			n.t.Fatal(err)
		}
		return ns, of(a, family).String()
	}
	client, clientAddr := outside("outside"+string(family), number)
	n.pod("shop", "web", "h2", map[string]string{"app": "web"})
	n.runs("shop", "web")
	allService := n.service("all", family, nil)
	all, port := allService.Spec.ClusterIP, allService.Spec.Ports[0].NodePort
	local := n.service("local", family, func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }).Spec.Ports[0].NodePort
	balanced := n.service("balanced", family, func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	})
	nobodyService := n.service("nobody", family, func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "nobody"} })
	nobody, closed := nobodyService.Spec.ClusterIP, nobodyService.Spec.Ports[0].NodePort
	addr := func(h *testcluster.Host) string { return of(h.Address, family).String() }
	on := func(h *testcluster.Host, port int32) string { return at(addr(h), port) }
	for _, h := range []*testcluster.Host{h1, h2} {
		n.sees(h.Name, addr(h), h.NS, at(all, 80))
		n.sees(h.Name, addr(h), h.NS, on(h, port))
		n.sees(h.Name+" where the policy is local", addr(h), h.NS, on(h, local))
		if !six {
			n.sees(h.Name+" at a loopback address", addr(h), h.NS, at("127.0.0.1", port))
		}
		n.sees("a client outside", clientAddr, client, on(h, port))
		for _, to := range []string{at(nobody, 80), at(all, 81), on(h, closed)} {
			n.refused(h.Name, h.NS, to)
		}
	}
	n.sees("h1 at the other node", addr(h1), h1.NS, on(h2, port))
	seen := h1 // which masquerades
	if !routed {
		seen = h2
	}
	n.sees("the pod's node at the other node", addr(seen), h2.NS, on(h1, port))
	n.sees("a client outside where there is a backend", clientAddr, client, on(h2, local))
	if got := n.seen(client, on(h1, local)); got != "" {
		n.t.Errorf("a node without a backend of the service takes a client outside, who is seen as %s", got)
	}

	// A load balancer's address, which a router leads to a node; and whether that has a backend.
	external := n.balanced("shop", "balanced", 1)[0]
	if out, err := client.Command(ctx, "ip", "route", "add", external, "via", addr(h2)).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	n.sees("a client outside at a load balancer's address", clientAddr, client, at(external, 80))
	for _, x := range []struct {
		h    *testcluster.Host
		want string
	}{{h1, `"localEndpoints":0,"serviceProxyHealthy":true} 503`}, {h2, `"localEndpoints":1,"serviceProxyHealthy":true} 200`}} {
		until(n.t, "the health check port of "+x.h.Name+" says "+x.want, func() bool {
			out, _ := client.Command(ctx, "curl", "-s", "--max-time", "2", "-w", " %{http_code}", "http://"+on(x.h, balanced.Spec.HealthCheckNodePort)+"/").CombinedOutput()
			return strings.Contains(strings.ReplaceAll(string(out), "\n", ""), x.want)
		})
	}

	// Under default deny only the client whom a policy names.
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	deny.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	deny.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: single(clientAddr)}}}}}
	ok[*networkingv1.NetworkPolicy](n.t)(n.Client.NetworkingV1().NetworkPolicies("shop").Create(ctx, deny, metav1.CreateOptions{}))
	n.sees("a node that no policy names", "", h1.NS, at(all, 80))
	if own := addr(h2); routed {
		n.sees("the pod's own node, by a service", own, h2.NS, at(all, 80))
	} else {
		n.sees("the pod's own node, by a service of the data plane, which no policy names", "", h2.NS, at(all, 80))
	}
	n.probed(h2, family)
	other, _ := outside("other"+string(family), number+1)
	for _, h := range []*testcluster.Host{h1, h2} {
		n.sees("the client that a policy names", clientAddr, client, on(h, port))
		n.sees("a client that no policy names", "", other, on(h, port))
	}
	if err := n.Client.NetworkingV1().NetworkPolicies("shop").Delete(ctx, "deny", metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
	n.sees("h1", addr(h1), h1.NS, at(all, 80))

	// A second backend, and none: each node notices.
	n.pod("shop", "web2", "h1", map[string]string{"app": "web"})
	n.runs("shop", "web2")
	n.sees("a client outside where there is a backend now", clientAddr, client, on(h1, local))
	n.gone("shop")
	n.sees("h1", "", h1.NS, at(all, 80))
	for _, s := range []string{"all", "local", "nobody", "balanced"} {
		if err := n.Client.CoreV1().Services("shop").Delete(ctx, s, metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	for _, h := range n.Lab.Hosts() {
		until(n.t, "nothing is left of the services on "+h.Name, func() bool {
			out := ok[string](n.t)(h.Run(ctx, "nft", "list", "ruleset"))
			return !slices.ContainsFunc([]string{all, nobody, fmt.Sprint(port), fmt.Sprint(closed)}, func(s string) bool { return strings.Contains(out, s) })
		})
	}
}

// probed checks that a kubelet's probes reach a pod at its own address, although a policy
// denies all clients, and so do other processes of its node.
func (n *onNodes) probed(h *testcluster.Host, family corev1.IPFamily) {
	n.t.Helper()
	ctx := n.t.Context()
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(80)}}, PeriodSeconds: 1}
	n.podOf("shop", "probed", h.Name, map[string]string{"app": "probed"}, corev1.Container{
		Name: "c", Image: cluster.Agnhost, ImagePullPolicy: corev1.PullNever, Args: []string{"netexec", "--http-port=80"}, ReadinessProbe: probe,
	})
	var p *corev1.Pod
	until(n.t, "the probed pod is ready", func() bool {
		p = ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods("shop").Get(ctx, "probed", metav1.GetOptions{}))
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
	for _, a := range p.Status.PodIPs {
		if netip.MustParseAddr(a.IP).Is6() == (family == corev1.IPv6Protocol) {
			until(n.t, "the pod's node reaches it at "+a.IP, func() bool { return n.seen(h.NS, at(a.IP, 80)) != "" })
		}
	}
	if err := n.Client.CoreV1().Pods("shop").Delete(ctx, "probed", metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
	until(n.t, "the probed pod is gone", func() bool {
		_, err := n.Client.CoreV1().Pods("shop").Get(ctx, "probed", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// single is the prefix that has one address.
func single(a string) string {
	x := netip.MustParseAddr(a)
	return netip.PrefixFrom(x, x.BitLen()).String()
}

// balanced waits until a service has some load balancers' addresses, and returns them.
func (n *onNodes) balanced(namespace, name string, count int) (out []string) {
	n.t.Helper()
	until(n.t, namespace+"/"+name+" has its addresses", func() bool {
		out = nil
		for _, in := range ok[*corev1.Service](n.t)(n.Client.CoreV1().Services(namespace).Get(n.t.Context(), name, metav1.GetOptions{})).Status.LoadBalancer.Ingress {
			out = append(out, in.IP)
		}
		return len(out) == count
	})
	return out
}

// controlStaysShut: nodes, and clients outside, are led to backends that are no pods, as
// the API server is; but clients outside not to netmaster, whatever a slice says.
func (n *onNodes) controlStaysShut() {
	ctx := n.t.Context()
	client, _, err := n.Outside(ctx, "outsider", 220)
	if err != nil {
		n.t.Fatal(err)
	}
	api := ok[*discoveryv1.EndpointSlice](n.t)(n.Client.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{}))
	services := map[string]*corev1.Service{}
	for name, port := range map[string]int32{"api": *api.Ports[0].Port, "netmaster": 9999} {
		services[name] = n.service(name, corev1.IPv4Protocol, func(s *corev1.ServiceSpec) { s.Selector = nil })
		ok[*discoveryv1.EndpointSlice](n.t)(n.Client.DiscoveryV1().EndpointSlices("shop").Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{n.Lab.Masters.MasterAddress().String()}}}, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		}, metav1.CreateOptions{}))
	}
	answers := func(from *testcluster.Namespace, url, want string) func() bool {
		return func() bool {
			out, _ := from.Command(ctx, "curl", "-sk", "--max-time", "2", url).CombinedOutput()
			return strings.Contains(string(out), want)
		}
	}
	for _, h := range n.Lab.Hosts() {
		until(n.t, h.Name+" reaches the API server by its service", answers(h.NS, "https://10.96.0.1/version", "gitVersion"))
		until(n.t, h.Name+" reaches netmaster by a service", answers(h.NS, "http://"+at(services["netmaster"].Spec.ClusterIP, 80)+"/readyz", "ok"))
		on := func(name string) string { return at(h.Address.String(), services[name].Spec.Ports[0].NodePort) }
		until(n.t, "a client outside reaches the API server by "+h.Name, answers(client, "https://"+on("api")+"/version", "gitVersion"))
		n.refused("a client outside", client, on("netmaster"))
		until(n.t, h.Name+" says so", func() bool {
			state, err := h.AgentState(ctx)
			return err == nil && strings.Contains(fmt.Sprint(state.Problems), "backends that are the control plane") && strings.Contains(fmt.Sprint(state.Problems), "shop/netmaster")
		})
	}
	for name := range services {
		if err := n.Client.CoreV1().Services("shop").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
}
