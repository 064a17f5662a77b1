package statemirror

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestForwardingModeIsTakenBack: a host goes by the mode before the last change as long as
// that is taken back, says so, and follows the next change again.
func TestForwardingModeIsTakenBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	m := c.mirrors.start(Scope{})
	set := func(mode model.FwdMode) {
		c.mu.Lock()
		defer c.mu.Unlock()
		g := model.DefaultGlobal()
		g.FwdMode = mode
		c.input.enter(m, tables.Change{Key: tables.GlobalKey{}, Value: g})
	}
	wants := func(when string, mode model.FwdMode, told int) {
		t.Helper()
		want, _ := c.comp.Compile(1)
		if got := len(c.Settings.problems()); want.FwdMode != mode || c.Settings.Routes() != (mode == model.FwdRouting) || got != told {
			t.Errorf("%s: mode %s, %d problems", when, want.FwdMode, got)
		}
	}
	set(model.FwdBridge)
	if _, is := c.HostChanges.Newest(); is {
		t.Error("the first mode counts as a change")
	}
	set(model.FwdRouting)
	wants("it changes", model.FwdRouting, 0)
	change, is := c.HostChanges.Newest()
	if !is {
		t.Error("the change is unknown")
	}
	become := func(s hostchanges.State) {
		c.HostChanges.Set(change.Number, s)
		c.FollowMode()
	}
	become(hostchanges.Reverting)
	wants("it is taken back", model.FwdBridge, 1)
	set(model.FwdRouting)
	wants("something else of the settings changes", model.FwdBridge, 1)
	become(hostchanges.Reapplied)
	wants("it is applied again", model.FwdRouting, 0)
	become(hostchanges.RolledBack)
	set(model.FwdBridge)
	wants("it is changed back", model.FwdBridge, 0)
	set(model.FwdRouting)
	wants("it changes again", model.FwdRouting, 0)
	if change, is = c.HostChanges.Newest(); !is {
		t.Fatal("the change is unknown")
	}
	become(hostchanges.RolledBack)
	again := newCluster(t, nil)
	again.HostChanges = c.HostChanges
	c, m = again, again.mirrors.start(Scope{})
	set(model.FwdRouting)
	wants("netplugin was restarted", model.FwdBridge, 1)
}
