//go:build integration

package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// Pods on nodes without kube-proxy reach services whose backends are external: the API
// server, which is outside of the nodes, and pods in the nodes' own network, on their own
// node and on the other one.
func TestPodsReachExternalBackends(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Native: true})
	n.namespace("shop", nil)
	n.foreignBackends()
}

// TestPodsReachExternalBackendsBehindTheDataPlane: so do nodes and clients outside where the nodes' stacks
// do not know the pods' addresses.
func TestPodsReachExternalBackendsBehindTheDataPlane(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{})
	n.namespace("shop", nil)
	n.foreignBackends()
}

func (n *onNodes) foreignBackends() {
	ctx := n.t.Context()
	outside, _, err := n.Outside(ctx, "outside", 200)
	must(n.t, err)
	client := n.Client.CoreV1()
	n.pod("shop", "a", "h1", map[string]string{"mixed": "yes"})
	n.pod("shop", "b", "h2", map[string]string{"mixed": "yes"})
	for _, node := range []string{"h1", "h2"} {
		ok[*corev1.Pod](n.t)(client.Pods("shop").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "own-" + node, Labels: map[string]string{"on": node, "mixed": "yes"}},
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: new(int64(2)), HostNetwork: true,
				Containers: []corev1.Container{{Name: "c", Image: cluster.Agnhost, ImagePullPolicy: corev1.PullNever, Args: []string{"netexec", "--http-port=80"}}},
			},
		}, metav1.CreateOptions{}))
	}
	at, nodePort := map[string]string{}, int32(0)
	for name, selector := range map[string]map[string]string{"one": {"on": "h1"}, "other": {"on": "h2"}, "mixed": {"mixed": "yes"}} {
		made := makeService(n.t, n.Client, "shop", name, func(s *corev1.ServiceSpec) {
			s.Selector, s.Ports = selector, []corev1.ServicePort{{Port: 8088, TargetPort: intstr.FromInt32(80)}}
			if name == "mixed" {
				s.Type = corev1.ServiceTypeNodePort
			}
		}).Spec
		if at[name] = made.ClusterIP + ":8088"; name == "mixed" {
			nodePort = made.Ports[0].NodePort
		}
	}
	pods := []string{n.runs("shop", "a"), n.runs("shop", "b")}
	for _, name := range []string{"own-h1", "own-h2"} {
		n.runs("shop", name)
	}
	api := ok[*corev1.Service](n.t)(client.Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})).Spec.ClusterIP + ":443"

	connects := func(to string) bool {
		n.t.Helper()
		out, err := n.Kubectl(ctx, "exec", "-n", "shop", "a", "--", "/agnhost", "connect", to, "--timeout=1s")
		if err != nil && !strings.Contains(out, "TIMEOUT") && !strings.Contains(out, "REFUSED") {
			n.t.Fatal(err, out)
		}
		return err == nil
	}
	until(n.t, "the pod reaches the API server by its service", func() bool { return connects(api) })
	until(n.t, "the pod reaches its own node by a service", func() bool { return connects(at["one"]) })
	until(n.t, "the pod reaches the other node by a service", func() bool { return connects(at["other"]) })

	// Pods, and pods in nodes' networks, behind one service: each is chosen, from pods on
	// both nodes, which are their own backends too, from nodes themselves, and from outside.
	want := []string{"a", "b", "h1", "h2"}
	host, port, _ := strings.Cut(at["mixed"], ":")
	asks := func(from *testcluster.Namespace, to string) string {
		out, err := from.Command(ctx, "curl", "-s", "--max-time", "2", "http://"+to+"/hostname").CombinedOutput()
		if err != nil {
			return ""
		}
		return fmt.Sprintf(`{"responses": [%q]}`, out)
	}
	for i, h := range n.Lab.Hosts() {
		who := map[string]func() string{
			"the pod on " + h.Name: func() string {
				out, _ := h.NS.Command(ctx, "curl", "-s", "--max-time", "20", fmt.Sprintf("http://%s:80/dial?host=%s&port=%s&request=hostname&protocol=http&tries=10", pods[i], host, port)).CombinedOutput()
				return string(out)
			},
			h.Name:                           func() string { return asks(h.NS, at["mixed"]) },
			"a client outside, by " + h.Name: func() string { return asks(outside, fmt.Sprintf("%s:%d", h.Address, nodePort)) },
		}
		for who, ask := range who {
			seen, failed := map[string]int{}, []string(nil)
			defer func() { n.t.Log(who, seen, failed) }()
			until(n.t, fmt.Sprintf("%s is answered by %v", who, want), func() bool {
				var said struct{ Responses, Errors []string }
				if err := json.Unmarshal([]byte(ask()), &said); err != nil {
					return false
				}
				for _, x := range said.Responses {
					seen[x]++
				}
				failed = append(failed, said.Errors...)
				return !slices.ContainsFunc(want, func(x string) bool { return seen[x] == 0 })
			})
		}
	}
}
