package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// TestOtherAPIServersAreRefused: of an API server that is another one nothing is taken, neither at the
// first list nor when it comes in the place of the right one, and what was known stays.
func TestOtherAPIServersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var foreign atomic.Bool
		foreign.Store(true)
		check := func(context.Context) error {
			if foreign.Load() {
				return errors.New("it is another one")
			}
			return nil
		}
		s := newServer()
		s.change("namespaces", watch.Added, "first")
		var told atomic.Int64
		m := New(Guarded(map[string]Source{"namespaces": s.kinds["namespaces"]}, check), func(string, Name, metav1.Object, metav1.Object) { told.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		if err := within(t, m, "10", 10*time.Second); err == nil || !strings.Contains(err.Error(), "list namespaces") && !strings.Contains(err.Error(), "it is another one") || told.Load() > 0 {
			t.Errorf("%v, told %d times", err, told.Load())
		}
		foreign.Store(false)
		if err := within(t, m, "11", time.Minute); err != nil || told.Load() != 1 {
			t.Fatal(err, told.Load())
		}
		// The watch ends, and another API server answers.
		foreign.Store(true)
		s.mu.Lock()
		s.kinds["namespaces"].gone = s.version + 1
		s.mu.Unlock()
		<-time.After(time.Second)
		s.change("namespaces", watch.Deleted, "first")
		s.change("namespaces", watch.Added, "second")
		<-time.After(time.Minute)
		if told.Load() != 1 || m.Get("namespaces", Name{Name: "first"}) == nil {
			t.Errorf("told %d times", told.Load())
		}
		if x := m.States()[0]; x.Failed == nil || !x.Listed {
			t.Errorf("the state %v", x)
		}
		// Also where a watch could go on, or begins once it has been listed.
		s.mu.Lock()
		s.kinds["namespaces"].gone = 0
		s.mu.Unlock()
		<-time.After(time.Minute)
		if told.Load() != 1 {
			t.Errorf("a watch of another one told %d times", told.Load())
		}
		foreign.Store(false)
		if err := within(t, m, "13", time.Minute); err != nil || told.Load() != 3 {
			t.Error(err, told.Load())
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-time.After(time.Minute)
	})
}

// TestClusterUID: by a list of the one namespace, answered from memory; without it the
// cluster is not known.
func TestClusterUID(t *testing.T) {
	items, asked := "", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[%s]}`, items)
	}))
	defer server.Close()
	ask, err := ClusterUID(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := ask(t.Context()); err == nil || !strings.Contains(err.Error(), "no namespace kube-system yet") {
		t.Errorf("%q, %v", uid, err)
	}
	items = `{"metadata":{"name":"default","uid":"other"}},{"metadata":{"name":"kube-system","uid":"u1"}}`
	if uid, err := ask(t.Context()); err != nil || uid != "u1" {
		t.Errorf("%q, %v", uid, err)
	}
	if want := "GET /api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system&resourceVersion=0"; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
}
