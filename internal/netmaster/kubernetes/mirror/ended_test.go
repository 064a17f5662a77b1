package mirror

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// TestEndedWatchReachesNothing: a kind whose watch has ended has reached nothing until it is listed again,
// also if a list began before the end and is answered after it.
func TestEndedWatchReachesNothing(t *testing.T) {
	run(t, func(t *testing.T, s *server, m *Mirror, _ func() []string) {
		t.Helper()
		if err := within(t, m, "11", time.Second); err != nil {
			t.Fatal(err)
		}
		k := s.kinds["pods"]
		s.mu.Lock()
		k.asks = make(chan struct{})
		s.mu.Unlock()
		early := make(chan bool) // asked while the watch runs
		go func() { early <- m.kinds["pods"].ask(t.Context()) }()
		synctest.Wait()
		s.mu.Lock()
		before := k.asks
		k.gone, k.asks, k.down = 100, make(chan struct{}), true // the watch ends
		s.mu.Unlock()
		<-time.After(20 * time.Millisecond) // by the bubble's clock, less than any pause
		if lag := m.Lagging("11"); len(lag) != 1 || !strings.HasPrefix(lag[0], "pods") {
			t.Errorf("%v lag at the end of a watch, want pods", lag)
		}
		s.mu.Lock()
		k.down = false
		s.mu.Unlock()
		close(before)
		if equal := <-early; equal {
			t.Error("what was asked before the end holds after it")
		}
		if lag := m.Lagging("11"); len(lag) != 1 {
			t.Errorf("%v lag after an answer to a question of before", lag)
		}
		s.mu.Lock()
		close(k.asks)
		k.asks, k.gone = nil, 0
		s.mu.Unlock()
		if err := within(t, m, "11", 10*time.Second); err != nil {
			t.Errorf("compared anew: %v", err)
		}
	})
}

// TestEndingWatchesAreListedSeldom: of an API server that ends each watch at once it is not asked more than
// about once a second what there is, and at first it is soon.
func TestEndingWatchesAreListedSeldom(t *testing.T) {
	run(t, func(t *testing.T, s *server, m *Mirror, _ func() []string) {
		t.Helper()
		if err := within(t, m, "11", time.Second); err != nil {
			t.Fatal(err)
		}
		k := s.kinds["pods"]
		s.mu.Lock()
		k.gone, k.lists = 1000, 0
		s.mu.Unlock()
		<-time.After(time.Second)
		s.mu.Lock()
		if k.fulls+k.lists < 1 {
			t.Error("not asked within a second of the end")
		}
		k.fulls, k.lists = 0, 0
		s.mu.Unlock()
		<-time.After(time.Minute)
		s.mu.Lock()
		if n := k.fulls + k.lists; n < 25 || n > 70 {
			t.Errorf("asked %d times in a minute of watches that end at once", n)
		}
		s.mu.Unlock()
	})
}

// TestSlowWatchCheckIsAwaited: whether a watch can go on may take long to answer, where there is much.
func TestSlowWatchCheckIsAwaited(t *testing.T) {
	run(t, func(t *testing.T, s *server, m *Mirror, _ func() []string) {
		t.Helper()
		if err := within(t, m, "11", time.Second); err != nil {
			t.Fatal(err)
		}
		k := s.kinds["pods"]
		asks := make(chan struct{})
		s.mu.Lock()
		k.gone, k.asks, k.fulls, k.lists = 100, asks, 0, 0
		s.mu.Unlock()
		<-time.After(2 * time.Minute)
		s.mu.Lock()
		if k.lists != 1 || k.fulls != 0 {
			t.Errorf("asked %d times, and listed %d times, in two minutes", k.lists, k.fulls)
		}
		k.gone, k.asks = 0, nil
		s.mu.Unlock()
		close(asks)
		<-time.After(time.Second)
		if lag := m.Lagging("11"); len(lag) > 0 {
			t.Errorf("%v lag after the answer", lag)
		}
	})
}

// mute is a Source whose watches do not begin.
type mute struct{ *served }

func (m mute) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestWatchThatDoesNotBeginIsGivenUp: a watch that does not begin is given up.
func TestWatchThatDoesNotBeginIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		k := s.kinds["pods"]
		m := New(map[string]Source{"pods": mute{k}}, func(string, Name, metav1.Object, metav1.Object) {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		<-time.After(beginTime + time.Millisecond)
		if got := m.States()[0].Failed; got == nil || !strings.Contains(got.Error(), errSlow.Error()) {
			t.Errorf("failed: %v", got)
		}
		<-time.After(3 * time.Second)
		s.mu.Lock()
		if k.lists != 1 {
			t.Errorf("looked %d times after it was given up, want once", k.lists)
		}
		s.mu.Unlock()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// cut ends what a request came by, without an answer.
func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// TestUnansweredWatchIsPrecededByAList: a watch that gets no answer, or that the API server wants later, is
// not sent again by itself: first there is a look at what there is.
func TestUnansweredWatchIsPrecededByAList(t *testing.T) {
	for _, c := range []struct {
		name string
		http2,
		used bool // the connection has served a request
		answer func(http.ResponseWriter)
	}{
		{"cut", false, false, cut},
		{"cut on a used connection", false, true, cut},
		{"cut in HTTP/2", true, true, cut},
		{"wants it later", false, true, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}},
		{"wants it later in HTTP/2", true, true, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			watches := 0
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") == "" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`))
					return
				}
				mu.Lock()
				watches++
				first := watches == 1
				mu.Unlock()
				if first {
					c.answer(w)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}`))
			}))
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			config := &rest.Config{}
			if server.EnableHTTP2 = c.http2; c.http2 {
				server.StartTLS()
				config.Insecure = true
			} else {
				server.Start()
			}
			defer server.Close()
			config.Host = server.URL
			all, err := Sources(config)
			if err != nil {
				t.Fatal(err)
			}
			pods := all[Pods]
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if c.used {
				if _, err := pods.List(ctx, metav1.ListOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			events := 0
			if w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: "7"}); err == nil {
				for range w.ResultChan() {
					events++
				}
			}
			mu.Lock()
			if events > 0 {
				t.Errorf("%d events of %d watches where one was asked for", events, watches)
			}
			mu.Unlock()
			// The next one, after a look, works.
			w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: "7"})
			if err != nil {
				t.Fatal(err)
			}
			if e, ok := <-w.ResultChan(); !ok || e.Type != watch.Bookmark {
				t.Errorf("then %v", e)
			}
			w.Stop()
		})
	}
}

// TestRetryAfterDoesNotDelayTheMirror: how long an API server wants a list not to be asked for does not hold up the
// mirror, which has pauses of its own.
func TestRetryAfterDoesNotDelayTheMirror(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	all, err := Sources(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := all[Pods].List(ctx, metav1.ListOptions{}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list: %v", err)
	}
	if _, err := all[Pods].Versions(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("versions: %v", err)
	}
}
