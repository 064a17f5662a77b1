package control

import (
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PendingView is the View's part with changes that wait to be confirmed.
type PendingView struct {
	clock func() time.Time

	mu          *sync.RWMutex // the View's
	pendingRows map[tables.PendingKey]tables.Pending
	ends        map[tables.PendingKey]time.Time // by when changes must be confirmed; lists do not reset it
}

func newPendingView(mu *sync.RWMutex) *PendingView {
	pv := &PendingView{mu: mu, clock: time.Now, ends: map[tables.PendingKey]time.Time{}}
	pv.reset()
	return pv
}

func (pv *PendingView) reset() {
	pv.pendingRows = map[tables.PendingKey]tables.Pending{}
}
