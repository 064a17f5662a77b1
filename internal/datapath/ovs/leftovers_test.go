package ovs

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// TestLeftoversRemovesAllOfOurs lets a host change to another driver: what Leftovers finds and
// removes is all of ours and nothing else; doing it twice is fine.
func TestLeftoversRemovesAllOfOurs(t *testing.T) {
	l := newLive(t, 2)
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	l.Vsctl("add-br", "other", "--", "set", "bridge", "other", "datapath_type="+ovstest.Datapath(), "--", "add-br", bridges1x[0])
	left := func() (driver.Predecessor, string) {
		t.Helper()
		p, err := Leftovers(t.Context(), l.cfg)
		name, e := InUse(t.Context(), l.cfg)
		if err != nil || e != nil {
			t.Fatal(err, e)
		}
		return p, name
	}
	old, name := left()
	if old == nil || name != DefaultBridge {
		t.Fatalf("the driver left %v, by its own account, and uses %q", old, name)
	}
	ports := func() []string { return strings.Fields(l.Vsctl("list-ports", DefaultBridge)) }
	before := ports()
	for range 2 {
		if err := old.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := ports(); !slices.Contains(before, tunnelName) || slices.Contains(after, tunnelName) || len(after) != len(before)-1 {
		t.Errorf("release left the ports %v of %v, want all but %s", after, before, tunnelName)
	}
	for range 2 {
		if err := old.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Fields(l.Vsctl("list-br")); !slices.Equal(got, []string{bridges1x[0], "other"}) {
		t.Errorf("bridges %v, want those of others", got)
	}
	// 1.x's bridge is in use, and not ours to remove.
	if old, name := left(); old != nil || name != bridges1x[0] {
		t.Errorf("after remove: left %v, in use %q", old, name)
	}
}

// TestLeftoversAreRemovedWithoutASwitch: where there is no database, nothing is left; where the
// switch is dead, its database forgets and the caller hears of it.
func TestLeftoversAreRemovedWithoutASwitch(t *testing.T) {
	r := rig{Server: &ovstest.Server{DB: "unix:" + t.TempDir() + "/none.sock", RunDir: t.TempDir()}}
	if p, err := Leftovers(t.Context(), r.config(t)); p != nil || err != nil {
		t.Errorf("Leftovers() = %v, %v, want nothing", p, err)
	}
	l := newLive(t, 0)
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	old, err := Leftovers(t.Context(), l.cfg)
	if err != nil || old == nil {
		t.Fatal(old, err)
	}
	l.KillSwitch()
	if err := old.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "ovs-vswitchd") {
		t.Errorf("Remove() with a dead switch = %v, want an error that names it", err)
	}
	if err := old.Remove(t.Context()); err != nil {
		t.Errorf("Remove() again = %v; the database has forgotten the bridge", err)
	}
}

// TestPrepareLeavesOutTheTunnel: what is prepared is everything but the tunnel, which Apply adds.
func TestPrepareLeavesOutTheTunnel(t *testing.T) {
	l := newLive(t, 2)
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	l.Vsctl("del-br", DefaultBridge)
	l.open(t)
	defer l.drv.Close()
	if err := l.drv.Prepare(t.Context(), l.pic); err != nil {
		t.Fatal(err)
	}
	ports := func() []string { return strings.Fields(l.Vsctl("list-ports", DefaultBridge)) }
	prepared := ports()
	if len(prepared) != l.pic.Ports.Len() || slices.Contains(prepared, tunnelName) {
		t.Errorf("prepared ports %v, want the %d of the desired state and no tunnel", prepared, l.pic.Ports.Len())
	}
	l.apply(t)
	if got := ports(); len(got) != len(prepared)+1 || !slices.Contains(got, tunnelName) {
		t.Errorf("ports %v after Apply, want the tunnel besides %v", got, prepared)
	}
}
