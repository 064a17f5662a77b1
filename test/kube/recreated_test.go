//go:build integration

package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const dataDir = "/var/lib/contiv/etcd"

// seenAt is where a file below a node's /var/lib is for who is not in the node.
func seenAt(h *testcluster.Host, file string) string {
	return filepath.Join(h.Dir, "node/lib", strings.TrimPrefix(file, "/var/lib"))
}

// asks runs netctl in netmaster's pod, which may not be there or may say that there are problems.
func (n *onNodes) asks(line string) (string, error) {
	return n.Kubectl(n.t.Context(), append(strings.Fields("-n kube-system exec deploy/contiv-netmaster -- netctl"), strings.Fields(line)...)...)
}

// scale ends netmaster's pod, or starts one.
func (n *onNodes) scale(replicas int) {
	n.t.Helper()
	n.kubectl(fmt.Sprintf("-n kube-system scale deployment contiv-netmaster --replicas=%d", replicas))
	until(n.t, fmt.Sprintf("%d pods of netmaster", replicas), func() bool {
		list := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=netmaster"}
		return len(ok[*corev1.PodList](n.t)(n.Client.CoreV1().Pods("kube-system").List(n.t.Context(), list)).Items) == replicas
	})
}

// newAuthority has nodes follow a netmaster of another authority, as the page says.
func (n *onNodes) newAuthority() {
	n.t.Helper()
	trusted := func(h *testcluster.Host) string {
		return string(ok[[]byte](n.t)(os.ReadFile(seenAt(h, "/var/lib/contiv/tls/ca.crt"))))
	}
	former := trusted(n.Lab.Hosts()[0])
	n.kubectl("-n kube-system rollout status deployment/contiv-netmaster --timeout=10m")
	until(n.t, "netmaster says whose authority nodes have", func() bool {
		out, _ := n.asks("status") // there are problems
		return strings.Contains(out, "has the authority of another Contiv cluster")
	})
	for _, h := range n.Lab.Hosts() {
		if trusted(h) != former {
			n.t.Errorf("%s follows an authority that nobody has told it of", h.Name)
		}
	}
	n.kubectl(`-n kube-system patch configmap contiv-authority -p {"data":null}`)
	untilSlow(n.t, "both nodes have certificates of the new authority", func() bool {
		return trusted(n.Lab.Hosts()[0]) != former && trusted(n.Lab.Hosts()[1]) != former
	})
}

// TestReinstalledClusterIsFollowed: while pods talk, none of whose packets is lost, a secure installation is
// applied again after it was deleted; netmaster's data are lost, and what the page says
// makes both nodes hosts of the new cluster. After each, pods start on both nodes.
func TestReinstalledClusterIsFollowed(t *testing.T) {
	n, manifest := bareNodes(t, "kubeanew", 0)
	h1 := n.Lab.Hosts()[0]
	secure := manifest(contivManifest)
	n.kubectl("apply -f " + secure)
	n.rollsOut()
	must(t, n.AwaitReady(t.Context()))
	n.isSecure(h1.Address.String())
	b, end := n.talk()

	n.kubectl("delete -f " + secure)
	n.kubectl("apply -f " + secure)
	n.rollsOut()
	n.isSecure(h1.Address.String())
	n.attaches("again", b)
	t.Log("applied again")

	n.scale(0)
	must(t, os.RemoveAll(seenAt(h1, dataDir)))
	n.scale(1)
	n.newAuthority()
	untilSlow(t, "both nodes are there again", func() bool {
		out, err := n.asks("host ls")
		return err == nil && !slices.ContainsFunc(n.Lab.Hosts(), func(h *testcluster.Host) bool { return !strings.Contains(out, h.Name) })
	})
	untilSlow(t, "the nodes are told to follow the new store", func() bool {
		_, err := n.asks("store adopt")
		return err == nil
	})
	n.becomesWell()
	n.isSecure(h1.Address.String())
	n.attaches("anew", b)
	t.Log("followed a netmaster whose data were lost")
	end()
	n.gone("shop")
}
