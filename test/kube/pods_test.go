//go:build integration

package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
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

	"github.com/contiv/netplugin/v2/internal/lab"
)

// door is netmaster's way to its API server, which can hold back the watches of a
// resource.
type door struct {
	mu   sync.Mutex
	held string
	open chan struct{} // closed when nothing is held; nil = nothing is
}

func (d *door) hold(resource string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held, d.open = resource, make(chan struct{})
}

func (d *door) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		close(d.open)
		d.held, d.open = "", nil
	}
}

// wait returns when a request's answer may go on.
func (d *door) wait(r *http.Request) {
	d.mu.Lock()
	held, open := d.held, d.open
	d.mu.Unlock()
	if open == nil || !strings.HasSuffix(r.URL.Path, "/"+held) {
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
	d *door
	r *http.Request
}

func (b behind) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.d.wait(b.r)
	return n, err
}

// serve hands requests that come to a listener on to an API server, as the user of a
// configuration, until the test's end.
func (d *door) serve(t *testing.T, ln net.Listener, config *rest.Config) {
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
		_ = s.Close() // nobody asks any more
		<-done
	})
}

// pods is a host with a data plane whose netmaster follows an API server.
type pods struct {
	*lab.Lab
	t      *testing.T
	client kubernetes.Interface
	config *rest.Config
	door   *door
}

// podsLab starts them, with a network of a subnet.
func podsLab(t *testing.T, subnet string, change ...func(*lab.Config)) *pods {
	t.Helper()
	c, client := control(t)
	dir := t.TempDir()
	cfg := clientapi.NewConfig()
	cfg.Clusters["c"], cfg.Contexts["c"] = &clientapi.Cluster{Server: "http://127.0.0.1:18080"}, &clientapi.Context{Cluster: "c"}
	cfg.CurrentContext = "c"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := lab.Build(t.Context(), ".", bin); err != nil {
		t.Fatal(err)
	}
	lc := lab.Config{Name: "kubepods", BinDir: bin, Hosts: 1, Embedded: true, MasterArgs: []string{"--kubeconfig", file}}
	for _, f := range change {
		f(&lc)
	}
	if m := lc.Missing(); len(m) > 0 {
		lacks(t, m[0])
	}
	l, err := lab.Up(t.Context(), lc)
	if err != nil {
		t.Fatal(err)
	}
	p := &pods{Lab: l, t: t, client: client, config: config(t, c), door: &door{}}
	t.Cleanup(func() {
		p.door.release()
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
	p.door.serve(t, ln, p.config)
	if out, err := l.Netctl(t.Context(), "network", "create", "-e", "vxlan", "-s", subnet, "default-net"); err != nil {
		t.Fatal(err, out)
	}
	return p
}

// make makes a pod and returns how a runtime attaches it.
func (p *pods) make(namespace, name string, labels map[string]string) lab.ContainerSpec {
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

func attachAs(container string, o *corev1.Pod) lab.ContainerSpec {
	return lab.ContainerSpec{Name: container, Host: "h1", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", o.Namespace}, {"K8S_POD_NAME", o.Name}, {"K8S_POD_UID", string(o.UID)},
	}}
}

// attach attaches pods, which then answer at TCP ports 80 and 81.
func (p *pods) attach(all ...lab.ContainerSpec) {
	p.t.Helper()
	for _, s := range all {
		ok[*lab.Attachment](p.t)(p.AddContainer(p.t.Context(), s))
		ok[func()](p.t)(p.Serve(s.Name, "tcp/80", "tcp/81"))
	}
}

// refused fails unless ADD is answered by a code, with a text.
func (p *pods) refused(s lab.ContainerSpec, code uint, want string) {
	p.t.Helper()
	_, err := p.CNIAdd(p.t.Context(), s)
	e, is := errors.AsType[*types.Error](err)
	if !is || e.Code != code || !strings.Contains(e.Details, want) {
		p.t.Fatalf("ADD of %s: %v, want code %d with %q", s.Name, err, code, want)
	}
}

func (p *pods) verdict(from, to string, port uint16) lab.Verdict {
	p.t.Helper()
	a := ok[*lab.Attachment](p.t)(p.Container(to))
	ns := ok[*lab.Namespace](p.t)(p.Space(from))
	answer := ns.Probe(p.t.Context(), lab.Target{Proto: "tcp", Addr: a.IPv4, Port: port}, time.Second)
	if answer.Err != nil {
		p.t.Fatal(answer.Err)
	}
	return answer.Verdict
}

// is fails unless packets have a verdict at once; becomes, unless they get it.
func (p *pods) is(want lab.Verdict, from, to string, port uint16) {
	p.t.Helper()
	if got := p.verdict(from, to, port); got != want {
		p.t.Errorf("from %s to %s port %d: %s, want %s", from, to, port, got, want)
	}
}

func (p *pods) becomes(want lab.Verdict, from, to string, port uint16) {
	p.t.Helper()
	until(p.t, from+" to "+to+" becomes "+string(want), func() bool { return p.verdict(from, to, port) == want })
}

// Policies of Kubernetes select pods, from their first packet on, on a real data plane:
// default deny and an allow by namespace, labels and a port's name; labels of pods and
// namespaces count when they change; a pod is never there before what there was.
func TestPodsUnderPolicies(t *testing.T) {
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
	p.is(lab.OK, theClient, theWeb, 80)
	p.is(lab.Denied, theClient, theWeb, 81)
	p.is(lab.Denied, other, theWeb, 80)
	p.is(lab.OK, theWeb, other, 80)

	// Labels change, of pods and of their namespace.
	relabel := func(name string, labels map[string]string) {
		t.Helper()
		o := ok[*corev1.Pod](t)(core.Pods("friends").Get(ctx, name, metav1.GetOptions{}))
		o.Labels = labels
		ok[*corev1.Pod](t)(core.Pods("friends").Update(ctx, o, metav1.UpdateOptions{}))
	}
	relabel("other", client)
	p.becomes(lab.OK, other, theWeb, 80)
	relabel("client", nil)
	p.becomes(lab.Denied, theClient, theWeb, 80)
	friends.Labels["team"] = "blue"
	friends = ok[*corev1.Namespace](t)(core.Namespaces().Update(ctx, friends, metav1.UpdateOptions{}))
	p.becomes(lab.Denied, other, theWeb, 80)
	friends.Labels["team"] = "red"
	ok[*corev1.Namespace](t)(core.Namespaces().Update(ctx, friends, metav1.UpdateOptions{}))
	p.becomes(lab.OK, other, theWeb, 80)

	// netplugin starts anew: what stands, stands, under the same policies.
	if err := p.Hosts()[0].RestartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	p.is(lab.OK, other, theWeb, 80)
	p.is(lab.Denied, theClient, theWeb, 80)

	// A policy that its watch does not tell of: no pod comes that it selects.
	p.door.hold("networkpolicies")
	create("closed", networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "late"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
	})
	late := p.make("shop", "late", map[string]string{"app": "late"})
	ok[*lab.Namespace](t)(p.AddNamespace(late.Name))
	p.refused(late, types.ErrTryAgainLater, "networkpolicies")
	if links := ok[[]string](t)(ok[*lab.Namespace](t)(p.Space(late.Name)).Links()); len(links) != 1 {
		t.Errorf("the refused pod has the interfaces %v", links)
	}
	p.door.release()
	until(t, "the pod comes", func() bool {
		_, err := p.CNIAdd(ctx, late)
		return err == nil
	})
	o := ok[*lab.Namespace](t)(p.Space(late.Name))
	a := ok[*lab.Attachment](t)(p.Container(other))
	if got := o.Probe(ctx, lab.Target{Proto: "tcp", Addr: a.IPv4, Port: 80}, time.Second); got.Verdict != lab.Denied {
		t.Errorf("the late pod's packets: %v, want that they are denied", got)
	}

	p.waitsForEach()
	p.fixedAddress()

	// Not another pod's name, nor a network that there is not.
	forged := late
	forged.Name = "forged"
	forged.Args = append(forged.Args[:3:3], [2]string{"K8S_POD_UID", "1-2-3"})
	ok[*lab.Namespace](t)(p.AddNamespace(forged.Name))
	p.refused(forged, types.ErrTryAgainLater, "no such pod with UID 1-2-3")
	nowhere := p.make("shop", "nowhere", map[string]string{"io.contiv.network": "none"})
	ok[*lab.Namespace](t)(p.AddNamespace(nowhere.Name))
	p.refused(nowhere, types.ErrInvalidNetworkConfig, "there are default-net")
	until(t, "an event on the pod", func() bool {
		list, err := p.client.EventsV1().Events("shop").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, aboutNetwork)
	})

	// The end of a pod needs neither netmaster nor an API server.
	if err := p.Process("netmaster").Pause(); err != nil {
		t.Fatal(err)
	}
	del := p.CNIDel(ctx, late)
	if err := p.Process("netmaster").Resume(); err != nil || del != nil {
		t.Error(err, del)
	}
}

func aboutNetwork(e eventsv1.Event) bool {
	return e.Regarding.Kind == "Pod" && e.Regarding.Name == "nowhere" && strings.Contains(e.Note, "io.contiv.network")
}

// waitsForEach: with the watch of any kind that policies are made of behind, a new pod
// waits, and fails with code 11 and the kind; when it goes on, the pod comes.
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
		p.door.hold(kind)
		change()
		s := p.make("shop", "behind-"+kind, nil)
		ok[*lab.Namespace](p.t)(p.AddNamespace(s.Name))
		p.refused(s, types.ErrTryAgainLater, kind)
		p.door.release()
		until(p.t, "the pod comes after "+kind, func() bool {
			_, err := p.CNIAdd(ctx, s)
			return err == nil
		})
	}
}

// fixedAddress: a pod gets the address that its annotation names, and so does the next
// of its name; another pod does not, and has an event that says why.
func (p *pods) fixedAddress() {
	p.t.Helper()
	ctx := p.t.Context()
	asking := func(name, container, addresses string) lab.ContainerSpec {
		o := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"contiv.io/ipv4": addresses}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		return attachAs(container, ok[*corev1.Pod](p.t)(p.client.CoreV1().Pods("shop").Create(ctx, o, metav1.CreateOptions{})))
	}
	is := func(s lab.ContainerSpec) {
		p.t.Helper()
		if a := ok[*lab.Attachment](p.t)(p.AddContainer(ctx, s)); a.IPv4.String() != "10.1.1.78" {
			p.t.Errorf("%s has %s", s.Name, a.IPv4)
		}
	}
	first := asking("db-1", "first", "10.1.1.77,10.1.1.78")
	is(first)
	thief := asking("thief", "thief", "10.1.1.78")
	ok[*lab.Namespace](p.t)(p.AddNamespace(thief.Name))
	p.refused(thief, 102, "10.1.1.78 is used by endpoint")
	until(p.t, "an event on the pod that asks for another's address", func() bool {
		list, err := p.client.EventsV1().Events("shop").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == "thief" && strings.Contains(e.Note, "name a free address")
		})
	})
	if err := p.DelContainer(ctx, first); err != nil {
		p.t.Fatal(err)
	}
	p.refused(thief, 102, "10.1.1.78 is reserved for pod shop/db-1")
	if err := p.client.CoreV1().Pods("shop").Delete(ctx, "db-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		p.t.Fatal(err)
	}
	is(asking("db-1", "second", "10.1.1.77,10.1.1.78"))
}
