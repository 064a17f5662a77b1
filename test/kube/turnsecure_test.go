//go:build integration

package kube

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const contivManifest = "../../packaging/kubernetes/contiv.yaml"

// acceptPlain is what makes of the manifest the one for the time of a turn, as the page says.
var acceptPlain = []string{"- --secure\n", "- --secure\n            - --accept-plain\n"}

// talk starts traffic that goes on while the installation changes: shop/b on h2 serves, and
// a policy closes shop/shut there; from h1 shop/pings pings b and shop/calls makes
// connections to it. end ends both, and checks that none was lost and that the policy still
// holds.
func (n *onNodes) talk() (b string, end func()) {
	n.t.Helper()
	n.namespace("shop", nil)
	n.pod("shop", "a", "h1", nil)
	n.pod("shop", "b", "h2", nil)
	n.pod("shop", "shut", "h2", map[string]string{"app": "shut"})
	n.runs("shop", "a")
	b, shut := n.runs("shop", "b"), n.runs("shop", "shut")
	n.becomes(true, "shop", "a", b)
	n.becomes(true, "shop", "a", shut)
	ok[*networkingv1.NetworkPolicy](n.t)(n.Client.NetworkingV1().NetworkPolicies("shop").Create(n.t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "shut"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "shut"}}},
	}, metav1.CreateOptions{}))
	n.becomes(false, "shop", "a", shut)
	n.pod("shop", "pings", "h1", nil, "/bin/sh", "-c", "exec ping -q -i 0.2 "+b)
	n.pod("shop", "calls", "h1", nil, "/bin/sh", "-c", "while :; do /agnhost connect "+b+":80 --timeout=5s && echo made || echo at $(date +%T); sleep 0.3; done")
	n.runs("shop", "pings")
	n.runs("shop", "calls")
	return b, func() {
		n.t.Helper()
		n.kubectl("-n shop exec pings -- kill -INT 1")
		var sent, got, made int
		until(n.t, "the pings are counted", func() bool {
			_, rest, found := strings.Cut(n.log("shop", "pings"), "statistics ---\n")
			if found {
				ok[int](n.t)(fmt.Sscanf(rest, "%d packets transmitted, %d packets received", &sent, &got))
			}
			return found
		})
		if got < 100 || sent-got > 1 { // the last one may be under way
			n.t.Errorf("of %d pings %d were answered", sent, got)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(n.log("shop", "calls")), "\n") {
			if line == "made" {
				made++
			} else {
				n.t.Errorf("a connection was not made: %s", line)
			}
		}
		if made < 20 {
			n.t.Errorf("%d connections were made", made)
		}
		n.t.Logf("of %d pings %d were answered, %d connections made", sent, got, made)
		if n.reaches("shop", "a", shut) {
			n.t.Error("a pod that is closed by a policy is reached")
		}
	}
}

// attaches: pods start on both nodes, and reach what ran before.
func (n *onNodes) attaches(name, to string) {
	n.t.Helper()
	for _, node := range []string{"h1", "h2"} {
		n.pod("shop", name+node, node, nil)
	}
	for _, node := range []string{"h1", "h2"} {
		n.runs("shop", name+node)
		n.becomes(true, "shop", name+node, to)
	}
}

// isPlain: who shows nothing is answered plainly.
func (n *onNodes) isPlain(master string) {
	n.t.Helper()
	for _, url := range []string{"http://" + at(master, 9999) + "/readyz", "http://" + at(master, 9002) + "/version", "http://127.0.0.1:9006/debug/state"} {
		if out, err := n.Lab.Hosts()[1].NS.Command(n.t.Context(), "curl", "-sf", "--max-time", "20", "-o", "/dev/null", url).CombinedOutput(); err != nil {
			n.t.Errorf("%s: %v: %s", url, err, out)
		}
	}
	n.becomesWell()
}

// TestInstallationTurnsSecure: an installation without TLS is turned secure while pods talk and lose no
// packet, by the page's two steps. It is rolled back by two, and turned secure once more by
// the manifest at once. After each step pods start on both nodes. The plain manifest on a
// secure installation opens it to no one, and is undone.
func TestInstallationTurnsSecure(t *testing.T) {
	n, manifest := bareNodes(t, "kubeturn", 0)
	first := n.Lab.Hosts()[0].Address.String()
	plain, both, secure := manifest("testdata/plain.yaml"), manifest(contivManifest, acceptPlain...), manifest(contivManifest)
	n.kubectl("-n kube-system create secret generic contiv-token --from-literal=token=0123456789abcdef0123456789abcdef")
	n.kubectl("apply -f " + plain)
	n.rollsOut()
	must(t, n.AwaitReady(t.Context()))
	n.isPlain(first)
	b, end := n.talk()
	turned := func() {
		t.Helper()
		until(t, "netmaster knows that all hosts have certificates", func() bool {
			return strings.Contains(n.inPod("cluster members"), "all hosts have certificates")
		})
		n.becomesWell()
	}
	isSecure := func() {
		t.Helper()
		n.isSecure(first)
	}
	for i, step := range []struct {
		what, manifest string
		holds          func()
	}{
		{"connections without TLS are accepted", both, turned},
		{"it is secure", secure, isSecure},
		{"connections without TLS are accepted again", both, turned},
		{"it is plain again", plain, func() { n.isPlain(first) }},
		{"it is secure at once", secure, isSecure},
	} {
		n.kubectl("apply -f " + step.manifest)
		n.rollsOut()
		step.holds()
		n.attaches(fmt.Sprint("step", i), b)
		t.Log(step.what)
	}

	n.kubectl("apply -f " + plain)
	until(t, "netmaster says why it does not start plainly", func() bool {
		out, err := n.Kubectl(t.Context(), "-n", "kube-system", "logs", "deploy/contiv-netmaster", "--tail=5")
		return err == nil && strings.Contains(out, "--accept-plain")
	})
	n.kubectl("apply -f " + secure)
	n.rollsOut()
	isSecure()
	n.attaches("undone", b)
	end()
	n.gone("shop")
}
