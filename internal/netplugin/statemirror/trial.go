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

// TrialsFile, in the state directory, says which changes this host has seen come and
// until when they may be in its picture.
const TrialsFile = "trials.json"

// mostTrial is the longest time that a change waits: what says that it waits longer is
// not believed.
const mostTrial = time.Hour

// trial is a Trial that a mirror has delivered.
type trial struct {
	from *mirror
	rows map[any]any // what the picture has by typed key; nil = nothing
	on   bool        // they are in the picture
}

// trialNote is what outlives the process of a change that waits.
type trialNote struct {
	ID    string        `json:"id"`
	Boot  string        `json:"boot"`  // of the kernel
	Until time.Duration `json:"until"` // ns since that boot
	Over  bool          `json:"over,omitempty"`
}

type trialNotes struct {
	Version int         `json:"version"` // 1
	Notes   []trialNote `json:"notes"`
	Back    []WentBack  `json:"back,omitempty"`
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

// recallTrials reads TrialsFile. One that cannot be read counts as empty, and then the
// host stays back: it has seen nothing come.
func (c *Cluster) recallTrials() {
	var file trialNotes
	data, err := os.ReadFile(filepath.Join(c.StateDir, TrialsFile))
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
		c.trialNotes[n.ID] = n
	}
	c.back = file.Back
}

// rememberTrialsLocked writes TrialsFile, but for what nothing is left of.
func (c *Cluster) rememberTrialsLocked() error {
	known := map[string]bool{}
	for k := range c.trials {
		known[k.ID] = true
	}
	maps.DeleteFunc(c.trialNotes, func(id string, n trialNote) bool { return !known[id] && !c.lastsLocked(n) })
	file := trialNotes{Version: 1, Notes: []trialNote{}, Back: c.back}
	for _, id := range slices.Sorted(maps.Keys(c.trialNotes)) {
		file.Notes = append(file.Notes, c.trialNotes[id])
	}
	if err := durable.WriteJSON(filepath.Join(c.StateDir, TrialsFile), file); err != nil {
		return fmt.Errorf("write down which changes wait to be confirmed: %w", err)
	}
	return nil
}

// lastsLocked tells whether a change may be in the picture still.
func (c *Cluster) lastsLocked(n trialNote) bool {
	left := n.Until - c.SinceBoot()
	return !n.Over && n.Boot != "" && n.Boot == c.Boot && left > 0 && left <= mostTrial
}

// trialLocked enters a Trial, or that it is over.
func (c *Cluster) trialLocked(m *mirror, k tables.TrialKey, ch tables.Change) urgency {
	t := c.trials[k]
	if ch.Value == nil {
		delete(c.trials, k)
		if t != nil {
			c.Log.Info("a change does not wait to be confirmed any more: what the store has is in force", "change", k.ID, "tenant", k.Tenant)
			c.leaveTrialLocked(t)
		}
		if err := c.rememberTrialsLocked(); err != nil {
			c.Log.Debug("what is over is not forgotten yet", "error", err)
		}
		return atOnce
	}
	if t != nil { // a Trial never changes
		return irrelevant
	}
	row := ch.Value.(tables.Trial)
	t = &trial{from: m, rows: map[any]any{}}
	c.trials[k] = t
	note, noted := c.trialNotes[k.ID]
	if !noted {
		note = trialNote{ID: k.ID, Boot: c.Boot, Until: c.SinceBoot() + min(row.Within, mostTrial), Over: !c.live}
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
	if c.trialNotes[k.ID] = note; !noted {
		if err := c.rememberTrialsLocked(); err != nil { // a later run would not know when it began
			c.Log.Error("a change that waits to be confirmed is not taken here", "change", k.ID, "error", err)
			note.Over = true
			c.trialNotes[k.ID] = note
		}
	}
	if !c.lastsLocked(note) {
		if noted && !note.Over && note.Boot == c.Boot { // it ended while no agent ran
			c.wentBackLocked(k.ID)
		}
		c.Log.Warn("a change waits to be confirmed, and this host has not seen it come or had it for its time: what was before stays until it is heard how it ended", "change", k.ID, "tenant", k.Tenant)
		return atOnce // for the problem
	}
	c.Log.Warn("a change is in force on trial: unconfirmed, what was before is again", "change", k.ID, "tenant", k.Tenant, "left", note.Until-c.SinceBoot())
	t.on, c.keep.now = true, true
	for key, value := range t.rows {
		c.pictureLocked(m, tables.Change{Key: key, Value: value})
	}
	return atOnce
}

// leaveTrialLocked makes the picture what the tables have.
func (c *Cluster) leaveTrialLocked(t *trial) {
	if !t.on {
		return
	}
	t.on = false
	for key := range t.rows {
		c.pictureLocked(t.from, tables.Change{Key: key, Value: t.from.values[key]})
	}
}

// inForceLocked is what the picture has in place of what the tables have.
func (c *Cluster) inForceLocked(key, value any) any {
	for _, t := range c.trials {
		if other, has := t.rows[key]; has && t.on {
			return other
		}
	}
	return value
}

// onTrialLocked tells whether the picture has something else in place of a row.
func (c *Cluster) onTrialLocked(key any) bool {
	for _, t := range c.trials {
		if _, has := t.rows[key]; has && t.on {
			return true
		}
	}
	return false
}

// endTrialsLocked goes back from what has had its time.
func (c *Cluster) endTrialsLocked() {
	for k, t := range c.trials {
		note := c.trialNotes[k.ID]
		if !t.on || c.lastsLocked(note) {
			continue
		}
		c.Log.Warn("a change was not confirmed in time: what was before is in force again, and stays until it is heard how it ended", "change", k.ID, "tenant", k.Tenant)
		c.leaveTrialLocked(t)
		c.wentBackLocked(k.ID)
		c.changes.Tell()
		c.Kick("unconfirmed")
	}
	if c.reconsider && c.entered { // without a batch that would
		c.followConcernsLocked()
	}
}

// trialProblemsLocked tells of what waits to be confirmed.
func (c *Cluster) trialProblemsLocked() (out []compile.Problem) {
	for k, t := range c.trials {
		text := "it waits to be confirmed, and what was before is in force here until it is heard how it ended: its time has gone, or this host did not see it come"
		if t.on {
			text = "it is in force on trial, until it is confirmed (netctl confirm " + k.ID + ") or its time has gone"
		}
		out = append(out, compile.Problem{Object: "change " + k.ID, Text: text})
	}
	return out
}
