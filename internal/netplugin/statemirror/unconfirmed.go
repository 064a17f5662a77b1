package statemirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A change that waits to be confirmed (tables.Trial) is in the desired state from when this
// host sees it until its deadline by the host's own clock since boot, or until its end in
// the store, whichever is first. The contents of the store's tables are noted all the
// while, and are the desired state again then, without a store and a netmaster. A host that
// did not see it come, or has seen its deadline, stays without it until the store says how
// it ended.

// UnconfirmedFile, in the state directory, says which changes this host has seen come and
// until when they may be in its desired state.
const UnconfirmedFile = "trials.json"

// maxUnconfirmed is the longest time that a change waits: what says that it waits longer is
// not believed.
const maxUnconfirmed = time.Hour

// UnconfirmedChanges owns the changes that wait to be confirmed, and the rollbacks of this
// host. For each change it has the state that was confirmed last, which the mirror keeps,
// and the deadline. The State enters changes and asks each second; it hands the rows that
// are returned to the Compiler.
type UnconfirmedChanges struct {
	*shared
	waiting   map[tables.TrialKey]*unconfirmedChange
	notes     map[string]unconfirmedNote
	taken     bool       // something is in force that the checkpoint does not have
	rollbacks []Rollback // oldest first; see findAlone
	onlyHere  int        // how often this host rolled back by itself
}

// unconfirmedChange is a Trial that a mirror has delivered.
type unconfirmedChange struct {
	from *mirror
	rows map[any]any // what the desired state has by typed key; nil = nothing
	on   bool        // they are in the desired state
}

// put returns the change's rows, to be entered.
func (t *unconfirmedChange) put() (out []mirrorRow) {
	t.on = true
	for key, value := range t.rows {
		out = append(out, mirrorRow{t.from, tables.Change{Key: key, Value: value}})
	}
	return out
}

// end returns what the tables have in place of the change's rows, to be entered.
func (t *unconfirmedChange) end() (out []mirrorRow) {
	if !t.on {
		return nil
	}
	t.on = false
	for key := range t.rows {
		out = append(out, mirrorRow{t.from, tables.Change{Key: key, Value: t.from.values[key]}})
	}
	return out
}

// unconfirmedNote is what outlives the process of a change that waits.
type unconfirmedNote struct {
	ID    string        `json:"id"`
	Boot  string        `json:"boot"`  // of the kernel
	Until time.Duration `json:"until"` // ns since that boot
	Over  bool          `json:"over,omitempty"`
}

type unconfirmedNotes struct {
	Version int               `json:"version"` // 1
	Notes   []unconfirmedNote `json:"notes"`
	Back    []Rollback        `json:"back,omitempty"`
}

// sinceBoot is the time since boot, suspended time included.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 1<<63 - 1 // nothing has time left
	}
	return time.Duration(ts.Nano())
}

// bootID tells one run of the kernel from another; empty when it cannot be known.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// newUnconfirmedChanges reads UnconfirmedFile. One that cannot be read counts as empty, and
// then the host stays back: it has seen nothing come.
func newUnconfirmedChanges(c *shared) *UnconfirmedChanges {
	u := &UnconfirmedChanges{shared: c, waiting: map[tables.TrialKey]*unconfirmedChange{}, notes: map[string]unconfirmedNote{}}
	var file unconfirmedNotes
	data, err := os.ReadFile(filepath.Join(c.StateDir, UnconfirmedFile))
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err == nil && file.Version != 1 {
		err = fmt.Errorf("it is of version %d", file.Version)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.Log.Warn("the record of unconfirmed changes cannot be read: such changes are not applied here until they are confirmed", "error", err)
		}
		return u
	}
	for _, n := range file.Notes {
		u.notes[n.ID] = n
	}
	u.rollbacks = file.Back
	return u
}

// save writes UnconfirmedFile, but for what nothing is left of.
func (u *UnconfirmedChanges) save() error {
	known := map[string]bool{}
	for k := range u.waiting {
		known[k.ID] = true
	}
	maps.DeleteFunc(u.notes, func(id string, n unconfirmedNote) bool { return !known[id] && !u.isInForce(n) })
	file := unconfirmedNotes{Version: 1, Notes: []unconfirmedNote{}, Back: u.rollbacks}
	for _, id := range slices.Sorted(maps.Keys(u.notes)) {
		file.Notes = append(file.Notes, u.notes[id])
	}
	if err := durable.WriteJSON(filepath.Join(u.StateDir, UnconfirmedFile), file); err != nil {
		return fmt.Errorf("save the unconfirmed changes: %w", err)
	}
	return nil
}

// isInForce reports whether a change may be in the desired state still.
func (u *UnconfirmedChanges) isInForce(n unconfirmedNote) bool {
	left := n.Until - u.SinceBoot()
	return !n.Over && n.Boot != "" && n.Boot == u.Boot && left > 0 && left <= maxUnconfirmed
}

// enter notes a Trial, or that it is over, and returns the rows that are to be entered. live
// says that it comes as it is committed: only then it may come into force.
func (u *UnconfirmedChanges) enter(m *mirror, k tables.TrialKey, ch tables.Change, live bool) ([]mirrorRow, urgency) {
	t := u.waiting[k]
	if ch.Value == nil {
		return u.remove(k), atOnce
	}
	if t != nil { // a Trial never changes
		return nil, irrelevant
	}
	trial := ch.Value.(tables.Trial)
	t = &unconfirmedChange{from: m, rows: map[any]any{}}
	u.waiting[k] = t
	note, noted := u.notes[k.ID]
	if !noted {
		note = unconfirmedNote{ID: k.ID, Boot: u.Boot, Until: u.SinceBoot() + min(trial.Within, maxUnconfirmed), Over: !live}
	}
	for _, r := range trial.Rows {
		ch, err := r.Change()
		if err != nil || ch.Key == nil {
			u.Log.Error("an unconfirmed change cannot be read: it is not applied here", "change", k.ID, "key", r.Key, "error", err)
			note.Over = true
			continue
		}
		t.rows[ch.Key] = ch.Value
	}
	if u.notes[k.ID] = note; !noted {
		if err := u.save(); err != nil { // a later run would not know when it began
			u.Log.Error("an unconfirmed change is not applied here", "change", k.ID, "error", err)
			note.Over = true
			u.notes[k.ID] = note
		}
	}
	if !u.isInForce(note) {
		if noted && !note.Over && note.Boot == u.Boot { // it ended while no agent ran
			u.noteRollback(k.ID)
		}
		u.Log.Warn("there is an unconfirmed change that this host did not see being made, or whose time is up: the previous state stays until its outcome is known", "change", k.ID, "tenant", k.Tenant)
		return nil, atOnce // for the problem
	}
	u.Log.Warn("an unconfirmed change is in force: unless it is confirmed in time, this host rolls it back", "change", k.ID, "tenant", k.Tenant, "left", note.Until-u.SinceBoot())
	u.taken = true
	return t.put(), atOnce
}

// remove forgets a change that does not wait any more.
func (u *UnconfirmedChanges) remove(k tables.TrialKey) (rows []mirrorRow) {
	t := u.waiting[k]
	delete(u.waiting, k)
	if t != nil {
		u.Log.Info("a change is no longer unconfirmed: the store's state is in force", "change", k.ID, "tenant", k.Tenant)
		rows = t.end()
	}
	if err := u.save(); err != nil {
		u.Log.Debug("expired records are not deleted yet", "error", err)
	}
	return rows
}

// effective is what the desired state has in place of what the tables have.
func (u *UnconfirmedChanges) effective(key, value any) any {
	for _, t := range u.waiting {
		if other, has := t.rows[key]; has && t.on {
			return other
		}
	}
	return value
}

// has reports whether the desired state has something else in place of a row.
func (u *UnconfirmedChanges) has(key any) bool {
	for _, t := range u.waiting {
		if _, has := t.rows[key]; has && t.on {
			return true
		}
	}
	return false
}

// expire rolls back the changes whose deadline has passed, and returns the rows that are to be
// entered.
func (u *UnconfirmedChanges) expire() (rows []mirrorRow) {
	for k, t := range u.waiting {
		if !t.on || u.isInForce(u.notes[k.ID]) {
			continue
		}
		u.Log.Warn("a change was not confirmed in time: it is rolled back here, and the previous state stays until its outcome is known", "change", k.ID, "tenant", k.Tenant)
		rows = append(rows, t.end()...)
		u.noteRollback(k.ID)
		u.changes.Notify()
		u.Agent.Kick("unconfirmed")
	}
	return rows
}

// refuse rolls back all changes in force, since no checkpoint could be written.
func (u *UnconfirmedChanges) refuse(err error) (rows []mirrorRow) {
	for k, t := range u.waiting {
		if !t.on {
			continue
		}
		u.Log.Error("an unconfirmed change is not applied here", "change", k.ID, "error", err)
		note := u.notes[k.ID]
		note.Over = true
		u.notes[k.ID] = note
		rows = append(rows, t.end()...)
	}
	return rows
}

// problems tells of what waits to be confirmed.
func (u *UnconfirmedChanges) problems() (out []compile.Problem) {
	for k, t := range u.waiting {
		text := "it is unconfirmed, and the previous state is in force here until its outcome is known: its time is up, or this host did not see it being made"
		if t.on {
			text = "it is in force, unconfirmed, until it is confirmed (netctl confirm " + k.ID + ") or its time has gone"
		}
		out = append(out, compile.Problem{Object: "change " + k.ID, Text: text})
	}
	return out
}

// Count counts the unconfirmed changes: the ones in force here, and the others; and how
// often this host has rolled back by itself since the agent began.
func (u *UnconfirmedChanges) Count() (on, off, alone int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.waiting {
		if t.on {
			on++
		} else {
			off++
		}
	}
	return on, off, u.onlyHere
}
