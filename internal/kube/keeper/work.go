package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/kube/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/waiting"
)

// work is what a leader has to look at.
type work struct {
	bell waiting.Bell

	mu      sync.Mutex
	leading bool
	all     bool // everything is to be looked at
	changed map[Object]struct{}
	trouble map[Object]bool // not in the store as it is written
}

func newWork() *work {
	return &work{bell: waiting.NewBell(), changed: map[Object]struct{}{}, trouble: map[Object]bool{}}
}

// follow has what changes in a mirror looked at, and tell hear of what is gone.
func (w *work) follow(tell func(Report)) func(kind string, name mirror.Name, old, now metav1.Object) {
	return func(kind string, name mirror.Name, _, now metav1.Object) {
		if now == nil {
			tell(Report{Object: Object{kind, name}})
		}
		w.add(Object{kind, name})
	}
}

// begin begins a term: all is looked at. Before it nothing is noted.
func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading, w.all = true, true
}

// end ends a term.
func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading, w.changed, w.trouble = false, map[Object]struct{}{}, map[Object]bool{}
}

// add notes an object to be looked at, if this netmaster leads.
func (w *work) add(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leading {
		w.changed[o] = struct{}{}
		w.bell.Ring()
	}
}

// remember is add without haste: the next pass looks at the object.
func (w *work) remember(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[o] = struct{}{}
}

// addAll is add for all objects.
func (w *work) addAll() {
	w.everything()
	w.bell.Ring()
}

// everything is remember for all objects.
func (w *work) everything() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = true
}

// take returns what is to be looked at, and forgets it.
func (w *work) take() (todo map[Object]struct{}, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	todo, all = w.changed, w.all
	w.changed, w.all = map[Object]struct{}{}, false
	return todo, all
}

// note remembers whether an object is in the store as it is written.
func (w *work) note(r Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Now != nil && (r.Err != nil || len(r.Problems) > 0) {
		w.trouble[r.Object] = true
	} else {
		delete(w.trouble, r.Object)
	}
}

// troubled is how many objects are not in the store as they are written, by kind; nil
// = this netmaster does not lead.
func (w *work) troubled() map[string]int {
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

// loop makes passes until ctx ends, or the leadership is lost (store.ErrFenced): one
// when something is noted, or some changes, one over everything when all changes, and
// one after a while where something is left to be tried again.
func (w *work) loop(ctx context.Context, all, some func() <-chan struct{}, pass func(context.Context) (again bool, err error)) error {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 100 * time.Millisecond, Max: 5 * time.Second})
	for {
		everything, something := all(), some() // before the look, which then misses none
		again, err := pass(ctx)
		switch {
		case errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		var later <-chan time.Time // what failed is tried again, sooner when something changes
		if err != nil || again {
			later = time.After(retry.Delay())
		} else {
			retry.Reset()
		}
		select {
		case <-later:
		case <-w.bell:
		case <-something:
		case <-everything:
			w.everything()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
