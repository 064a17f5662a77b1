//go:build integration

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// line is the way of a mirror to its API server, which can be cut.
type line struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.New("the line is cut")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *line) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, c := range l.conns {
		_ = c.Close() // it may be closed
	}
	l.conns = nil
}

// follow runs a mirror of a cluster until the test's end.
func follow(t *testing.T, config *rest.Config) (*mirror.Mirror, *line) {
	t.Helper()
	l := &line{}
	config = rest.CopyConfig(config)
	config.Dial = l.dial
	sources, err := mirror.Sources(config)
	if err != nil {
		t.Fatal(err)
	}
	m := mirror.New(sources, func(string, mirror.Name, metav1.Object, metav1.Object) {})
	background(t, m.Run)
	return m, l
}

// background runs a task until the test's end; it must end with its context.
func background(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the task ended with %v", err)
		}
	})
}

// config is the administrator's, without a limit of requests.
func config(t *testing.T, c *cluster.Control) *rest.Config {
	t.Helper()
	out, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	out.QPS = -1
	return out
}

// ok ends the test at an error.
func ok[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func makeNamespace(t *testing.T, client kubernetes.Interface, name string, labels map[string]string) *corev1.Namespace {
	t.Helper()
	return ok[*corev1.Namespace](t)(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))
}

// makePod makes a pod that is on a node and runs, as far as the API server can see.
func makePod(ctx context.Context, client kubernetes.Interface, namespace, name string) (*corev1.Pod, error) {
	return client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}},
		},
	}, metav1.CreateOptions{})
}

// reaches fails unless the mirror reaches a moment in time.
func reaches(t *testing.T, m *mirror.Mirror, moment string, in time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), in)
	defer cancel()
	if err := m.Await(ctx, moment); err != nil {
		t.Fatal(err)
	}
}

// lags fails unless the mirror says that it does not reach a moment, and why.
func lags(t *testing.T, m *mirror.Mirror, moment string, in time.Duration, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), in)
	defer cancel()
	err := m.Await(ctx, moment)
	if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), why) {
		t.Fatalf("Await: %v, want that it is unavailable, and %q", err, why)
	}
}

// until waits for what an API server or a mirror does by itself.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	untilAfter(t, 3*time.Minute, what, holds) // a busy machine needs more than one
}

// untilSlow is until for what takes minutes by itself: kubelets bring a ConfigMap into a pod
// within one or two, netplugin looks each, and a pod that has ended starts again later.
func untilSlow(t *testing.T, what string, holds func() bool) {
	t.Helper()
	untilAfter(t, 15*time.Minute, what, holds)
}

func untilAfter(t *testing.T, enough time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", enough, what)
		}
	}
}

const patience = 20 * time.Second

// Of a real API server the mirror has, at the moment of each answer, what was written:
// from a list and from a watch, the CRD's objects once there is a CRD.
func TestMirrorHasWhatWasWritten(t *testing.T) {
	c, client := control(t)
	ctx := t.Context()
	makeNamespace(t, client, "shop", map[string]string{"team": "red"})
	early := ok[*corev1.Pod](t)(makePod(ctx, client, "shop", "early"))
	m, _ := follow(t, config(t, c))
	reaches(t, m, early.ResourceVersion, patience)
	if p, _ := m.Get(mirror.Pods, mirror.Name{Namespace: "shop", Name: "early"}).(*corev1.Pod); p == nil || p.UID != early.UID || p.Spec.Containers[0].Ports[0].Name != "http" || p.Labels["app"] != "web" {
		t.Errorf("of a list: %v", p)
	}
	if ns := m.Get(mirror.Namespaces, mirror.Name{Name: "shop"}); ns == nil || ns.GetLabels()["team"] != "red" {
		t.Errorf("of a list: %v", ns)
	}

	pods := client.CoreV1().Pods("shop")
	early.Status.Phase = corev1.PodSucceeded
	ok[*corev1.Pod](t)(pods.UpdateStatus(ctx, early, metav1.UpdateOptions{}))
	policy := ok[*networkingv1.NetworkPolicy](t)(client.NetworkingV1().NetworkPolicies("shop").Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}, metav1.CreateOptions{}))
	reaches(t, m, policy.ResourceVersion, patience)
	if p, _ := m.Get(mirror.Pods, mirror.Name{Namespace: "shop", Name: "early"}).(*corev1.Pod); p == nil || p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("of a watch: %v", p)
	}
	if p, _ := m.Get(mirror.NetworkPolicies, mirror.Name{Namespace: "shop", Name: "deny"}).(*networkingv1.NetworkPolicy); p == nil || p.UID != policy.UID {
		t.Errorf("of a watch: %v", p)
	}

	// The CRD comes, and goes.
	all := config(t, c)
	remove := installCRD(t, all)
	policies := clusterPolicies(t, all)
	made := policies.create(t, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: denyAll(7)})
	reaches(t, m, made.GetResourceVersion(), patience)
	if p, _ := m.Get(mirror.ClusterNetworkPolicies, mirror.Name{Name: "first"}).(*policyv1beta1.ClusterNetworkPolicy); p == nil || p.Spec.Priority != 7 {
		t.Errorf("of a new resource: %v", p)
	}
	made = policies.create(t, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: denyAll(8)})
	reaches(t, m, made.GetResourceVersion(), patience)
	if len(m.All(mirror.ClusterNetworkPolicies)) != 2 {
		t.Errorf("policies %v, want two", m.All(mirror.ClusterNetworkPolicies))
	}
	remove()
	until(t, "policies are gone with their resource", func() bool { return len(m.All(mirror.ClusterNetworkPolicies)) == 0 })
	installCRD(t, all)
	made = policies.create(t, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "third"}, Spec: denyAll(9)})
	reaches(t, m, made.GetResourceVersion(), patience)

	if err := pods.Delete(ctx, "early", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	late := ok[*corev1.Pod](t)(makePod(ctx, client, "shop", "late"))
	reaches(t, m, late.ResourceVersion, patience)
	if p := m.Get(mirror.Pods, mirror.Name{Namespace: "shop", Name: "early"}); p != nil {
		t.Errorf("deleted, and still there: %v", p)
	}
}

// While the API server does not answer, or is gone, the mirror says that it is behind
// and keeps what it has; then it goes on.
func TestMirrorOutlivesAnOutage(t *testing.T) {
	c, client := control(t)
	ctx := t.Context()
	makeNamespace(t, client, "shop", nil)
	first := ok[*corev1.Pod](t)(makePod(ctx, client, "shop", "first"))
	m, l := follow(t, config(t, c))
	reaches(t, m, first.ResourceVersion, patience)

	later := strconv.Itoa(1 << 40) // a revision in the future
	if err := c.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	lags(t, m, later, 7*time.Second, "pods (") // longer than a question: why is said too
	if err := c.Resume(); err != nil {
		t.Fatal(err)
	}
	second := ok[*corev1.Pod](t)(makePod(ctx, client, "shop", "second"))
	reaches(t, m, second.ResourceVersion, patience)

	// Killed, while it has changed something that no watch from before can tell.
	l.set(true)
	if err := client.CoreV1().Pods("shop").Delete(ctx, "first", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	third := ok[*corev1.Pod](t)(makePod(ctx, client, "shop", "third"))
	lags(t, m, third.ResourceVersion, 2*time.Second, "the line is cut")
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if m.Get(mirror.Pods, mirror.Name{Namespace: "shop", Name: "first"}) == nil {
		t.Error("what was there is forgotten while nobody can be asked")
	}
	if err := c.Restart(ctx, false); err != nil {
		t.Fatal(err)
	}
	l.set(false)
	began := time.Now()
	fourth := ok[*corev1.Pod](t)(makePod(ctx, client, "shop", "fourth"))
	reaches(t, m, fourth.ResourceVersion, patience)
	t.Logf("up %v after the API server was back", time.Since(began).Round(time.Millisecond))
	if p := m.All(mirror.Pods); len(p) != 3 || p[mirror.Name{Namespace: "shop", Name: "first"}] != nil {
		t.Errorf("pods %v", p)
	}
}

// Another store behind the same address, whose resource versions are smaller: what was
// there before is gone, and what is there is known.
func TestMirrorFollowsAnotherStore(t *testing.T) {
	c, client := control(t)
	ctx := t.Context()
	makeNamespace(t, client, "shop", nil)
	var last *corev1.Pod
	for i := range 300 { // more than what an API server writes at its start
		last = ok[*corev1.Pod](t)(makePod(ctx, client, "shop", fmt.Sprint("p", i)))
	}
	m, _ := follow(t, config(t, c))
	reaches(t, m, last.ResourceVersion, patience)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(ctx, true); err != nil {
		t.Fatal(err)
	}
	until(t, "pods of the other store are gone", func() bool { return len(m.All(mirror.Pods)) == 0 })
	var ns *corev1.Namespace
	until(t, "a namespace can be made", func() (made bool) {
		var err error
		ns, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
		return err == nil
	})
	reaches(t, m, ns.ResourceVersion, patience)
	if m.Get(mirror.Namespaces, mirror.Name{Name: "new"}) == nil || m.Get(mirror.Namespaces, mirror.Name{Name: "shop"}) != nil {
		t.Errorf("namespaces %v", m.All(mirror.Namespaces))
	}
}

// Whom the API server does not know, it tells so; and so does the mirror.
func TestMirrorReportsUnauthorized(t *testing.T) {
	c, _ := control(t)
	unknown := rest.AnonymousClientConfig(config(t, c))
	unknown.BearerToken = "wrong"
	m, _ := follow(t, unknown)
	lags(t, m, "1", 3*time.Second, "Unauthorized")
}

// 5,000 pods: how long a mirror needs for them, what room they take in it, and how long a
// change takes. The figures are logged; the bounds are far beyond them.
func TestMirrorOfManyPodsIsSmall(t *testing.T) {
	const pods, namespaces = 5000, 50
	c, client := control(t)
	fast := ok[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config(t, c)))
	for i := range namespaces {
		makeNamespace(t, client, fmt.Sprint("ns", i), nil)
	}
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(32)
	for i := range pods {
		g.Go(func() error {
			_, err := makePod(t.Context(), fast, fmt.Sprint("ns", i%namespaces), fmt.Sprint("p", i))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("made %d pods in %v", pods, time.Since(began).Round(time.Millisecond))

	before := heap()
	began = time.Now()
	m, _ := follow(t, config(t, c))
	if err := m.AwaitLists(t.Context()); err != nil {
		t.Fatal(err)
	}
	listed := time.Since(began)
	if n := len(m.All(mirror.Pods)); n != pods {
		t.Fatalf("%d pods, want %d", n, pods)
	}
	room := heap() - before
	began = time.Now()
	late := ok[*corev1.Pod](t)(makePod(t.Context(), fast, "ns0", "late"))
	made := time.Since(began)
	reaches(t, m, late.ResourceVersion, patience)
	t.Logf("listed in %v; %d bytes a pod; a pod made in %v is known after %v, with all other kinds asked for",
		listed.Round(time.Millisecond), room/pods, made.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if room > pods*10_000 || listed > time.Minute {
		t.Errorf("%d bytes for %d pods, listed in %v", room, pods, listed)
	}
}

// heap is what is live on the heap, in bytes.
func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
