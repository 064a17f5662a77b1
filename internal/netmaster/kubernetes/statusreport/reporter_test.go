package statusreport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// web answers each request with the next of some codes, 201 when there is none, and
// notes what it was asked.
type web struct {
	mu     sync.Mutex
	codes  []int
	bodies []map[string]any
	paths  []string
}

func (w *web) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	body := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&body) // an empty one is noted as such
	w.bodies, w.paths = append(w.bodies, body), append(w.paths, r.Method+" "+r.URL.Path)
	code := http.StatusCreated
	if len(w.codes) > 0 {
		code, w.codes = w.codes[0], w.codes[1:]
	}
	to.Header().Set("Content-Type", "application/json")
	to.WriteHeader(code)
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: int32(code)}
	if code >= 400 {
		status.Status = metav1.StatusFailure
		status.Reason = map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonAlreadyExists}[code]
	}
	_ = json.NewEncoder(to).Encode(status)
}

func (w *web) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.paths...)
}

func serve(t *testing.T, codes ...int) (*web, *Reporter) {
	t.Helper()
	w := &web{codes: codes}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	n, err := New(&rest.Config{Host: server.URL}, "m1:9999", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return w, n
}

// idle waits until nothing is left to be sent.
func idle(t *testing.T, n *Reporter) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		n.mu.Lock()
		left := len(n.queue)
		n.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d outcomes are still to be sent", left)
		}
	}
}

func policy(name string, texts ...string) Outcome {
	o := Outcome{
		Kind: "NetworkPolicy", Version: "networking.k8s.io/v1",
		Object: &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("u" + name)}},
	}
	for _, text := range texts {
		o.Problems = append(o.Problems, translate.Problem{Field: "spec", Text: text})
	}
	return o
}

// TestProblemIsReportedOnce: one problem is reported once, another one again. Success is not reported for
// policies without conditions. A restarted replica writes the same name.
func TestProblemIsReportedOnce(t *testing.T) {
	w, n := serve(t)
	n.Report(policy("fine"))
	for range 3 {
		n.Report(policy("odd", "one"))
		idle(t, n)
	}
	n.Report(policy("odd", "two"))
	idle(t, n)
	n.Reset()
	n.Report(policy("odd", "two"))
	idle(t, n)
	n.Forget("NetworkPolicy", types.NamespacedName{Namespace: "a", Name: "odd"})
	n.Report(policy("odd", "two"))
	idle(t, n)
	if got := w.asked(); len(got) != 4 || got[0] != "POST /apis/events.k8s.io/v1/namespaces/a/events" {
		t.Fatalf("asked %v, want four events", got)
	}
	name := func(i int) any { return w.bodies[i]["metadata"].(map[string]any)["name"] }
	if name(0) == name(1) || name(1) != name(2) || name(2) != name(3) {
		t.Errorf("names %v, %v, %v, %v", name(0), name(1), name(2), name(3))
	}
}

// TestFailedReportIsSentLater: a report that fails is sent later. One that exists already or is refused is
// not repeated, and delays no other. One without permission waits for another try.
func TestFailedReportIsSentLater(t *testing.T) {
	w, n := serve(t, 500)
	n.Report(policy("later", "x"))
	idle(t, n)
	if sent, failed := n.Counts(); sent != 1 || failed != 1 {
		t.Errorf("written %d, failed %d; want 1 and 1", sent, failed)
	}
	w.mu.Lock()
	w.codes = []int{409}
	w.mu.Unlock()
	n.Report(policy("there", "x"))
	idle(t, n)
	w.mu.Lock()
	w.codes = []int{403}
	w.mu.Unlock()
	n.Report(policy("refused", "x"))
	idle(t, n)
	if sent, failed := n.Counts(); sent != 1 || failed != 2 || len(w.asked()) != 4 {
		t.Errorf("written %d, failed %d of %v", sent, failed, w.asked())
	}
}

// TestForbiddenReportsAreSentOnceAllowed: reports without permission are all sent once it is granted, and one at a
// time is tried until then. A report that has changed meanwhile is sent as it is then.
func TestForbiddenReportsAreSentOnceAllowed(t *testing.T) {
	w, n := serve(t, 403, 403, 403, 403)
	n.mu.Lock()
	n.probeEvery = 50 * time.Millisecond
	n.mu.Unlock()
	for _, name := range []string{"a", "b", "gone"} {
		n.Report(policy(name, "x"))
	}
	n.Forget("NetworkPolicy", types.NamespacedName{Namespace: "a", Name: "gone"})
	n.Report(policy("b", "y"))
	told := map[any]bool{}
	for end := time.Now().Add(time.Minute); len(told) < 2 && time.Now().Before(end); <-time.After(time.Millisecond) {
		w.mu.Lock()
		for i, b := range w.bodies {
			if i >= 4 {
				told[b["note"]] = true
			}
		}
		w.mu.Unlock()
	}
	idle(t, n)
	if !told["spec: x"] || !told["spec: y"] {
		t.Errorf("told %v in the end, want both", told)
	}
	if n := len(w.asked()); n < 6 || n > 7 { // one may have been told as it was
		t.Errorf("asked %d times: %v", n, w.asked())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.forbidden) > 0 {
		t.Errorf("%d are left", len(n.forbidden))
	}
}

// TestLongReportsAreShortened: long names and texts fit what an API server takes; an object without a
// namespace has its events in default.
func TestLongReportsAreShortened(t *testing.T) {
	w, n := serve(t)
	o := policy(strings.Repeat("n.", 126)+"n", strings.Repeat("ä", 3000))
	o.Object.SetNamespace("")
	n.Report(o)
	idle(t, n)
	body := w.bodies[0]
	name, _ := body["metadata"].(map[string]any)["name"].(string)
	note, _ := body["note"].(string)
	if len(name) > 253 || strings.Contains(name, "..") || len(note) > 1024 || !strings.Contains(note, "bytes more)") || strings.ContainsRune(note, '\uFFFD') || !strings.Contains(w.paths[0], "/default/") {
		t.Errorf("name %q, note of %d bytes %q, asked %s", name, len(note), note, w.paths[0])
	}
}

// TestReportsAreLimited: many problems at once are reported a few a second, the first of them at once.
func TestReportsAreLimited(t *testing.T) {
	w, n := serve(t)
	began := time.Now()
	for i := range burst + 3 {
		n.Report(policy(fmt.Sprint("p", i), "x"))
	}
	idle(t, n)
	if took := time.Since(began); took < 2*time.Second/perSecond || len(w.asked()) != burst+3 {
		t.Errorf("%d requests in %v", len(w.asked()), took)
	}
}

// TestConditionIsWrittenWhenItChanges: of a ClusterNetworkPolicy the condition is written when it is another
// one, also when all is well, and for each generation.
func TestConditionIsWrittenWhenItChanges(t *testing.T) {
	w, n := serve(t)
	p := &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "u", Generation: 3}}
	o := Outcome{Kind: kindPolicy, Version: "policy.networking.k8s.io/v1alpha2", Object: p} // of an API server with that version alone
	n.Report(o)
	idle(t, n)
	if got := w.asked(); len(got) != 1 || got[0] != "PATCH /apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies/all/status" {
		t.Fatalf("asked %v", got)
	}
	c := w.bodies[0]["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)
	if c["status"] != "True" || c["reason"] != reasonWritten || c["observedGeneration"] != 3.0 || c["message"] != allWell {
		t.Errorf("the condition %v", c)
	}
	p = p.DeepCopy()
	p.Status.Conditions = []metav1.Condition{{Type: conditionAsWritten, Status: "True", Reason: reasonWritten, Message: allWell, ObservedGeneration: 3}}
	o.Object = p
	n.Reset()
	n.Report(o)
	idle(t, n)
	if got := w.asked(); len(got) != 1 {
		t.Errorf("a condition that is there is written again: %v", got)
	}
	p = p.DeepCopy()
	p.Generation = 4
	o.Object = p
	n.Report(o)
	idle(t, n)
	if got := w.asked(); len(got) != 2 {
		t.Errorf("asked %v, want the condition for the new generation too", got)
	}
	w.mu.Lock()
	w.codes = []int{404}
	w.mu.Unlock()
	p = p.DeepCopy()
	p.Generation = 5
	o.Object = p
	n.Report(o)
	idle(t, n)
	if got := w.asked(); len(got) != 4 || got[3] != "PATCH /apis/policy.networking.k8s.io/v1beta1/clusternetworkpolicies/all/status" || w.bodies[3]["apiVersion"] != "policy.networking.k8s.io/v1beta1" {
		t.Errorf("asked %v, want it in the later version where the API server has the earlier one no more", got)
	}
}
