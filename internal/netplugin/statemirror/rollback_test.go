package statemirror

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// judged waits until Rollback returns so many, with or without a word heard.
func (h trialHost) judged(t *testing.T, what string, n int, heard bool) {
	t.Helper()
	until(t, h.State, what, func() error {
		h.Unconfirmed.findOnlyHere(h.Guard.entered() && h.stale() == nil)
		got := 0
		for _, b := range h.Unconfirmed.rollbacks {
			if b.OnlyHere && b.EndedAt.IsZero() != heard {
				got++
			}
		}
		if got != n {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestRolledBackHostReportsUntilItLearnsTheEnd: a host that rolled back and learns at once how the change ended reports
// nothing. One that does not learn it reports it, also after a restart of its agent, until
// it has learned and for a while after.
func TestRolledBackHostReportsUntilItLearnsTheEnd(t *testing.T) {
	st, dir := memory.New(), t.TempDir()
	put(t, st, identified("a"))
	t.Run("first agent", func(t *testing.T) { // which ends with it
		h := newTrialHost(t, st, dir, "b1", time.Hour)
		follow(t, h.State)
		h.has(t, "at first", model.FwdBridge)
		told := globalTrial(t, "told", routing())
		put(t, st, begin(told))
		h.has(t, "unconfirmed", model.FwdRouting)
		if on, off, _ := h.Unconfirmed.Count(); on != 1 || off != 0 {
			t.Errorf("unconfirmed: %d on, %d off", on, off)
		}
		h.pass(time.Minute)
		if on, off, _ := h.Unconfirmed.Count(); on != 0 || off != 1 {
			t.Errorf("gone back: %d on, %d off", on, off)
		}
		h.now.Add(int64(onlyHereAfter - 1))
		put(t, st, end(told, nil))
		h.knows(t, 0)
		h.judged(t, "heard in time", 0, true)
		h.now.Add(int64(time.Hour))
		h.judged(t, "and for ever", 0, false)

		put(t, st, begin(globalTrial(t, "x", routing())))
		h.has(t, "unconfirmed", model.FwdRouting)
		h.pass(time.Minute)
		h.judged(t, "not yet alone", 0, false)
		h.now.Add(int64(onlyHereAfter))
		h.judged(t, "alone", 1, false)
		if all := h.Unconfirmed.Rollbacks(); len(all) != 1 || all[0].ID != "x" || all[0].At.IsZero() {
			t.Errorf("%+v", all)
		}
		if _, _, alone := h.Unconfirmed.Count(); alone != 1 {
			t.Errorf("counted %d times", alone)
		}
	})
	h := newTrialHost(t, st, dir, "b1", 3*time.Hour)
	if all := h.Unconfirmed.Rollbacks(); len(all) != 1 {
		t.Errorf("forgotten by the next agent: %+v", all)
	}
	follow(t, h.State)
	h.knows(t, 1)
	h.judged(t, "it waits to hear", 1, false)
	put(t, st, end(globalTrial(t, "x", routing()), nil))
	h.judged(t, "it has heard", 1, true)

	var file unconfirmedNotes
	path := filepath.Join(dir, UnconfirmedFile)
	data, err := os.ReadFile(path)
	if err := errors.Join(err, json.Unmarshal(data, &file)); err != nil || len(file.Back) != 1 || file.Back[0].EndedAt.IsZero() {
		t.Fatalf("%v %+v", err, file)
	}
	file.Back[0].EndedAt = time.Now().Add(-reportedAfter)
	data, err = json.Marshal(file)
	if err := errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	h = newTrialHost(t, st, dir, "b1", 3*time.Hour)
	follow(t, h.State)
	h.judged(t, "told long enough", 0, true)
}

// TestOverdueChangeIsRolledBackAtStart: a change whose time went while no agent ran left its host in it
// until the next one began.
func TestOverdueChangeIsRolledBackAtStart(t *testing.T) {
	st, dir := memory.New(), t.TempDir()
	put(t, st, identified("a"))
	t.Run("first agent", func(t *testing.T) { // which ends with it
		h := newTrialHost(t, st, dir, "b1", time.Hour)
		follow(t, h.State)
		h.has(t, "at first", model.FwdBridge)
		put(t, st, begin(globalTrial(t, "x", routing())))
		h.has(t, "unconfirmed", model.FwdRouting)
	})
	h := newTrialHost(t, st, dir, "b1", 2*time.Hour)
	follow(t, h.State)
	h.knows(t, 1)
	h.now.Add(int64(onlyHereAfter))
	h.judged(t, "alone", 1, false)
}
