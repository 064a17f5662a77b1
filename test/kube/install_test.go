//go:build integration

package kube

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/lab"
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

// TestInstall: the manifest makes two bare nodes of kubeadm's configuration ready, without
// kube-proxy: kubelets run netmaster and netplugin of the image, nodes and pods reach
// pods and services, pods obey policy, no connection is refused while netplugin is
// exchanged, and the other manifest leaves nothing behind.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := lab.Build(t.Context(), ".", bin); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "contiv.tar")
	if out, err := exec.CommandContext(t.Context(), "go", "run", "../../packaging/image", "-bin", bin, "-o", archive, "-name", "docker.io/contiv/contiv:2.0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := cluster.StartNodes(t.Context(), cluster.NodesConfig{Name: "kubeinstall", Dir: dir, BinDir: bin, Nodes: 2, Bare: true, Images: []string{archive}})
	must(t, err)
	n := &onNodes{Nodes: c, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			for _, line := range []string{"get pods -A -o wide", "-n kube-system describe pods", "-n kube-system logs ds/contiv-netplugin --tail=30", "-n kube-system logs deploy/contiv-netmaster --tail=30", "-n kube-system logs ds/contiv-uninstall -c uninstall --tail=20"} {
				out, err := n.Kubectl(context.Background(), strings.Fields(line)...)
				t.Logf("kubectl %s: %v\n%s", line, err, out)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	first := n.Hosts()[0].Address.String()
	server, port, err := net.SplitHostPort(strings.TrimPrefix(ok[*rest.Config](t)(c.Control.Config()).Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(name string) string {
		text := ok[[]byte](t)(os.ReadFile("../../packaging/kubernetes/" + name))
		file := filepath.Join(dir, name)
		changed := strings.NewReplacer(`"CONTROL_PLANE_ADDRESS"`, `"`+server+`"`, "CONTROL_PLANE_ADDRESS", first, `"6443"`, `"`+port+`"`, "- --kubeconfig=in-cluster", "- --kubeconfig=in-cluster\n            - --services", "/etc/cni/net.d", "/opt/cni/net.d").Replace(string(text))
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	contiv, off := manifest("contiv.yaml"), manifest("uninstall.yaml")
	until(t, "both nodes are known", func() bool {
		return len(ok[*corev1.NodeList](t)(n.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})).Items) == 2
	})
	n.kubectl("label node h1 node-role.kubernetes.io/control-plane=")
	n.kubectl("-n kube-system create secret generic contiv-token --from-literal=token=0123456789abcdef0123456789abcdef")
	ok[*corev1.ConfigMap](t)(n.Client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking:\n" +
			"  podSubnet: " + cluster.PodCIDR + "\n  serviceSubnet: " + cluster.Services + "\n"},
	}, metav1.CreateOptions{}))
	n.kubectl("apply -f " + contiv)
	n.kubectl("-n kube-system rollout status deployment/contiv-netmaster --timeout=120s")
	n.kubectl("-n kube-system rollout status daemonset/contiv-netplugin --timeout=120s")
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.namespace("shop", nil)
	n.pod("shop", "a", "h1", nil)
	n.pod("shop", "b", "h2", map[string]string{"app": "b"})
	n.runs("shop", "a")
	b := n.runs("shop", "b")
	n.becomes(true, "shop", "a", b)
	service := makeService(t, n.Client, "shop", "b", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "b"} }).Spec.ClusterIP
	n.becomes(true, "shop", "a", service)
	for _, h := range n.Hosts() {
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

	// Each netplugin is exchanged while connections are made.
	n.kubectl("-n kube-system rollout restart daemonset/contiv-netplugin")
	tried := 0
	for begun := time.Now(); ; tried++ {
		if !n.reaches("shop", "a", b) {
			t.Errorf("connection %d was not made, %v after netplugin's exchange began", tried, time.Since(begun))
		}
		if out, err := n.Kubectl(t.Context(), "-n", "kube-system", "rollout", "status", "daemonset/contiv-netplugin", "--watch=false"); err == nil && strings.Contains(out, "successfully rolled out") {
			break
		}
		if time.Since(begun) > 4*time.Minute {
			t.Fatal("netplugin is not exchanged")
		}
	}
	t.Logf("%d connections were made while netplugin was exchanged on both nodes", tried)

	n.gone("shop")
	n.kubectl("delete -f " + contiv)
	n.kubectl("apply -f " + off)
	n.kubectl("-n kube-system rollout status daemonset/contiv-uninstall --timeout=120s")
	for _, h := range n.Hosts() {
		links := ok[[]string](t)(h.NS.Links())
		for _, l := range links {
			if strings.HasPrefix(l, "contiv") || strings.HasPrefix(l, "cv") {
				t.Errorf("%s has interface %s still", h.Name, l)
			}
		}
		if tables := ok[string](t)(h.Run(t.Context(), "nft", "list", "tables")); strings.Contains(tables, "contiv") {
			t.Errorf("%s has tables still: %s", h.Name, tables)
		}
		for _, file := range []string{"/opt/cni/bin/contivk8s", "/opt/cni/net.d/10-contiv.conflist", "/var/lib/contiv/attach", "/sys/fs/bpf/contiv/default"} {
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
