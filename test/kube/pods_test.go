//go:build integration

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// watchGate is netmaster's way to its API server, which can hold back the watches of a
// resource.
type watchGate struct {
	mu      sync.Mutex
	blocked string
	open    chan struct{} // closed when nothing is blocked; nil = nothing is
}

func (d *watchGate) block(resource string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocked, d.open = resource, make(chan struct{})
}

func (d *watchGate) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		close(d.open)
		d.blocked, d.open = "", nil
	}
}

// wait returns when a request's answer may go on.
func (d *watchGate) wait(r *http.Request) {
	d.mu.Lock()
	blocked, open := d.blocked, d.open
	d.mu.Unlock()
	if open == nil || !strings.HasSuffix(r.URL.Path, "/"+blocked) {
		return
	}
	select {
	case <-open:
	case <-r.Context().Done():
	}
}

// behind is the body of a watch.
type behind struct {
	io.ReadCloser
	d *watchGate
	r *http.Request
}

func (b behind) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.d.wait(b.r)
	return n, err
}

// serve hands requests that come to a listener on to an API server, as the user of a
// configuration, until the test's end.
func (d *watchGate) serve(t *testing.T, ln net.Listener, config *rest.Config) {
	t.Helper()
	to := ok[*url.URL](t)(url.Parse(config.Host))
	transport := ok[http.RoundTripper](t)(rest.TransportFor(config))
	ctx, cancel := context.WithCancel(context.Background())
	s := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Handler: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1,
			ModifyResponse: func(r *http.Response) error {
				if r.Request.URL.Query().Get("watch") != "" {
					r.Body = behind{r.Body, d, r.Request}
				}
				return nil
			},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, err.Error(), http.StatusBadGateway)
			},
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ln) // it ends when it is closed
	}()
	t.Cleanup(func() {
		cancel()
		_ = s.Close() // no more requests
		<-done
	})
}

// pods is a host with a data plane whose netmaster follows an API server.
type pods struct {
	*testcluster.Lab
	t      *testing.T
	client kubernetes.Interface
	config *rest.Config
	gate   *watchGate
}

// podsLab starts them, on the data plane that DRIVER names, with a network of a subnet.
func podsLab(t *testing.T, subnet string, change ...func(*testcluster.Config)) *pods {
	t.Helper()
	c, client := control(t)
	return podsBeside(t, config(t, c), client, subnet, change...)
}

// podsBeside is podsLab for an API server that there is, which its user's configuration
// leads to.
func podsBeside(t *testing.T, admin *rest.Config, client kubernetes.Interface, subnet string, change ...func(*testcluster.Config)) *pods {
	t.Helper()
	dir := t.TempDir()
	cfg := clientapi.NewConfig()
	cfg.Clusters["c"], cfg.Contexts["c"] = &clientapi.Cluster{Server: "http://127.0.0.1:18080"}, &clientapi.Context{Cluster: "c"}
	cfg.CurrentContext = "c"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := testcluster.Build(t.Context(), ".", bin); err != nil {
		t.Fatal(err)
	}
	lc := testcluster.Config{Name: "kubepods", BinDir: bin, Hosts: 1, Embedded: true, Driver: os.Getenv("DRIVER"), MasterArgs: []string{"--kubeconfig", file}}
	for _, f := range change {
		f(&lc)
	}
	if m := lc.Missing(); len(m) > 0 {
		lacks(t, m[0])
	}
	l, err := testcluster.Up(t.Context(), lc)
	if err != nil {
		t.Fatal(err)
	}
	p := &pods{Lab: l, t: t, client: client, config: admin, gate: &watchGate{}}
	t.Cleanup(func() {
		p.gate.release()
		if t.Failed() {
			for name, process := range l.Processes() {
				t.Logf("end of %s's log:\n%s", name, process.Tail(25))
			}
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	var ln net.Listener
	if err := l.Master.Do(func() (err error) {
		ln, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:18080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p.gate.serve(t, ln, p.config)
	if out, err := l.Masters.Netctl(t.Context(), "network", "create", "-e", "vxlan", "-s", subnet, "default-net"); err != nil {
		t.Fatal(err, out)
	}
	return p
}

// in is the lab for a subtest.
func (p *pods) in(f func(*pods)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		out := *p
		out.t = t
		f(&out)
	}
}

// make makes a pod and returns how a runtime attaches it.
func (p *pods) make(namespace, name string, labels map[string]string) testcluster.ContainerSpec {
	p.t.Helper()
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
		}}},
	}
	o = ok[*corev1.Pod](p.t)(p.client.CoreV1().Pods(namespace).Create(p.t.Context(), o, metav1.CreateOptions{}))
	return attachAs(namespace+"-"+name, o)
}

func attachAs(container string, o *corev1.Pod) testcluster.ContainerSpec {
	return testcluster.ContainerSpec{Name: container, Host: "h1", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", o.Namespace}, {"K8S_POD_NAME", o.Name}, {"K8S_POD_UID", string(o.UID)},
	}}
}

// attach attaches pods, which then answer at TCP ports 80 and 81.
func (p *pods) attach(all ...testcluster.ContainerSpec) {
	p.t.Helper()
	for _, s := range all {
		ok[*testcluster.Attachment](p.t)(p.AddContainer(p.t.Context(), s))
		ok[func()](p.t)(p.Serve(s.Name, "tcp/80", "tcp/81"))
	}
}

// refused makes a pod's namespace and fails unless ADD is answered by a code, with all
// parts of a text, and leaves no interface. What is tried again anyway (code 11) may have
// other reasons first, where the machine is busy.
func (p *pods) refused(s testcluster.ContainerSpec, code uint, parts ...string) {
	p.t.Helper()
	ns := ok[*testcluster.Namespace](p.t)(p.AddNamespace(s.Name))
	var err error
	until(p.t, fmt.Sprintf("ADD of %s is answered by code %d with %q", s.Name, code, parts), func() bool {
		_, err = p.CNIAdd(p.t.Context(), s)
		e, is := errors.AsType[*types.Error](err)
		if !is || e.Code != code && e.Code != types.ErrTryAgainLater {
			p.t.Fatalf("ADD of %s: %v, want code %d with %q", s.Name, err, code, parts)
		}
		if links := ok[[]string](p.t)(ns.Links()); len(links) != 1 {
			p.t.Errorf("the refused pod %s has the interfaces %v", s.Name, links)
		}
		if e.Code == code && contains(e.Details, parts) {
			return true
		}
		p.t.Logf("ADD of %s: %v", s.Name, err)
		return false
	})
	if err := p.DelContainer(p.t.Context(), s); err != nil {
		p.t.Fatal(err)
	}
}

func contains(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// comes waits until a pod is attached, which answers then.
func (p *pods) comes(s testcluster.ContainerSpec) *testcluster.Attachment {
	p.t.Helper()
	var a *testcluster.Attachment
	until(p.t, s.Name+" comes", func() bool {
		var err error
		if a, err = p.AddContainer(p.t.Context(), s); err != nil {
			p.t.Log(err)
		}
		return err == nil
	})
	ok[func()](p.t)(p.Serve(s.Name, "tcp/80", "tcp/81"))
	return a
}

// waitEvent waits for an event on a pod with all parts of a text.
func (p *pods) waitEvent(namespace, pod string, parts ...string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("an event on pod %s/%s with %q", namespace, pod, parts), func() bool {
		list, err := p.client.EventsV1().Events(namespace).List(p.t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "Pod" && e.Regarding.Name == pod && contains(e.Note, parts)
		})
	})
}

// waitsFor: with the watch of a kind held back that has something to tell, a pod that is
// made then waits, and fails with code 11 and the kind; when the watch goes on, it comes.
func (p *pods) waitsFor(kind string, change func(), pod func() testcluster.ContainerSpec) *testcluster.Attachment {
	p.t.Helper()
	p.gate.block(kind)
	defer p.gate.release()
	change()
	s := pod()
	p.refused(s, types.ErrTryAgainLater, "the API server's objects are not read up to resource version", " "+kind)
	p.gate.release()
	return p.comes(s)
}

func (p *pods) verdict(from, to string, port uint16) testcluster.Verdict {
	p.t.Helper()
	a := ok[*testcluster.Attachment](p.t)(p.Container(to))
	ns := ok[*testcluster.Namespace](p.t)(p.Space(from))
	answer := ns.Probe(p.t.Context(), testcluster.Target{Proto: "tcp", Addr: a.IPv4, Port: port}, time.Second)
	if answer.Err != nil {
		p.t.Fatal(answer.Err)
	}
	return answer.Verdict
}

// is fails unless packets have a verdict at once; becomes, unless they get it.
func (p *pods) is(want testcluster.Verdict, from, to string, port uint16) {
	p.t.Helper()
	if got := p.verdict(from, to, port); got != want {
		p.t.Errorf("from %s to %s port %d: %s, want %s", from, to, port, got, want)
	}
}

func (p *pods) becomes(want testcluster.Verdict, from, to string, port uint16) {
	p.t.Helper()
	until(p.t, from+" to "+to+" becomes "+string(want), func() bool { return p.verdict(from, to, port) == want })
}

// Policies of Kubernetes select pods, from their first packet on, on a real data plane:
// default deny and an allow by namespace, labels and a port's name; labels of pods and
// namespaces count when they change; a pod is never there before what there was.
func TestPoliciesApplyFromTheFirstPacket(t *testing.T) {
	p := podsLab(t, "10.1.1.0/24")
	ctx := t.Context()
	core := p.client.CoreV1()
	makeNamespace(t, p.client, "shop", nil)
	friends := makeNamespace(t, p.client, "friends", map[string]string{"team": "red"})
	policies := p.client.NetworkingV1().NetworkPolicies("shop")
	create := func(name string, spec networkingv1.NetworkPolicySpec) {
		t.Helper()
		ok[*networkingv1.NetworkPolicy](t)(policies.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}))
	}
	create("deny", networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}})
	allow := networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}},
		}},
		Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("http"))}},
	}
	create("allow", networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Ingress: []networkingv1.NetworkPolicyIngressRule{allow}})
	client, web := map[string]string{"app": "client"}, map[string]string{"app": "web"}
	p.attach(p.make("shop", "web", web), p.make("friends", "client", client), p.make("friends", "other", nil))
	const theWeb, theClient, other = "shop-web", "friends-client", "friends-other"
	p.is(testcluster.OK, theClient, theWeb, 80)
	p.is(testcluster.Denied, theClient, theWeb, 81)
	p.is(testcluster.Denied, other, theWeb, 80)
	p.is(testcluster.OK, theWeb, other, 80)

	// Labels change, of pods and of their namespace.
	relabel := func(name string, labels map[string]string) {
		t.Helper()
		o := ok[*corev1.Pod](t)(core.Pods("friends").Get(ctx, name, metav1.GetOptions{}))
		o.Labels = labels
		ok[*corev1.Pod](t)(core.Pods("friends").Update(ctx, o, metav1.UpdateOptions{}))
	}
	relabel("other", client)
	p.becomes(testcluster.OK, other, theWeb, 80)
	relabel("client", nil)
	p.becomes(testcluster.Denied, theClient, theWeb, 80)
	friends.Labels["team"] = "blue"
	friends = ok[*corev1.Namespace](t)(core.Namespaces().Update(ctx, friends, metav1.UpdateOptions{}))
	p.becomes(testcluster.Denied, other, theWeb, 80)
	friends.Labels["team"] = "red"
	ok[*corev1.Namespace](t)(core.Namespaces().Update(ctx, friends, metav1.UpdateOptions{}))
	p.becomes(testcluster.OK, other, theWeb, 80)

	// After a restart of netplugin existing connections and policies stay.
	if err := p.Hosts()[0].RestartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	p.is(testcluster.OK, other, theWeb, 80)
	p.is(testcluster.Denied, theClient, theWeb, 80)

	// A policy that its watch does not tell of: no pod comes that it selects.
	late := p.waitsFor("networkpolicies", func() {
		create("closed", networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "late"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		})
	}, func() testcluster.ContainerSpec { return p.make("shop", "late", map[string]string{"app": "late"}) }).ContainerSpec
	p.is(testcluster.Denied, late.Name, other, 80)

	p.namedOnly(other)
	p.waitsForEach()
	p.fixedAddress()

	// Not another pod's name, nor a network that there is not.
	forged := late
	forged.Name = "forged"
	forged.Args = append(forged.Args[:3:3], [2]string{"K8S_POD_UID", "1-2-3"})
	p.refused(forged, types.ErrTryAgainLater, "no such pod with UID 1-2-3")
	p.refused(p.make("shop", "nowhere", map[string]string{"io.contiv.network": "none"}), types.ErrInvalidNetworkConfig, "there are default-net")
	p.waitEvent("shop", "nowhere", "io.contiv.network")

	// The end of a pod needs neither netmaster nor an API server.
	if err := p.Process("netmaster").Pause(); err != nil {
		t.Fatal(err)
	}
	del := p.CNIDel(ctx, late)
	if err := p.Process("netmaster").Resume(); err != nil || del != nil {
		t.Error(err, del)
	}
}

// namedOnly: pods whose runtimes name no UID, as cri-dockerd and 1.x's contivk8s, are under
// the policies of their labels too, of which "closed" lets none with app=late send.
func (p *pods) namedOnly(to string) {
	p.t.Helper()
	labels := map[string]string{"app": "late"}
	s := p.make("shop", "nameless", labels)
	s.Args = s.Args[:3]
	p.comes(s)
	p.is(testcluster.Denied, s.Name, to, 80)

	p.make("shop", "old", labels)
	ns := ok[*testcluster.Namespace](p.t)(p.AddNamespace("shop-old"))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.Hosts()[0].CNISocket())
	}}}
	until(p.t, "a pod of 1.x's contivk8s comes", func() bool {
		body := fmt.Sprintf(`{"K8S_POD_NAME":"old","K8S_POD_NAMESPACE":"shop","K8S_POD_INFRA_CONTAINER_ID":"shop-old","CNI_NETNS":%q,"CNI_IFNAME":"eth0"}`, ns.Path())
		req := ok[*http.Request](p.t)(http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://x/ContivCNI.AddPod", strings.NewReader(body)))
		req.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(req)
		must(p.t, err)
		defer func() { _ = answer.Body.Close() }()
		text := ok[[]byte](p.t)(io.ReadAll(answer.Body))
		p.t.Logf("%d %s", answer.StatusCode, text)
		return answer.StatusCode == http.StatusOK
	})
	p.is(testcluster.Denied, "shop-old", to, 80)
}

// waitsForEach: a new pod waits for all kinds that each cluster has.
func (p *pods) waitsForEach() {
	p.t.Helper()
	ctx := p.t.Context()
	for kind, change := range map[string]func(){
		"pods": func() {}, // the pod itself
		"namespaces": func() {
			ns := ok[*corev1.Namespace](p.t)(p.client.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{}))
			ns.Labels["seen"] = "x"
			ok[*corev1.Namespace](p.t)(p.client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}))
		},
	} {
		p.waitsFor(kind, change, func() testcluster.ContainerSpec { return p.make("shop", "behind-"+kind, nil) })
	}
}

// fixedAddress: a pod gets the address that its annotation names, and so does the next
// of its name; another pod does not, and has an event that says why.
func (p *pods) fixedAddress() {
	p.t.Helper()
	ctx := p.t.Context()
	asking := func(name, container, addresses string) testcluster.ContainerSpec {
		o := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"contiv.io/ipv4": addresses}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		return attachAs(container, ok[*corev1.Pod](p.t)(p.client.CoreV1().Pods("shop").Create(ctx, o, metav1.CreateOptions{})))
	}
	is := func(s testcluster.ContainerSpec) {
		p.t.Helper()
		if a := ok[*testcluster.Attachment](p.t)(p.AddContainer(ctx, s)); a.IPv4.String() != "10.1.1.78" {
			p.t.Errorf("%s has %s", s.Name, a.IPv4)
		}
	}
	first := asking("db-1", "first", "10.1.1.77,10.1.1.78")
	is(first)
	thief := asking("thief", "thief", "10.1.1.78")
	p.refused(thief, 102, "10.1.1.78 is used by endpoint")
	p.waitEvent("shop", "thief", "name a free address")
	if err := p.DelContainer(ctx, first); err != nil {
		p.t.Fatal(err)
	}
	p.refused(thief, 102, "10.1.1.78 is reserved for pod shop/db-1")
	if err := p.client.CoreV1().Pods("shop").Delete(ctx, "db-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		p.t.Fatal(err)
	}
	is(asking("db-1", "second", "10.1.1.77,10.1.1.78"))
}
