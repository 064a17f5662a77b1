package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"
)

// web is an API server of the four resources over HTTP, in JSON: lists in pages of two,
// metadata where only that is asked for, and watches with a bookmark before events.
type web struct {
	mu      sync.Mutex
	version int
	objects map[string][]metav1.Object // by path of the resource
	events  map[string][]watch.Event
	absent  map[string]bool // answered 404
	expired bool            // the next page of a list is no more
	gone    int             // versions before it a watch cannot go on from
	cut     chan struct{}   // closed: watches end
	asked   []string
}

const (
	podPath = "/api/v1/pods"
	cnpPath = "/apis/policy.networking.k8s.io/v1beta1/clusternetworkpolicies"
	cnpOld  = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
)

var kinds = map[string]string{
	podPath: "v1 Pod", "/api/v1/namespaces": "v1 Namespace",
	"/apis/networking.k8s.io/v1/networkpolicies": "networking.k8s.io/v1 NetworkPolicy",
	cnpPath: "policy.networking.k8s.io/v1beta1 ClusterNetworkPolicy", cnpOld: "policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy",
	servicePath: "v1 Service", slicePath: "discovery.k8s.io/v1 EndpointSlice", nodePath: "v1 Node", cidrPath: "networking.k8s.io/v1 ServiceCIDR",
}

func (s *web) change(path string, event watch.EventType, o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	o.SetUID(types.UID("u" + o.GetName()))
	s.objects[path] = slices.DeleteFunc(s.objects[path], func(x metav1.Object) bool { return nameOf(x) == nameOf(o) })
	if event != watch.Deleted {
		s.objects[path] = append(s.objects[path], o)
	}
	s.events[path] = append(s.events[path], watch.Event{Type: event, Object: o.(runtime.Object)})
}

func (s *web) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *web) status(w http.ResponseWriter, code int, e *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	status := e.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	_ = json.NewEncoder(w).Encode(status)
}

// typed is an object as JSON with its kind, which decoders ask for.
func typed(path string, o any) map[string]any {
	raw, _ := json.Marshal(o)
	out := map[string]any{}
	_ = json.Unmarshal(raw, &out)
	version, kind, _ := strings.Cut(kinds[path], " ")
	out["apiVersion"], out["kind"] = version, kind
	return out
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, q := r.URL.Path, r.URL.Query()
	s.mu.Lock()
	s.asked = append(s.asked, path+" "+r.Header.Get("Accept"))
	if kinds[path] == "" || s.absent[path] {
		s.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	if q.Get("watch") != "" {
		s.mu.Unlock()
		s.watch(w, r)
		return
	}
	defer s.mu.Unlock()
	from, _ := strconv.Atoi(q.Get("continue"))
	if from > 0 && s.expired {
		s.status(w, http.StatusGone, apierrors.NewResourceExpired("the rest is gone"))
		return
	}
	version, kind, _ := strings.Cut(kinds[path], " ")
	list := map[string]any{"apiVersion": version, "kind": kind + "List"}
	info := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	all := s.objects[path][from:]
	if q.Get("limit") != "" && len(all) > 2 {
		all = all[:2]
		info["continue"] = strconv.Itoa(from + 2)
	}
	items := []any{}
	meta := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
	for _, o := range all {
		item := typed(path, o)
		if meta {
			item = map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": item["metadata"]}
		}
		items = append(items, item)
	}
	if meta {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	list["metadata"], list["items"] = info, items
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func (s *web) watch(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	gone, cut := s.gone, s.cut
	s.mu.Unlock()
	switch {
	case err != nil:
		s.status(w, http.StatusBadRequest, apierrors.NewBadRequest(err.Error()))
		return
	case from < gone:
		s.status(w, http.StatusGone, apierrors.NewResourceExpired("too old"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	say := json.NewEncoder(w)
	path := r.URL.Path
	for sent := 0; ; {
		s.mu.Lock()
		events := s.events[path]
		s.mu.Unlock()
		for _, e := range events[min(sent, len(events)):] {
			sent++
			o, _ := e.Object.(metav1.Object)
			if at, _ := strconv.Atoi(o.GetResourceVersion()); at <= from {
				continue
			}
			mark := typed(path, map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(from)}})
			_ = say.Encode(map[string]any{"type": "BOOKMARK", "object": mark})
			_ = say.Encode(map[string]any{"type": e.Type, "object": typed(path, o)})
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// serveWeb runs a mirror of an API server over HTTP; its reports come as lines.
func serveWeb(t *testing.T) (*web, *Mirror, func() []string) {
	t.Helper()
	s := &web{version: 10, objects: map[string][]metav1.Object{}, events: map[string][]watch.Event{}, absent: map[string]bool{cnpPath: true, cnpOld: true}, cut: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	sources, err := Sources(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var told []string
	m := New(sources, func(kind string, name Name, old, now metav1.Object) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(kind, " ", name.Name, " ", old != nil, " ", now != nil))
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return s, m, func() []string {
		mu.Lock()
		defer mu.Unlock()
		out := told
		told = nil
		slices.Sort(out)
		return out
	}
}

func (s *web) now() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.version)
}

func webPod(name string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "a", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"long": "text", "contiv.io/ipv4": "10.1.1.7"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", HostNetwork: true, Volumes: []corev1.Volume{{Name: "v"}},
			InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9}}}},
			Containers:     []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}, {Name: "none"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: "text"},
	}
}

// TestListsComeInPages: lists in pages, watches with bookmarks, and metadata alone for the
// question; of a pod there is what is read, from a list as from a watch.
func TestListsComeInPages(t *testing.T) {
	s, m, told := serveWeb(t)
	for i := range 5 {
		s.change(podPath, watch.Added, webPod(fmt.Sprint("p", i)))
	}
	if err := within(t, m, s.now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	s.change(podPath, watch.Added, webPod("late"))
	s.change(podPath, watch.Deleted, webPod("p0"))
	s.change("/apis/networking.k8s.io/v1/networkpolicies", watch.Added, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "np", Namespace: "a"}})
	if err := within(t, m, s.now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p4", "late"} {
		pod, _ := m.Get(Pods, Name{Namespace: "a", Name: name}).(*corev1.Pod)
		if pod == nil {
			t.Fatalf("no pod %s", name)
		}
		want := webPod(name)
		want.UID, want.ResourceVersion = pod.UID, pod.ResourceVersion
		Trim(want)
		if got := fmt.Sprint(pod); got != fmt.Sprint(want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if !pod.Spec.HostNetwork || len(pod.Spec.Containers) != 1 || *pod.Spec.InitContainers[0].RestartPolicy != "Always" || pod.Status.Phase != "Running" ||
			len(pod.Annotations) != 1 || pod.Annotations["contiv.io/ipv4"] != "10.1.1.7" || pod.ManagedFields != nil || pod.Spec.Volumes != nil || pod.Labels["app"] != "web" {
			t.Errorf("%s: %v", name, pod)
		}
	}
	got := strings.Join(told(), ", ")
	if !strings.Contains(got, "networkpolicies np false true") || !strings.Contains(got, "pods p0 true false") {
		t.Errorf("told %s", got)
	}
	metadataAlone := false
	s.set(func() {
		for _, a := range s.asked {
			metadataAlone = metadataAlone || strings.HasPrefix(a, podPath) && strings.Contains(a, "PartialObjectMetadataList")
		}
	})
	if !metadataAlone {
		t.Errorf("asked %v, and never for metadata alone", s.asked)
	}
}

// TestExpiredListIsRequestedWhole: a list of which the rest is gone is asked for as a whole; a watch
// that cannot go on is followed by a list.
func TestExpiredListIsRequestedWhole(t *testing.T) {
	s, m, told := serveWeb(t)
	s.set(func() { s.expired = true })
	for i := range 5 {
		s.change(podPath, watch.Added, webPod(fmt.Sprint("p", i)))
	}
	if err := within(t, m, s.now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	told()
	s.set(func() {
		s.gone, s.events = 1000, map[string][]watch.Event{}
		s.version = 1000
		s.objects[podPath] = s.objects[podPath][1:] // without an event
		close(s.cut)
		s.cut = make(chan struct{})
	})
	if err := within(t, m, "1000", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if got := told(); !slices.Equal(got, []string{"pods p0 true false"}) {
		t.Errorf("told %v", got)
	}
}

// TestAbsentResourceDelaysNothing: a resource that the API server does not have delays no caller. Once it comes,
// its objects are known before a later moment counts as reached. When it goes again, the
// mirror has no objects of it.
func TestAbsentResourceDelaysNothing(t *testing.T) {
	s, m, told := serveWeb(t)
	if err := within(t, m, s.now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	s.set(func() { s.absent = map[string]bool{cnpOld: true} })
	policy := &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: policyv1beta1.ClusterNetworkPolicySpec{Tier: policyv1beta1.AdminTier, Priority: 7}}
	s.change(cnpPath, watch.Added, policy)
	if err := within(t, m, s.now(), 5*time.Second); err != nil { // sooner than appearEvery
		t.Fatal(err)
	}
	got, _ := m.Get(ClusterNetworkPolicies, Name{Name: "first"}).(*policyv1beta1.ClusterNetworkPolicy)
	if got == nil || got.Spec.Priority != 7 {
		t.Fatalf("got %v", got)
	}
	s.set(func() {
		s.absent = map[string]bool{cnpPath: true, cnpOld: true}
		s.objects[cnpPath] = nil
		close(s.cut)
		s.cut = make(chan struct{})
	})
	s.change(podPath, watch.Added, webPod("after"))
	if err := within(t, m, s.now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if o := m.Get(ClusterNetworkPolicies, Name{Name: "first"}); o != nil {
		t.Errorf("still there: %v", o)
	}
	if got := strings.Join(told(), ", "); !strings.Contains(got, "clusternetworkpolicies first true false") {
		t.Errorf("told %s", got)
	}
}

// TestMirrorFollowsVersionsOfAResource: an API server has ClusterNetworkPolicies in the version of network-policy-api
// v0.2.0 alone, in both after an upgrade, and then in the later one alone. The mirror has
// them all the time, and says in which version.
func TestMirrorFollowsVersionsOfAResource(t *testing.T) {
	s, m, told := serveWeb(t)
	serves := func(old, now bool) {
		s.set(func() {
			s.absent = map[string]bool{cnpOld: !old, cnpPath: !now}
			close(s.cut)
			s.cut = make(chan struct{})
		})
	}
	serves(true, false)
	for i, x := range []struct{ path, version string }{{cnpOld, "v1alpha2"}, {cnpOld, "v1alpha2"}, {cnpPath, "v1beta1"}} {
		name := fmt.Sprint("p", i)
		if i == 1 {
			serves(true, true)
		}
		if i == 2 {
			s.set(func() { s.objects[cnpPath], s.events[cnpPath] = s.objects[cnpOld], s.events[cnpOld] })
			serves(false, true)
		}
		if i == 0 {
			s.change(x.path, watch.Added, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "listed"}})
		}
		if err := within(t, m, s.now(), time.Minute); err != nil {
			t.Fatal(err)
		}
		s.change(x.path, watch.Added, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1beta1.ClusterNetworkPolicySpec{Tier: policyv1beta1.AdminTier}})
		if err := within(t, m, s.now(), time.Minute); err != nil {
			t.Fatal(err)
		}
		got, _ := m.Get(ClusterNetworkPolicies, Name{Name: name}).(*policyv1beta1.ClusterNetworkPolicy)
		if got == nil || got.Spec.Tier != policyv1beta1.AdminTier || got.GroupVersionKind().Version != x.version {
			t.Errorf("%s: %+v, want it by %s", name, got, x.version)
		}
		if n := len(m.All(ClusterNetworkPolicies)); n != i+2 {
			t.Errorf("%s: %d policies, want %d", name, n, i+2)
		}
	}
	if got := strings.Join(told(), ", "); strings.Contains(got, "true false") {
		t.Errorf("told %s, want none that is gone", got)
	}
}

// TestReplacedAPIServerIsListedAgain: behind the address is another store, which counts from the start,
// and of which a watch from where the last one ended tells nothing: what was of the
// former store is gone.
func TestReplacedAPIServerIsListedAgain(t *testing.T) {
	s, m, told := serveWeb(t)
	s.change(podPath, watch.Added, webPod("old"))
	s.change(podPath, watch.Added, webPod("same"))
	if err := within(t, m, s.now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	told()
	s.set(func() {
		s.version, s.events = 3, map[string][]watch.Event{}
		s.objects[podPath] = nil
		close(s.cut)
		s.cut = make(chan struct{})
	})
	// A watch that began between the two has not been cut: a question notices.
	for end := time.Now().Add(time.Minute); len(m.All(Pods)) > 0; {
		if err := within(t, m, "1000", 100*time.Millisecond); time.Now().After(end) {
			t.Fatalf("%v, and there are still %d pods", err, len(m.All(Pods)))
		}
	}
	s.change(podPath, watch.Added, webPod("new"))
	if err := within(t, m, s.now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(told(), ", "); got != "pods new false true, pods old true false, pods same true false" {
		t.Errorf("told %s", got)
	}
	if lag := m.Lagging("10"); len(lag) != 4 {
		t.Errorf("a moment of the former store is not reached by %v, want all kinds", lag)
	}
}
