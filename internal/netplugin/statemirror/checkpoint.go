package statemirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// An agent that begins while a change on trial has cut its host off reaches no store to
// go back by. So all that the picture is made of lies in a file while a change is on
// trial here: what the tables have, and what is on trial. It is written before the
// change is taken, and followed; whoever begins and reads no store for a while begins
// with it, and keeps to the change's time as if it had never ended. The picture then
// stands still (hold) until the store is read, as it does with a store that has gone
// back.

const (
	// CheckpointFile, in the state directory, is there while a change is on trial.
	CheckpointFile = "trial-picture.json"
	// RecallAfter is how long an agent that begins waits for the store before it takes
	// what CheckpointFile has.
	RecallAfter = 5 * time.Second
	// keepShare bounds how much of the time goes into writing the file again: what a
	// write took, that many times, passes until the next.
	keepShare = 20
)

// checkpointState is what is known of CheckpointFile.
type checkpointState struct {
	there  bool        // the file is
	found  *checkpoint // by an agent that begins; nil = none, or it is of no use any more
	now    bool        // something has been taken on trial that the file does not have
	stale  bool        // mirrors have told more since it was written
	after  time.Time   // the next write is not before
	failed bool        // and told
	began  time.Time   // this agent; zero = it has not been asked yet
}

// checkpoint is the content of CheckpointFile.
type checkpoint struct {
	Version  int               `json:"version"` // 1
	Boot     string            `json:"boot"`    // of the kernel that it was written under
	Revision store.Revision    `json:"revision"`
	Parts    []checkpointScope `json:"parts"`
	Control  checkpointControl `json:"control"`
}

type checkpointScope struct {
	Scope
	Rows []tables.TrialRow `json:"rows"`
}

// checkpointControl is where the control plane answers, by what tells of it, and by machine.
type checkpointControl struct {
	Sources  map[string][]netip.AddrPort `json:"sources"`
	Machines map[netip.Addr][]netip.Addr `json:"machines"`
}

// loadCheckpoint reads CheckpointFile. What was written under another boot, or cannot be read, is of
// no use: nothing is on trial here then.
func (c *State) loadCheckpoint() {
	data, err := os.ReadFile(filepath.Join(c.StateDir, CheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	c.checkpoint.there = true
	var k checkpoint
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err == nil && k.Version != 1 {
		err = fmt.Errorf("it is of version %d", k.Version)
	}
	switch {
	case err != nil:
		c.Log.Warn("what was before a change on trial cannot be read: without the store this host cannot go back from it", "file", CheckpointFile, "error", err)
	case k.Boot != "" && k.Boot == c.Boot:
		c.checkpoint.found = &k
	}
}

// restoreCheckpointLocked begins with what CheckpointFile has when the store was not read for a
// while.
func (c *State) restoreCheckpointLocked() {
	if c.checkpoint.began.IsZero() {
		c.checkpoint.began = time.Now()
	}
	k := c.checkpoint.found
	if c.entered {
		c.checkpoint.found = nil
		return
	}
	if k == nil || time.Since(c.checkpoint.began) < c.Patience {
		return
	}
	c.checkpoint.found = nil
	c.Log.Warn("the store was not read yet, and a change was on trial here when this agent's former run ended: the picture of then is taken up", "revision", int64(k.Revision))
	for _, part := range k.Parts {
		m := c.startLocked(part.Scope)
		m.staged = false
		c.required[part.Scope] = true // of the store, when it is read
		for _, row := range part.Rows {
			ch, err := row.Change()
			if err != nil {
				c.Log.Error("a row of the former run cannot be read", "key", row.Key, "error", err)
			}
			c.enterLocked(m, ch)
		}
		c.followsLocked(m, true)
	}
	if c.control != nil {
		c.control.recall(k.Control)
	}
	c.giveUpIdentitiesLocked(0)
	c.entered, c.recalled, c.rev = true, true, k.Revision
	c.subscribed = c.interestsLocked()
	c.changes.Tell()
	c.Kick("recalled")
}

// keepTakenLocked writes CheckpointFile before what was taken on trial just now reaches the
// data plane; without it, that is not taken.
func (c *State) keepTakenLocked() {
	c.checkpoint.stale = true
	if !c.checkpoint.now || c.frozen != nil {
		return
	}
	c.checkpoint.now = false
	err := c.writeCheckpointLocked()
	if err == nil {
		return
	}
	for k, t := range c.unconfirmed {
		if !t.on {
			continue
		}
		c.Log.Error("a change that waits to be confirmed is not taken here", "change", k.ID, "error", err)
		note := c.unconfirmedNotes[k.ID]
		note.Over = true
		c.unconfirmedNotes[k.ID] = note
		c.endUnconfirmedLocked(t)
	}
}

// updateCheckpointLocked has CheckpointFile follow the store, and takes it away when nothing waits.
func (c *State) updateCheckpointLocked() {
	if c.frozen != nil || !c.checkpoint.there {
		return
	}
	if len(c.unconfirmed) > 0 {
		if c.checkpoint.stale && !time.Now().Before(c.checkpoint.after) {
			if err := c.writeCheckpointLocked(); err != nil && !c.checkpoint.failed {
				c.checkpoint.failed = true
				c.Log.Warn("what a change on trial replaces is not written down as it is now: an agent that begins without the store goes by what is", "error", err)
			}
		}
		return
	}
	if err := os.Remove(filepath.Join(c.StateDir, CheckpointFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Debug("what no change replaces any more is still there", "file", CheckpointFile, "error", err)
		return
	}
	c.checkpoint.there = false
}

func (c *State) writeCheckpointLocked() error {
	start := time.Now()
	k := checkpoint{Version: 1, Boot: c.Boot, Revision: c.rev}
	for p, m := range c.mirrors {
		if m.staged || !m.ready {
			continue
		}
		part := checkpointScope{Scope: p}
		for key, value := range m.values {
			kv, err := tables.Encode(key, value)
			if err != nil {
				return fmt.Errorf("write down what a change on trial replaces: %w", err)
			}
			part.Rows = append(part.Rows, tables.TrialRow{Key: kv.Key, Value: kv.Value})
		}
		k.Parts = append(k.Parts, part)
	}
	slices.SortFunc(k.Parts, func(a, b checkpointScope) int { return strings.Compare(a.order(), b.order()) })
	if c.control != nil {
		k.Control = c.control.heard()
	}
	if err := durable.WriteJSON(filepath.Join(c.StateDir, CheckpointFile), k); err != nil {
		return fmt.Errorf("write down what a change on trial replaces: %w", err)
	}
	c.checkpoint.there, c.checkpoint.failed, c.checkpoint.stale = true, false, false
	c.checkpoint.after = time.Now().Add(keepShare * time.Since(start))
	return nil
}

// order has the global part first, and of each tenant the rest.
func (p Scope) order() string { return string(p.Tenant) + "/" + string(p.Network) }

// heard is what sources have told.
func (p *ControlPlane) heard() checkpointControl {
	p.mu.Lock()
	defer p.mu.Unlock()
	return checkpointControl{maps.Clone(p.sources), p.machines}
}

// recall takes for heard what a former run has heard of sources that have not told yet.
func (p *ControlPlane) recall(was checkpointControl) {
	p.mu.Lock()
	var open []string
	for source := range p.waiting {
		open = append(open, source)
	}
	if p.machines == nil {
		p.machines = was.Machines
	}
	p.mu.Unlock()
	for _, source := range open {
		p.take(source, slices.Clone(was.Sources[source]), true)
	}
}
