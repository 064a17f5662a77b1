package statemirror

import (
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// An empty store, another store, or an older state of the same store is not taken for
// intent. Its records are staged (mirror.seen), the desired state is frozen, and errors and
// conditions say why. The host follows again in one of three cases. The store is as it was.
// Or it has all that runs here, and nothing of other hosts would be lost. Or it succeeds the
// store that was followed, by a restore or by an operator's command: then the agent first
// restores its own missing endpoints, and waits for other hosts to do the same.

// guardState says whether a host follows what its mirrors deliver.
type guardState string

const (
	syncing    guardState = "syncing"    // the store has not been judged yet
	following  guardState = "following"  // what mirrors deliver is entered
	frozen     guardState = "frozen"     // the store is not taken for intent
	rebuilding guardState = "rebuilding" // the store was restored, and hosts restore their endpoints in it
)

// guardEvent is what a StoreGuard learns of the store.
type guardEvent string

const (
	suspected guardEvent = "suspected" // a list is of another store, or of an older state
	accepted  guardEvent = "accepted"  // the store is the one to follow
	rejected  guardEvent = "rejected"  // it is not
	restored  guardEvent = "restored"  // it succeeds the one that was followed, and lacks something still
)

// guardTransitions has every transition that there is; docs/design/store.md draws them.
var guardTransitions = map[guardState]map[guardEvent]guardState{
	syncing:    {accepted: following, rejected: frozen, restored: rebuilding},
	following:  {suspected: syncing},
	frozen:     {accepted: following, rejected: frozen, restored: rebuilding},
	rebuilding: {accepted: following, rejected: frozen, restored: rebuilding},
}

// next returns the state after an event.
func (s guardState) next(e guardEvent) (guardState, error) {
	to, ok := guardTransitions[s][e]
	if !ok {
		return s, fmt.Errorf("a store guard that is %s has no transition for a store that is %s", s, e)
	}
	return to, nil
}

// source is where the desired state in force comes from.
type source int

const (
	noSource       source = iota // there is none yet
	fromCheckpoint               // CheckpointFile: the store has not been reached since
	fromStore
)

// StoreGuard decides whether the host follows the store. It owns the state of that
// decision, and the position of the store that was followed last. The State asks it with
// each list and each second, and the attachments and observers ask what holds now.
type StoreGuard struct {
	*shared
	state    guardState
	source   source
	why      string    // the desired state is frozen; "" while syncing or following
	since    time.Time // when the host followed the store last
	ownSince time.Time // since when the store has all of this host's attachments; zero = it has not
	position StorePosition
	refused  map[model.EndpointKey]bool // endpoints that netmaster does not take back
}

func newStoreGuard(c *shared, last StorePosition) *StoreGuard {
	return &StoreGuard{shared: c, state: syncing, since: time.Now(), position: last, refused: map[model.EndpointKey]bool{}}
}

// follows reports whether what mirrors deliver is entered.
func (g *StoreGuard) follows() bool { return g.state == following }

// entered reports whether there is a desired state.
func (g *StoreGuard) entered() bool { return g.source != noSource }

// current reports whether there is a desired state that follows the store.
func (g *StoreGuard) current() bool { return g.follows() && g.entered() }

// Current is current for callers without the lock.
func (g *StoreGuard) Current() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current()
}

// move makes a transition. One that is not in guardTransitions changes nothing.
func (g *StoreGuard) move(e guardEvent) error {
	to, err := g.state.next(e)
	if err != nil {
		g.Log.Error("the store guard keeps its state", "error", err)
		return err
	}
	g.state = to
	return nil
}

// suspect stops following: a list is of another store or of an older state of it.
func (g *StoreGuard) suspect() error {
	if err := g.move(suspected); err != nil {
		return err
	}
	g.why, g.since, g.ownSince = "", time.Now(), time.Time{}
	return nil
}

// freeze says why the desired state is frozen.
func (g *StoreGuard) freeze(why string) {
	if g.why != why {
		g.why = why
		g.Agent.OnFreeze(why)
		g.Agent.OnOwnHost() // this store may lack the host's record, which says what the host follows
		g.changes.Notify()
	}
}

// accept follows the store. It reports whether the desired state was frozen.
func (g *StoreGuard) accept() (wasFrozen bool, err error) {
	if err := g.move(accepted); err != nil {
		return false, err
	}
	wasFrozen = g.why != ""
	g.source, g.why = fromStore, ""
	return wasFrozen, nil
}

// StorePosition is which store a host follows, and how far it has seen it; it outlives
// the process in the state directory.
type StorePosition struct {
	Version int `json:"version"` // 1
	store.Incarnation
	Revision store.Revision `json:"revision"`        // the highest seen
	Place    string         `json:"place,omitempty"` // likewise, in a store with a journal
	// Older: the store was met in an older state, which by its own writes may
	// reach any revision since.
	Older bool `json:"older,omitempty"`
}

// FrozenMark begins the mark in the record of a host whose desired state is frozen.
const FrozenMark = "held:"

// mark names the store that the host follows, for the host's record; empty = none yet. of
// is the store that is mirrored.
func (g *StoreGuard) mark(of store.Incarnation) string {
	switch {
	case !g.follows() && g.ownSince.IsZero():
		if g.position.Mark() == "" {
			return ""
		}
		return FrozenMark + g.position.Mark()
	case !g.follows():
		return of.Mark()
	}
	return g.position.Mark()
}

// Position returns the StorePosition to write down.
func (g *StoreGuard) Position() StorePosition {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.position
}

// MayWrite reports, by its error, whether endpoints may be created and released in the store.
func (g *StoreGuard) MayWrite() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == following || g.state == rebuilding {
		return nil
	}
	if g.state == syncing {
		return model.Errorf(model.ErrUnavailable, "the cluster's store has not been read completely yet")
	}
	return model.Errorf(model.ErrUnavailable, "%s", g.why)
}

// AllowsRefusal reports whether an endpoint that netmaster refuses now may be taken later:
// in a restored store other hosts may have endpoints that they are still to
// release.
func (g *StoreGuard) AllowsRefusal() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.follows() && time.Since(g.since) < g.Grace/2
}

// Refused reports whether an attachment cannot be put back, as State.Refuse has said.
func (g *StoreGuard) Refused(k model.EndpointKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused[k]
}

// stale returns why the store is not followed; nil = it is.
func (g *StoreGuard) stale() error {
	switch g.state {
	case following:
		return nil
	case syncing:
		return errors.New("it has not been read completely yet")
	case frozen, rebuilding:
	}
	return errors.New(g.why)
}

// sinceOf is what the next list of a mirror is judged by: what the mirror itself has seen,
// since others may follow an older state by then; before the first list, and unless the
// store is followed, what is remembered.
func (g *StoreGuard) sinceOf(m *mirror) string {
	if g.follows() && m.place != "" {
		return m.place
	}
	return g.position.Place
}

// advance notes how far the store that is followed has been seen.
func (g *StoreGuard) advance(b store.Batch) {
	if b.Revision > g.position.Revision {
		g.position.Revision = b.Revision
		if b.Place != "" { // what an older netmaster relays has none
			g.position.Place = b.Place
		}
	}
}
