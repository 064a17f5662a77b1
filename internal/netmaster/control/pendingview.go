package control

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PendingView is the View's part with changes that wait to be confirmed.
type PendingView struct {
	clock func() time.Time

	mu          *sync.RWMutex // the View's
	pendingRows map[tables.PendingKey]tables.Pending
	confirmBy   map[tables.PendingKey]time.Time // by when changes must be confirmed; lists do not reset it
	listing     bool                            // what is entered comes with a list
}

func newPendingView(mu *sync.RWMutex) *PendingView {
	pv := &PendingView{mu: mu, clock: time.Now, confirmBy: map[tables.PendingKey]time.Time{}}
	pv.reset()
	return pv
}

func (pv *PendingView) reset() {
	pv.pendingRows = map[tables.PendingKey]tables.Pending{}
}

// leftOf returns how much time a change has left; 0 also when the view does not know it.
func (pv *PendingView) leftOf(p tables.Pending) time.Duration {
	pv.mu.RLock()
	defer pv.mu.RUnlock()
	end, ok := pv.confirmBy[tables.PendingKey(p.ID)]
	if !ok {
		return 0
	}
	return max(0, end.Sub(pv.clock()))
}

// Waiting returns the changes that wait to be confirmed, oldest first.
func (pv *PendingView) Waiting() []Waiting {
	rows := read(pv.mu, func() []tables.Pending { return slices.Collect(maps.Values(pv.pendingRows)) })
	slices.SortFunc(rows, func(a, b tables.Pending) int {
		return a.Began.Compare(b.Began)*2 + strings.Compare(a.ID, b.ID)
	})
	out := make([]Waiting, len(rows))
	for i, p := range rows {
		out[i] = Waiting{p, pv.leftOf(p)}
	}
	return out
}

// enterPending enters a change that waits to be confirmed, nil = it does no longer.
func (pv *PendingView) enterPending(k tables.PendingKey, p *tables.Pending) {
	if p == nil {
		delete(pv.pendingRows, k)
		delete(pv.confirmBy, k)
		return
	}
	pv.pendingRows[k] = *p
	if _, seen := pv.confirmBy[k]; seen {
		return
	}
	left := p.Within
	if pv.listing { // it may be old: the time of day has to do, and if that has gone back, it is
		if age := pv.clock().Sub(p.Began); age >= 0 {
			left -= age
		} else {
			left = 0
		}
	}
	pv.confirmBy[k] = pv.clock().Add(left)
}
