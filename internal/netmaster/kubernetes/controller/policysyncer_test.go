package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	served "k8s.io/client-go/tools/cache/testing"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// source is client-go's fake of one kind.
type source struct {
	*served.FakeControllerSource
	down bool
}

func (s *source) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if s.down {
		return nil, errors.New("connection refused")
	}
	return s.FakeControllerSource.List(o)
}

func (s *source) Versions(ctx context.Context) (runtime.Object, error) {
	return s.List(ctx, metav1.ListOptions{})
}

func (s *source) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return s.FakeControllerSource.Watch(o)
}

type lab struct {
	t       *testing.T
	ctrl    *control.Controller
	st      *memory.Store
	syncer  *PolicySyncer
	sources map[string]*source

	mu       sync.Mutex
	reported []string
}

func newLab(t *testing.T, change func(*Config)) *lab {
	t.Helper()
	l := &lab{t: t, st: memory.New(), sources: map[string]*source{}}
	l.ctrl = control.New(l.st, control.Options{})
	c := Config{Control: l.ctrl, Sources: map[string]mirror.Source{}, Tell: func(r Report) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reported = append(l.reported, fmt.Sprint(r.Kind, " ", r.Name, " ", r.Problems, " ", r.Err))
	}}
	for _, kind := range []string{mirror.Pods, mirror.Namespaces, mirror.NetworkPolicies, mirror.ClusterNetworkPolicies} {
		l.sources[kind] = &source{FakeControllerSource: served.NewFakeControllerSource()}
		c.Sources[kind] = l.sources[kind]
	}
	if change != nil {
		change(&c)
	}
	l.syncer = New(c)
	l.syncer.lingering = 0
	return l
}

// start runs a task until the test's end, or the returned function is called.
func (l *lab) start(do func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	l.t.Cleanup(func() { _ = stop() }) // ended by it
	return stop
}

// leader is a new term.
func (l *lab) leader() store.Fence {
	l.t.Helper()
	rev, err := l.st.Update(context.Background(), func(tx store.Tx) error {
		return tx.Create("/test/leader", []byte("x"), nil)
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return store.Fence{Key: "/test/leader", Create: rev}
}

// keeps starts the syncer, and has it lead a new term until stop.
func (l *lab) keeps() (stop func() error) {
	l.t.Helper()
	l.start(l.syncer.Run)
	fence := l.leader()
	return l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
}

// rows are the namespaces and policies that there are, a line each.
func (l *lab) rows() []string {
	l.t.Helper()
	v, err := l.ctrl.View(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	var out []string
	for _, n := range v.Identities.Namespaces() {
		out = append(out, fmt.Sprint("namespace ", n.Name, " ", n.Labels))
	}
	for _, p := range v.Policies.NetworkPolicies("") {
		out = append(out, fmt.Sprint(p.Policy.Key, " ", p.Policy.Owner, " ", p.Policy.Tier, " ", len(p.Rules)))
	}
	slices.Sort(out)
	return out
}

func (l *lab) want(rows ...string) {
	l.t.Helper()
	var got []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if got = l.rows(); slices.Equal(got, rows) {
			return
		}
		<-time.After(2 * time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Fatalf("rows\n%s\nwant\n%s\ntold %v", strings.Join(got, "\n"), strings.Join(rows, "\n"), l.reported)
}

func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: labels}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: meta("", name, labels)}
}

func isolate(ns, name string, change ...func(*networkingv1.NetworkPolicySpec)) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: meta(ns, name, nil)}
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

func open(s *networkingv1.NetworkPolicySpec) {
	s.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
}

func (l *lab) tenant(name model.TenantName) {
	l.t.Helper()
	valid, err := model.Check(model.Tenant{Name: name})
	if err == nil {
		_, err = l.ctrl.Put(context.Background(), control.Admin(), control.ChangeTenant(valid, false))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// TestStoreFollowsKubernetesObjects: what comes, changes and goes in Kubernetes does so in the store, in the
// tenants of namespaces; the next leader takes away what went meanwhile, and before
// all lists are in nothing.
func TestStoreFollowsKubernetesObjects(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.start(l.syncer.Run)
	fence := l.leader()
	stop := l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })

	l.sources[mirror.Namespaces].Add(namespace("a", map[string]string{"team": "x"}))
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "p"))
	l.want("default:kubernetes.a.p kubernetes kubernetes 0", "namespace a map[team:x]")
	l.sources[mirror.NetworkPolicies].Modify(isolate("a", "p", open))
	l.sources[mirror.ClusterNetworkPolicies].Add(&policyv1beta1.ClusterNetworkPolicy{
		ObjectMeta: meta("", "all", nil),
		Spec: policyv1beta1.ClusterNetworkPolicySpec{
			Tier: policyv1beta1.AdminTier, Subject: policyv1beta1.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
			Ingress: []policyv1beta1.ClusterNetworkPolicyIngressRule{{
				Action: policyv1beta1.ClusterNetworkPolicyRuleActionDeny,
				From:   []policyv1beta1.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
			}},
		},
	})
	l.want("default:kubernetes-cluster.all kubernetes admin 1", "default:kubernetes.a.p kubernetes kubernetes 1", "namespace a map[team:x]")

	// A namespace's tenant, which comes later.
	l.sources[mirror.Namespaces].Modify(namespace("a", map[string]string{"io.contiv.tenant": "blue"}))
	l.want("namespace a map[io.contiv.tenant:blue]")
	l.tenant("blue")
	const inBlue, cluster, ns = "blue:kubernetes.a.p kubernetes kubernetes 1", "blue:kubernetes-cluster.all kubernetes admin 1", "namespace a map[io.contiv.tenant:blue]"
	l.want(cluster, inBlue, ns)

	// Deleted while there is no leader.
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Lead: %v", err)
	}
	l.sources[mirror.NetworkPolicies].Delete(isolate("a", "p"))
	l.want(cluster, inBlue, ns)
	l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
	l.want(cluster, ns)
	l.sources[mirror.Namespaces].Delete(namespace("a", nil))
	l.want()
}

// TestUnlistedKindsDeleteNothing: with one kind not listed yet, nothing is taken for gone.
func TestUnlistedKindsDeleteNothing(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	fence := l.leader()
	n, err := model.Check(model.Namespace{Name: "old"})
	if err == nil {
		err = l.ctrl.Kubernetes.PutNamespace(context.Background(), control.Leader(fence), n)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.sources[mirror.ClusterNetworkPolicies].down = true
	l.start(l.syncer.Run)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := l.syncer.Lead(ctx, fence); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lead: %v", err)
	}
	l.want("namespace old map[]")
}

// TestPreviousLeaderWritesNothing: a netmaster that no longer leads writes nothing, and gets an error.
func TestPreviousLeaderWritesNothing(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.start(l.syncer.Run)
	fence := l.leader()
	fence.Create++
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.syncer.Lead(ctx, fence); !errors.Is(err, store.ErrFenced) {
		t.Errorf("Lead: %v", err)
	}
	l.want()
}

// TestFailingObjectDelaysNoOther: an object that cannot be kept, and is tried ever more seldom, holds
// up no other one.
func TestFailingObjectDelaysNoOther(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.start(l.syncer.Run)
	l.sources[mirror.Namespaces].Add(namespace("NO NAME", nil))
	fence := l.leader()
	l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
	trials := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, told := range l.reported {
			if strings.Contains(told, "NO NAME") {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(time.Minute); trials() < 6; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d trials", trials())
		}
	}
	// Who waited for it would be kept with one of its trials, of which the next is in more
	// than 3 s; a busy machine may need as long, but not each time.
	want := []string{}
	for i := range 5 {
		before := trials()
		l.sources[mirror.Namespaces].Add(namespace(fmt.Sprint("a", i), nil))
		want = append(want, fmt.Sprintf("namespace a%d map[]", i))
		l.want(want...)
		if trials() == before {
			return
		}
	}
	t.Error("kept only as the other one was tried")
}

// TestNamespacePoliciesApplyInItsPodsTenants: where pods may choose, a namespace's policies are in the tenants of
// its pods too, unless the namespace names one.
func TestNamespacePoliciesApplyInItsPodsTenants(t *testing.T) {
	for _, may := range []bool{false, true} {
		l := newLab(t, func(c *Config) { c.Choices.Tenant = may })
		l.start(l.ctrl.Run)
		l.start(l.syncer.Run)
		l.tenant("blue")
		l.sources[mirror.Namespaces].Add(namespace("a", nil))
		l.sources[mirror.NetworkPolicies].Add(isolate("a", "p"))
		fence := l.leader()
		l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
		l.want("default:kubernetes.a.p kubernetes kubernetes 0", "namespace a map[]")
		l.sources[mirror.Pods].Add(&corev1.Pod{ObjectMeta: meta("a", "one", map[string]string{"io.contiv.tenant": "blue"})})
		l.sources[mirror.Namespaces].Modify(namespace("a", map[string]string{"seen": "x"})) // after it
		rows := []string{"default:kubernetes.a.p kubernetes kubernetes 0", "namespace a map[seen:x]"}
		if may {
			rows = append([]string{"blue:kubernetes.a.p kubernetes kubernetes 0"}, rows...)
		}
		l.want(rows...)
		if s := l.syncer.State(); len(s.Kinds) != 4 || s.Failed == nil || len(s.Failed) != 0 {
			t.Errorf("state %v", s)
		}
	}
}

// TestPolicyAcrossTenantsIsReported: a ClusterNetworkPolicy between pods of two tenants is reported, from
// when a namespace makes it so until one makes it otherwise.
func TestPolicyAcrossTenantsIsReported(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.start(l.syncer.Run)
	l.tenant("blue")
	l.sources[mirror.Namespaces].Add(namespace("shop", nil))
	l.sources[mirror.Namespaces].Add(namespace("dev", map[string]string{"io.contiv.tenant": "blue"}))
	named := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{model.NamespaceNameLabel: name}}
	}
	l.sources[mirror.ClusterNetworkPolicies].Add(&policyv1beta1.ClusterNetworkPolicy{
		ObjectMeta: meta("", "apart", nil),
		Spec: policyv1beta1.ClusterNetworkPolicySpec{
			Tier: policyv1beta1.AdminTier, Subject: policyv1beta1.ClusterNetworkPolicySubject{Namespaces: named("shop")},
			Ingress: []policyv1beta1.ClusterNetworkPolicyIngressRule{{
				Action: policyv1beta1.ClusterNetworkPolicyRuleActionDeny,
				From:   []policyv1beta1.ClusterNetworkPolicyIngressPeer{{Namespaces: named("dev")}, {Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}}},
			}},
		},
	})
	fence := l.leader()
	l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
	last := func() (told string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range l.reported {
			if strings.Contains(s, "clusternetworkpolicies") {
				told = s
			}
		}
		return told
	}
	until := func(when string, right func(string) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !right(last()); <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: told %s", when, last())
			}
		}
	}
	const first, second = "spec.ingress[0].from[0]: selects pods of other tenants than the subject's (blue)", "spec.ingress[0].from[1]: selects pods"
	until("the peer is in tenant blue", func(s string) bool { return strings.Contains(s, first) && !strings.Contains(s, second) })
	l.sources[mirror.Namespaces].Modify(namespace("dev", map[string]string{"io.contiv.tenant": "blue", "env": "dev"}))
	until("by its label too", func(s string) bool { return strings.Contains(s, first) && strings.Contains(s, second) })
	l.sources[mirror.Namespaces].Modify(namespace("dev", map[string]string{"env": "dev"}))
	until("the peer is in tenant default", func(s string) bool { return !strings.Contains(s, "tenants") })
}

// TestUnrealisableObjectsAreReported: an object that cannot be realised is reported.
func TestUnrealisableObjectsAreReported(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.start(l.syncer.Run)
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "odd", func(s *networkingv1.NetworkPolicySpec) { s.PolicyTypes = []networkingv1.PolicyType{"Sideways"} }))
	fence := l.leader()
	l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
	l.want("default:kubernetes.a.odd kubernetes kubernetes 0", "namespace a map[]")
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		l.mu.Lock()
		told := strings.Join(l.reported, "\n")
		l.mu.Unlock()
		if strings.Contains(told, "networkpolicies a/odd") && strings.Contains(told, "spec.policyTypes[0]") {
			if s := l.syncer.State(); s.Failed[mirror.NetworkPolicies] != 1 {
				t.Errorf("state %v", s)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("told %s", told)
		}
	}
}
