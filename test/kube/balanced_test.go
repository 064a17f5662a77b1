//go:build integration

package kube

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// movedWithin is how long clients of load balancers' addresses wait when the node that
// answers for them dies.
const movedWithin = 3 * time.Second

// A machine on the nodes' link that is no node reaches services by addresses of the load
// balancers' pool, by both families: one node answers for each address, another one when
// that dies, and none for a service without backends.
func TestOneNodeAnswersForEachLoadBalancerAddress(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Native: true, Dual: true, Masters: []string{"--load-balancer-pool", "10.250.0.224/28,fd00:250::e0/124"}})
	n.namespace("shop", nil)
	n.loadBalancers()
	n.gone("shop")
	n.nothing()
}

// loadBalancer makes a service of pods of its name, of both families.
func (n *onNodes) loadBalancer(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	n.t.Helper()
	return makeService(n.t, n.Client, "shop", name, func(s *corev1.ServiceSpec) {
		both := corev1.IPFamilyPolicyRequireDualStack
		s.Type, s.IPFamilyPolicy, s.Selector = corev1.ServiceTypeLoadBalancer, &both, map[string]string{name: "yes"}
		if change != nil {
			change(s)
		}
	})
}

// answeredBy waits until a host answers for all of a service's addresses; "" = no host
// answers for any.
func (n *onNodes) answeredBy(name, host string) {
	n.t.Helper()
	client, err := n.Lab.Masters.API()
	if err != nil {
		n.t.Fatal(err)
	}
	defer client.Close()
	said := ""
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%s is answered for by %s", name, said)
		}
	}()
	until(n.t, fmt.Sprintf("%q answers for %s", host, name), func() bool {
		s, err := client.ClusterService(n.t.Context(), "shop", name)
		if err != nil || len(s.Balanced) != 2 {
			return false
		}
		said = fmt.Sprint(s.AnsweredBy)
		return !slices.ContainsFunc(s.Balanced, func(a string) bool { return s.AnsweredBy[a] != host })
	})
}

func (n *onNodes) loadBalancers() {
	ctx := n.t.Context()
	h1, h2 := n.Lab.Hosts()[0], n.Lab.Hosts()[1]
	client, clientAddr, err := n.Outside(ctx, "client", 200)
	if err != nil {
		n.t.Fatal(err)
	}
	other, _, err := n.Outside(ctx, "other", 201)
	if err != nil {
		n.t.Fatal(err)
	}
	as := func(at string) string { // as whom pods see the client that asks there
		if netip.MustParseAddr(at).Is6() {
			return cluster.Address6(clientAddr).String()
		}
		return clientAddr.String()
	}
	n.pod("shop", "far", "h2", map[string]string{"all": "yes", "limited": "yes", "pooled": "yes", "portless": "yes", "foreign": "yes"})
	n.pod("shop", "near1", "h1", map[string]string{"local": "yes"})
	n.runs("shop", "far")
	n.runs("shop", "near1")
	heard := n.hear(client)

	// While h2 says nothing h1 gets what either could have; then nothing moves.
	if err := h2.Agent().Signal(unix.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
	local := func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	n.loadBalancer("all", nil)
	n.loadBalancer("local", local)
	n.answeredBy("all", h1.Name)
	n.answeredBy("local", h1.Name)
	if err := h2.Agent().Signal(unix.SIGCONT); err != nil {
		n.t.Fatal(err)
	}
	all, near := n.balanced("shop", "all", 2), n.balanced("shop", "local", 2)
	for _, a := range slices.Concat(all, near) {
		n.sees("a client on the link", as(a), client, at(a, 80))
		for _, h := range n.Lab.Hosts() {
			own := h.Address
			if netip.MustParseAddr(a).Is6() {
				own = cluster.Address6(own)
			}
			n.sees(h.Name+" itself", own.String(), h.NS, at(a, 80))
		}
	}
	n.pod("shop", "near2", "h2", map[string]string{"local": "yes"})
	n.runs("shop", "near2")

	// With a local policy only hosts with backends answer, and without backends none does.
	n.pod("shop", "only2", "h2", map[string]string{"there": "yes"})
	n.runs("shop", "only2")
	n.loadBalancer("there", local)
	n.loadBalancer("nowhere", local)
	n.answeredBy("there", h2.Name)
	n.answeredBy("nowhere", "")
	for _, a := range n.balanced("shop", "there", 2) {
		n.sees("a client on the link", as(a), client, at(a, 80))
	}
	for _, a := range n.balanced("shop", "nowhere", 2) {
		n.unreachable(client, a)
	}

	// What a service says of its addresses.
	n.loadBalancer("limited", func(s *corev1.ServiceSpec) {
		s.LoadBalancerSourceRanges = []string{single(clientAddr.String()), single(cluster.Address6(clientAddr).String())}
	})
	n.loadBalancer("pooled", func(s *corev1.ServiceSpec) { s.LoadBalancerClass = new("contiv.io/pool") })
	n.loadBalancer("foreign", func(s *corev1.ServiceSpec) { s.LoadBalancerClass = new("example.com/other") })
	portless := n.loadBalancer("portless", func(s *corev1.ServiceSpec) { s.AllocateLoadBalancerNodePorts = new(false) })
	if p := portless.Spec.Ports[0].NodePort; p != 0 {
		n.t.Errorf("a service that wants no node ports has %d", p)
	}
	for _, name := range []string{"limited", "pooled", "portless"} {
		for _, a := range n.balanced("shop", name, 2) {
			n.sees("a client of "+name, as(a), client, at(a, 80))
			if got := n.seen(other, at(a, 80)); (got != "") == (name == "limited") {
				n.t.Errorf("another client at %s of %s is seen as %q", a, name, got)
			}
		}
	}
	if s := ok[*corev1.Service](n.t)(n.Client.CoreV1().Services("shop").Get(ctx, "foreign", metav1.GetOptions{})); len(s.Status.LoadBalancer.Ingress) > 0 {
		n.t.Errorf("a service of another class has %v", s.Status.LoadBalancer.Ingress)
	}

	// The node that answers dies. Its backends are no matter: "all" has none there.
	from := heard.mark()
	began := n.dies(h1)
	moved := slices.Concat(all, near)
	served := make([]time.Duration, len(moved))
	var asking sync.WaitGroup
	for i, a := range moved {
		asking.Go(func() {
			for served[i] == 0 && time.Since(began) < time.Minute {
				out, err := client.Command(ctx, "curl", "-s", "--max-time", "0.2", "http://"+at(a, 80)+"/clientip").CombinedOutput()
				if err == nil && len(out) > 0 {
					served[i] = time.Since(began)
				}
			}
		})
	}
	asking.Wait()
	for i, a := range moved {
		told := heard.since(from, a)
		if len(told) == 0 || told[0].mac != n.mac(h2, a) {
			n.t.Errorf("%s: announced are %v, want %s at %s", a, told, h2.Name, n.mac(h2, a))
			continue
		}
		n.t.Logf("%s: announced after %v, served after %v", a, told[0].at.Sub(began).Round(time.Millisecond), served[i].Round(time.Millisecond))
		if served[i] == 0 || served[i] > movedWithin {
			n.t.Errorf("%s: the client is served again after %v, want at most %v", a, served[i], movedWithin)
		}
	}
	n.answeredBy("all", h2.Name)
	n.answeredBy("local", h2.Name)

	// It is back, and takes nothing, until somebody gives something up.
	from = heard.mark()
	n.back(h1)
	n.loadBalancer("fresh", local)
	n.pod("shop", "fresh", "h1", map[string]string{"fresh": "yes"})
	n.runs("shop", "fresh")
	n.answeredBy("fresh", h1.Name)
	for _, a := range n.balanced("shop", "fresh", 2) {
		n.sees("a client on the link", as(a), client, at(a, 80))
	}
	for range 20 {
		for _, a := range moved {
			if got := n.seen(client, at(a, 80)); got != as(a) {
				n.t.Errorf("at %s, while a node is back, the client is seen as %q", a, got)
			}
		}
	}
	for _, a := range moved {
		for _, told := range heard.since(from, a) {
			if told.mac != n.mac(h2, a) {
				n.t.Errorf("%s: a node that is back announces it", a)
			}
		}
	}
	from = heard.mark()
	if err := n.Client.CoreV1().Pods("shop").Delete(ctx, "near2", metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
	n.answeredBy("local", h1.Name)
	n.answeredBy("all", h2.Name)
	for _, a := range near {
		n.sees("a client whose node has lost its backend", as(a), client, at(a, 80))
		until(n.t, "it is announced", func() bool { return len(heard.since(from, a)) > 0 })
		if told := heard.since(from, a); told[0].mac != n.mac(h1, a) {
			n.t.Errorf("%s: announced are %v, want %s", a, told, h1.Name)
		}
	}

	// After the deletion no host answers for the addresses.
	for _, s := range ok[*corev1.ServiceList](n.t)(n.Client.CoreV1().Services("shop").List(ctx, metav1.ListOptions{})).Items {
		if err := n.Client.CoreV1().Services("shop").Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	for _, a := range moved {
		n.unreachable(client, a)
	}
}

// unreachable waits until no host answers a client for an address.
func (n *onNodes) unreachable(client *testcluster.Namespace, a string) {
	n.t.Helper()
	until(n.t, "nobody answers for "+a, func() bool {
		_, _ = client.Command(n.t.Context(), "ip", "neigh", "del", a, "dev", "eth0").CombinedOutput() // there may be none
		_, _ = client.Command(n.t.Context(), "curl", "-s", "--max-time", "4", "http://"+at(a, 80)).CombinedOutput()
		out, err := client.Command(n.t.Context(), "ip", "neigh", "show", "to", a).CombinedOutput()
		return err == nil && !strings.Contains(string(out), "lladdr")
	})
}

// dies ends a node's netplugin and cuts its cables, and returns when.
func (n *onNodes) dies(h *testcluster.Host) time.Time {
	n.t.Helper()
	began := time.Now()
	if err := errors.Join(h.Agent().Signal(unix.SIGKILL), n.cables(h, false)); err != nil {
		n.t.Fatal(err)
	}
	return began
}

func (n *onNodes) back(h *testcluster.Host) {
	n.t.Helper()
	if err := errors.Join(n.cables(h, true), h.Agent().Wait(n.t.Context()), h.StartAgent(n.t.Context())); err != nil {
		n.t.Fatal(err)
	}
	if err := n.AwaitReady(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func (n *onNodes) cables(h *testcluster.Host, whole bool) error {
	return errors.Join(n.Lab.Fabric.SetLink(h.Name, whole), n.Lab.Fabric.SetLink(h.Name+"v", whole), n.Lab.Fabric.SetLink(h.Name+"c", whole))
}

// mac is at which MAC a host is for its neighbours in an address's subnet.
func (n *onNodes) mac(h *testcluster.Host, of string) string {
	n.t.Helper()
	var out string
	if err := h.NS.Do(func() error {
		all, err := net.Interfaces()
		for _, l := range all {
			addrs, _ := l.Addrs()
			for _, a := range addrs {
				if p, err := netip.ParsePrefix(a.String()); err == nil && p.Contains(netip.MustParseAddr(of)) {
					out = l.HardwareAddr.String()
				}
			}
		}
		return err
	}); err != nil || out == "" {
		n.t.Fatalf("%s has no interface at %s: %v", h.Name, of, err)
	}
	return out
}

// announced is an announcement of an address to all neighbours.
type announced struct {
	at        time.Time
	addr, mac string
}

// announcementLog is what a machine hears of announcements.
type announcementLog struct {
	mu  sync.Mutex
	all []announced
}

func (h *announcementLog) mark() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

func (h *announcementLog) since(mark int, addr string) (out []announced) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.all[mark:] {
		if x.addr == addr {
			out = append(out, x)
		}
	}
	return out
}

// hear listens at a machine's eth0 until the test ends.
func (n *onNodes) hear(ns *testcluster.Namespace) *announcementLog {
	n.t.Helper()
	var f *os.File
	if err := ns.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), "packets")
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	}); err != nil {
		n.t.Fatal(err)
	}
	h := &announcementLog{}
	var reading sync.WaitGroup
	n.t.Cleanup(func() {
		_ = f.Close() // which ends the reading
		reading.Wait()
	})
	reading.Go(func() {
		b := make([]byte, 2048)
		for {
			size, err := f.Read(b)
			if err != nil {
				return
			}
			if addr, mac := announces(b[:size]); addr.IsValid() {
				h.mu.Lock()
				h.all = append(h.all, announced{time.Now(), addr.String(), mac.String()})
				h.mu.Unlock()
			}
		}
	})
	return h
}

// announces is what a frame tells to all neighbours: gratuitous ARP (RFC 5227), or an
// unsolicited neighbour advertisement (RFC 4861) that overrides.
func announces(b []byte) (a netip.Addr, mac net.HardwareAddr) {
	switch {
	case len(b) >= 42 && bytes.Equal(b[12:14], []byte{8, 6}) && bytes.Equal(b[28:32], b[38:42]):
		return netip.AddrFrom4([4]byte(b[28:32])), net.HardwareAddr(slices.Clone(b[22:28]))
	case len(b) >= 86 && bytes.Equal(b[12:14], []byte{0x86, 0xdd}) && b[20] == unix.IPPROTO_ICMPV6 && b[54] == 136 && b[58] == 0x20 && b[78] == 2:
		return netip.AddrFrom16([16]byte(b[62:78])), net.HardwareAddr(slices.Clone(b[80:86]))
	}
	return netip.Addr{}, nil
}
