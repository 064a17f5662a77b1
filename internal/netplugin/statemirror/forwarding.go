package statemirror

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
)

// modeChange is the last change of the forwarding mode, and whether this host has taken
// it back.
type modeChange struct {
	wanted    model.FwdMode // by the store
	before    model.FwdMode // empty = it has not changed
	at        time.Time
	suspended bool
}

// follow takes settings of the store, and returns them as this host follows them.
func (m *modeChange) follow(g model.Global) model.Global {
	if m.wanted != g.FwdMode {
		*m = modeChange{wanted: g.FwdMode, before: m.wanted, at: time.Now()}
	}
	return m.effective(g)
}

// effective returns settings as this host follows them.
func (m *modeChange) effective(g model.Global) model.Global {
	if m.suspended {
		g.FwdMode = m.before
	}
	return g
}

func (c *State) setGlobalLocked(g model.Global) {
	c.global = &g
	c.comp.SetGlobal(g)
}

// NewestMode returns when the forwarding mode changed last, if that was after since and
// this host follows it; zero otherwise.
func (c *State) NewestMode(since time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.mode; m.before != "" && !m.suspended && m.at.After(since) {
		return m.at
	}
	return time.Time{}
}

// SuspendMode has this host go by the forwarding mode before the last change, or by the
// present one again.
func (c *State) SuspendMode(suspend bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode.before == "" || c.global == nil {
		return
	}
	c.mode.suspended = suspend
	g := *c.global
	g.FwdMode = c.mode.wanted
	c.setGlobalLocked(c.mode.effective(g))
	c.subscribeLocked()
	c.changes.Tell()
	c.Kick("forwarding mode")
}

// modeProblemsLocked tells that the change is taken back.
func (c *State) modeProblemsLocked() []compile.Problem {
	if !c.mode.suspended {
		return nil
	}
	return []compile.Problem{{Object: "forwarding mode", Text: "this host stays in mode " + string(c.mode.before) +
		": since it went to " + string(c.mode.wanted) + " no netmaster answered, and without that one does; change the mode back, or restart netplugin to have it follow"}}
}
