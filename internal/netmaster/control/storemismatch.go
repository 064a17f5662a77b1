package control

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// storeMismatchFor is how long a store that was another one, empty, or an older state is
// told of by this netmaster, unless that ends before.
const storeMismatchFor = 4 * time.Hour

// storeMismatch is what this netmaster has met last that was not the store it followed.
type storeMismatch struct {
	text string // "" = nothing
	at   time.Time
	was  store.Incarnation // the one followed before; with no ID it cannot be told when it is back
	rev  store.Revision

	place string // likewise, where it has a journal
}

// noteOther notes a store that is not the one followed until now.
func (t *storeMismatch) noteOther(text string, at time.Time, until *identities) {
	if t.text == "" {
		t.was, t.rev, t.place = until.now, until.rev, until.at
	}
	t.text, t.at = text, at
}

// noteOlder notes an older state of the store: its own writes may bring it beyond where it
// was, so that nothing tells when the right one is back.
func (t *storeMismatch) noteOlder(text string, at time.Time) {
	*t = storeMismatch{text: text, at: at}
}

// noteListed ends the trouble when the store that was followed before is back.
func (t *storeMismatch) noteListed(b store.Batch) {
	if t.was.ID != "" && b.Store.Same(t.was) && b.Revision >= t.rev && !b.Older {
		*t = storeMismatch{}
	}
}

// noteRestored ends the trouble when the store is in a later epoch of its own: it was
// restored, or an operator has said that hosts are to follow it.
func (t *storeMismatch) noteRestored(was, now store.Incarnation) {
	if was.ID != "" && now.ID == was.ID && now.Generation > was.Generation {
		*t = storeMismatch{}
	}
}

// Mismatch tells that this netmaster has met another store than it followed, an
// empty one or an older state, and has taken it; "" = no, that is hours ago, it was back
// since, or an operator has adopted what is there.
func (si *StoreIdentity) Mismatch() string {
	i := &si.identities
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trouble.text == "" || si.commits.now().Sub(i.trouble.at) > storeMismatchFor {
		return ""
	}
	return "at " + i.trouble.at.UTC().Format(time.RFC3339) + " " + i.trouble.text +
		": hosts with containers keep their desired state; restore the right store, or have hosts adopt this one with 'netctl store adopt'"
}
