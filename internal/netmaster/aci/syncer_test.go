package aci_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

const patience = time.Minute // for a machine with other things to do

// run starts a Syncer that ends with the test.
func run(t *testing.T, target aci.Target, cfg aci.SyncerConfig) *aci.Syncer {
	t.Helper()
	cfg.Retry = waiting.BackoffConfig{Base: time.Millisecond, Max: 10 * time.Millisecond}
	s := aci.NewSyncer(target, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// until waits for a state.
func until(t *testing.T, s *aci.Syncer, ok func(aci.State) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		changed := s.Changed()
		if ok(s.State()) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("state: %+v", s.State())
		}
	}
}

func inStep(s aci.State) bool { return s.InSync }

// A Syncer over a real connection: it does nothing before it gets a Fabric; a failure is
// reported, with its count, until it is over.
func TestSyncerReportsFailuresUntilTheyEnd(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	sim := newSim(t)
	var down atomic.Bool
	sim.Fault = func(*http.Request) acitest.Fault {
		if down.Load() {
			return acitest.Unavailable
		}
		return acitest.None
	}
	server := sim.Start()
	defer server.Close()
	a := newAPIC(t, sim, func(c *aci.APICConfig) { c.URLs, c.Transport = []string{server.URL}, server.Client().Transport })
	ctx, cancel := context.WithCancel(t.Context())
	s := aci.NewSyncer(a, aci.SyncerConfig{Retry: waiting.BackoffConfig{Base: time.Millisecond, Max: 10 * time.Millisecond}})
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	s.Set(shop())
	until(t, s, inStep)
	down.Store(true)
	f := shop()
	f.Rules = f.Rules[:1]
	s.Set(f)
	if s.State().InSync {
		t.Error("in step with what was not looked at")
	}
	until(t, s, func(s aci.State) bool { return s.Failures > 2 && strings.Contains(s.Error, "503") && !s.InSync })
	down.Store(false)
	until(t, s, func(s aci.State) bool { return s.InSync && s.Error == "" && s.Failures == 0 && s.Writes > 0 })
	if _, ok := sim.Tree()["uni/tn-blue/flt-store:Frm:web/e-icmp"]; ok {
		t.Error("in step, and the old rule is there")
	}
	cancel()
	<-done
	if n := sim.Sessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// What others do to objects of ours is put right.
func TestForeignChangesArePutRight(t *testing.T) {
	sim := newSim(t)
	s := run(t, newAPIC(t, sim), aci.SyncerConfig{Resync: 5 * time.Millisecond})
	if s.State().InSync {
		t.Error("in step with nothing")
	}
	s.Set(shop())
	until(t, s, inStep)
	if err := sim.Delete("uni/tn-blue/brc-store:Frm:web"); err != nil {
		t.Fatal(err)
	}
	put(t, sim, "uni/tn-blue/ctx-contiv", "fvCtx", "pcEnfPref", "unenforced")
	until(t, s, func(aci.State) bool {
		tree := sim.Tree()
		_, ok := tree["uni/tn-blue/brc-store:Frm:web"]
		return ok && tree["uni/tn-blue/ctx-contiv"].Props["pcEnfPref"] == "enforced"
	})
}

// Nothing is taken away before it was said what is wanted.
func TestNothingIsRemovedBeforeTheFirstState(t *testing.T) {
	sim := newSim(t)
	apply(t, newAPIC(t, sim), shop())
	sim.Requests()
	s := run(t, newAPIC(t, sim), aci.SyncerConfig{})
	s.Set(shop())
	until(t, s, inStep)
	if w := writes(sim.Requests()); len(w) > 0 {
		t.Errorf("a new process wrote %q", w)
	}
}

// TestDelayedRequestOfAPreviousLeaderIsPutRight: what a former leader's request does after the new one's first comparison is
// put right without waiting for the next change, or for Resync.
func TestDelayedRequestOfAPreviousLeaderIsPutRight(t *testing.T) {
	sim := newSim(t)
	s := run(t, newAPIC(t, sim), aci.SyncerConfig{Resync: time.Hour, RecheckDelay: 500 * time.Millisecond})
	s.Set(shop())
	until(t, s, inStep)
	sim.Requests()
	const late = "uni/tn-blue/brc-store:Frm:web"
	if err := sim.Delete(late); err != nil {
		t.Fatal(err)
	}
	until(t, s, func(aci.State) bool { return sim.Tree()[late].Class != "" })
}
