package controller

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
)

// workQueue is what a leader has to look at.
type workQueue struct {
	bell waiting.Bell
	ours func() error // why nothing may be kept of what the API server has; nil = all may

	mu      sync.Mutex
	leading bool
	all     bool // everything is to be looked at
	changed map[Object]struct{}
	later   map[Object]struct{} // to be tried again after a while
	allSoon bool                // everything is, after a while
	trouble map[Object]bool     // not in the store as it is written
}

func newWork(ours *ClusterCheck) *workQueue {
	w := &workQueue{bell: waiting.NewBell(), ours: func() error { return nil }}
	if ours != nil {
		w.ours = ours.Err
	}
	w.forget()
	return w
}

// forget leaves nothing to do; the caller holds mu.
func (w *workQueue) forget() {
	w.all, w.allSoon = false, false
	w.changed, w.later, w.trouble = map[Object]struct{}{}, map[Object]struct{}{}, map[Object]bool{}
}

// follow has what changes in a mirror looked at, and tell hear of what is gone.
func (w *workQueue) follow(tell func(Report)) func(kind string, name mirror.Name, old, now metav1.Object) {
	return func(kind string, name mirror.Name, _, now metav1.Object) {
		if now == nil {
			tell(Report{Object: Object{kind, name}})
		}
		w.add(Object{kind, name})
	}
}

// begin begins a term: all is looked at. Before it nothing is noted.
func (w *workQueue) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = true
	w.forget()
	w.all = true
}

// end ends a term.
func (w *workQueue) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = false
	w.forget()
}

// add notes an object to be looked at, if this netmaster leads.
func (w *workQueue) add(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leading {
		w.changed[o] = struct{}{}
		w.bell.Ring()
	}
}

// retryLater has an object tried again after a while, and not before: else each of many
// changes would try all that cannot be had.
func (w *workQueue) retryLater(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later[o] = struct{}{}
}

// retryAllLater is remember for all objects.
func (w *workQueue) retryAllLater() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allSoon = true
}

// addAll is add for all objects.
func (w *workQueue) addAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = true
	w.bell.Ring()
}

// due has all looked at that was to be tried again after a while.
func (w *workQueue) due() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for o := range w.later {
		w.changed[o] = struct{}{}
	}
	w.all = w.all || w.allSoon
	w.allSoon = false
}

// left reports whether something is to be tried again after a while.
func (w *workQueue) left() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.allSoon || len(w.later) > 0
}

// take returns what is to be looked at, and forgets it; where that is all, but for what
// waits to be tried again.
func (w *workQueue) take() (todo map[Object]struct{}, all bool, waits map[Object]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	todo, all = w.changed, w.all
	w.changed, w.all = map[Object]struct{}{}, false
	for o := range todo {
		delete(w.later, o)
	}
	return todo, all, maps.Clone(w.later)
}

// note remembers whether an object is in the store as it is written.
func (w *workQueue) note(r Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Live != nil && (r.Err != nil || len(r.Problems) > 0) {
		w.trouble[r.Object] = true
	} else {
		delete(w.trouble, r.Object)
	}
}

// countFailed is how many objects are not in the store as they are written, by kind; nil
// = this netmaster does not lead.
func (w *workQueue) countFailed() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.leading {
		return nil
	}
	out := map[string]int{}
	for o := range w.trouble {
		out[o.Kind]++
	}
	return out
}

const (
	// retryDelay is after how long what failed is tried again at the earliest, and retryFactor how
	// many times as long as the try took: so trying takes little of the time, whatever
	// changes meanwhile.
	retryDelay  = 100 * time.Millisecond
	retryFactor = 4
)

// loop makes passes until ctx ends, or the leadership is lost (store.ErrFenced): one
// when something is noted, or some changes, one over everything when all changes, and
// one after a while where something is left to be tried again: of a pass that fails, all.
func (w *workQueue) loop(ctx context.Context, all, some func() <-chan struct{}, pass func(context.Context) error) error {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: retryDelay, Max: 5 * time.Second})
	var again <-chan time.Time // nil = nothing is left
	var at, earliest time.Time // when that is, and when it may be
	next := func(t time.Time) { at, again = t, time.After(time.Until(t)) }
	for tried := true; ; {
		everything, something := all(), some() // before the look, which then misses none
		began := time.Now()
		err := w.ours()
		if err == nil {
			err = pass(ctx)
		}
		if err != nil {
			w.retryAllLater()
		}
		switch {
		case errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		switch now := time.Now(); {
		case !w.left():
			again = nil
			retry.Reset()
		case tried || again == nil:
			earliest = now.Add(max(retryDelay, retryFactor*now.Sub(began)))
			next(now.Add(max(earliest.Sub(now), retry.Delay())))
		}
		tried = false
		select {
		case <-again:
			tried = true
			w.due()
		case <-w.bell:
		case <-something:
		case <-everything:
			w.mu.Lock()
			w.all = true
			w.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
		if !tried && again != nil && earliest.Before(at) { // what has changed may have mended it
			retry.Reset()
			next(earliest)
		}
	}
}
