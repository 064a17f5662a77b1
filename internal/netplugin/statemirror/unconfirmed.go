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

// A change that waits to be confirmed (tables.Trial) is in the picture from when this
// host sees it come until its time has gone by the host's own clock since boot, or it
// is over in the store, whichever is first. What the store has in its tables is
// noted all the while, and is the picture again then: with no store and no netmaster.
// Whoever did not see it come, or has seen its time go, stays back until the store
// says how it ended.

// UnconfirmedFile, in the state directory, says which changes this host has seen come and
// until when they may be in its picture.
const UnconfirmedFile = "trials.json"

// maxUnconfirmed is the longest time that a change waits: what says that it waits longer is
// not believed.
const maxUnconfirmed = time.Hour

// unconfirmedChange is a Trial that a mirror has delivered.
type unconfirmedChange struct {
	from *mirror
	rows map[any]any // what the picture has by typed key; nil = nothing
	on   bool        // they are in the picture
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

// sinceBoot is the time since boot, in which that of a suspended machine counts.
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

// loadUnconfirmed reads UnconfirmedFile. One that cannot be read counts as empty, and then the
// host stays back: it has seen nothing come.
func (c *State) loadUnconfirmed() {
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
			c.Log.Warn("which changes wait to be confirmed cannot be read: those that do are not taken here until they are", "error", err)
		}
		return
	}
	for _, n := range file.Notes {
		c.unconfirmedNotes[n.ID] = n
	}
	c.rollbacks = file.Back
}

// saveUnconfirmedLocked writes UnconfirmedFile, but for what nothing is left of.
func (c *State) saveUnconfirmedLocked() error {
	known := map[string]bool{}
	for k := range c.unconfirmed {
		known[k.ID] = true
	}
	maps.DeleteFunc(c.unconfirmedNotes, func(id string, n unconfirmedNote) bool { return !known[id] && !c.lastsLocked(n) })
	file := unconfirmedNotes{Version: 1, Notes: []unconfirmedNote{}, Back: c.rollbacks}
	for _, id := range slices.Sorted(maps.Keys(c.unconfirmedNotes)) {
		file.Notes = append(file.Notes, c.unconfirmedNotes[id])
	}
	if err := durable.WriteJSON(filepath.Join(c.StateDir, UnconfirmedFile), file); err != nil {
		return fmt.Errorf("write down which changes wait to be confirmed: %w", err)
	}
	return nil
}

// lastsLocked tells whether a change may be in the picture still.
func (c *State) lastsLocked(n unconfirmedNote) bool {
	left := n.Until - c.SinceBoot()
	return !n.Over && n.Boot != "" && n.Boot == c.Boot && left > 0 && left <= maxUnconfirmed
}

// unconfirmedLocked enters a Trial, or that it is over.
func (c *State) unconfirmedLocked(m *mirror, k tables.TrialKey, ch tables.Change) urgency {
	t := c.unconfirmed[k]
	if ch.Value == nil {
		delete(c.unconfirmed, k)
		if t != nil {
			c.Log.Info("a change does not wait to be confirmed any more: what the store has is in force", "change", k.ID, "tenant", k.Tenant)
			c.endUnconfirmedLocked(t)
		}
		if err := c.saveUnconfirmedLocked(); err != nil {
			c.Log.Debug("what is over is not forgotten yet", "error", err)
		}
		return atOnce
	}
	if t != nil { // a Trial never changes
		return irrelevant
	}
	row := ch.Value.(tables.Trial)
	t = &unconfirmedChange{from: m, rows: map[any]any{}}
	c.unconfirmed[k] = t
	note, noted := c.unconfirmedNotes[k.ID]
	if !noted {
		note = unconfirmedNote{ID: k.ID, Boot: c.Boot, Until: c.SinceBoot() + min(row.Within, maxUnconfirmed), Over: !c.live}
	}
	for _, r := range row.Rows {
		ch, err := r.Change()
		if err != nil || ch.Key == nil {
			c.Log.Error("a change that waits to be confirmed cannot be read: it is not taken here", "change", k.ID, "key", r.Key, "error", err)
			note.Over = true
			continue
		}
		t.rows[ch.Key] = ch.Value
	}
	if c.unconfirmedNotes[k.ID] = note; !noted {
		if err := c.saveUnconfirmedLocked(); err != nil { // a later run would not know when it began
			c.Log.Error("a change that waits to be confirmed is not taken here", "change", k.ID, "error", err)
			note.Over = true
			c.unconfirmedNotes[k.ID] = note
		}
	}
	if !c.lastsLocked(note) {
		if noted && !note.Over && note.Boot == c.Boot { // it ended while no agent ran
			c.noteRollbackLocked(k.ID)
		}
		c.Log.Warn("a change waits to be confirmed, and this host has not seen it come or had it for its time: what was before stays until it is heard how it ended", "change", k.ID, "tenant", k.Tenant)
		return atOnce // for the problem
	}
	c.Log.Warn("a change is in force on trial: unconfirmed, what was before is again", "change", k.ID, "tenant", k.Tenant, "left", note.Until-c.SinceBoot())
	t.on, c.checkpoint.now = true, true
	for key, value := range t.rows {
		c.compileInputLocked(m, tables.Change{Key: key, Value: value})
	}
	return atOnce
}

// endUnconfirmedLocked makes the picture what the tables have.
func (c *State) endUnconfirmedLocked(t *unconfirmedChange) {
	if !t.on {
		return
	}
	t.on = false
	for key := range t.rows {
		c.compileInputLocked(t.from, tables.Change{Key: key, Value: t.from.values[key]})
	}
}

// effectiveLocked is what the picture has in place of what the tables have.
func (c *State) effectiveLocked(key, value any) any {
	for _, t := range c.unconfirmed {
		if other, has := t.rows[key]; has && t.on {
			return other
		}
	}
	return value
}

// isUnconfirmedLocked tells whether the picture has something else in place of a row.
func (c *State) isUnconfirmedLocked(key any) bool {
	for _, t := range c.unconfirmed {
		if _, has := t.rows[key]; has && t.on {
			return true
		}
	}
	return false
}

// rollBackExpiredLocked goes back from what has had its time.
func (c *State) rollBackExpiredLocked() {
	for k, t := range c.unconfirmed {
		note := c.unconfirmedNotes[k.ID]
		if !t.on || c.lastsLocked(note) {
			continue
		}
		c.Log.Warn("a change was not confirmed in time: what was before is in force again, and stays until it is heard how it ended", "change", k.ID, "tenant", k.Tenant)
		c.endUnconfirmedLocked(t)
		c.noteRollbackLocked(k.ID)
		c.changes.Tell()
		c.Kick("unconfirmed")
	}
	if c.reconsider && c.entered { // without a batch that would
		c.subscribeLocked()
	}
}

// unconfirmedProblemsLocked tells of what waits to be confirmed.
func (c *State) unconfirmedProblemsLocked() (out []compile.Problem) {
	for k, t := range c.unconfirmed {
		text := "it waits to be confirmed, and what was before is in force here until it is heard how it ended: its time has gone, or this host did not see it come"
		if t.on {
			text = "it is in force on trial, until it is confirmed (netctl confirm " + k.ID + ") or its time has gone"
		}
		out = append(out, compile.Problem{Object: "change " + k.ID, Text: text})
	}
	return out
}
