package statemirror

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestRestartedHostRollsBackWhileCutOff: an agent that begins while its host is cut off takes up the change that
// is unconfirmed there, goes back in time, knows the control plane as before, and follows the
// store when it reaches it; then nothing is kept any more.
func TestRestartedHostRollsBackWhileCutOff(t *testing.T) {
	st, dir := memory.New(), t.TempDir()
	put(t, st, identified("a"))
	tr := globalTrial(t, "x", routing())
	const at = "198.51.100.5:80"
	control := func(h trialHost) *ControlPlane {
		return NewControlPlane(h.State, ControlConfig{Listening: func() []string { return nil }})
	}
	t.Run("first agent", func(t *testing.T) { // which ends with it
		h := newTrialHost(t, st, dir, "b1", time.Hour)
		p := control(h)
		for source := range p.waiting {
			p.set(source, nil)
		}
		p.set(cluster.ServiceMaster, []listener{{At: netip.MustParseAddrPort(at)}})
		follow(t, h.State)
		h.has(t, "at first", model.FwdBridge)
		put(t, st, begin(tr))
		h.has(t, "unconfirmed", model.FwdRouting)
	})
	away := st.Client()
	away.Unavailable(true)
	h := newTrialHost(t, away, dir, "b1", time.Hour+59*time.Second)
	h.Patience = time.Millisecond
	p := control(h)
	follow(t, h.State)
	mode := func(what string, want model.FwdMode) {
		t.Helper()
		until(t, h.State, what, func() error {
			if got, _ := h.comp.Compile(1); !h.Guard.entered() || got.FwdMode != want {
				return fmt.Errorf("it is %v", got.FwdMode)
			}
			return nil
		})
	}
	mode("begun again in its time", model.FwdRouting)
	if pic, ok := h.Compile(); !ok || pic.Want.FwdMode != model.FwdRouting {
		t.Errorf("there is no desired state: %v", ok)
	}
	if k, _ := p.Want(true); !p.Known() || !slices.Contains(k.Targets, netip.MustParseAddrPort(at)) {
		t.Error("the control plane is not known: ", p.Known(), k.Targets)
	}
	if err := h.Guard.MayWrite(); err == nil {
		t.Error("it would write by what is long ago")
	}
	h.pass(time.Second)
	mode("its time has gone", model.FwdBridge)
	put(t, st, func(tx store.Tx) error { return tables.Tenants.Put(tx, model.Tenant{Name: "blue", Router: 9}) })
	away.Unavailable(false)
	h.knows(t, 1)
	until(t, h.State, "it follows", func() error {
		if !h.Guard.follows() || h.Settings.tenants["blue"].Router != 9 {
			return errors.New("it does not")
		}
		return nil
	})
	mode("it stays back", model.FwdBridge)
	now := routing()
	put(t, st, end(tr, &now))
	h.has(t, "confirmed", model.FwdRouting)
	until(t, h.State, "nothing is kept", func() error {
		h.updateCheckpoint()
		_, err := os.Stat(filepath.Join(dir, CheckpointFile))
		if err == nil {
			return errors.New("the file is there")
		}
		return nil
	})
}

// TestCheckpointsOfOtherBootsAreIgnored: what was kept under another boot, or is damaged, is no desired state; and
// what cannot be kept is not taken.
func TestCheckpointsOfOtherBootsAreIgnored(t *testing.T) {
	st, dir := memory.New(), t.TempDir()
	put(t, st, identified("a"))
	h := newTrialHost(t, st, dir, "b1", time.Hour)
	follow(t, h.State)
	h.has(t, "at first", model.FwdBridge)
	put(t, st, begin(globalTrial(t, "x", routing())))
	h.has(t, "unconfirmed", model.FwdRouting)
	if cut := h.again(t, st); !cut.Guard.entered() {
		t.Fatal("nothing was kept")
	}
	late := h.again(t, st)
	late.Guard.source = noSource
	begins := func(boot string) bool {
		x := newTrialHost(t, late.Store.(*memory.Store), late.StateDir, boot, 0)
		x.Patience = -1
		x.mu.Lock()
		defer x.mu.Unlock()
		x.restoreCheckpoint()
		return x.Guard.entered()
	}
	if begins("b2") {
		t.Error("another boot has what was kept")
	}
	if !begins("b1") {
		t.Error("this boot has not")
	}
	if err := os.WriteFile(filepath.Join(late.StateDir, CheckpointFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if begins("b1") {
		t.Error("a damaged file is a desired state")
	}

	st, dir = memory.New(), t.TempDir()
	put(t, st, identified("a"))
	if err := os.Mkdir(filepath.Join(dir, CheckpointFile), 0o700); err != nil {
		t.Fatal(err)
	}
	h = newTrialHost(t, st, dir, "b1", 0)
	follow(t, h.State)
	h.has(t, "at first", model.FwdBridge)
	put(t, st, begin(globalTrial(t, "x", routing())))
	h.knows(t, 1)
	h.has(t, "not taken", model.FwdBridge)
}

// TestUnconfirmedModeDecidesWhatIsFollowed: in a forwarding mode that is unconfirmed a host follows what it needs
// in that mode, and does not by what the tables have.
func TestUnconfirmedModeDecidesWhatIsFollowed(t *testing.T) {
	st := memory.New()
	put(t, st, identified("a"))
	network := model.NetworkKey{Tenant: "infra", Name: "dns"}
	put(t, st, func(tx store.Tx) error {
		return errors.Join(tables.Tenants.Put(tx, model.Tenant{Name: "blue", Router: 1, Shared: []model.NetworkKey{network}}),
			tables.Tenants.Put(tx, model.Tenant{Name: "infra", Router: 2, Clients: []model.TenantName{"blue"}}))
	})
	h := newTrialHost(t, st, t.TempDir(), "b1", 0)
	follow(t, h.State)
	h.has(t, "at first", model.FwdBridge)
	infra := func(what string, want bool) {
		t.Helper()
		until(t, h.State, what, func() error {
			if h.interests.scopes()[TenantScope("infra")] != want || want && h.mirrors.byScope[TenantScope("infra")] == nil {
				return errors.New("it is the other way")
			}
			return nil
		})
	}
	infra("in mode bridge", false)
	tr := globalTrial(t, "x", routing())
	put(t, st, begin(tr))
	h.has(t, "unconfirmed", model.FwdRouting)
	infra("unconfirmed", true)
	now := routing()
	put(t, st, end(tr, &now))
	h.knows(t, 0)
	infra("for good", true)
	put(t, st, begin(globalTrial(t, "y", model.DefaultGlobal())))
	h.has(t, "unconfirmed back", model.FwdBridge)
	infra("unconfirmed back", false)
}
