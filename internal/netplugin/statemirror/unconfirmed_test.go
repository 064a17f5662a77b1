package statemirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// trialHost is a State whose clock the test turns.
type trialHost struct {
	*State
	now *atomic.Int64
}

func newTrialHost(t *testing.T, st store.Store, dir, boot string, now time.Duration) trialHost {
	t.Helper()
	h := trialHost{now: new(atomic.Int64)}
	h.now.Store(int64(now))
	c, err := New(Config{
		Host: "h1", Store: st, Log: slog.New(slog.DiscardHandler), StateDir: dir,
		Agent:     fakeAgent(nil),
		SinceBoot: func() time.Duration { return time.Duration(h.now.Load()) }, Boot: boot,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.State = c
	c.AcquireTenant("blue")
	return h
}

// has waits until the desired state has a forwarding mode.
func (h trialHost) has(t *testing.T, what string, mode model.FwdMode) {
	t.Helper()
	until(t, h.State, what, func() error {
		if !h.Guard.follows() {
			return errors.New("no desired state yet")
		}
		if got, _ := h.comp.Compile(1); got.FwdMode != mode {
			return fmt.Errorf("the desired state has mode %v", got.FwdMode)
		}
		return nil
	})
}

// knows waits until the change was heard of.
func (h trialHost) knows(t *testing.T, n int) {
	t.Helper()
	until(t, h.State, "the change is heard of", func() error {
		if len(h.Unconfirmed.waiting) != n {
			return fmt.Errorf("%d changes are known", len(h.Unconfirmed.waiting))
		}
		return nil
	})
}

// pass lets the time go by that many seconds, as the tick does.
func (h trialHost) pass(d time.Duration) {
	h.now.Add(int64(d))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rollBack()
}

func routing() model.Global {
	g := model.DefaultGlobal()
	g.FwdMode = model.FwdRouting
	return g
}

func globalTrial(t *testing.T, id string, g model.Global) tables.Trial {
	t.Helper()
	b, err := store.EncodeRecord(1, g)
	if err != nil {
		t.Fatal(err)
	}
	return tables.Trial{ID: id, Within: time.Minute, Rows: []tables.TrialRow{{Key: tables.Globals.Key(tables.GlobalKey{}), Value: json.RawMessage(b)}}}
}

func begin(tr tables.Trial) func(store.Tx) error {
	return func(tx store.Tx) error { return tables.TrialsOf(tr.Tenant).Create(tx, tr) }
}

func end(tr tables.Trial, now *model.Global) func(store.Tx) error {
	return func(tx store.Tx) error {
		tables.TrialsOf(tr.Tenant).Delete(tx, tables.TrialKey{Tenant: tr.Tenant, ID: tr.ID})
		if now != nil {
			return tables.Globals.Put(tx, *now)
		}
		return nil
	}
}

// TestUnconfirmedChangeIsUndoneInTime: what is unconfirmed is in the desired state as soon as it comes, and no longer than
// its time, store or not; then nothing but its end in the store brings it back. What
// else is written meanwhile is in the desired state when the trial is over.
func TestUnconfirmedChangeIsUndoneInTime(t *testing.T) {
	st := memory.New()
	put(t, st, identified("a"))
	h := newTrialHost(t, st, t.TempDir(), "b1", time.Hour)
	follow(t, h.State)
	h.has(t, "at first", model.FwdBridge)
	tr := globalTrial(t, "x", routing())
	put(t, st, begin(tr))
	h.has(t, "unconfirmed", model.FwdRouting)
	h.pass(59 * time.Second)
	h.has(t, "still", model.FwdRouting)

	// A netmaster that knows of no trials may write: that stays out of sight.
	other := model.DefaultGlobal()
	other.VLANs = model.TagRange{Lo: 1, Hi: 99}
	put(t, st, func(tx store.Tx) error { return tables.Globals.Put(tx, other) })
	until(t, h.State, "the write is heard of", func() error {
		if g, _ := h.mirrors.byScope[Scope{}].values[tables.GlobalKey{}].(model.Global); g.VLANs != other.VLANs {
			return errors.New("it is not")
		}
		return nil
	})
	h.has(t, "during another write", model.FwdRouting)

	h.pass(time.Second)
	h.has(t, "its time has gone", model.FwdBridge)
	h.mu.Lock()
	if h.Settings.global.VLANs != other.VLANs || len(h.Unconfirmed.problems()) != 1 {
		t.Errorf("after its time: %+v, problems %v", h.Settings.global, h.Unconfirmed.problems())
	}
	h.mu.Unlock()
	other.ArpMode = model.ArpFlood // a sign that the store is followed
	put(t, st, func(tx store.Tx) error { return tables.Globals.Put(tx, other) })
	until(t, h.State, "it follows, and stays back", func() error {
		if h.Settings.global.ArpMode != model.ArpFlood || h.Settings.global.FwdMode != model.FwdBridge {
			return fmt.Errorf("%+v", h.Settings.global)
		}
		return nil
	})
	now := routing()
	put(t, st, end(tr, &now))
	h.has(t, "confirmed", model.FwdRouting)
	h.knows(t, 0)
	if h.mu.Lock(); len(h.Unconfirmed.problems()) != 0 {
		t.Error("it is told of when it is over")
	}
	h.mu.Unlock()
}

// TestRevertedTrialRestoresTheState: taken back in time, the desired state is as before at once.
func TestRevertedTrialRestoresTheState(t *testing.T) {
	st := memory.New()
	put(t, st, identified("a"))
	h := newTrialHost(t, st, t.TempDir(), "b1", 0)
	follow(t, h.State)
	h.has(t, "at first", model.FwdBridge)
	tr := globalTrial(t, "x", routing())
	put(t, st, begin(tr))
	h.has(t, "unconfirmed", model.FwdRouting)
	put(t, st, end(tr, nil))
	h.has(t, "taken back", model.FwdBridge)
	put(t, st, begin(globalTrial(t, "y", routing())))
	h.has(t, "another one", model.FwdRouting)
}

// TestTrialOfTheAbsent: a host that did not see the change come stays back, whether its
// agent is new or it was away; one that did goes on with what is left of its time, and
// not after another boot, nor with a clock of another one.
func TestTrialOfTheAbsent(t *testing.T) {
	for _, test := range []struct {
		name   string
		before time.Duration // clock when the change comes; negative = the agent begins later
		boot   string
		at     time.Duration // clock of the second agent
		want   model.FwdMode
	}{
		{"a new agent", -1, "b1", 10 * time.Second, model.FwdBridge},
		{"again in its time", 5 * time.Second, "b1", 64 * time.Second, model.FwdRouting},
		{"again after its time", 5 * time.Second, "b1", 65 * time.Second, model.FwdBridge},
		{"after another boot", 5 * time.Second, "b2", 6 * time.Second, model.FwdBridge},
		{"with a clock from long ago", 2 * time.Hour, "b1", time.Second, model.FwdBridge},
	} {
		t.Run(test.name, func(t *testing.T) {
			st, dir := memory.New(), t.TempDir()
			put(t, st, identified("a"))
			tr := globalTrial(t, "x", routing())
			if test.before >= 0 {
				t.Run("first agent", func(t *testing.T) { // which ends with it
					h := newTrialHost(t, st, dir, "b1", test.before)
					follow(t, h.State)
					h.has(t, "at first", model.FwdBridge)
					put(t, st, begin(tr))
					h.has(t, "unconfirmed", model.FwdRouting)
				})
			} else {
				put(t, st, begin(tr))
			}
			h := newTrialHost(t, st, dir, test.boot, test.at)
			follow(t, h.State)
			h.knows(t, 1)
			h.has(t, test.name, test.want)
			now := routing()
			put(t, st, end(tr, &now))
			h.has(t, "confirmed", model.FwdRouting)
		})
	}
}

// TestUnwritableDeadlineRefusesTheTrial: a change whose time cannot be written down is not taken: a later
// run of the agent could not know when to go back.
func TestUnwritableDeadlineRefusesTheTrial(t *testing.T) {
	st, dir := memory.New(), t.TempDir()
	put(t, st, identified("a"))
	if err := os.Mkdir(filepath.Join(dir, UnconfirmedFile), 0o700); err != nil {
		t.Fatal(err)
	}
	h := newTrialHost(t, st, dir, "b1", 0)
	follow(t, h.State)
	h.has(t, "at first", model.FwdBridge)
	put(t, st, begin(globalTrial(t, "x", routing())))
	h.knows(t, 1)
	h.has(t, "not taken", model.FwdBridge)
}
