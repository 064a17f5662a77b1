//go:build integration

package kube

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// kubectl runs it and returns what it prints.
func (n *onNodes) kubectl(line string) string {
	n.t.Helper()
	out, err := n.Kubectl(n.t.Context(), strings.Fields(line)...)
	if err != nil {
		n.t.Fatalf("kubectl %s: %v: %s", line, err, out)
	}
	return out
}

// inPod runs netctl in netmaster's pod and returns what it prints.
func (n *onNodes) inPod(line string) string {
	n.t.Helper()
	return n.kubectl("-n kube-system exec deploy/contiv-netmaster -- netctl " + line)
}

// becomesWell waits until netctl says that all is well: hosts tell the store how they are a
// moment after their pods are ready.
func (n *onNodes) becomesWell() {
	n.t.Helper()
	untilSlow(n.t, "netctl status says that all is well", func() bool {
		_, err := n.Kubectl(n.t.Context(), "-n", "kube-system", "exec", "deploy/contiv-netmaster", "--", "netctl", "status")
		return err == nil
	})
}

// rollsOut waits until the pods of netmaster and of netplugin are the ones applied last,
// and ready.
func (n *onNodes) rollsOut() {
	n.t.Helper()
	for _, workload := range []string{"deployment/contiv-netmaster", "daemonset/contiv-netplugin"} {
		n.kubectl("-n kube-system rollout status " + workload + " --timeout=10m")
	}
}

// isSecure: who shows nothing is refused by REST and by the store, plainly and by TLS, at
// netmaster's and at netplugin's ports; netctl in netmaster's pod needs nothing more, and
// knows that all hosts have certificates.
func (n *onNodes) isSecure(master string) {
	n.t.Helper()
	from := n.Lab.Hosts()[1].NS
	for what, tc := range map[string]struct {
		url, want string // want: the status; "" = there is no answer by HTTP
	}{
		"REST, plainly":              {"http://" + at(master, 9999) + "/api/v1/status", "400"}, // Go's server says that it speaks TLS
		"REST without certificate":   {"https://" + at(master, 9999) + "/api/v1/status", "401"},
		"agents' REST, plainly":      {"http://" + at(master, 9001) + "/api/v1/status", "400"},
		"agents' REST":               {"https://" + at(master, 9001) + "/api/v1/status", "401"},
		"the store, plainly":         {"http://" + at(master, 9002) + "/version", "400"},
		"the store":                  {"https://" + at(master, 9002) + "/version", ""},
		"where hosts join, plainly":  {"http://" + at(master, 9005) + "/join/v1/authority", "400"},
		"netplugin's state, plainly": {"http://127.0.0.1:9006/debug/state", "400"},
		"netplugin's state":          {"https://127.0.0.1:9006/debug/state", "401"},
		"netplugin's health":         {"https://127.0.0.1:9006/readyz", "200"},
		"netmaster's health":         {"https://" + at(master, 9999) + "/readyz", "200"},
	} {
		out, err := from.Command(n.t.Context(), "curl", "-sk", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}", tc.url).CombinedOutput()
		if got := strings.Replace(string(out), "000", "", 1); got != tc.want || (err == nil) != (tc.want != "") {
			n.t.Errorf("%s: %q, %v; want %q", what, got, err, tc.want)
		}
	}
	n.becomesWell()
	hosts, members := n.inPod("host ls"), n.inPod("cluster members")
	for _, h := range n.Lab.Hosts() {
		if !strings.Contains(hosts, h.Name) {
			n.t.Errorf("netctl does not know the host %s: %s", h.Name, hosts)
		}
		if out, err := h.Run(n.t.Context(), "ls", "/var/lib/contiv/tls/tls.crt"); err != nil {
			n.t.Errorf("%s has no certificate: %s", h.Name, out)
		}
	}
	if strings.Contains(members, "warning") {
		n.t.Errorf("the cluster's members: %s", members)
	}
}

// bareNodes starts two nodes of kubeadm's configuration without a pod network or
// kube-proxy, which have the image, and hosts beside them. A manifest is made theirs by manifest, with more
// replaced in it.
func bareNodes(t *testing.T, name string, beside int) (n *onNodes, manifest func(path string, more ...string) string) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := testcluster.Build(t.Context(), ".", bin); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "contiv.tar")
	must(t, testcluster.BuildImage(t.Context(), bin, archive, "docker.io/contiv/contiv:2.0.0"))
	c, err := cluster.StartNodes(t.Context(), cluster.NodesConfig{Name: name, Dir: dir, BinDir: bin, Nodes: 2, Beside: beside, Bare: true, Images: []string{archive}})
	must(t, err)
	n = &onNodes{Nodes: c, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			for _, line := range []string{"get pods -A -o wide", "-n kube-system exec deploy/contiv-netmaster -- netctl status", "-n kube-system describe pods", "-n kube-system logs ds/contiv-netplugin --tail=30", "-n kube-system logs deploy/contiv-netmaster --tail=30", "-n kube-system logs ds/contiv-uninstall -c uninstall --tail=20"} {
				out, err := n.Kubectl(context.Background(), strings.Fields(line)...)
				t.Logf("kubectl %s: %v\n%s", line, err, out)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	first := n.Lab.Hosts()[0].Address.String()
	server, port, err := net.SplitHostPort(strings.TrimPrefix(ok[*rest.Config](t)(c.Control.Config()).Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	manifest = func(path string, more ...string) string {
		text := ok[[]byte](t)(os.ReadFile(path))
		file := filepath.Join(t.TempDir(), filepath.Base(path))
		changed := strings.NewReplacer(append(more, `"CONTROL_PLANE_ADDRESS"`, `"`+server+`"`, "CONTROL_PLANE_ADDRESS", first, `"6443"`, `"`+port+`"`, "/etc/cni/net.d", "/opt/cni/net.d")...).Replace(string(text))
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, h := range n.Lab.Hosts() { // kubeadm asks for it
		if out, err := h.Run(t.Context(), "sysctl", "-w", "net.ipv4.ip_forward=1"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	until(t, "both nodes are known", func() bool {
		return len(ok[*corev1.NodeList](t)(n.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})).Items) == 2
	})
	n.kubectl("label node h1 node-role.kubernetes.io/control-plane=")
	ok[*corev1.ConfigMap](t)(n.Client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking:\n" +
			"  podSubnet: " + cluster.PodCIDR + "\n  serviceSubnet: " + cluster.Services + "\n"},
	}, metav1.CreateOptions{}))
	return n, manifest
}

// connectsWhile makes connections of the pod shop/a until workloads of kube-system are
// rolled out, each of which has to come about.
func (n *onNodes) connectsWhile(to, what string, workloads ...string) {
	n.t.Helper()
	tried := 0
	for begun := time.Now(); len(workloads) > 0; tried++ {
		if !n.reachesWithin("5s", "shop", "a", to) {
			n.t.Errorf("connection %d was not made, %v after it began that %s", tried, time.Since(begun), what)
		}
		if out, err := n.Kubectl(n.t.Context(), "-n", "kube-system", "rollout", "status", workloads[0], "--watch=false"); err == nil && strings.Contains(out, "successfully rolled out") {
			workloads = workloads[1:]
		}
		if time.Since(begun) > 10*time.Minute {
			n.t.Fatalf("it does not end that %s", what)
		}
	}
	n.t.Logf("%d connections were made while %s", tried, what)
}

// TestManifestMakesBareNodesReady: the manifest makes two bare nodes of kubeadm's configuration ready without
// kube-proxy, and policies hold beside a kube-proxy. Kubelets run netmaster and netplugin
// from the image. Nodes and pods reach pods and services, and pods obey policy. Clients
// without credentials are refused; netctl in netmaster's pod needs none. No connection is
// refused while netplugin is replaced, and the other manifest leaves nothing behind.
func TestManifestMakesBareNodesReady(t *testing.T) {
	n, manifest := bareNodes(t, "kubeinstall", 0)
	first := n.Lab.Hosts()[0].Address.String()
	contiv, off := manifest("../../packaging/kubernetes/contiv.yaml"), manifest("../../packaging/kubernetes/uninstall.yaml")
	n.kubectl("apply -f " + contiv)
	n.rollsOut()
	must(t, n.AwaitReady(t.Context()))
	n.isSecure(first)
	n.namespace("shop", nil)
	n.pod("shop", "a", "h1", nil)
	n.pod("shop", "b", "h2", map[string]string{"app": "b"})
	n.runs("shop", "a")
	b := n.runs("shop", "b")
	n.becomes(true, "shop", "a", b)
	service := makeService(t, n.Client, "shop", "b", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "b"} }).Spec.ClusterIP
	n.becomes(true, "shop", "a", service)
	for _, h := range n.Lab.Hosts() {
		for _, to := range []string{b, service} {
			n.sees(h.Name, h.Address.String(), h.NS, at(to, 80))
		}
	}

	policies := n.Client.NetworkingV1().NetworkPolicies("shop")
	ok[*networkingv1.NetworkPolicy](t)(policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "closed"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "b"}}},
	}, metav1.CreateOptions{}))
	n.becomes(false, "shop", "a", b)
	if err := policies.Delete(t.Context(), "closed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.becomes(true, "shop", "a", b)

	// kubeadm installs kube-proxy.
	must(t, n.StartProxy(n.Lab.Hosts()[0], "iptables"))
	must(t, n.StartProxy(n.Lab.Hosts()[1], "nftables"))
	n.policiesApplyBesideProxy()

	// Each netplugin is exchanged while connections are made.
	n.kubectl("-n kube-system rollout restart daemonset/contiv-netplugin")
	n.connectsWhile(b, "netplugin is exchanged on both nodes", "daemonset/contiv-netplugin")

	n.gone("shop")
	n.kubectl("delete -f " + contiv)
	n.kubectl("apply -f " + off)
	n.kubectl("-n kube-system rollout status daemonset/contiv-uninstall --timeout=10m")
	for _, h := range n.Lab.Hosts() {
		links := ok[[]string](t)(h.NS.Links())
		for _, l := range links {
			if strings.HasPrefix(l, "contiv") || strings.HasPrefix(l, "cv") {
				t.Errorf("%s has interface %s still", h.Name, l)
			}
		}
		if tables := ok[string](t)(h.Run(t.Context(), "nft", "list", "tables")); strings.Contains(tables, "contiv") {
			t.Errorf("%s has tables still: %s", h.Name, tables)
		}
		for _, file := range []string{"/opt/cni/bin/contivk8s", "/opt/cni/net.d/10-contiv.conflist", "/var/lib/contiv/attach", "/var/lib/contiv/tls", "/sys/fs/bpf/contiv/default"} {
			if out, err := h.Run(t.Context(), "ls", "-d", file); err == nil {
				t.Errorf("%s has %s still", h.Name, out)
			}
		}
	}
	pods := ok[*corev1.PodList](t)(n.Client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{}))
	for _, p := range pods.Items {
		if !strings.HasPrefix(p.Name, "contiv-uninstall") {
			t.Errorf("pod %s is left", p.Name)
		}
	}
}
