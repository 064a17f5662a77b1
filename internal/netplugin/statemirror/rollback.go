package statemirror

import (
	"slices"
	"time"
)

// A host that has rolled back a change by itself, since it did not learn how the change
// ended, was cut off, or netmaster and the store were away. This is reported until it
// learns, and for a while after: otherwise it could be missed.

const (
	// onlyHereAfter is how long a host that rolled back may wait for the news that its cluster
	// did, too: netmasters measure the time themselves, and roll back a moment later.
	onlyHereAfter = 5 * time.Second
	// reportedAfter is how long it is reported after the host learned how the change ended.
	reportedAfter = time.Hour
	// maxRollbacks bounds what is remembered.
	maxRollbacks = 8
)

// Rollback is a change that this host has gone back from by itself.
type Rollback struct {
	ID       string    `json:"id"`
	At       time.Time `json:"at"`              // by the host's clock
	EndedAt  time.Time `json:"heard,omitzero"`  // how it ended; zero = not yet
	OnlyHere bool      `json:"alone,omitempty"` // it was not heard within onlyHereAfter

	since time.Duration // boot, when it went back; 0 = in a former run of this agent
}

// noteRollback notes that a change's time has gone here.
func (u *UnconfirmedChanges) noteRollback(id string) {
	if slices.ContainsFunc(u.rollbacks, func(b Rollback) bool { return b.ID == id }) {
		return
	}
	u.rollbacks = append(u.rollbacks, Rollback{ID: id, At: time.Now().UTC().Truncate(time.Second), since: u.SinceBoot()})
	u.rollbacks = u.rollbacks[max(0, len(u.rollbacks)-maxRollbacks):]
	u.writeBack()
}

// findOnlyHere finds which rollbacks were this host's alone, and forgets the others. current
// says that the store is read, so that it has how changes ended.
func (u *UnconfirmedChanges) findOnlyHere(current bool) {
	waits := map[string]bool{}
	for k := range u.waiting {
		waits[k.ID] = true
	}
	now, changed := time.Now(), false
	left := u.rollbacks[:0]
	for _, b := range u.rollbacks {
		if !b.OnlyHere && u.SinceBoot()-b.since >= onlyHereAfter {
			b.OnlyHere, changed = true, true
			u.onlyHere++
			u.Log.Error("this host has rolled back an unconfirmed change by itself and cannot learn how the change ended: it is cut off, or netmaster and the store are down", "change", b.ID, "at", b.At)
		}
		if b.EndedAt.IsZero() && !waits[b.ID] && current {
			b.EndedAt, changed = now.UTC().Truncate(time.Second), true
			if b.OnlyHere {
				u.Log.Warn("this host had rolled back an unconfirmed change by itself, and learns only now how the change ended", "change", b.ID, "at", b.At)
			}
		}
		if !b.EndedAt.IsZero() && (!b.OnlyHere || now.Sub(b.EndedAt) >= reportedAfter) {
			changed = true
			continue
		}
		left = append(left, b)
	}
	if u.rollbacks = left; changed {
		u.writeBack()
	}
}

func (u *UnconfirmedChanges) writeBack() {
	if err := u.save(); err != nil { // a later run would not tell of it
		u.Log.Debug("the rollback of this host cannot be recorded", "error", err)
	}
}

// Rollbacks returns the changes that this host has gone back from by itself, as they are
// to be told.
func (u *UnconfirmedChanges) Rollbacks() []Rollback {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []Rollback
	for _, b := range u.rollbacks {
		if b.OnlyHere {
			out = append(out, b)
		}
	}
	return out
}
