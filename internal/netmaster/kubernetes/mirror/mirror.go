package mirror

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Source is where objects of one kind come from.
type Source interface {
	// List returns a page of a list, or all of it. Without a resource version in the options
	// it is as it is at the API server's store at that moment.
	List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	// Versions is a list of which nothing but names, UIDs and resource versions, its own
	// included, are looked at. It is consistent as List is.
	Versions(ctx context.Context) (runtime.Object, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Name names an object among those of its kind.
type Name = types.NamespacedName

// Changed tells of an object that came, changed or went: nil = it is not there. It is
// called from one goroutine for each kind, and must not wait for the Mirror.
type Changed func(kind string, name Name, old, now metav1.Object)

// Mirror is a copy of several kinds. It is safe for use by several goroutines.
type Mirror struct {
	tell  Changed
	kinds map[string]*kind

	mu      sync.Mutex
	changes waiting.Changes // a kind has reached a later moment
	next    *barrier        // not begun yet; later callers may wait for it
	asking  bool
}

// New returns a Mirror of kinds by name that holds nothing yet; Run fills it.
func New(sources map[string]Source, tell Changed) *Mirror {
	m := &Mirror{tell: tell, kinds: map[string]*kind{}}
	for name, s := range sources {
		m.kinds[name] = &kind{mirror: m, name: name, source: s, objects: map[Name]metav1.Object{}}
	}
	return m
}

// Run follows all kinds until ctx ends, whose error it returns. What fails is tried
// again, ever more seldom up to each 2 s.
func (m *Mirror) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, k := range m.kinds {
		g.Go(func() error { return k.follow(ctx) })
	}
	return g.Wait()
}

// Get returns an object, nil when it is not there. It must not be changed.
func (m *Mirror) Get(kind string, name Name) metav1.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kinds[kind].objects[name]
}

// All returns the objects of a kind. They must not be changed.
func (m *Mirror) All(kind string) map[Name]metav1.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.kinds[kind].objects)
}

// Generation returns a number that is another one whenever what there is of some kinds has
// changed. What is read after the call is at least as late as the number.
func (m *Mirror) Generation(kinds ...string) (turn uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range kinds {
		turn += m.kinds[kind].generation // none ever goes back, so no two sums of others are equal
	}
	return turn
}

// Served reports whether the API server had a kind as a resource when it was last asked.
func (m *Mirror) Served(kind string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kinds[kind]
	return k.synced && k.version != ""
}

// AwaitLists waits until of each kind a list is in: before, what is not there says
// nothing. The error is ctx's.
func (m *Mirror) AwaitLists(ctx context.Context) error {
	return m.changes.Until(ctx, func() (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.behind(func(k *kind) bool { return k.synced })) == 0, nil
	})
}

// Lagging returns the kinds, sorted, that have not reached a moment, each with why it
// is behind if its API server says so. A moment that is no number nothing has reached.
func (m *Mirror) Lagging(moment string) []string { return m.withErrors(m.lagging(moment, nil)) }

// lagging is the names alone, without kinds that are known to be up.
func (m *Mirror) lagging(moment string, up map[string]bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, known := number(moment)
	return m.behind(func(k *kind) bool { return up[k.name] || known && k.synced && k.reached >= at })
}

// behind names the kinds that are not up to what is asked; the caller holds mu.
func (m *Mirror) behind(up func(*kind) bool) (names []string) {
	for name, k := range m.kinds {
		if !up(k) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// withErrors adds to kinds' names why they are behind, if their API server says so.
func (m *Mirror) withErrors(names []string) (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		k := m.kinds[name]
		if err := cmp.Or(k.failed, k.unanswered); err != nil {
			name += " (" + err.Error() + ")"
		}
		all = append(all, name)
	}
	return all
}

// State is how the copy of a kind fares.
type State struct {
	Kind    string
	Listed  bool // what there is was known once
	Objects int
	// Failed is why it is not followed just now, nil = it is; Since is when that began.
	// Of a server that ceases to answer it takes up to a minute until that is known.
	Failed error
	Since  time.Time
}

// States returns the state of each kind, sorted.
func (m *Mirror) States() (all []State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, k := range m.kinds {
		s := State{Kind: name, Listed: k.synced, Objects: len(k.objects), Failed: k.failed}
		if k.failed != nil {
			s.Since = k.since
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b State) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}

// pause is between two questions of one who waits, unless something changes.
const pause = 100 * time.Millisecond

// Await waits until the mirror has reached a moment, or for every kind what a list
// has shown that began after the call; of some kinds, where they are named. When ctx
// ends first, the error is of kind model.ErrUnavailable and names the kinds that lag.
func (m *Mirror) Await(ctx context.Context, moment string, of ...string) error {
	up := map[string]bool{} // kinds that no caller waits for, or that were listed since the call and are up to the answer
	for name := range m.kinds {
		up[name] = len(of) > 0 && !slices.Contains(of, name)
	}
	for {
		changed := m.changes.Next()
		lag := m.lagging(moment, up)
		if len(lag) == 0 {
			return nil
		}
		q := m.nextBarrier(lag)
		select {
		case <-q.done:
			for _, name := range q.equal {
				up[name] = true
			}
		case <-ctx.Done():
		}
		lag = m.lagging(moment, up)
		switch {
		case len(lag) == 0:
			return nil
		case ctx.Err() != nil:
			return lagError(m.withErrors(lag), moment)
		}
		timer := time.NewTimer(pause)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func lagError(lag []string, moment string) error {
	return model.Errorf(model.ErrUnavailable, "the API server's objects are not read up to resource version %s: behind with %s", cmp.Or(moment, "(none)"), strings.Join(lag, ", "))
}

// barrier is whether the mirror is as late as the API server.
type barrier struct {
	done  chan struct{}
	kinds map[string]bool // of these; the mirror's mu guards it
	equal []string        // kinds that had what a list had that began after the question; when done
}

// nextBarrier returns the next question that begins, which is of some kinds at least.
func (m *Mirror) nextBarrier(kinds []string) *barrier {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.next = &barrier{done: make(chan struct{}), kinds: map[string]bool{}}
	}
	q := m.next
	for _, name := range kinds {
		q.kinds[name] = true
	}
	if !m.asking {
		m.asking = true
		go m.serveBarriers()
	}
	return q
}

// barrierTimeout is how long one question may take: after it, those who wait ask again.
const barrierTimeout = 5 * time.Second

// serveBarriers answers questions until there is none. It goes on when one caller ends, since
// others share it.
func (m *Mirror) serveBarriers() {
	for {
		m.mu.Lock()
		q := m.next
		m.next = nil
		if m.asking = q != nil; !m.asking {
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), barrierTimeout)
		var g errgroup.Group
		var mu sync.Mutex
		for name := range q.kinds { // no caller adds to it any more
			k := m.kinds[name]
			g.Go(func() error {
				if k.ask(ctx) { // else they ask again
					mu.Lock()
					defer mu.Unlock()
					q.equal = append(q.equal, name)
				}
				return nil
			})
		}
		_ = g.Wait() // no error is returned above
		cancel()
		close(q.done)
	}
}
