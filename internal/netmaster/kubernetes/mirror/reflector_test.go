package mirror

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// failing is a Source whose watches end, or do not begin, in the given ways, one after the
// other; it notes what it is asked.
type failing struct {
	*served
	ways []func() (watch.Interface, error)
	look func()

	mu    sync.Mutex
	asked []string
}

func (f *failing) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what)
}

func (f *failing) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion != "" {
		return nil, errors.New("the list is not consistent")
	}
	f.note("list")
	return f.served.List(ctx, o)
}

func (f *failing) Versions(ctx context.Context) (runtime.Object, error) {
	f.note("look")
	f.look()
	return f.served.Versions(ctx)
}

func (f *failing) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	f.note("watch")
	if len(f.ways) == 0 {
		return f.served.Watch(ctx, o)
	}
	way := f.ways[0]
	f.ways = f.ways[1:]
	return way()
}

// TestEachWatchFollowsAComparison: however a watch ends, also in the ways after which a
// Reflector begins it again by itself, the mirror compares what there is before the next
// watch, has reached no moment meanwhile, and transfers no objects where nothing changed.
func TestEachWatchFollowsAComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ending := func(e ...watch.Event) func() (watch.Interface, error) {
			return func() (watch.Interface, error) {
				w := watch.NewFakeWithChanSize(len(e), false)
				for _, event := range e {
					w.Action(event.Type, event.Object)
				}
				w.Stop()
				return w, nil
			}
		}
		wrong := func(e *apierrors.StatusError) watch.Event {
			return watch.Event{Type: watch.Error, Object: &e.ErrStatus}
		}
		refused := func(err error) func() (watch.Interface, error) {
			return func() (watch.Interface, error) { return nil, err }
		}
		s := newServer()
		s.change("pods", watch.Added, "first")
		mark := watch.Event{Type: watch.Bookmark, Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "11"}}}
		f := &failing{served: s.kinds["pods"], ways: []func() (watch.Interface, error){
			ending(),
			ending(mark), // a watch that has sent something is begun again at once
			refused(syscall.ECONNREFUSED),
			refused(apierrors.NewTooManyRequests("busy", 30)),
			ending(mark, wrong(apierrors.NewTooManyRequests("busy", 30))),
			ending(mark, wrong(apierrors.NewInternalError(errors.New("broken")))),
			ending(mark, wrong(apierrors.NewResourceExpired("too old"))),
			refused(apierrors.NewResourceExpired("too old")),
		}}
		var told int
		m := New(map[string]Source{"pods": f}, func(string, Name, metav1.Object, metav1.Object) { told++ })
		f.look = func() {
			if lag := m.Lagging("11"); len(lag) != 1 {
				t.Error("a moment is reached before the comparison")
			}
		}
		want := []string{"list", "watch"}
		for range f.ways {
			want = append(want, "look", "watch")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		<-time.After(30 * time.Second)
		f.mu.Lock()
		if !slices.Equal(f.asked, want) || told != 1 {
			t.Errorf("asked %v, want %v; told %d times", f.asked, want, told)
		}
		f.mu.Unlock()
		if lag := m.Lagging("11"); len(lag) > 0 {
			t.Errorf("%v lag", lag)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestListOlderThanSeen: when a list is older than what a watch has shown, the mirror ends
// the watch and compares, although the watch is fine.
func TestListOlderThanSeen(t *testing.T) {
	run(t, func(t *testing.T, s *server, m *Mirror, _ func() []string) {
		t.Helper()
		if err := within(t, m, "11", time.Second); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.version = 3
		for _, k := range s.kinds {
			k.events = nil
		}
		s.mu.Unlock()
		_ = within(t, m, "1000", time.Second) // it has both kinds listed
		<-time.After(time.Second)
		if lag := m.Lagging("11"); len(lag) != 2 {
			t.Errorf("%v lag at a moment of the former store, want both kinds", lag)
		}
		if lag := m.Lagging("3"); len(lag) > 0 {
			t.Errorf("%v lag at the present moment", lag)
		}
	})
}

// TestStoppedWatchLeavesNoFilter: a watch that stops with an event without a reader leaves
// no goroutine behind.
func TestStoppedWatchLeavesNoFilter(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		events := watch.NewRaceFreeFake()
		w := drained{watch.Filter(events, func(e watch.Event) (watch.Event, bool) { return e, true })}
		events.Add(&corev1.Namespace{})
		synctest.Wait() // the filter has it
		w.Stop()
	})
}
