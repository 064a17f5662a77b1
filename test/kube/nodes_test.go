//go:build integration

package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// onNodes is a cluster with two nodes, h1 and h2, and what tests do with pods of it.
type onNodes struct {
	*cluster.Nodes
	t    *testing.T
	bare map[string][]string // what traces told of a node before there was a pod
}

// nodes starts a cluster for a test, on the data plane that DRIVER names, and ends it
// with the test.
func nodes(t *testing.T, cfg cluster.NodesConfig) *onNodes {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := testcluster.Build(t.Context(), ".", bin); err != nil {
		t.Fatal(err)
	}
	cfg.Name, cfg.Dir, cfg.BinDir, cfg.Nodes, cfg.Driver = cmp.Or(os.Getenv("CONTIV_KUBE_LAB"), "nodes"+os.Getenv("DRIVER")), dir, bin, 2, os.Getenv("DRIVER")
	if m := (testcluster.Config{Driver: cfg.Driver, Embedded: true}).Missing(); len(m) > 0 {
		lacks(t, m[0])
	}
	n, err := cluster.StartNodes(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for name, process := range n.Lab.Processes() {
				t.Logf("end of %s's log:\n%s", name, process.Tail(25))
			}
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	out := &onNodes{n, t, map[string][]string{}}
	for _, h := range n.Lab.Hosts() {
		out.bare[h.Name] = out.traces(h)
	}
	return out
}

// in is the cluster for a subtest.
func (n *onNodes) in(f func(*onNodes)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		f(&onNodes{n.Nodes, t, n.bare})
	}
}

// pod makes a pod that serves at TCP port 80, or runs a command of its image.
func (n *onNodes) pod(namespace, name, node string, labels map[string]string, command ...string) {
	n.t.Helper()
	c := corev1.Container{Name: "c", Image: cluster.Agnhost, ImagePullPolicy: corev1.PullNever, Command: command}
	if len(command) == 0 {
		c.Args = []string{"netexec", "--http-port=80"}
	}
	n.podOf(namespace, name, node, labels, c)
}

// podOf makes a pod of one container on a node.
func (n *onNodes) podOf(namespace, name, node string, labels map[string]string, c corev1.Container) {
	n.t.Helper()
	ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods(namespace).Create(n.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: new(int64(2)), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{c},
		},
	}, metav1.CreateOptions{}))
}

// runs waits until a pod runs, and returns its address.
func (n *onNodes) runs(namespace, name string) string {
	n.t.Helper()
	var p *corev1.Pod
	until(n.t, namespace+"/"+name+" runs", func() bool {
		p = ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods(namespace).Get(n.t.Context(), name, metav1.GetOptions{}))
		if p.Status.Phase == corev1.PodFailed {
			n.t.Fatalf("%s/%s failed: %v", namespace, name, p.Status)
		}
		return p.Status.Phase == corev1.PodRunning && p.Status.PodIP != ""
	})
	return p.Status.PodIP
}

// reaches reports whether a pod's connection to TCP port 80 of an address begins within a second.
func (n *onNodes) reaches(namespace, name, to string) bool {
	n.t.Helper()
	return n.reachesWithin("1s", namespace, name, to)
}

// reachesWithin is reaches within another time: where what is lost once may be sent again.
func (n *onNodes) reachesWithin(limit, namespace, name, to string) bool {
	n.t.Helper()
	out, err := n.Kubectl(n.t.Context(), "exec", "-n", namespace, name, "--", "/agnhost", "connect", to+":80", "--timeout="+limit)
	if err != nil && !strings.Contains(out, "TIMEOUT") && !strings.Contains(out, "REFUSED") {
		n.t.Fatalf("%v", err)
	}
	return err == nil
}

func (n *onNodes) becomes(want bool, namespace, name, to string) {
	n.t.Helper()
	until(n.t, fmt.Sprintf("that %s/%s reaches %s is %v", namespace, name, to, want), func() bool { return n.reaches(namespace, name, to) == want })
}

// gone deletes a namespace's pods and waits until the API server has none of them.
func (n *onNodes) gone(namespace string) {
	n.t.Helper()
	pods := n.Client.CoreV1().Pods(namespace)
	if err := pods.DeleteCollection(n.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		n.t.Fatal(err)
	}
	until(n.t, "no pod is left in "+namespace, func() bool {
		return len(ok[*corev1.PodList](n.t)(pods.List(n.t.Context(), metav1.ListOptions{})).Items) == 0
	})
}

// endpoints returns the number of endpoints in the store.
func (n *onNodes) endpoints() int {
	n.t.Helper()
	client, err := n.Lab.Masters.API()
	if err != nil {
		n.t.Fatal(err)
	}
	defer client.Close()
	all, err := client.Endpoints(n.t.Context(), api.EndpointFilter{})
	if err != nil {
		n.t.Fatal(err)
	}
	return len(all)
}

// traces are what pods may leave on a node: ports of the data plane, interfaces, network
// namespaces, attachments in the journal, and containers that wait for their DEL.
func (n *onNodes) traces(h *testcluster.Host) []string {
	n.t.Helper()
	all := ok[[]string](n.t)(h.Ports(n.t.Context()))
	look := `cd "$1"; ls -d /run/netns/* attach/* spool/* 2>/dev/null; ip -o link | cut -d: -f2`
	all = append(all, strings.Fields(ok[string](n.t)(h.Run(n.t.Context(), "/bin/sh", "-c", look, "sh", h.StateDir())))...)
	slices.Sort(all)
	return all
}

// rests tells what there is of pods on a node.
func (n *onNodes) rests(h *testcluster.Host) []string {
	n.t.Helper()
	return slices.DeleteFunc(n.traces(h), func(s string) bool {
		name, _, _ := strings.Cut(s, "@") // an interface has its port a moment later, which has no peer in its name
		was := slices.ContainsFunc(n.bare[h.Name], func(b string) bool { return b == s || strings.HasPrefix(b, name+"@") })
		return was || strings.HasPrefix(s, "contiv") // the host's own interfaces
	})
}

// nothing waits until there is nothing of any pod.
func (n *onNodes) nothing() {
	n.t.Helper()
	until(n.t, "no endpoint is left", func() bool { return n.endpoints() == 0 })
	n.nothingOnNodes()
}

// nothingOnNodes waits until nodes have nothing of pods of the test.
func (n *onNodes) nothingOnNodes() {
	n.t.Helper()
	for _, h := range n.Lab.Hosts() {
		var rests []string
		defer func() {
			if len(rests) > 0 {
				n.t.Errorf("left on %s: %v", h.Name, rests)
			}
		}()
		until(n.t, "nothing of pods is left on "+h.Name, func() bool {
			rests = n.rests(h)
			return len(rests) == 0
		})
	}
}

// namespace makes a namespace and waits until pods may be made there.
func (n *onNodes) namespace(name string, labels map[string]string) {
	n.t.Helper()
	makeNamespace(n.t, n.Client, name, labels)
	until(n.t, name+" has its service account", func() bool {
		_, err := n.Client.CoreV1().ServiceAccounts(name).Get(n.t.Context(), "default", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			n.t.Fatal(err)
		}
		return err == nil
	})
}

func (n *onNodes) log(namespace, name string) string {
	n.t.Helper()
	r, err := n.Client.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).Stream(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	return string(ok[[]byte](n.t)(io.ReadAll(r)))
}

// Kubelets start pods by contivk8s on two nodes. Pods reach each other on one node and over
// two, are in the networks and groups that labels name, are under the existing policies
// from their first packet on, and leave nothing behind, whichever component is down.
func TestPodsStartUnderTheirPolicies(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Dual: true})
	n.namespace("shop", nil)
	t.Run("Reach", n.in((*onNodes).reach))
	t.Run("Groups", n.in((*onNodes).groups))
	t.Run("FirstPacket", n.in((*onNodes).firstPacket))
	t.Run("GoneWithoutServers", n.in((*onNodes).goneWithoutServers))
	t.Run("Stateful", n.in((*onNodes).stateful))
	t.Run("KilledInADD", n.in((*onNodes).killedInADD))
}

func (n *onNodes) reach() {
	n.pod("shop", "a", "h1", nil)
	n.pod("shop", "b", "h1", nil)
	n.pod("shop", "c", "h2", nil)
	pods := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		pods[name] = n.runs("shop", name)
		if !netip.MustParsePrefix(cluster.PodCIDR).Contains(netip.MustParseAddr(pods[name])) {
			n.t.Errorf("%s has the address %s, want one of %s", name, pods[name], cluster.PodCIDR)
		}
	}
	for from := range pods {
		for to, address := range pods {
			if from != to {
				n.becomes(true, "shop", from, address)
			}
		}
	}
	if got := n.endpoints(); got != 3 {
		n.t.Errorf("%d endpoints, want 3", got)
	}
	n.gone("shop")
	n.nothing()
}

// groups: a label of a pod, and one of a namespace, say the group, and its policy holds.
func (n *onNodes) groups() {
	ctx := n.t.Context()
	for _, args := range [][]string{
		{"policy", "create", "closed"}, {"policy", "rule-add", "-d", "in", "-j", "deny", "closed", "1"}, {"group", "create", "default-net", "locked", "-p", "closed"},
	} {
		if out, err := n.Lab.Masters.Netctl(ctx, args...); err != nil {
			n.t.Fatal(err, out)
		}
	}
	n.namespace("locked", map[string]string{"io.contiv.net-group": "locked"})
	n.pod("shop", "free", "h1", nil)
	n.pod("shop", "pod", "h2", map[string]string{"io.contiv.net-group": "locked"})
	n.pod("locked", "all", "h2", nil)
	n.runs("locked", "all")
	n.becomes(true, "locked", "all", n.runs("shop", "free"))
	for _, to := range []string{n.runs("shop", "pod"), n.runs("locked", "all")} {
		if n.reaches("shop", "free", to) {
			n.t.Errorf("a group's policy denies what comes to %s, and it comes", to)
		}
	}
	n.gone("shop")
	n.gone("locked")
	n.nothing()
}

// firstPacket: a pod that calls as soon as it starts, and another that is called as soon
// as it has an address, under a default deny that was there before.
func (n *onNodes) firstPacket() {
	ctx := n.t.Context()
	policies := n.Client.NetworkingV1().NetworkPolicies("shop")
	n.pod("shop", "server", "h2", nil)
	server := n.runs("shop", "server")
	for range 3 {
		deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
		deny.Spec.PodSelector.MatchLabels = map[string]string{"app": "late"}
		deny.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		ok[*networkingv1.NetworkPolicy](n.t)(policies.Create(ctx, deny, metav1.CreateOptions{}))
		call := "for i in 1 2 3; do /agnhost connect " + server + ":80 --timeout=500ms >/dev/null 2>&1 && echo in || echo out; done; echo end; exec /agnhost pause >/dev/null 2>&1" // which would say something behind the end
		n.pod("shop", "late", "h1", map[string]string{"app": "late"}, "/bin/sh", "-c", call)
		n.runs("shop", "late")
		var said string
		until(n.t, "the pod has called", func() bool {
			said = n.log("shop", "late")
			return strings.HasSuffix(said, "end\n")
		})
		if said != "out\nout\nout\nend\n" {
			n.t.Errorf("a pod under default deny called as soon as it ran, and got\n%s", said)
		}
		if err := policies.Delete(ctx, "deny", metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
		n.becomes(true, "shop", "late", server)
		if err := n.Client.CoreV1().Pods("shop").Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
		until(n.t, "the pod is gone", func() bool {
			_, err := n.Client.CoreV1().Pods("shop").Get(ctx, "late", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	n.gone("shop")
	n.nothing()
}

// goneWithoutServers: the end of pods while neither the API server nor netmaster answers.
func (n *onNodes) goneWithoutServers() {
	ctx := n.t.Context()
	h := n.Lab.Hosts()[0]
	n.pod("shop", "last", "h1", nil, "/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done") // ended by its kill, after 2 s
	n.runs("shop", "last")
	if len(n.rests(h)) == 0 {
		n.t.Fatal("a pod runs, and there is nothing of it")
	}
	if err := n.Client.CoreV1().Pods("shop").Delete(ctx, "last", metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
	until(n.t, "the kubelet begins to end the pod", func() bool {
		return strings.Contains(h.Process("kubelet").Tail(200), `"Killing container with a grace period" pod="shop/last"`)
	})
	master := n.Lab.Process("netmaster")
	if err := errors.Join(n.Control.Pause(ctx), master.Pause()); err != nil {
		n.t.Fatal(err)
	}
	back := func() {
		if err := errors.Join(n.Control.Resume(), master.Resume()); err != nil {
			n.t.Fatal(err)
		}
	}
	defer func() { back() }()
	var rests []string
	defer func() { n.t.Logf("left while both are away: %v", rests) }()
	until(n.t, "nothing of the pod is left on its node but what is to be told to netmaster", func() bool {
		rests = n.rests(h)
		return !slices.ContainsFunc(rests, func(s string) bool { return !strings.HasPrefix(s, "attach/") })
	})
	back()
	back = func() {}
	n.gone("shop")
	n.nothing()
}

// killedInADD: the kubelet, and containerd too, ends while a pod is attached.
func (n *onNodes) killedInADD() {
	ctx := n.t.Context()
	h := n.Lab.Hosts()[0]
	master := n.Lab.Process("netmaster")
	for _, killed := range []string{"kubelet", "containerd"} {
		if err := master.Pause(); err != nil { // so an ADD waits
			n.t.Fatal(err)
		}
		n.pod("shop", "a", "h1", nil)
		until(n.t, "contivk8s adds the pod", func() bool {
			_, err := h.Run(ctx, "pgrep", "-x", "contivk8s")
			return err == nil
		})
		err := h.Process("kubelet").Kill()
		if killed == "containerd" {
			err = errors.Join(err, h.Process("containerd").Kill())
		}
		if err = errors.Join(err, master.Resume()); err != nil {
			n.t.Fatal(err)
		}
		if killed == "containerd" {
			if err := n.StartContainerd(ctx, h); err != nil {
				n.t.Fatal(err)
			}
		}
		if err := n.StartKubelet(h); err != nil {
			n.t.Fatal(err)
		}
		n.runs("shop", "a")
		n.gone("shop")
		n.nothing()
	}
}
