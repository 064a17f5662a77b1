package agent

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

// clusterView is what this host mirrors of the store (the global part and the
// tenants present here), fed into a Compiler. Each mirror is a goroutine; what
// they deliver is entered under one lock.
type clusterView struct {
	host model.HostName
	st   store.Store
	log  *slog.Logger
	kick func(reason string)
	soon func(reason string) // kick for what is not urgent
	// onOwnHost is called, under mu, when the record of this host has changed.
	onOwnHost func()
	onHold    func(why string) // called under mu; "" = the store is followed
	onLost    func()           // called under mu when an endpoint of this host has been deleted
	own       func() []owned   // the attachments that stand
	grace     time.Duration

	mu       sync.Mutex
	ctx      context.Context // of run; nil before
	comp     *compile.Compiler
	rev      store.Revision // newest delivered by any mirror
	dirty    store.Revision // of the last batch that could change the picture
	global   *model.Global
	tenants  map[model.TenantName]model.Tenant
	hosts    map[model.HostName]model.Host
	mirrors  map[model.TenantName]*mirror    // "" is the global part
	required map[model.TenantName]bool       // to be complete before the first compile
	hidden   map[model.EndpointKey]time.Time // since when no attachment needs it; zero = one does
	changes  waiting.Changes                 // of anything here
	paused   chan struct{}                   // not nil while mirrors are paused; closed to resume
	running  sync.WaitGroup

	unrecorded   bool   // this host's record has gone
	hostsVersion uint64 // counts changes of hosts

	memory  followed
	held    *hold // not nil while the picture stands still, as it does until the first snapshots are in
	entered bool  // there is a picture
	refused map[model.EndpointKey]bool
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
	seen      map[any]any    // while the picture stands still: what values would be
	refs      int            // attachments that need it
	unused    time.Time      // since when refs is zero
	values    map[any]any    // by typed key: everything delivered and not deleted
	endpoints map[model.EndpointKey]model.Endpoint
	networks  map[model.NetworkKey]model.Network
	groups    map[model.GroupKey]model.Group
	unreadable
}

func newCluster(host model.HostName, st store.Store, log *slog.Logger, kick, soon func(string)) *clusterView {
	return &clusterView{
		host: host, st: st, log: log, kick: kick, soon: soon,
		onOwnHost: func() {}, onHold: func(string) {}, onLost: func() {}, own: func() []owned { return nil },
		held: &hold{since: time.Now()}, refused: map[model.EndpointKey]bool{}, grace: storeGrace,
		comp:     compile.New(host),
		tenants:  map[model.TenantName]model.Tenant{},
		hosts:    map[model.HostName]model.Host{},
		mirrors:  map[model.TenantName]*mirror{},
		required: map[model.TenantName]bool{"": true},
		hidden:   map[model.EndpointKey]time.Time{},
	}
}

// run follows the global part and the tenants acquired so far and later, until
// ctx ends; it returns when no mirror runs any more.
func (c *clusterView) run(ctx context.Context, linger time.Duration) {
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
func (c *clusterView) startLocked(t model.TenantName) *mirror {
	if m := c.mirrors[t]; m != nil {
		return m
	}
	m := &mirror{
		tenant: t, unused: time.Now(), err: errors.New("the first snapshot has not arrived"),
		values:     map[any]any{},
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

func (c *clusterView) followLocked(m *mirror) {
	ctx, cancel := context.WithCancel(c.ctx)
	m.cancel = cancel
	prefix := tables.GlobalPrefix
	if m.tenant != "" {
		prefix = tables.TenantPrefix(m.tenant)
	}
	c.running.Go(func() {
		defer cancel()
		err := c.st.Mirror(ctx, []string{prefix},
			func(b store.Batch) error { return c.deliver(ctx, m, b) },
			store.OnState(func(err error) { c.onState(m, err) }))
		if ctx.Err() == nil { // the store gave up, or a batch could not be entered
			c.onState(m, err)
			c.log.Error("the mirror of the store has ended", "prefix", prefix, "error", err)
		}
	})
}

func (c *clusterView) onState(m *mirror, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && !m.ready {
		return // following, but the snapshot is not in
	}
	if (err == nil) != (m.err == nil) {
		if err != nil {
			c.log.Warn("the store cannot be followed; the last state stays", "tenant", m.tenant, "error", err)
		} else {
			c.log.Info("the store is followed again", "tenant", m.tenant)
		}
	}
	m.err = err
	c.changes.Tell()
}

// deliver enters one batch.
func (c *clusterView) deliver(ctx context.Context, m *mirror, b store.Batch) error {
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
	if b.Listed {
		c.listedLocked(m, b)
	}
	matters := irrelevant
	if !m.ready {
		matters = atOnce
	}
	for _, e := range b.Events {
		ch, err := tables.Decode(e)
		if err != nil {
			// One unreadable record must not stop the host: what it described is
			// missing, which compiles to something that denies.
			c.log.Error("a record in the store cannot be read", "key", e.KV.Key, "error", err)
			ch.Value = nil
		}
		m.note(ch.Key, e.KV.Key, err)
		if inc, ok := ch.Value.(store.Incarnation); ok && !b.Listed {
			c.identityLocked(m, inc)
		}
		if c.held != nil {
			m.stageLocked(ch)
		} else {
			matters = max(matters, c.enterLocked(m, ch))
		}
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
	c.rev = max(c.rev, b.Revision)
	c.memory.Revision = max(c.memory.Revision, b.Revision)
	switch matters {
	case irrelevant:
	case atOnce:
		c.dirty = b.Revision
		c.kick("mirror")
	case whenQuiet:
		c.dirty = b.Revision
		c.soon("mirror")
	}
	return nil
}

// acquire makes a tenant mirrored and keeps it so until release.
func (c *clusterView) acquire(t model.TenantName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startLocked(t).refs++
}

// require is acquire, and holds the first compile back until the tenant's
// snapshot is in. It is for what stands when the agent starts.
func (c *clusterView) require(t model.TenantName) {
	c.acquire(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.required[t] = true
}

func (c *clusterView) release(t model.TenantName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.mirrors[t]; m != nil {
		if m.refs--; m.refs == 0 {
			m.unused = time.Now()
		}
	}
}

// dropUnused ends the mirrors of tenants that nothing here has needed for a while.
func (c *clusterView) dropUnused(now time.Time, linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, m := range c.mirrors {
		if t == "" || m.refs > 0 || now.Sub(m.unused) < linger || len(m.endpoints) > 0 {
			continue
		}
		m.cancel()
		delete(c.mirrors, t)
		delete(c.required, t)
		for k := range m.values {
			c.enterLocked(m, tables.Change{Key: k})
		}
		c.kick("tenant left")
	}
}

// hide keeps a local endpoint out of the picture: it is not plumbed yet, or not
// any more, whatever the store says. reveal undoes it.
func (c *clusterView) hide(k model.EndpointKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden[k] = time.Time{}
	if m := c.mirrors[k.Network.Tenant]; m != nil {
		if _, ok := m.endpoints[k]; ok {
			c.comp.DeleteEndpoint(k)
		}
	}
}

func (c *clusterView) reveal(k model.EndpointKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hidden, k)
	if m := c.mirrors[k.Network.Tenant]; m != nil {
		if e, ok := m.endpoints[k]; ok {
			c.comp.SetEndpoint(e)
		}
	}
}

// picture is one compilation.
type picture struct {
	want     desired.Host
	problems []compile.Problem
	revs     map[model.TenantName]store.Revision // what the picture has seen of each tenant
}

// compile makes a picture, unless the first complete snapshot is still missing.
func (c *clusterView) compile() (picture, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.entered {
		return picture{}, false
	}
	for t := range c.required {
		if m := c.mirrors[t]; m == nil || !m.ready {
			return picture{}, false
		}
	}
	if len(c.required) > 1 { // complete once: tenants that come later have no ports here
		c.required = map[model.TenantName]bool{"": true}
	}
	p := picture{revs: make(map[model.TenantName]store.Revision, len(c.mirrors))}
	for t, m := range c.mirrors {
		p.revs[t] = m.rev
	}
	var problems []compile.Problem
	p.want, problems = c.comp.Compile(int64(c.rev))
	p.problems = slices.Clone(problems)
	p.problems = append(p.problems, c.ownProblemsLocked()...)
	for _, m := range c.mirrors {
		p.problems = slices.AppendSeq(p.problems, maps.Values(m.unreadable))
	}
	return p, true
}

// wait blocks until ok, called under the lock, reports true or fails, or ctx ends.
func (c *clusterView) wait(ctx context.Context, ok func() (bool, error)) error {
	return c.changes.Until(ctx, func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
}

// waitTenant waits for a tenant's snapshot. The tenant must have been acquired.
func (c *clusterView) waitTenant(ctx context.Context, t model.TenantName) error {
	var why error
	err := c.wait(ctx, func() (bool, error) {
		m := c.mirrors[t]
		if m == nil {
			return false, model.Errorf(model.ErrUnavailable, "tenant %s is not mirrored", t)
		}
		why = m.err
		return m.ready, nil
	})
	if err != nil && why != nil {
		return model.Errorf(model.ErrUnavailable, "read tenant %s from the store: %w", t, why)
	}
	return err
}

// pause stops the mirrors from delivering until resume: what the host knows
// stands still. For tests of what ignorance opens.
func (c *clusterView) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		c.paused = make(chan struct{})
	}
}

func (c *clusterView) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused != nil {
		close(c.paused)
		c.paused = nil
	}
}

func (c *clusterView) waitUnpaused(ctx context.Context) error {
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
