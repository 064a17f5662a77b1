package statemirror

import (
	"slices"
	"time"
)

// A host that has gone back from a change by itself, since nobody told it how the change
// ended, was cut off, or netmaster and the store were away. That is told until it has
// heard, and for a while after: who looks later would see nothing of it.

const (
	// aloneAfter is how long a host that went back may wait for the word that its cluster
	// did, too: netmasters count the time anew, and take it back a moment later.
	aloneAfter = 5 * time.Second
	// toldAfter is how long that is told after it was heard how the change ended.
	toldAfter = time.Hour
	// mostBack bounds what is remembered.
	mostBack = 8
)

// Rollback is a change that this host has gone back from by itself.
type Rollback struct {
	ID    string    `json:"id"`
	At    time.Time `json:"at"`              // by the host's clock
	Heard time.Time `json:"heard,omitzero"`  // how it ended; zero = not yet
	Alone bool      `json:"alone,omitempty"` // it was not heard within aloneAfter

	since time.Duration // boot, when it went back; 0 = in a former run of this agent
}

// noteRollbackLocked notes that a change's time has gone here.
func (c *State) noteRollbackLocked(id string) {
	if slices.ContainsFunc(c.rollbacks, func(b Rollback) bool { return b.ID == id }) {
		return
	}
	c.rollbacks = append(c.rollbacks, Rollback{ID: id, At: time.Now().UTC().Truncate(time.Second), since: c.SinceBoot()})
	c.rollbacks = c.rollbacks[max(0, len(c.rollbacks)-mostBack):]
	c.writeBackLocked()
}

// findLoneRollbacksLocked finds who went back alone, and forgets the others.
func (c *State) findLoneRollbacksLocked() {
	waits := map[string]bool{}
	for k := range c.unconfirmed {
		waits[k.ID] = true
	}
	now, changed := time.Now(), false
	left := c.rollbacks[:0]
	for _, b := range c.rollbacks {
		if !b.Alone && c.SinceBoot()-b.since >= aloneAfter {
			b.Alone, changed = true, true
			c.alone++
			c.Log.Error("this host has gone back from a change by itself, and hears of nobody how it ended: it is cut off, or netmaster and the store are away", "change", b.ID, "at", b.At)
		}
		if b.Heard.IsZero() && !waits[b.ID] && c.entered && c.staleLocked() == nil {
			b.Heard, changed = now.UTC().Truncate(time.Second), true
			if b.Alone {
				c.Log.Warn("this host had gone back from a change by itself, and hears only now how it ended", "change", b.ID, "at", b.At)
			}
		}
		if !b.Heard.IsZero() && (!b.Alone || now.Sub(b.Heard) >= toldAfter) {
			changed = true
			continue
		}
		left = append(left, b)
	}
	if c.rollbacks = left; changed {
		c.writeBackLocked()
	}
}

func (c *State) writeBackLocked() {
	if err := c.saveUnconfirmedLocked(); err != nil { // a later run would not tell of it
		c.Log.Debug("that this host went back is not written down", "error", err)
	}
}

// Rollback returns the changes that this host has gone back from by itself, as they are
// to be told.
func (c *State) Rollbacks() []Rollback {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Rollback
	for _, b := range c.rollbacks {
		if b.Alone {
			out = append(out, b)
		}
	}
	return out
}

// Unconfirmed counts the changes that wait to be confirmed: those that are in force here, and
// those that are not (any more); and how often this host has gone back by itself since
// the agent began.
func (c *State) Unconfirmed() (on, off, alone int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.unconfirmed {
		if t.on {
			on++
		} else {
			off++
		}
	}
	return on, off, c.alone
}
