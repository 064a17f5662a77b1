//go:build integration

package kube

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// stateful: the pods of a StatefulSet have, of both families, the addresses that their
// annotations list, also when one is made again; their host port is theirs at the node's
// addresses of both families; and they reach each other by both.
func (n *onNodes) stateful() {
	ctx := n.t.Context()
	const port = 8123
	want := map[string][]string{"db-0": {"10.1.9.10", "fd00:1::9:10"}, "db-1": {"10.1.9.11", "fd00:1::9:11"}}
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec.Replicas, set.Spec.ServiceName, set.Spec.Selector = new(int32(2)), "db", &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Annotations = map[string]string{"contiv.io/ipv4": "10.1.9.10,10.1.9.11", "contiv.io/ipv6": "fd00:1::9:10,fd00:1::9:11", "kubernetes.io/egress-bandwidth": "20M"}
	set.Spec.Template.Spec = corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(2)), Containers: []corev1.Container{{
		Name: "c", Image: cluster.Agnhost, ImagePullPolicy: corev1.PullNever, Args: []string{"netexec", "--http-port=80"},
		Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: port}}, // so they run on one node each
	}}}
	ok[*appsv1.StatefulSet](n.t)(n.Client.AppsV1().StatefulSets("shop").Create(ctx, set, metav1.CreateOptions{}))
	pod := func(name string) *corev1.Pod {
		p, err := n.Client.CoreV1().Pods("shop").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return &corev1.Pod{} // not yet, or not any more
		}
		return p
	}
	stands := func(name string, but *corev1.Pod) *corev1.Pod {
		n.t.Helper()
		var p *corev1.Pod
		until(n.t, name+" runs", func() bool {
			p = pod(name)
			return p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) == 2 && (but == nil || p.UID != but.UID)
		})
		var got []string
		for _, a := range p.Status.PodIPs {
			got = append(got, a.IP)
		}
		if !slices.Equal(got, want[name]) {
			n.t.Errorf("%s has the addresses %v, want %v", name, got, want[name])
		}
		return p
	}
	first := stands("db-0", nil)
	second := stands("db-1", nil)
	if first.Spec.NodeName == second.Spec.NodeName {
		n.t.Fatalf("both run on %s, though they want one port of it", first.Spec.NodeName)
	}
	n.limited("10.1.9.11", 20_000_000)
	for _, mbit := range []uint64{20, 4, 20} { // while it runs
		annotation := fmt.Appendf(nil, `{"metadata":{"annotations":{"kubernetes.io/egress-bandwidth":"%dM"}}}`, mbit)
		ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods("shop").Patch(ctx, "db-0", types.MergePatchType, annotation, metav1.PatchOptions{}))
		n.limited("10.1.9.10", mbit*1_000_000)
		n.sends("db-0", "10.1.9.11", mbit)
	}
	for _, to := range []string{"10.1.9.11", "[fd00:1::9:11]"} {
		n.becomes(true, "shop", "db-0", to)
	}
	n.hostPort(first, port)
	n.hostPort(second, port)
	must(n.t, n.Client.CoreV1().Pods("shop").Delete(ctx, "db-0", metav1.DeleteOptions{}))
	n.hostPort(stands("db-0", first), port)

	must(n.t, n.Client.AppsV1().StatefulSets("shop").Delete(ctx, "db", metav1.DeleteOptions{}))
	n.gone("shop")
	n.nothing()
}

// hostPort asks a pod for its name at a port of its node, from the machine of the control plane.
func (n *onNodes) hostPort(p *corev1.Pod, port int) {
	n.t.Helper()
	node := ok[*corev1.Node](n.t)(n.Client.CoreV1().Nodes().Get(n.t.Context(), p.Spec.NodeName, metav1.GetOptions{}))
	families := 0
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		families++
		at := "http://" + net.JoinHostPort(a.Address, strconv.Itoa(port)) + "/hostname"
		until(n.t, p.Name+" answers at "+at, func() bool {
			out, err := n.Lab.Master.Command(n.t.Context(), "curl", "-sg", "--max-time", "2", at).CombinedOutput()
			return err == nil && strings.TrimSpace(string(out)) == p.Name
		})
	}
	if families != 2 {
		n.t.Errorf("node %s has the addresses %v, want one of each family", node.Name, node.Status.Addresses)
	}
}

// limited waits until the endpoint with an address has a limit of what it sends, and
// none of what it receives.
func (n *onNodes) limited(address string, bits uint64) {
	n.t.Helper()
	client := ok[*api.Client](n.t)(n.Lab.Masters.API())
	defer client.Close()
	until(n.t, fmt.Sprintf("%s is limited to %d bits a second", address, bits), func() bool {
		all := ok[[]api.EndpointOper](n.t)(client.Endpoints(n.t.Context(), api.EndpointFilter{}))
		return slices.ContainsFunc(all, func(e api.EndpointOper) bool {
			return slices.Contains(e.IPAddress, address) && e.Rates != nil && *e.Rates == (api.Rates{Send: bits})
		})
	})
}

// sends waits until what a pod sends to another one comes to so many Mbit/s: never a tenth
// more, and a third at least, as machines are busy.
func (n *onNodes) sends(pod, to string, mbit uint64) {
	n.t.Helper()
	line := fmt.Sprintf("head -c %d /dev/zero | curl -sS -m 60 -o /dev/null -w '%%{size_upload} %%{speed_upload}' -F file=@- http://%s/upload", mbit*1_000_000/8, to)
	until(n.t, fmt.Sprintf("%s sends some %d Mbit/s", pod, mbit), func() bool {
		out, err := n.Kubectl(n.t.Context(), "exec", "-n", "shop", pod, "--", "/bin/sh", "-c", line)
		var size uint64
		var speed float64
		if _, e := fmt.Sscan(out, &size, &speed); err != nil || e != nil || size < mbit*1_000_000/8 {
			n.t.Fatalf("%s: %v, %v: %s", line, err, e, out)
		}
		speed *= 8.0 / 1_000_000
		n.t.Logf("%s sends %.2f Mbit/s, limited to %d", pod, speed, mbit)
		return speed <= float64(mbit)*1.1 && speed >= float64(mbit)/3
	})
}
