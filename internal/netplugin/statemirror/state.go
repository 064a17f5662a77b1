package statemirror

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// State is what this host mirrors of the store (the global part, and of tenants
// what concerns it), fed into a Compiler. It joins its parts: it takes what the mirrors
// deliver, asks the guard, and enters it. Each mirror is a goroutine; what they deliver is
// entered under one lock.
type State struct {
	*shared
	Guard       *StoreGuard
	Unconfirmed *UnconfirmedChanges
	Endpoints   *Endpoints
	Hosts       *HostTable
	Settings    *Settings
	Lookup      *Lookup
	HostInput   *HostInput
	Comparer    *StoreComparer

	mirrors    *mirrorSet
	services   *closedServices
	checkpoint *checkpointFile
	input      *recordInput
	interests  interests
	comp       *compile.Compiler
	control    *ControlPlane // nil = there is none
}

// New returns a State that follows nothing until Run. It fails when what it
// remembers of the store cannot be read at all.
func New(cfg Config) (*State, error) {
	last, err := ReadPosition(cfg.StateDir, cfg.Log)
	if err != nil {
		return nil, err
	}
	comp := compile.New(cfg.Host)
	comp.Interest.SetByNetwork()
	return join(cfg, last, comp), nil
}

// join makes the parts of a State.
func join(cfg Config, last StorePosition, comp *compile.Compiler) *State {
	c := &State{shared: &shared{Config: cfg.withDefaults()}, comp: comp}
	c.Guard = newStoreGuard(c.shared, last)
	c.mirrors = newMirrorSet(c.shared, c.Guard)
	c.mirrors.deliver, c.mirrors.withheld = c.deliver, c.withhold
	c.Settings = &Settings{shared: c.shared, comp: comp, tenants: map[model.TenantName]model.Tenant{}}
	c.services = &closedServices{shared: c.shared, comp: comp, closed: map[model.ServiceKey]closedService{}}
	c.Endpoints = &Endpoints{
		shared: c.shared, mirrors: c.mirrors, comp: comp, services: c.services,
		hidden: map[model.EndpointKey]time.Time{}, pending: map[model.EndpointKey]pendingEndpoint{},
	}
	c.Hosts = newHostTable(cfg)
	if own := c.Hosts.OwnRecord(); own.VTEP.IsValid() {
		comp.SetHost(own)
	}
	c.Unconfirmed = newUnconfirmedChanges(c.shared)
	c.checkpoint = newCheckpointFile(c.shared)
	c.Lookup = &Lookup{shared: c.shared, mirrors: c.mirrors, settings: c.Settings, guard: c.Guard, comp: comp}
	c.input = &recordInput{
		shared: c.shared, mirrors: c.mirrors, unconfirmed: c.Unconfirmed, endpoints: c.Endpoints, services: c.services,
		hosts: c.Hosts, settings: c.Settings, comp: comp,
	}
	c.Comparer = &StoreComparer{shared: c.shared, mirrors: c.mirrors, guard: c.Guard}
	c.HostInput = &HostInput{shared: c.shared, comp: comp}
	c.interests = interests{mirrors: c.mirrors, unconfirmed: c.Unconfirmed, settings: c.Settings, comp: comp}
	return c
}

// Run follows the global part and what was acquired so far and is later, until
// ctx ends; it returns when no mirror runs any more.
func (c *State) Run(ctx context.Context, linger time.Duration) {
	c.mu.Lock()
	c.mirrors.run(ctx)
	c.mu.Unlock()
	tick := time.NewTicker(max(linger/10, 10*time.Millisecond))
	defer tick.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-second.C: // a grace may have ended
			c.mu.Lock()
			c.everySecond()
			c.mu.Unlock()
		case now := <-tick.C:
			c.dropUnused(now, linger)
			c.Endpoints.dropForgotten(now, linger)
		case <-ctx.Done():
			c.mirrors.running.Wait()
			return
		}
	}
}

func (c *State) everySecond() {
	c.judge()
	c.mirrors.relist()
	c.restoreCheckpoint()
	c.rollBack()
	c.Endpoints.markOverdue()
	c.services.forgetClosed(closedFor)
	c.Unconfirmed.findOnlyHere(c.Guard.entered() && c.stale() == nil)
	c.updateCheckpoint()
}

// rollBack rolls back unconfirmed changes whose deadline has passed.
func (c *State) rollBack() {
	c.input.enterRows(c.Unconfirmed.expire())
	if c.mirrors.reconsider && c.Guard.entered() { // without a batch that would
		c.subscribe()
	}
}

// Compilation is one compilation.
type Compilation struct {
	Want     desired.Host
	Problems []compile.Problem
	Revs     Revs
}

// Compile makes a desired state, unless the first complete snapshot is still missing.
func (c *State) Compile() (Compilation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.Guard.entered() {
		return Compilation{}, false
	}
	if c.Guard.source == fromStore {
		if !c.mirrors.requiredReady() {
			return Compilation{}, false
		}
		if len(c.mirrors.required) > 1 { // complete once: what comes later has no ports here
			c.mirrors.required = map[Scope]bool{{}: true}
		}
	}
	p := Compilation{Revs: c.mirrors.revs()}
	var problems []compile.Problem
	p.Want, problems = c.comp.Compile(int64(c.mirrors.rev))
	p.Problems = slices.Concat(problems, c.Hosts.problems(), c.Endpoints.problems(), c.Settings.problems(), c.Unconfirmed.problems())
	for _, m := range c.mirrors.byScope {
		p.Problems = slices.AppendSeq(p.Problems, maps.Values(m.unreadable))
	}
	return p, true
}

// NotFollowing tells why the store is not followed; nil when it is.
func (c *State) NotFollowing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale()
}

func (c *State) stale() error {
	if err := c.mirrors.stale(); err != nil {
		return err
	}
	return c.Guard.stale()
}

// Mark names the store that the host follows, for the host's record; empty = none yet.
func (c *State) Mark() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var of store.Incarnation
	if m := c.mirrors.global(); m != nil {
		of = m.of
	}
	return c.Guard.mark(of)
}

// Refuse notes that netmaster does not take an endpoint back, or takes it again.
func (c *State) Refuse(k model.EndpointKey, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is {
		c.Guard.refused[k] = true
	} else {
		delete(c.Guard.refused, k)
	}
	c.judge()
}

// FollowMode has this host go by the forwarding mode before the last change, or by the
// present one again, as Config.HostChanges says now.
func (c *State) FollowMode() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Settings.global == nil {
		return
	}
	g := *c.Settings.global
	g.FwdMode = c.Settings.mode
	c.Settings.setGlobal(c.Settings.effective(g))
	c.subscribe()
	c.changes.Notify()
	c.Agent.Kick("forwarding mode")
}

// Pause stops the mirrors from delivering until Resume: what the host knows stays as it is.
// For tests of what outdated knowledge allows.
func (c *State) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirrors.pause()
}

// Resume ends a Pause.
func (c *State) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirrors.resume()
}
