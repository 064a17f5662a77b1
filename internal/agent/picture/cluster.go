package picture

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/waiting"
)

// Cluster is what this host mirrors of the store (the global part and the
// tenants present here), fed into a Compiler. Each mirror is a goroutine; what
// they deliver is entered under one lock.
type Cluster struct {
	Config

	mu       sync.Mutex
	ctx      context.Context // of run; nil before
	comp     *compile.Compiler
	rev      store.Revision // newest delivered by any mirror
	dirty    store.Revision // of the last batch that could change the picture
	global   *model.Global
	tenants  map[model.TenantName]model.Tenant
	hosts    map[model.HostName]model.Host
	bgps     map[tables.BgpKey]model.Bgp
	mirrors  map[model.TenantName]*mirror    // "" is the global part
	required map[model.TenantName]bool       // to be complete before the first compile
	hidden   map[model.EndpointKey]time.Time // since when no attachment needs it; zero = one does
	changes  waiting.Changes                 // of anything here
	paused   chan struct{}                   // not nil while mirrors are paused; closed to resume
	running  sync.WaitGroup

	unrecorded   bool   // this host's record has gone
	hostsVersion uint64 // counts changes of hosts

	memory  Memory
	held    *hold // not nil while the picture stands still, as it does until the first snapshots are in
	entered bool  // there is a picture
	refused map[model.EndpointKey]bool
}

// Config is what a Cluster needs; all of it, unless it says otherwise.
type Config struct {
	Host     model.HostName
	Store    store.Reader
	Log      *slog.Logger
	StateDir string        // remembers which store is followed
	Grace    time.Duration // how long others may take to put back what a restored store lacks; 0 = StoreGrace

	Kick func(reason string) // has a pass made
	Soon func(reason string) // likewise, for what is not urgent
	Own  func() []Owned      // the attachments that stand

	// Called with the Cluster locked: they must not ask it anything.
	OnOwnHost func()           // the record of this host has changed
	OnLost    func()           // an endpoint of this host has been deleted
	OnHold    func(why string) // the picture stands still; "" = the store is followed
}

// mirror is one watched prefix.
type mirror struct {
	tenant    model.TenantName
	cancel    context.CancelFunc
	ready     bool           // the snapshot is in
	err       error          // why it does not follow now; nil = it follows
	rev       store.Revision // of the last batch
	of        store.Incarnation
	listed    store.Revision // of the last list
	again     bool           // it is being listed again
	seen      map[any]any    // while the picture stands still: what values would be by the store that is not followed
	refs      int            // attachments that need it
	unused    time.Time      // since when refs is zero
	values    map[any]any    // by typed key: everything delivered and not deleted
	rules     *tables.InForce
	endpoints map[model.EndpointKey]model.Endpoint
	networks  map[model.NetworkKey]model.Network
	groups    map[model.GroupKey]model.Group
	unreadable
}

// New returns a Cluster that follows nothing until Run. It fails when what it
// remembers of the store cannot be read at all.
func New(cfg Config) (*Cluster, error) {
	memory, err := Recall(cfg.StateDir, cfg.Log)
	if err != nil {
		return nil, err
	}
	if cfg.Grace == 0 {
		cfg.Grace = StoreGrace
	}
	return &Cluster{
		Config: cfg, memory: memory,
		held: &hold{since: time.Now()}, refused: map[model.EndpointKey]bool{},
		comp:     compile.New(cfg.Host),
		tenants:  map[model.TenantName]model.Tenant{},
		hosts:    map[model.HostName]model.Host{},
		bgps:     map[tables.BgpKey]model.Bgp{},
		mirrors:  map[model.TenantName]*mirror{},
		required: map[model.TenantName]bool{"": true},
		hidden:   map[model.EndpointKey]time.Time{},
	}, nil
}

// Run follows the global part and the tenants acquired so far and later, until
// ctx ends; it returns when no mirror runs any more.
func (c *Cluster) Run(ctx context.Context, linger time.Duration) {
	c.mu.Lock()
	for t := range c.required {
		c.startLocked(t)
	}
	c.ctx = ctx
	for _, m := range c.mirrors {
		c.followLocked(m)
	}
	c.mu.Unlock()
	tick := time.NewTicker(max(linger/10, 10*time.Millisecond))
	defer tick.Stop()
	judge := time.NewTicker(time.Second)
	defer judge.Stop()
	for {
		select {
		case <-judge.C: // a grace may have ended
			c.mu.Lock()
			c.judgeLocked()
			c.listAgainLocked()
			c.mu.Unlock()
		case now := <-tick.C:
			c.dropUnused(now, linger)
			c.dropForgotten(now, linger)
		case <-ctx.Done():
			c.running.Wait()
			return
		}
	}
}

// startLocked begins to mirror a tenant unless it is mirrored already.
func (c *Cluster) startLocked(t model.TenantName) *mirror {
	if m := c.mirrors[t]; m != nil {
		return m
	}
	m := &mirror{
		tenant: t, unused: time.Now(), err: errors.New("the first snapshot has not arrived"),
		values:     map[any]any{},
		rules:      tables.NewInForce(),
		endpoints:  map[model.EndpointKey]model.Endpoint{},
		networks:   map[model.NetworkKey]model.Network{},
		groups:     map[model.GroupKey]model.Group{},
		unreadable: unreadable{},
	}
	if c.held != nil {
		m.seen = map[any]any{}
	}
	c.mirrors[t] = m
	if c.ctx == nil {
		return m // run starts it
	}
	c.followLocked(m)
	return m
}

func (c *Cluster) followLocked(m *mirror) {
	ctx, cancel := context.WithCancel(c.ctx)
	m.cancel = cancel
	prefix := tables.GlobalPrefix
	if m.tenant != "" {
		prefix = tables.TenantPrefix(m.tenant)
	}
	c.running.Go(func() {
		defer cancel()
		err := c.Store.Mirror(ctx, []string{prefix},
			func(b store.Batch) error { return c.deliver(ctx, m, b) },
			store.OnState(func(err error) { c.onState(ctx, m, err) }))
		if ctx.Err() == nil { // the store gave up, or a batch could not be entered
			c.onState(ctx, m, err)
			c.Log.Error("the mirror of the store has ended", "prefix", prefix, "error", err)
		}
	})
}

// onState notes whether the mirror that runs by ctx follows the store. What one says
// that was ended is of no more interest: another one may follow in its place.
func (c *Cluster) onState(ctx context.Context, m *mirror, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err == nil && !m.ready {
		return // following, but the snapshot is not in
	}
	if (err == nil) != (m.err == nil) {
		if err != nil {
			c.Log.Warn("the store cannot be followed; the last state stays", "tenant", m.tenant, "error", err)
		} else {
			c.Log.Info("the store is followed again", "tenant", m.tenant)
		}
	}
	m.err = err
	c.changes.Tell()
}

// deliver enters one batch.
func (c *Cluster) deliver(ctx context.Context, m *mirror, b store.Batch) error {
	if err := c.waitUnpaused(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mirrors[m.tenant] != m || ctx.Err() != nil { // the tenant was dropped, or is listed again, while this batch waited
		return context.Canceled
	}
	if b.Snapshot && m.ready { // listed again, by a mirror that knows nothing of before
		m.seen = map[any]any{}
	}
	if b.Snapshot {
		m.rules = tables.NewInForce()
	}
	if b.Listed {
		c.listedLocked(m, b)
	}
	matters := irrelevant
	if !m.ready {
		matters = atOnce
	}
	enter := func(ch tables.Change) {
		if c.held != nil {
			m.stageLocked(ch)
		} else {
			matters = max(matters, c.enterLocked(m, ch))
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
			c.identityLocked(m, inc)
		}
		enter(ch)
	}
	for _, ch := range m.rules.Rest() {
		enter(ch)
	}
	m.rev = b.Revision
	if b.Snapshot || !m.ready {
		m.ready = true
	}
	m.err = nil
	c.changes.Tell()
	if c.held != nil {
		c.judgeLocked()
		return nil
	}
	c.followPartnersLocked()
	c.rev = max(c.rev, b.Revision)
	c.memory.Revision = max(c.memory.Revision, b.Revision)
	switch matters {
	case irrelevant:
	case atOnce:
		c.dirty = b.Revision
		c.Kick("mirror")
	case whenQuiet:
		c.dirty = b.Revision
		c.Soon("mirror")
	}
	return nil
}

// Acquire makes a tenant mirrored and keeps it so until Release.
func (c *Cluster) Acquire(t model.TenantName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.startLocked(t).refs++; c.held == nil {
		c.followPartnersLocked()
	}
}

// Require is Acquire, and holds the first compile back until the tenant's snapshot
// is in. It is for attachments that stand when the agent starts.
func (c *Cluster) Require(t model.TenantName) {
	c.Acquire(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.required[t] = true
}

// Release ends what Acquire or Require began: the tenant stays mirrored for some
// minutes.
func (c *Cluster) Release(t model.TenantName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.mirrors[t]; m != nil {
		if m.refs--; m.refs == 0 {
			m.unused = time.Now()
		}
	}
}

// dropUnused ends the mirrors of tenants that nothing here has needed for a while.
func (c *Cluster) dropUnused(now time.Time, linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	partners := c.partnersLocked()
	for t, m := range c.mirrors {
		if partners[t] {
			m.unused = now
			continue
		}
		if t == "" || m.refs > 0 || now.Sub(m.unused) < linger || len(m.endpoints) > 0 {
			continue
		}
		m.cancel()
		delete(c.mirrors, t)
		delete(c.required, t)
		for k := range m.values {
			c.enterLocked(m, tables.Change{Key: k})
		}
		c.Kick("tenant left")
	}
}

// Picture is one compilation.
type Picture struct {
	Want     desired.Host
	Problems []compile.Problem
	Revs     map[model.TenantName]store.Revision // what the picture has seen of each tenant
}

// Compile makes a picture, unless the first complete snapshot is still missing.
func (c *Cluster) Compile() (Picture, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.entered {
		return Picture{}, false
	}
	for t := range c.required {
		if m := c.mirrors[t]; m == nil || !m.ready {
			return Picture{}, false
		}
	}
	if len(c.required) > 1 { // complete once: tenants that come later have no ports here
		c.required = map[model.TenantName]bool{"": true}
	}
	p := Picture{Revs: make(map[model.TenantName]store.Revision, len(c.mirrors))}
	for t, m := range c.mirrors {
		p.Revs[t] = m.rev
	}
	var problems []compile.Problem
	p.Want, problems = c.comp.Compile(int64(c.rev))
	p.Problems = slices.Clone(problems)
	p.Problems = append(p.Problems, c.ownProblemsLocked()...)
	for _, m := range c.mirrors {
		p.Problems = slices.AppendSeq(p.Problems, maps.Values(m.unreadable))
	}
	return p, true
}

// wait blocks until ok, called under the lock, reports true or fails, or ctx ends.
func (c *Cluster) wait(ctx context.Context, ok func() (bool, error)) error {
	return c.changes.Until(ctx, func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
}

// Pause stops the mirrors from delivering until Resume: what the host knows stands
// still. For tests of what ignorance opens.
func (c *Cluster) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		c.paused = make(chan struct{})
	}
}

// Resume ends a Pause.
func (c *Cluster) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused != nil {
		close(c.paused)
		c.paused = nil
	}
}

func (c *Cluster) waitUnpaused(ctx context.Context) error {
	for {
		c.mu.Lock()
		paused := c.paused
		c.mu.Unlock()
		if paused == nil {
			return nil
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// OwnRecord returns this host's record as it was last; none is an empty one.
func (c *Cluster) OwnRecord() model.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[c.Host]
}

// ownProblemsLocked tells when the store has no record of this host: it is
// written again, and until then the picture goes by the last one.
func (c *Cluster) ownProblemsLocked() []compile.Problem {
	if !c.unrecorded {
		return nil
	}
	return []compile.Problem{{Object: "host " + string(c.Host), Text: "its record has gone from the store, and is not written again yet: hosts that begin now have no tunnel to it"}}
}
