package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/contiv/netplugin/v2/internal/model"
)

// server is an API server of namespaces and pods: one count of versions, a list that is
// consistent, watches that can be paused, and a window of what watches can go on from.
type server struct {
	mu      sync.Mutex
	version int
	kinds   map[string]*served
}

type served struct {
	of      *server
	objects map[string]*corev1.Namespace
	events  []watch.Event // all, in order
	paused  chan struct{} // closed = it is not
	gone    int           // versions before it a watch cannot go on from
	lists   int           // how often Versions was asked
	fulls   int           // and List
	asks    chan struct{} // Versions is answered when it is closed; nil = at once
	down    bool
}

func newServer() *server {
	s := &server{version: 10, kinds: map[string]*served{}}
	for _, k := range []string{"namespaces", "pods"} {
		s.kinds[k] = &served{of: s, objects: map[string]*corev1.Namespace{}, paused: make(chan struct{})}
		close(s.kinds[k].paused)
	}
	return s
}

func (s *server) change(kind string, event watch.EventType, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u" + name), ResourceVersion: strconv.Itoa(s.version)}}
	k := s.kinds[kind]
	if k.objects[name] = o; event == watch.Deleted {
		delete(k.objects, name)
	}
	k.events = append(k.events, watch.Event{Type: event, Object: o})
}

func (s *server) pause(kind string) (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{})
	s.kinds[kind].paused = c
	return func() { close(c) }
}

func (k *served) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.fulls++
	if k.down {
		return nil, errors.New("connection refused")
	}
	out := &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(k.of.version)}}
	for _, o := range k.objects {
		out.Items = append(out.Items, *o)
	}
	return out, nil
}

func (k *served) Versions(ctx context.Context) (runtime.Object, error) {
	k.of.mu.Lock()
	k.lists++
	asks := k.asks
	k.of.mu.Unlock()
	<-time.After(5 * time.Millisecond) // meanwhile others come who wait
	if asks != nil {
		select {
		case <-asks:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	k.of.mu.Lock()
	k.fulls-- // that is none of the mirror's
	k.of.mu.Unlock()
	return k.List(ctx, metav1.ListOptions{})
}

func (k *served) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	var from int
	if _, err := fmt.Sscan(o.ResourceVersion, &from); err != nil {
		return nil, err
	}
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	if from < k.gone {
		return nil, apierrors.NewResourceExpired("too old")
	}
	w := watch.NewFake()
	go func() {
		defer w.Stop()
		for sent := 0; ctx.Err() == nil; {
			k.of.mu.Lock()
			paused, gone, events := k.paused, from < k.gone, k.events
			k.of.mu.Unlock()
			select {
			case <-paused:
			case <-ctx.Done():
				return
			}
			if gone { // ended, and not to be gone on with
				return
			}
			if sent < len(events) {
				var at int
				_, _ = fmt.Sscan(events[sent].Object.(*corev1.Namespace).ResourceVersion, &at)
				if sent++; at > from {
					w.Action(events[sent-1].Type, events[sent-1].Object)
				}
				continue
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return w, nil
}

// run runs a test against a server and the mirror of it, in a bubble.
func run(t *testing.T, test func(t *testing.T, s *server, m *Mirror, told func() []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.change("namespaces", watch.Added, "first")
		var mu sync.Mutex
		var all []string
		m := New(map[string]Source{"namespaces": s.kinds["namespaces"], "pods": s.kinds["pods"]}, func(kind string, name Name, old, now metav1.Object) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, fmt.Sprint(kind, " ", name.Name, " ", old != nil, " ", now != nil))
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		test(t, s, m, func() []string {
			mu.Lock()
			defer mu.Unlock()
			out := all
			all = nil
			return slices.Clone(out)
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		<-time.After(time.Minute) // by the bubble's clock: what still asks, ends
	})
}

func within(t *testing.T, m *Mirror, moment string, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return m.Await(ctx, moment)
}

// TestQuietKindsReachAMoment: a kind without events reaches a moment of another kind by being asked,
// once for all who wait.
func TestQuietKindsReachAMoment(t *testing.T) {
	run(t, func(t *testing.T, s *server, m *Mirror, told func() []string) {
		t.Helper()
		synctest.Wait()
		s.change("pods", watch.Added, "p")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := within(t, m, "12", time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := m.Lagging("12"); len(got) > 0 {
			t.Errorf("lags: %v", got)
		}
		if n := s.kinds["namespaces"].lists; n == 0 || n > 5 {
			t.Errorf("%d questions for 50 who waited", n)
		}
		if m.Get("pods", Name{Name: "p"}) == nil {
			t.Error("the pod is not there")
		}
		want := []string{"namespaces first false true", "pods p false true"}
		if got := told(); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
	})
}

// TestPausedWatchReachesNothing: with any one watch behind nothing is said to be reached, and the error
// names the kind; when it goes on, it is.
func TestPausedWatchReachesNothing(t *testing.T) {
	for _, kind := range []string{"namespaces", "pods"} {
		t.Run(kind, func(t *testing.T) {
			run(t, func(t *testing.T, s *server, m *Mirror, _ func() []string) {
				t.Helper()
				if err := within(t, m, "11", time.Second); err != nil {
					t.Fatal(err)
				}
				resume := s.pause(kind)
				synctest.Wait() // the watch is in its pause
				s.change(kind, watch.Added, "late")
				for _, moment := range []string{"12", "a moment that is no number"} {
					err := within(t, m, moment, 10*time.Second)
					if !errors.Is(err, model.ErrUnavailable) || !strings.HasSuffix(fmt.Sprint(err), "behind with "+kind) {
						t.Errorf("%s: %v", moment, err)
					}
				}
				resume()
				for _, moment := range []string{"12", "a moment that is no number"} {
					if err := within(t, m, moment, time.Second); err != nil {
						t.Errorf("%s: %v", moment, err)
					}
				}
			})
		})
	}
}

// TestGapReportsAllChanges: after a gap all changes are reported, deletions included.
func TestGapReportsAllChanges(t *testing.T) {
	run(t, func(t *testing.T, s *server, m *Mirror, told func() []string) {
		t.Helper()
		s.change("namespaces", watch.Added, "second")
		if err := within(t, m, "12", time.Second); err != nil {
			t.Fatal(err)
		}
		told()
		resume := s.pause("namespaces")
		synctest.Wait()
		s.change("namespaces", watch.Deleted, "first")
		s.change("namespaces", watch.Modified, "second")
		s.change("namespaces", watch.Added, "third")
		s.mu.Lock()
		s.kinds["namespaces"].gone = 100 // also what is written from now on
		s.version, s.kinds["namespaces"].events = 200, nil
		s.mu.Unlock()
		resume()
		if err := within(t, m, "200", 10*time.Second); err != nil {
			t.Fatal(err)
		}
		got := told()
		slices.Sort(got)
		want := []string{"namespaces first true false", "namespaces second true true", "namespaces third false true"}
		if !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
	})
}

// TestUnlistedKindIsNotEmpty: what cannot be listed is not taken for empty.
func TestUnlistedKindIsNotEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.kinds["pods"].down = true
		m := New(map[string]Source{"namespaces": s.kinds["namespaces"], "pods": s.kinds["pods"]}, func(string, Name, metav1.Object, metav1.Object) {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		if err := within(t, m, "10", 10*time.Second); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "behind with pods (failed to list pods: connection refused)") {
			t.Error(err)
		}
		s.mu.Lock()
		s.kinds["pods"].down = false
		s.mu.Unlock()
		if err := within(t, m, "10", time.Minute); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-time.After(time.Minute) // by the bubble's clock: what still asks, ends
	})
}
