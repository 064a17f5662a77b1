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

// An agent that starts while an unconfirmed change has cut its host off reaches no store to
// roll back by. So the input of the desired state lies in a file while a change is
// unconfirmed here: what the tables have, and the unconfirmed rows. It is written before
// the change takes effect, and kept up to date. An agent that starts and reads no store for
// a while starts with it, and keeps to the change's deadline as if it had never ended. The
// desired state then stays frozen until the store is read, as it does with an older store.

const (
	// CheckpointFile, in the state directory, is there while a change is unconfirmed.
	CheckpointFile = "trial-picture.json"
	// RestoreAfter is how long an agent that begins waits for the store before it takes
	// what CheckpointFile has.
	RestoreAfter = 5 * time.Second
	// checkpointShare bounds how much of the time goes into writing the file again: what a
	// write took, that many times, passes until the next.
	checkpointShare = 20
)

// checkpointFile owns what is known of CheckpointFile. The State has it written.
type checkpointFile struct {
	*shared
	exists bool        // the file is
	found  *checkpoint // by an agent that begins; nil = none, or it is of no use any more
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
	Sources  map[string][]listener       `json:"sources"`
	Machines map[netip.Addr][]netip.Addr `json:"machines"`
}

// newCheckpointFile reads CheckpointFile. What was written under another boot, or cannot be
// read, is of no use: nothing is unconfirmed here then.
func newCheckpointFile(c *shared) *checkpointFile {
	f := &checkpointFile{shared: c}
	data, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return f
	}
	f.exists = true
	var k checkpoint
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err == nil && k.Version != 1 {
		err = fmt.Errorf("it is of version %d", k.Version)
	}
	switch {
	case err != nil:
		f.Log.Warn("the checkpoint of an unconfirmed change cannot be read: without the store this host cannot roll the change back", "file", CheckpointFile, "error", err)
	case k.Boot != "" && k.Boot == f.Boot:
		f.found = &k
	}
	return f
}

func (f *checkpointFile) path() string { return filepath.Join(f.StateDir, CheckpointFile) }

// due returns, once, what the file has when there is no desired state and the store was not
// read for a while.
func (f *checkpointFile) due(entered bool) *checkpoint {
	if f.began.IsZero() {
		f.began = time.Now()
	}
	k := f.found
	if entered {
		f.found = nil
		return nil
	}
	if k == nil || time.Since(f.began) < f.Patience {
		return nil
	}
	f.found = nil
	return k
}

// update has the file follow the store while changes wait, and takes it away when none does.
func (f *checkpointFile) update(waiting bool, now func() (checkpoint, error)) {
	if !f.exists {
		return
	}
	if waiting {
		if f.stale && !time.Now().Before(f.after) {
			if err := f.write(now); err != nil && !f.failed {
				f.failed = true
				f.Log.Warn("the checkpoint of an unconfirmed change cannot be updated: an agent that starts without the store uses the old one", "error", err)
			}
		}
		return
	}
	if err := os.Remove(f.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Log.Debug("the checkpoint of an ended change cannot be deleted", "file", CheckpointFile, "error", err)
		return
	}
	f.exists = false
}

func (f *checkpointFile) write(now func() (checkpoint, error)) error {
	start := time.Now()
	k, err := now()
	if err != nil {
		return fmt.Errorf("write the checkpoint of an unconfirmed change: %w", err)
	}
	k.Version, k.Boot = 1, f.Boot
	if err := durable.WriteJSON(f.path(), k); err != nil {
		return fmt.Errorf("write the checkpoint of an unconfirmed change: %w", err)
	}
	f.exists, f.failed, f.stale = true, false, false
	f.after = time.Now().Add(checkpointShare * time.Since(start))
	return nil
}

// restoreCheckpoint begins with what CheckpointFile has when the store was not read for a
// while.
func (c *State) restoreCheckpoint() {
	k := c.checkpoint.due(c.Guard.entered())
	if k == nil {
		return
	}
	c.Log.Warn("the store was not read yet, and a change was unconfirmed here when this agent's previous run ended: its desired state is restored from the checkpoint", "revision", int64(k.Revision))
	for _, part := range k.Parts {
		m := c.mirrors.start(part.Scope)
		m.staged = false
		c.mirrors.required[part.Scope] = true // of the store, when it is read
		for _, row := range part.Rows {
			ch, err := row.Change()
			if err != nil {
				c.Log.Error("a row of the previous run cannot be read", "key", row.Key, "error", err)
			}
			c.input.enter(m, ch)
		}
		c.input.setFollowed(m, true)
	}
	if c.control != nil {
		c.control.restoreSources(k.Control)
	}
	c.Endpoints.releaseRead()
	c.Guard.source, c.mirrors.rev = fromCheckpoint, k.Revision
	c.mirrors.subscribed = c.interests.scopes()
	c.changes.Notify()
	c.Agent.Kick("recalled")
}

// checkpointUnconfirmed writes CheckpointFile before an unconfirmed change that has just come reaches the
// data plane; without it, that is not taken.
func (c *State) checkpointUnconfirmed() {
	c.checkpoint.stale = true
	if !c.Unconfirmed.taken || !c.Guard.follows() {
		return
	}
	c.Unconfirmed.taken = false
	if err := c.checkpoint.write(c.toCheckpoint); err != nil {
		c.input.enterRows(c.Unconfirmed.refuse(err))
	}
}

// updateCheckpoint has CheckpointFile follow the store.
func (c *State) updateCheckpoint() {
	if c.Guard.follows() {
		c.checkpoint.update(len(c.Unconfirmed.waiting) > 0, c.toCheckpoint)
	}
}

// toCheckpoint returns what the desired state is made of.
func (c *State) toCheckpoint() (checkpoint, error) {
	k := checkpoint{Revision: c.mirrors.rev}
	for p, m := range c.mirrors.byScope {
		if m.staged || !m.ready {
			continue
		}
		part := checkpointScope{Scope: p}
		for key, value := range m.values {
			kv, err := tables.Encode(key, value)
			if err != nil {
				return k, err
			}
			part.Rows = append(part.Rows, tables.TrialRow{Key: kv.Key, Value: kv.Value})
		}
		k.Parts = append(k.Parts, part)
	}
	slices.SortFunc(k.Parts, func(a, b checkpointScope) int { return strings.Compare(a.order(), b.order()) })
	if c.control != nil {
		k.Control = c.control.reportedSources()
	}
	return k, nil
}

// order has the global part first, and of each tenant the rest.
func (p Scope) order() string { return string(p.Tenant) + "/" + string(p.Network) }

// reportedSources is what sources have told.
func (p *ControlPlane) reportedSources() checkpointControl {
	p.mu.Lock()
	defer p.mu.Unlock()
	return checkpointControl{maps.Clone(p.sources), p.machines}
}

// restoreSources takes for heard what a former run has heard of sources that have not told yet.
func (p *ControlPlane) restoreSources(was checkpointControl) {
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
		p.setSource(source, slices.Clone(was.Sources[source]), true)
	}
}
