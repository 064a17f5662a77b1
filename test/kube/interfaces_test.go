//go:build integration

package kube

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// multus builds Multus' plugin from its module and returns its path.
func multus(t *testing.T) string {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "tool", "-modfile=tools/multus/go.mod", "-n", "multus")
	build.Dir = ok[string](t)(testcluster.Root(t.Context(), "."))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	return strings.TrimSpace(string(ok[[]byte](t)(build.Output())))
}

// define makes a NetworkAttachmentDefinition of contivk8s with these keys.
func (n *onNodes) define(namespace, name, keys string) {
	n.t.Helper()
	config := ok[[]byte](n.t)(json.Marshal(`{"cniVersion":"1.0.0","type":"contivk8s",` + keys + `}`))
	file := filepath.Join(n.t.TempDir(), name+".yaml")
	must(n.t, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: %s, name: %s}\nspec: {config: %s}\n", namespace, name, config), 0o600))
	n.kubectl("apply -f " + file)
}

// podWith makes a pod with further interfaces, as its annotation asks for them.
func (n *onNodes) podWith(namespace, name, node, networks string) {
	n.t.Helper()
	ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods(namespace).Create(n.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": networks}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: new(int64(2)), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "c", Image: cluster.Agnhost, ImagePullPolicy: corev1.PullNever, Args: []string{"netexec", "--http-port=80"}}},
		},
	}, metav1.CreateOptions{}))
}

// interfaces waits until a pod runs, and returns the IPv4 addresses of its interfaces, as
// Multus writes them to the pod.
func (n *onNodes) interfaces(namespace, name string) map[string]string {
	n.t.Helper()
	main := n.runs(namespace, name)
	p := ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods(namespace).Get(n.t.Context(), name, metav1.GetOptions{}))
	var status []struct {
		Interface string
		IPs       []string
		Default   bool
	}
	must(n.t, json.Unmarshal([]byte(p.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status))
	out := map[string]string{}
	for _, s := range status {
		address := append(s.IPs, "")[0]
		out[s.Interface] = address
		if s.Default != (s.Interface == "eth0") || s.Default != (address == main) {
			n.t.Errorf("%s/%s has the address %s, and %+v", namespace, name, main, s)
		}
	}
	return out
}

// never: a pod does not start, and an event on it says why.
func (n *onNodes) never(namespace, name, why string) {
	n.t.Helper()
	var said []string
	defer func() {
		if n.t.Failed() {
			n.t.Logf("events of %s/%s:\n%s", namespace, name, strings.Join(said, "\n"))
		}
	}()
	until(n.t, fmt.Sprintf("an event on %s/%s says %q", namespace, name, why), func() bool {
		said = nil
		for _, e := range ok[*corev1.EventList](n.t)(n.Client.CoreV1().Events(namespace).List(n.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})).Items {
			said = append(said, e.Reason+": "+e.Message)
		}
		return strings.Contains(strings.Join(said, "\n"), why)
	})
	if p := ok[*corev1.Pod](n.t)(n.Client.CoreV1().Pods(namespace).Get(n.t.Context(), name, metav1.GetOptions{})); p.Status.Phase != corev1.PodPending {
		n.t.Errorf("%s/%s is %s", namespace, name, p.Status.Phase)
	}
	must(n.t, n.Client.CoreV1().Pods(namespace).Delete(n.t.Context(), name, metav1.DeleteOptions{}))
}

// plugin runs Multus on a node as a runtime that speaks CNI 1.1 does.
func (n *onNodes) plugin(h *testcluster.Host, verb string) {
	n.t.Helper()
	const script = `cd "$1"; sed 's/"cniVersion": "1.0.0"/"cniVersion": "1.1.0"/' "net.d/$2" >multus.conf; shift 2; exec env CNI_PATH="$PWD/plugins" "$@" plugins/multus <multus.conf`
	args := append([]string{"-c", script, "sh", h.Dir, cluster.MultusConf, "CNI_COMMAND=" + verb}, cluster.PluginEnv(h)...)
	if out, err := h.Run(n.t.Context(), "/bin/sh", args...); err != nil {
		n.t.Errorf("%s: %v: %s", verb, err, out)
	}
}

// Multus, as the plugin of the nodes' kubelets, gives pods further interfaces on networks of
// Contiv. Each is an endpoint of the pod's tenant under the policies of its own group and
// labels. Policies of Kubernetes, services and names concern the first one, which has the
// default route. What a definition asks for beyond the pod's tenant and groups is refused.
func TestMultusInterfacesAreEndpointsOfTheirOwn(t *testing.T) {
	n := nodes(t, cluster.NodesConfig{Native: true, Dual: true, DNS: true, Secure: true, Multus: multus(t), Masters: []string{"--pod-groups", "guarded"}})
	before := n.endpoints()
	n.kubectl("apply -f testdata/networkattachmentdefinition.yaml")
	n.kubectl("wait --for=condition=Established crd/network-attachment-definitions.k8s.cni.cncf.io")
	for _, line := range []string{
		"network create -e vxlan -s 10.5.0.0/24 storage", "network create -e vxlan -s 10.6.0.0/24 lan",
		"policy create shut", "policy rule-add -d in -j deny shut 1", "group create storage guarded -p shut", "group create lan other",
		"tenant create blue", "network create -t blue -e vxlan -s 10.7.0.0/24 own", "network create -t blue -e vxlan -s 10.5.0.0/24 storage",
	} {
		n.netctl(line)
	}
	n.namespace("shop", nil)
	n.namespace("blue", map[string]string{"io.contiv.tenant": "blue", "io.contiv.network": "own"})
	n.define("shop", "storage", `"network":"storage"`)
	n.define("shop", "guarded", `"group":"guarded"`)
	n.define("shop", "lan", `"network":"lan","labels":{"role":"backup"}`)

	n.podWith("shop", "a", "h1", "storage,lan@data0")
	n.podWith("shop", "b", "h2", `[{"name":"guarded","ips":["10.5.0.77"],"mac":"02:00:00:00:00:77"}]`)
	n.podWith("shop", "c", "h1", "storage, lan")
	n.podWith("shop", "d", "h2", "storage,lan")
	a, b, c, d := n.interfaces("shop", "a"), n.interfaces("shop", "b"), n.interfaces("shop", "c"), n.interfaces("shop", "d")
	for _, x := range []struct {
		pod, name, address, prefix string
	}{
		{"a", "eth0", a["eth0"], "10.1."},
		{"a", "net1", a["net1"], "10.5.0."},
		{"a", "data0", a["data0"], "10.6.0."},
		{"b", "net1", b["net1"], "10.5.0.77"},
		{"d", "net2", d["net2"], "10.6.0."},
	} {
		if !strings.HasPrefix(x.address, x.prefix) {
			t.Errorf("%s of pod %s has the address %q, want %s", x.name, x.pod, x.address, x.prefix)
		}
	}
	if mac := n.kubectl("exec -n shop b -- cat /sys/class/net/net1/address"); mac != "02:00:00:00:00:77\n" {
		t.Errorf("net1 of pod b has the MAC address %s", mac)
	}
	var routes []string
	for line := range strings.Lines(n.kubectl("exec -n shop a -- cat /proc/net/route")) {
		if f := strings.Fields(line); f[1] == "00000000" {
			routes = append(routes, f[0])
		}
	}
	if !slices.Equal(routes, []string{"eth0"}) {
		t.Errorf("pod a has default routes by %v", routes)
	}
	var listed []string
	client := ok[*api.Client](t)(n.Lab.Masters.API())
	defer client.Close()
	for _, e := range ok[[]api.EndpointOper](t)(client.Endpoints(t.Context(), api.EndpointFilter{Tenant: "default"})) {
		if e.ContainerName == "a" || e.ContainerName == "b" {
			listed = append(listed, e.ContainerName+" "+e.EndpointID[strings.LastIndex(e.EndpointID, ":")+1:]+" "+e.Network+" "+e.ServiceName)
		}
	}
	slices.Sort(listed)
	if want := []string{"a data0 lan.default ", "a eth0 default-net.default ", "a net1 storage.default ", "b eth0 default-net.default ", "b net1 storage.default guarded"}; !slices.Equal(listed, want) {
		t.Errorf("the endpoints are %q, want %q", listed, want)
	}

	// Each interface is under its own group and labels, the first one under Kubernetes' policies.
	reach := func(when string, want map[string]bool) {
		t.Helper()
		for to, is := range map[string]string{"eth0 of b": b["eth0"], "net1 of b": b["net1"], "net1 of c": c["net1"], "net1 of d": d["net1"], "data0's network": d["net2"]} {
			n.answers(when+", "+to, "shop/a", is+":80", want[to])
		}
	}
	reach("a group", map[string]bool{"eth0 of b": true, "net1 of c": true, "net1 of d": true, "data0's network": true})
	n.policy("shop", nil, "ingress: none", func(*networkingv1.NetworkPolicySpec) {})
	reach("a NetworkPolicy", map[string]bool{"net1 of c": true, "net1 of d": true, "data0's network": true})
	n.netctl("network-policy create --label role=backup --default-in deny backup")
	reach("a policy by labels", map[string]bool{"net1 of c": true, "net1 of d": true})
	must(t, n.Client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), "only", metav1.DeleteOptions{}))
	n.netctl("network-policy rm backup")

	web := makeService(t, n.Client, "shop", "web", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "b"} })
	n.answers("further interfaces", "shop/a", web.Spec.ClusterIP+":80", true)
	n.answers("further interfaces", "shop/a", apiService, true)
	n.resolves("further interfaces", "shop/a", true)

	// A definition moves no pod to another tenant, in whatever namespace it is.
	n.define("blue", "storage", `"network":"storage"`)
	n.define("blue", "thief", `"tenant":"default","network":"storage"`)
	n.define("blue", "args", `"network":"storage","args":{"org.apache.mesos":{"network_info":{"labels":{"labels":[{"key":"io.contiv.tenant","value":"default"}]}}}}`)
	n.podWith("blue", "x", "h1", `[{"name":"storage","ips":["10.5.0.99"]}]`)
	n.podWith("blue", "y", "h2", "shop/storage")
	n.interfaces("blue", "x")
	n.interfaces("blue", "y")
	n.answers("another's definition", "blue/y", "10.5.0.99:80", true)
	n.answers("another's definition", "blue/y", "10.5.0.77:80", false)
	n.answers("another tenant's address", "shop/a", "10.5.0.99:80", false)
	const tenant = `tenant "default": must be left out: pod blue/%s is of tenant blue, and so are all its interfaces`
	for _, name := range []string{"thief", "args"} {
		n.podWith("blue", name, "h1", name)
		n.never("blue", name, fmt.Sprintf(tenant, name))
	}
	for name, x := range map[string]struct{ keys, networks, why string }{
		"strangers": {`"tenant":"blue","network":"storage"`, "strangers", `tenant "blue": must be left out: pod shop/strangers is of tenant default`},
		"grouped":   {`"group":"other"`, "grouped", `group "other": pods may choose only guarded`},
		"missing":   {`"network":"none"`, "missing", `network "default:none" does not exist`},
		"same":      {`"network":"storage"`, "storage,same", "it could not use both; give it a network with another subnet"},
		"mistyped":  {`"grop":"guarded"`, "mistyped", `unknown key "grop"`},
	} {
		n.define("shop", name, x.keys)
		n.podWith("shop", name, "h2", x.networks)
		n.never("shop", name, x.why)
	}

	// A runtime's collection leaves all interfaces, and the pods' end leaves none.
	until(t, "refused pods have no endpoint", func() bool { return n.endpoints() == before+15 })
	for _, h := range n.Lab.Hosts() {
		n.plugin(h, "STATUS")
		n.plugin(h, "GC")
	}
	if got := n.endpoints(); got != before+15 {
		t.Errorf("%d endpoints after a collection, want %d", got, before+15)
	}
	reach("collected", map[string]bool{"eth0 of b": true, "net1 of c": true, "net1 of d": true, "data0's network": true})
	n.gone("shop")
	n.gone("blue")
	until(t, "no endpoint of these pods is left", func() bool { return n.endpoints() == before })
	n.nothingOnNodes()
}
