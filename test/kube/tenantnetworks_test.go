//go:build integration

package kube

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// tenantNetwork is a kind of networks on which pods of another tenant may be.
type tenantNetwork struct {
	name, create string // the latter's flags of netctl
	subnets      []string
	gateways     []string // of its subnets, which are the physical router's
	tag          uint16
}

var tenantNetworks = []tenantNetwork{
	{name: "vxlan", create: "-e vxlan -s 10.2.0.0/16 --subnetv6 fd00:2::/64", subnets: []string{"10.2.0.0/16", "fd00:2::/64"}},
	{name: "vlan", create: "-e vlan -s 10.3.0.0/16 --subnetv6 fd00:3::/64", subnets: []string{"10.3.0.0/16", "fd00:3::/64"}},
	{
		name: "gateway", create: "-e vlan -p 104 -s 10.4.0.0/16 -g 10.4.255.254 --subnetv6 fd00:4::/64 --gatewayv6 fd00:4::ffff",
		subnets: []string{"10.4.0.0/16", "fd00:4::/64"}, gateways: []string{"10.4.255.254/16", "fd00:4::ffff/64"}, tag: 104,
	},
	{name: "ipv6", create: "-e vxlan --subnetv6 fd00:5::/64", subnets: []string{"fd00:5::/64"}},
}

// families are the IP families of a network.
func (x tenantNetwork) families() (out []corev1.IPFamily) {
	for _, s := range x.subnets {
		out = append(out, familyOf(netip.MustParsePrefix(s).Addr()))
	}
	return out
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// TestPodsReachServicesFromNetworksOfEachKind: pods of another tenant have, on each kind of its networks and in
// both forwarding modes, what docs/how-to/kubernetes-pods.md says of services, the API server and
// the cluster's DNS, as those whom it names, and reach no pod of the cluster's network; so
// when their tenant shares that network, where rules there let them in.
func TestPodsReachServicesFromNetworksOfEachKind(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Native: true, Dual: true, DNS: true})
	n.namespace("shop", nil)
	for _, h := range n.Lab.Hosts() {
		n.pod("shop", h.Name, h.Name, map[string]string{"app": "web"})
	}
	n.netctl("tenant create blue")
	for i, x := range tenantNetworks {
		n.netctl("network create -t blue " + x.create + " " + x.name)
		n.namespace(x.name, map[string]string{"io.contiv.tenant": "blue", "io.contiv.network": x.name})
		n.pod(x.name, "a", n.Lab.Hosts()[i%2].Name, nil)
	}
	w := tenantWorld{onNodes: n, targets: map[string]string{}, own: map[string]map[corev1.IPFamily]string{}}
	both := new(corev1.IPFamilyPolicyRequireDualStack) // of services
	web := makeService(t, n.Client, "shop", "web", func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = both })
	dns := makeService(t, n.Client, "kube-system", "dns6", func(s *corev1.ServiceSpec) {
		s.Selector, s.IPFamilies = map[string]string{"k8s-app": "kube-dns"}, []corev1.IPFamily{corev1.IPv6Protocol}
		s.Ports = []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}
	})
	w.dns6 = dns.Spec.ClusterIP
	for _, a := range web.Spec.ClusterIPs {
		w.targets["service by "+string(familyOf(netip.MustParseAddr(a)))] = a
	}
	for _, h := range n.Lab.Hosts() {
		for family, a := range n.addressesOf("shop", h.Name) {
			w.targets["pod on "+h.Name+" by "+string(family)] = a
		}
	}
	for _, x := range tenantNetworks {
		w.own[x.name] = n.addressesOf(x.name, "a")
		if got := slices.Sorted(maps.Keys(w.own[x.name])); !slices.Equal(got, x.families()) {
			t.Fatalf("the pod on %s has addresses of %v, want of %v", x.name, got, x.families())
		}
	}

	all := reached{names: true, api: true, services: true}
	n.netctl("global set --fwd-mode bridge")
	w.find("bridge", func(x tenantNetwork) reached {
		if x.gateways != nil { // and there is none yet
			return reached{}
		}
		return all
	})
	for i, x := range tenantNetworks {
		if x.gateways != nil {
			r := w.join(x)
			w.finds("bridge, with a router", x, n.Lab.Hosts()[i%2], reached{names: true})
			r.lead()
			w.finds("bridge, with a router that leads services to a node", x, n.Lab.Hosts()[i%2], reached{names: true, api: true, services: true, itself: true})
			r.leave()
		}
	}
	n.netctl("global set --fwd-mode routing")
	w.find("routing", func(tenantNetwork) reached { return all })

	// What the tenant shares with default-net only rules there let in.
	n.netctl("tenant create --shared-networks default:default-net blue")
	w.find("shared, and no rule", func(tenantNetwork) reached { return reached{api: true} })
	n.policy("kube-system", map[string]string{"k8s-app": "kube-dns"}, "ingress: to DNS", func(s *networkingv1.NetworkPolicySpec) {
		s.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{portOf("UDP", 53), portOf("TCP", 53)}}}
	})
	n.policy("shop", nil, "ingress: from blue", func(s *networkingv1.NetworkPolicySpec) {
		var from []networkingv1.NetworkPolicyPeer
		for _, x := range tenantNetworks {
			for _, subnet := range x.subnets {
				from = append(from, block(subnet))
			}
		}
		s.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from}}
	})
	w.find("shared, with rules", func(tenantNetwork) reached {
		return reached{names: true, api: true, services: true, pods: true, itself: true}
	})
}

// addressesOf waits until a pod runs, and returns its addresses.
func (n *onNodes) addressesOf(namespace, name string) map[corev1.IPFamily]string {
	n.t.Helper()
	n.runs(namespace, name)
	out := map[corev1.IPFamily]string{}
	p := ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods(namespace).Get(n.t.Context(), name, metav1.GetOptions{}))
	for _, a := range p.Status.PodIPs {
		out[familyOf(netip.MustParseAddr(a.IP))] = a.IP
	}
	return out
}

// tenantWorld is what pods of the tenant ask.
type tenantWorld struct {
	*onNodes
	targets map[string]string // addresses with a server at TCP port 80, by what they are and their family
	dns6    string            // another address of the cluster's DNS
	own     map[string]map[corev1.IPFamily]string
}

// reached is what a pod reaches, where it has the family for it.
type reached struct {
	names, api, services, pods bool
	itself                     bool // servers see the pod, and not its node
}

// find asks from a pod on each network.
func (w tenantWorld) find(when string, of func(tenantNetwork) reached) {
	w.t.Helper()
	for i, x := range tenantNetworks {
		w.finds(when, x, w.Lab.Hosts()[i%2], of(x))
	}
}

// finds asks from the pod on a network, which is on a node, until it reaches just what it
// is to, at once.
func (w tenantWorld) finds(when string, x tenantNetwork, node *testcluster.Host, may reached) {
	w.t.Helper()
	has := x.families()
	four := slices.Contains(has, corev1.IPv4Protocol)
	want := map[string]string{
		"API server":    answerIf(may.api && four, "yes"), // kubernetes.default has the API server's family alone
		"names":         answerIf(may.names && four, "10.96.0.1"),
		"names by IPv6": answerIf(may.names, "10.96.0.1"),
	}
	for target := range w.targets {
		kind, by, _ := strings.Cut(target, " by ")
		family := corev1.IPFamily(by)
		seen := of(node.Address, family).String()
		if may.itself {
			seen = w.own[x.name][family]
		}
		open := may.pods
		if kind == "service" {
			open = may.services
		}
		want[target] = answerIf(open && slices.Contains(has, family), seen)
	}
	var got map[string]string
	defer func() {
		if w.t.Failed() {
			w.t.Logf("%s, on %s: %v, want %v", when, x.name, got, want)
		}
	}()
	until(w.t, fmt.Sprintf("%s: the pod on %s reaches what it is to", when, x.name), func() bool {
		got = w.ask(x.name)
		return maps.Equal(got, want)
	})
}

// routerScript makes a machine the router $1 and $2, with the lengths of their subnets, of
// what its eth1 is linked to.
const routerScript = `set -e
echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6
ip address add "$1" dev eth1
ip address add "$2" dev eth1 nodad
`

// physicalRouter is a machine whose addresses are the gateways of a network.
type physicalRouter struct {
	tenantWorld
	of    tenantNetwork
	space *testcluster.Namespace
	at    netip.Addr // on the nodes' link
}

// join adds a router, which leads nowhere.
func (w tenantWorld) join(x tenantNetwork) physicalRouter {
	w.t.Helper()
	const number = 205
	space, at, err := w.Outside(w.t.Context(), "router", number)
	must(w.t, err)
	must(w.t, w.Lab.Network.JoinVLAN(space, number, x.tag))
	r := physicalRouter{w, x, space, at}
	r.in(space, "/bin/sh", "-c", routerScript, "sh", x.gateways[0], x.gateways[1])
	return r
}

func (r physicalRouter) in(space *testcluster.Namespace, line ...string) {
	r.t.Helper()
	if out, err := space.Command(r.t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
		r.t.Fatalf("%q: %v: %s", line, err, out)
	}
}

func (r physicalRouter) route(space *testcluster.Namespace, what, to string, by netip.Addr) {
	r.t.Helper()
	r.in(space, "ip", "route", what, to, "via", of(by, familyOf(netip.MustParsePrefix(to).Addr())).String())
}

// lead has it lead services to a node, and nodes lead answers back.
func (r physicalRouter) lead() {
	r.t.Helper()
	r.in(r.space, "/bin/sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")
	for _, services := range []string{cluster.Services, cluster.Services6} {
		r.route(r.space, "add", services, r.Lab.Hosts()[0].Address)
	}
	for _, h := range r.Lab.Hosts() {
		for _, subnet := range r.of.subnets {
			r.route(h.NS, "add", subnet, r.at)
		}
	}
}

// leave takes it off its networks: who has it for a gateway goes on with it else.
func (r physicalRouter) leave() {
	r.t.Helper()
	for _, h := range r.Lab.Hosts() {
		for _, subnet := range r.of.subnets {
			r.route(h.NS, "del", subnet, r.at)
		}
	}
	must(r.t, r.space.SetLink("eth1", false))
}

const no = "no"

func answerIf(is bool, what string) string {
	if is {
		return what
	}
	return no
}

// ask asks all at once, from the pod on a network: what comes of each question.
func (w tenantWorld) ask(namespace string) map[string]string {
	w.t.Helper()
	var script strings.Builder
	question := func(name, command string) { fmt.Fprintf(&script, "echo \"%s=$(%s)\" &\n", name, command) }
	question("API server", "/agnhost connect "+apiService+" --timeout=1s >/dev/null 2>&1 && echo yes")
	question("names", "dig +search +short +time=1 +tries=1 kubernetes.default | tail -n 1")
	question("names by IPv6", "dig @"+w.dns6+" +search +short +time=1 +tries=1 kubernetes.default | tail -n 1")
	for target, a := range w.targets {
		question(target, "curl -s --max-time 1 http://"+net.JoinHostPort(a, "80")+"/clientip")
	}
	script.WriteString("wait\n")
	out, err := w.Kubectl(w.t.Context(), "exec", "-n", namespace, "a", "--", "sh", "-c", script.String())
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), "=")
		if client, err := netip.ParseAddrPort(answer); err == nil {
			answer = client.Addr().String()
		} else if _, err := netip.ParseAddr(answer); err != nil && answer != "yes" {
			answer = no
		}
		got[name] = answer
	}
	return got
}
