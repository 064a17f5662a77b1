package statemirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// mirrorSet owns the mirrors of one host, who uses them, and how far they are. The State
// says which there are, and enters what they deliver.
type mirrorSet struct {
	*shared
	guard    *StoreGuard
	deliver  func(context.Context, *mirror, store.Batch) error // enters a batch; the lock is not held
	withheld func(context.Context, *mirror)                    // notes that a netmaster withholds a Scope; likewise

	ctx     context.Context // of Run; nil before
	running sync.WaitGroup
	paused  chan struct{} // not nil while mirrors are paused; closed to resume

	byScope    map[Scope]*mirror
	uses       map[Scope]int  // by attachments: of rests, and of networks' endpoints
	required   map[Scope]bool // to be complete before the first desired state
	subscribed map[Scope]bool // what concerned this host last
	reconsider bool           // something else may concern it now

	live  bool           // what is entered comes as it is committed, not with a list
	rev   store.Revision // newest delivered by any mirror
	dirty store.Revision // of the last batch that could change the desired state
}

// Progress is how far the mirrors are.
type Progress struct {
	Revision store.Revision                      // newest that they have delivered
	Dirty    store.Revision                      // of the last change that could concern this host
	Paused   bool                                // by Pause
	Tenants  map[model.TenantName]store.Revision // of which something is mirrored
	Parts    map[string]store.Revision           // mirrored
}

func newMirrorSet(c *shared, guard *StoreGuard) *mirrorSet {
	return &mirrorSet{
		shared: c, guard: guard,
		byScope: map[Scope]*mirror{}, uses: map[Scope]int{}, required: map[Scope]bool{{}: true},
	}
}

// run starts the mirrors that there are, and has others start at once from now on.
func (s *mirrorSet) run(ctx context.Context) {
	s.start(Scope{})
	s.ctx = ctx
	for _, m := range s.byScope {
		s.follow(m)
	}
}

// start begins to mirror a Scope unless it is mirrored already.
func (s *mirrorSet) start(p Scope) *mirror {
	if m := s.byScope[p]; m != nil {
		return m
	}
	m := &mirror{
		part: p, unused: time.Now(), err: errors.New("the first snapshot has not arrived"),
		staged:     p.All,
		values:     map[any]any{},
		rules:      tables.NewInForce(),
		endpoints:  map[model.EndpointKey]endpointRow{},
		networks:   map[model.NetworkKey]model.Network{},
		groups:     map[model.GroupKey]model.Group{},
		unreadable: unreadable{},
	}
	if !s.guard.follows() {
		m.seen = map[any]any{}
	}
	s.byScope[p] = m
	if s.ctx == nil {
		return m // run starts it
	}
	s.follow(m)
	return m
}

func (s *mirrorSet) follow(m *mirror) {
	ctx, cancel := context.WithCancel(s.ctx)
	m.cancel, m.floor = cancel, s.guard.position.Revision
	prefixes := m.part.prefixes()
	s.running.Go(func() {
		defer cancel()
		err := s.Store.Mirror(ctx, prefixes,
			func(b store.Batch) error { return s.deliver(ctx, m, b) },
			store.OnState(func(err error) { s.onState(ctx, m, err) }),
			store.OnWithheld(func() { s.withheld(ctx, m) }),
			store.Since(func() string { return s.sinceOf(m) }))
		if ctx.Err() == nil { // the store gave up, or a batch could not be entered
			s.onState(ctx, m, err)
			s.Log.Error("the mirror of the store has ended", "part", m.part.String(), "error", err)
		}
	})
}

// sinceOf is StoreGuard.sinceOf. The lock is not held.
func (s *mirrorSet) sinceOf(m *mirror) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.sinceOf(m)
}

// onState notes whether the mirror that runs by ctx follows the store. What one says
// that was ended is of no more interest: another one may follow in its place. The lock is
// not held.
func (s *mirrorSet) onState(ctx context.Context, m *mirror, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.floor = s.guard.position.Revision
	}
	if errors.Is(err, store.ErrSourceChanged) {
		return // it goes on within seconds, or says what keeps it from that
	}
	if err == nil && !m.ready {
		return // following, but the snapshot is not in
	}
	switch was := m.err; {
	case err != nil && was == nil: // a netmaster that is restarted takes the others' clients a moment
		s.Log.Debug("the watch of the store is interrupted", "part", m.part.String(), "error", err)
		m.warn = time.AfterFunc(warnAfter, func() { s.warnStale(ctx, m) })
	case err == nil && was != nil && m.warn != nil && !m.warn.Stop():
		s.Log.Info("the store is watched again", "part", m.part.String())
	}
	m.err = err
	s.changes.Notify()
}

// warnAfter is for how long the store may not be followed without a warning in the log: a
// busy host needs seconds to find another of its servers.
const warnAfter = 10 * time.Second

// warnStale logs that a mirror still does not follow the store. The lock is not held.
func (s *mirrorSet) warnStale(ctx context.Context, m *mirror) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil && m.err != nil {
		s.Log.Warn("the store cannot be watched; the last state stays", "part", m.part.String(), "error", m.err)
	}
}

// relist lists again the parts that were listed from another store than the global part
// was: some before their store got its identity, and some whose mirrors have listed, but
// had nothing to tell, since a tenant without rows looks the same in every store that has
// no identity.
func (s *mirrorSet) relist() {
	global := s.global()
	if s.guard.follows() || global == nil || !global.ready {
		return
	}
	for _, m := range s.byScope {
		if m.ready && !m.of.Same(global.of) && !m.again {
			m.again = true
			m.end()
			s.follow(m)
		}
	}
}

// drop ends a mirror.
func (s *mirrorSet) drop(m *mirror) {
	m.end()
	delete(s.byScope, m.part)
	delete(s.required, m.part)
}

// global is the mirror of the global part; nil before Run.
func (s *mirrorSet) global() *mirror { return s.byScope[Scope{}] }

// endpoints is the mirror that has the endpoints of a network; nil = none.
func (s *mirrorSet) endpoints(k model.NetworkKey) *mirror {
	if all := s.byScope[allEndpointsScope(k.Tenant)]; all != nil && !all.staged {
		return all
	}
	return s.byScope[EndpointsScope(k)]
}

// rows are what a mirror has of the store, in force or, before the first desired state,
// staged.
func (s *mirrorSet) rows(m *mirror) map[any]any {
	if s.isPreparing() {
		return m.seen
	}
	return m.values
}

// isPreparing reports whether there is no desired state yet: what mirrors deliver is staged.
func (s *mirrorSet) isPreparing() bool { return !s.guard.follows() && !s.guard.entered() }

// hasEndpointsHere reports whether a tenant has attachments or endpoints on this host.
func (s *mirrorSet) hasEndpointsHere(t model.TenantName) bool {
	if s.uses[TenantScope(t)] > 0 {
		return true
	}
	for p, m := range s.byScope {
		if p.Tenant == t && len(m.endpoints) > 0 {
			return true
		}
	}
	return false
}

// use counts an attachment's use of a tenant's rest and of a network's endpoints, and
// mirrors both.
func (s *mirrorSet) use(k model.NetworkKey) {
	s.uses[TenantScope(k.Tenant)]++
	s.start(TenantScope(k.Tenant))
	if k.Name != "" {
		if s.uses[EndpointsScope(k)]++; s.byScope[allEndpointsScope(k.Tenant)] == nil {
			s.start(EndpointsScope(k))
		}
	}
}

// require holds the first desired state back until what an attachment uses is in.
func (s *mirrorSet) require(k model.NetworkKey) {
	s.required[TenantScope(k.Tenant)] = true
	if k.Name != "" && s.byScope[EndpointsScope(k)] != nil {
		s.required[EndpointsScope(k)] = true
	}
}

// requiredReady reports whether all that is required has been read.
func (s *mirrorSet) requiredReady() bool {
	for p := range s.required {
		if m := s.byScope[p]; m == nil || !m.ready && !m.withheld {
			return false
		}
	}
	return true
}

// release ends one use of a Scope.
func (s *mirrorSet) release(p Scope) {
	if s.uses[p]--; s.uses[p] > 0 {
		return
	}
	delete(s.uses, p)
	if m := s.byScope[p]; m != nil {
		m.unused = time.Now()
	}
}

// stale returns why a mirror does not follow the store; nil = all do.
func (s *mirrorSet) stale() error {
	g := s.global()
	if g == nil {
		return errors.New("the agent has not begun to watch it")
	}
	if g.err != nil {
		return g.err
	}
	var first *mirror
	for _, m := range s.byScope {
		// What was acquired just now is waited for by who acquired it.
		if m.err != nil && m.ready && (first == nil || m.part.String() < first.part.String()) {
			first = m
		}
	}
	if first != nil {
		return fmt.Errorf("%s: %w", first.part, first.err)
	}
	return nil
}

// revs is how far the mirrors are whose records are entered.
func (s *mirrorSet) revs() Revs {
	revs := make(Revs, len(s.byScope))
	for part, m := range s.byScope {
		if m.ready && !m.staged {
			revs[part] = m.rev
		}
	}
	return revs
}

func (s *mirrorSet) progress() Progress {
	p := Progress{Revision: s.rev, Dirty: s.dirty, Paused: s.paused != nil, Tenants: map[model.TenantName]store.Revision{}, Parts: map[string]store.Revision{}}
	for part, m := range s.byScope {
		if p.Parts[part.String()] = m.rev; part.Tenant != "" {
			p.Tenants[part.Tenant] = max(p.Tenants[part.Tenant], m.rev)
		}
	}
	return p
}

// pause stops the mirrors from delivering until resume.
func (s *mirrorSet) pause() {
	if s.paused == nil {
		s.paused = make(chan struct{})
	}
}

func (s *mirrorSet) resume() {
	if s.paused != nil {
		close(s.paused)
		s.paused = nil
	}
}

// waitUnpaused waits for the end of a pause. The lock is not held.
func (s *mirrorSet) waitUnpaused(ctx context.Context) error {
	for {
		s.mu.Lock()
		paused := s.paused
		s.mu.Unlock()
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
