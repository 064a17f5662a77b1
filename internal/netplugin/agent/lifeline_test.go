package agent

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// wayOf is a host whose way to netmaster leads by an interface that may be made and taken
// back.
type wayOf struct {
	now     time.Time
	made    map[model.NetworkKey]time.Time
	down    map[model.NetworkKey]bool
	newest  model.NetworkKey // as found last
	diverts model.NetworkKey // the network whose interface leads the way elsewhere
	l       lifeline
}

func newWay() *wayOf {
	w := &wayOf{now: time.Unix(1_000_000, 0), made: map[model.NetworkKey]time.Time{}, down: map[model.NetworkKey]bool{}}
	w.l = lifeline{path: w.Path, changes: []hostChanges{none{}, w}, log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now }}
	return w
}

func (w *wayOf) Path() string {
	if _, made := w.made[w.diverts]; made && !w.down[w.diverts] {
		return "by the network"
	}
	return "by the gateway"
}

func (w *wayOf) Newest(since time.Time) (at time.Time, what string) {
	for k, made := range w.made {
		if !w.down[k] && made.After(since) && made.After(at) {
			w.newest, at = k, made
		}
	}
	return at, w.newest.String()
}

func (w *wayOf) Suspend(time.Time) error { w.down[w.newest] = true; return nil }
func (w *wayOf) Resume(time.Time) error  { delete(w.down, w.newest); return nil }

// none are changes of a kind that this host has none of.
type none struct{}

func (none) Newest(time.Time) (time.Time, string) { return time.Time{}, "" }
func (none) Suspend(time.Time) error              { return errors.ErrUnsupported }
func (none) Resume(time.Time) error               { return errors.ErrUnsupported }

// runs has reports be sent for a time; answers says whether a netmaster answers.
func (w *wayOf) runs(d time.Duration, answers func() bool) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(time.Second) {
		w.l.ask()
		if answers() {
			w.l.answered()
		} else {
			w.l.noAnswer()
		}
	}
}

var (
	infraA = model.NetworkKey{Tenant: "blue", Name: "a"}
	infraB = model.NetworkKey{Tenant: "blue", Name: "b"}
	yes    = func() bool { return true }
	no     = func() bool { return false }
)

// TestChangeThatCutsTheWayIsTakenBack: of the changes since a netmaster answered the newest
// is taken back, and stays back when a netmaster then answers.
func TestChangeThatCutsTheWayIsTakenBack(t *testing.T) {
	w := newWay()
	w.runs(10*time.Second, yes)
	w.made[infraA] = w.now
	w.runs(10*time.Second, yes)
	w.made[infraB], w.diverts = w.now, infraB
	w.runs(2*time.Minute, func() bool { return w.Path() == "by the gateway" })
	if !w.down[infraB] || w.down[infraA] {
		t.Errorf("taken back: %v", w.down)
	}
	w.runs(10*time.Minute, yes)
	if !w.down[infraB] {
		t.Error("it does not stay back")
	}
}

// TestHarmlessChangeIsAppliedAgain: a change that is taken back in vain is applied again,
// once for all.
func TestHarmlessChangeIsAppliedAgain(t *testing.T) {
	w := newWay()
	w.runs(10*time.Second, yes)
	w.made[infraA], w.diverts = w.now, infraA
	suspended := 0
	w.runs(10*time.Minute, func() bool {
		if w.down[infraA] {
			suspended++
		}
		return false
	})
	if w.down[infraA] || suspended == 0 || suspended > int(trialTime/time.Second)+2 {
		t.Errorf("it is down now: %v; it was for %d s", w.down[infraA], suspended)
	}
}

// TestRestartOfNetmasterRollsNothingBack: neither a netmaster that is back within 30 s of a
// change, nor one that is away for long while the path is as it was, has anything taken back.
func TestRestartOfNetmasterRollsNothingBack(t *testing.T) {
	for what, diverts := range map[string]model.NetworkKey{"the path changed": infraA, "the path is as it was": {Name: "none"}} {
		w := newWay()
		w.runs(10*time.Second, yes)
		w.made[infraA], w.diverts = w.now, diverts
		w.runs(rollbackAfter-2*time.Second, no)
		if len(w.down) > 0 {
			t.Errorf("%s: within 30 s %v is taken back", what, w.down)
		}
		if diverts != infraA {
			w.runs(10*time.Minute, no)
		}
		w.runs(time.Minute, yes)
		if len(w.down) > 0 {
			t.Errorf("%s: %v is taken back", what, w.down)
		}
	}
}
