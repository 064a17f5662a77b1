package statemirror

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// State is what this host mirrors of the store (the global part, and of tenants
// what concerns it), fed into a Compiler. Each mirror is a goroutine; what
// they deliver is entered under one lock.
type State struct {
	Config

	mu       sync.Mutex
	ctx      context.Context // of run; nil before
	comp     *compile.Compiler
	rev      store.Revision // newest delivered by any mirror
	dirty    store.Revision // of the last batch that could change the picture
	global   *model.Global
	mode     modeChange
	tenants  map[model.TenantName]model.Tenant
	hosts    map[model.HostName]model.Host
	absences map[tables.HostAbsenceKey]tables.HostAbsence
	bgps     map[tables.BgpKey]model.Bgp
	mirrors  map[Scope]*mirror
	uses     map[Scope]int                   // by attachments: of rests, and of networks' endpoints
	required map[Scope]bool                  // to be complete before the first compile
	hidden   map[model.EndpointKey]time.Time // since when no attachment needs it; zero = one does
	pending  map[model.EndpointKey]pendingEndpoint
	closed   map[any]closedService // by the service's key
	changes  waiting.Changes       // of anything here
	paused   chan struct{}         // not nil while mirrors are paused; closed to resume
	running  sync.WaitGroup

	newIdentity bool // identities have come since releaseEndpointsLocked

	subscribed map[Scope]bool // what interestsLocked has said last
	reconsider bool           // another look may find something else

	unrecorded   bool            // the store has no record of this host
	hostsVersion uint64          // counts changes of hosts' addresses
	hostsChanged waiting.Changes // of hosts and absences

	position      StorePosition
	frozen        *freeze // not nil while the picture stands still, as it does until the first snapshots are in
	entered       bool    // there is a picture
	refused       map[model.EndpointKey]bool
	previousHosts []model.HostName // other hosts of the last picture of a former run

	live             bool // what is entered comes as it is committed, not with a list
	unconfirmed      map[tables.TrialKey]*unconfirmedChange
	unconfirmedNotes map[string]unconfirmedNote
	rollbacks        []Rollback // oldest first; see findLoneRollbacksLocked
	alone            int
	checkpoint       checkpointState
	recalled         bool          // the picture is from CheckpointFile: the store was not reached since
	control          *ControlPlane // nil = nobody knows of it
}

// Config is what a State needs; all of it, unless it says otherwise.
type Config struct {
	Host     model.HostName
	Control  netip.Addr // with VTEP, what the record of this host is to say; optional
	VTEP     netip.Addr
	Store    store.Reader
	Log      *slog.Logger
	StateDir string        // remembers which store is followed
	Grace    time.Duration // how long others may take to put back what a restored store lacks; 0 = StoreGrace

	SinceBoot func() time.Duration // nil = the kernel's
	Boot      string               // which run of the kernel that counts from; empty = the present one
	Patience  time.Duration        // how long the store may take to be read before CheckpointFile has to do; 0 = RecallAfter

	Kick func(reason string) // has a pass made
	Soon func(reason string) // likewise, for what is not urgent
	Own  func() []Owned      // the attachments that stand

	// Called with the State locked: they must not ask it anything.
	OnOwnHost func()           // the record of this host has changed
	OnInfra   func()           // a tenant's infra networks are others; nil = nobody wants to know
	OnLost    func()           // an endpoint of this host has been deleted
	OnFreeze  func(why string) // the picture stands still; "" = the store is followed
}

// mirror is one watched prefix.
type mirror struct {
	part      Scope
	cancel    context.CancelFunc // nil = it does not run yet
	ready     bool               // the snapshot is in
	err       error              // why it does not follow now; nil = it follows
	warn      *time.Timer        // logs that it does not
	rev       store.Revision     // of the last batch
	place     string             // likewise
	changed   store.Revision     // of the last change, but for what a list has found deleted
	staged    bool               // one of all endpoints of a tenant that is not entered yet: others are
	of        store.Incarnation
	listed    store.Revision // of the last list
	older     bool           // likewise: it is of a store that went back, as its journal says
	behind    bool           // the store went back, and this one has still to list
	floor     store.Revision // what had been seen of the store before the next list began: it cannot be older
	again     bool           // it is being listed again
	seen      map[any]any    // while the picture stands still: what values would be by the store that is not followed
	unused    time.Time      // since when nothing needs it
	values    map[any]any    // by typed key: everything delivered and not deleted
	rules     *tables.InForce
	endpoints map[model.EndpointKey]model.Endpoint
	networks  map[model.NetworkKey]model.Network
	groups    map[model.GroupKey]model.Group
	unreadable
}

// New returns a State that follows nothing until Run. It fails when what it
// remembers of the store cannot be read at all.
func New(cfg Config) (*State, error) {
	memory, err := Recall(cfg.StateDir, cfg.Log)
	if err != nil {
		return nil, err
	}
	if cfg.Grace == 0 {
		cfg.Grace = StoreGrace
	}
	if cfg.Patience == 0 {
		cfg.Patience = RecallAfter
	}
	if cfg.SinceBoot == nil {
		cfg.SinceBoot = sinceBoot
	}
	if cfg.Boot == "" {
		cfg.Boot = bootID()
	}
	comp := compile.New(cfg.Host)
	comp.Interest.ByNetwork()
	c := &State{
		Config: cfg, position: memory,
		unconfirmed: map[tables.TrialKey]*unconfirmedChange{}, unconfirmedNotes: map[string]unconfirmedNote{},
		frozen: &freeze{since: time.Now()}, refused: map[model.EndpointKey]bool{},
		comp:     comp,
		tenants:  map[model.TenantName]model.Tenant{},
		hosts:    map[model.HostName]model.Host{},
		absences: map[tables.HostAbsenceKey]tables.HostAbsence{},
		bgps:     map[tables.BgpKey]model.Bgp{},
		mirrors:  map[Scope]*mirror{},
		uses:     map[Scope]int{},
		required: map[Scope]bool{{}: true},
		hidden:   map[model.EndpointKey]time.Time{},
		pending:  map[model.EndpointKey]pendingEndpoint{},
		closed:   map[any]closedService{},
	}
	c.knowOwn()
	c.loadUnconfirmed()
	c.loadCheckpoint()
	c.loadHosts()
	return c, nil
}

// knowOwn has the picture go by what the record of this host is to say until the store has
// one: without an end of its own a data plane would take its tunnels away.
func (c *State) knowOwn() {
	if c.VTEP.IsValid() {
		own := model.Host{Name: c.Host, Control: c.Control, VTEP: c.VTEP}
		c.hosts[c.Host], c.unrecorded = own, true
		c.comp.SetHost(own)
	}
}

// Run follows the global part and what was acquired so far and is later, until
// ctx ends; it returns when no mirror runs any more.
func (c *State) Run(ctx context.Context, linger time.Duration) {
	c.mu.Lock()
	c.startLocked(Scope{})
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
			c.restoreCheckpointLocked()
			c.rollBackExpiredLocked()
			c.giveUpIdentitiesLocked(identityGrace)
			c.forgetClosedLocked(closedFor)
			c.findLoneRollbacksLocked()
			c.updateCheckpointLocked()
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

// startLocked begins to mirror a Scope unless it is mirrored already.
func (c *State) startLocked(p Scope) *mirror {
	if m := c.mirrors[p]; m != nil {
		return m
	}
	m := &mirror{
		part: p, unused: time.Now(), err: errors.New("the first snapshot has not arrived"),
		staged:     p.All,
		values:     map[any]any{},
		rules:      tables.NewInForce(),
		endpoints:  map[model.EndpointKey]model.Endpoint{},
		networks:   map[model.NetworkKey]model.Network{},
		groups:     map[model.GroupKey]model.Group{},
		unreadable: unreadable{},
	}
	if c.frozen != nil {
		m.seen = map[any]any{}
	}
	c.mirrors[p] = m
	if c.ctx == nil {
		return m // Run starts it
	}
	c.followLocked(m)
	return m
}

// end stops a mirror.
func (m *mirror) end() {
	if m.cancel != nil {
		m.cancel()
	}
}

func (c *State) followLocked(m *mirror) {
	ctx, cancel := context.WithCancel(c.ctx)
	m.cancel, m.floor = cancel, c.position.Revision
	prefixes := m.part.prefixes()
	c.running.Go(func() {
		defer cancel()
		err := c.Store.Mirror(ctx, prefixes,
			func(b store.Batch) error { return c.deliver(ctx, m, b) },
			store.OnState(func(err error) { c.onState(ctx, m, err) }),
			store.Since(func() string { return c.sinceOf(m) }))
		if ctx.Err() == nil { // the store gave up, or a batch could not be entered
			c.onState(ctx, m, err)
			c.Log.Error("the mirror of the store has ended", "part", m.part.String(), "error", err)
		}
	})
}

// onState notes whether the mirror that runs by ctx follows the store. What one says
// that was ended is of no more interest: another one may follow in its place.
func (c *State) onState(ctx context.Context, m *mirror, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.floor = c.position.Revision
	}
	if errors.Is(err, store.ErrMoves) {
		return // it goes on within seconds, or says what keeps it from that
	}
	if err == nil && !m.ready {
		return // following, but the snapshot is not in
	}
	switch was := m.err; {
	case err != nil && was == nil: // a netmaster that is restarted takes the others' clients a moment
		c.Log.Debug("the store is not followed for a moment", "part", m.part.String(), "error", err)
		m.warn = time.AfterFunc(warnsAfter, func() { c.warnStale(ctx, m) })
	case err == nil && was != nil && m.warn != nil && !m.warn.Stop():
		c.Log.Info("the store is followed again", "part", m.part.String())
	}
	m.err = err
	c.changes.Tell()
}

// warnsAfter is for how long the store may not be followed without a warning in the log: a
// busy host needs seconds to find another of its servers.
const warnsAfter = 10 * time.Second

// warnStale logs that a mirror still does not follow the store.
func (c *State) warnStale(ctx context.Context, m *mirror) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil && m.err != nil {
		c.Log.Warn("the store cannot be followed; the last state stays", "part", m.part.String(), "error", m.err)
	}
}

// deliver enters one batch.
func (c *State) deliver(ctx context.Context, m *mirror, b store.Batch) error {
	if err := c.waitUnpaused(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mirrors[m.part] != m || ctx.Err() != nil { // it was dropped, or is listed again, while this batch waited
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
	matters, first := irrelevant, !m.ready
	if first && !m.staged {
		matters = atOnce
	}
	enter := func(ch tables.Change) {
		switch {
		case c.frozen != nil:
			stage(m.seen, ch)
		case m.staged:
			stage(m.values, ch)
		default:
			matters = max(matters, c.enterLocked(m, ch))
		}
	}
	c.live = m.ready && !b.Snapshot && !b.Listed && c.frozen == nil
	defer func() { c.live = false }()
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
		if ch.Value != nil || !b.Listed {
			m.changed = max(m.changed, ch.Mod)
		}
		enter(ch)
	}
	for _, ch := range m.rules.Rest() {
		enter(ch)
	}
	c.releaseEndpointsLocked()
	m.rev, m.place = b.Revision, b.Place
	if b.Snapshot || !m.ready {
		m.ready = true
	}
	m.err = nil
	c.changes.Tell()
	if c.frozen != nil {
		c.judgeLocked()
		return nil
	}
	if first && !m.staged {
		c.followsLocked(m, true)
	}
	if first || c.reconsider || m.staged {
		c.subscribeLocked()
	}
	c.rev = max(c.rev, b.Revision)
	c.keepTakenLocked()
	if b.Revision > c.position.Revision {
		c.position.Revision = b.Revision
		if b.Place != "" { // what an older netmaster relays has none
			c.position.Place = b.Place
		}
	}
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

// Compilation is one compilation.
type Compilation struct {
	Want     desired.Host
	Problems []compile.Problem
	Revs     Revs
}

// Compile makes a picture, unless the first complete snapshot is still missing.
func (c *State) Compile() (Compilation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.entered {
		return Compilation{}, false
	}
	for p := range c.required {
		if m := c.mirrors[p]; !c.recalled && (m == nil || !m.ready) {
			return Compilation{}, false
		}
	}
	if len(c.required) > 1 && !c.recalled { // complete once: what comes later has no ports here
		c.required = map[Scope]bool{{}: true}
	}
	p := Compilation{Revs: make(Revs, len(c.mirrors))}
	for part, m := range c.mirrors {
		if m.ready && !m.staged {
			p.Revs[part] = m.rev
		}
	}
	var problems []compile.Problem
	p.Want, problems = c.comp.Compile(int64(c.rev))
	p.Problems = slices.Clone(problems)
	p.Problems = append(append(p.Problems, c.ownProblemsLocked()...), c.modeProblemsLocked()...)
	p.Problems = append(p.Problems, c.unconfirmedProblemsLocked()...)
	for _, m := range c.mirrors {
		p.Problems = slices.AppendSeq(p.Problems, maps.Values(m.unreadable))
	}
	return p, true
}

// wait blocks until ok, called under the lock, reports true or fails, or ctx ends.
func (c *State) wait(ctx context.Context, ok func() (bool, error)) error {
	return c.changes.Until(ctx, func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
}

// Pause stops the mirrors from delivering until Resume: what the host knows stands
// still. For tests of what ignorance opens.
func (c *State) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		c.paused = make(chan struct{})
	}
}

// Resume ends a Pause.
func (c *State) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused != nil {
		close(c.paused)
		c.paused = nil
	}
}

func (c *State) waitUnpaused(ctx context.Context) error {
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

// OwnRecord returns this host's record as it was last; before the first it has nothing but
// what is known without.
func (c *State) OwnRecord() model.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[c.Host]
}

// ownProblemsLocked tells when the store has no record of this host: it is
// written, and until then the picture goes by the last one, or by Config.
func (c *State) ownProblemsLocked() []compile.Problem {
	if !c.unrecorded {
		return nil
	}
	return []compile.Problem{{Object: "host " + string(c.Host), Text: "its record is not in the store, and is still to be written: hosts that have not seen one have no tunnel to it"}}
}
