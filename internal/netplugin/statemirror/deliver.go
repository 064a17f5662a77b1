package statemirror

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// deliver enters one batch. The lock is not held.
func (c *State) deliver(ctx context.Context, m *mirror, b store.Batch) error {
	if err := c.mirrors.waitUnpaused(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mirrors.byScope[m.part] != m || ctx.Err() != nil { // it was dropped, or is listed again, while this batch waited
		return context.Canceled
	}
	if b.Snapshot && m.ready { // listed again, by a mirror that knows nothing of before
		m.seen = map[any]any{}
	}
	if b.Snapshot {
		m.rules = tables.NewInForce()
	}
	if b.Listed {
		c.Guard.listed(c.mirrors, m, b)
		m.partial = b.Partial
	}
	first := !m.ready
	m.withheld = false
	c.mirrors.live = m.ready && !b.Snapshot && !b.Listed && c.Guard.follows()
	defer func() { c.mirrors.live = false }()
	matters := c.take(m, b)
	if first && !m.staged {
		matters = atOnce
	}
	m.rev, m.place = b.Revision, b.Place
	m.ready = true
	m.err = nil
	c.changes.Notify()
	if !c.Guard.follows() {
		c.judge()
		return nil
	}
	if first && !m.staged {
		c.input.setFollowed(m, true)
	}
	if m.part.isTenant() {
		matters = max(matters, c.Endpoints.release())
	}
	if first || c.mirrors.reconsider || m.staged {
		c.subscribe()
	}
	c.mirrors.rev = max(c.mirrors.rev, b.Revision)
	c.checkpointUnconfirmed()
	c.Guard.advance(b)
	switch matters {
	case irrelevant:
	case atOnce:
		c.mirrors.dirty = b.Revision
		c.Agent.Kick("mirror")
	case whenQuiet:
		c.mirrors.dirty = b.Revision
		c.Agent.Soon("mirror")
	}
	return nil
}

// errWithheld: a mirror has nothing.
var errWithheld = model.Errorf(model.ErrUnavailable, "netmaster does not pass it on: this host has no endpoint that it concerns")

// withhold notes that a netmaster keeps a Scope from this host: what was known of it counts
// no more. The lock is not held.
func (c *State) withhold(ctx context.Context, m *mirror) {
	if c.mirrors.waitUnpaused(ctx) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mirrors.byScope[m.part] != m || ctx.Err() != nil {
		return
	}
	was := m.ready
	m.ready, m.withheld, m.err, m.rev = false, true, errWithheld, 0
	m.rules = tables.NewInForce()
	c.changes.Notify()
	switch {
	case !c.Guard.follows():
		m.seen = map[any]any{}
		c.judge()
	case m.staged:
		m.values = map[any]any{}
	case was:
		c.removeDelivered(m)
		c.Agent.Kick("what does not concern this host any more")
	}
}

// removeDelivered takes what a mirror has delivered from the desired state.
func (c *State) removeDelivered(m *mirror) {
	c.input.setFollowed(m, false)
	for k := range m.values {
		c.input.enter(m, tables.Change{Key: k})
	}
}

// take reads the records of a batch, and enters or stages them.
func (c *State) take(m *mirror, b store.Batch) (matters urgency) {
	put := func(ch tables.Change) {
		switch {
		case !c.Guard.follows():
			stage(m.seen, ch)
		case m.staged:
			stage(m.values, ch)
		default:
			matters = max(matters, c.input.enter(m, ch))
		}
	}
	for _, e := range b.Events {
		ch, err := m.rules.Decode(e)
		if err != nil {
			// One unreadable record must not stop the host: what it described is
			// missing, which compiles to something that denies.
			c.Log.Error("a record in the store cannot be read", "key", e.KV.Key, "error", err)
		}
		m.note(ch.Key, e.KV.Key, err)
		if inc, ok := ch.Value.(store.Incarnation); ok && !b.Listed {
			c.Guard.identity(c.mirrors, m, inc)
		}
		if ch.Value != nil || !b.Listed {
			m.changed = max(m.changed, ch.Mod)
		}
		put(ch)
	}
	for _, ch := range m.rules.Rest() {
		put(ch)
	}
	return matters
}
