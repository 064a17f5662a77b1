package hoststack

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// TestSuspendedRoutesAreTakenBack: the routes that came last are taken back together, are
// told of, and are there again when they are resumed; earlier ones stay.
func TestSuspendedRoutesAreTakenBack(t *testing.T) {
	s := newSite6(t)
	dir := t.TempDir()
	changes := hostchanges.Open(dir, slog.New(slog.DiscardHandler))
	s.restart(true)
	s.stack.changes = changes
	routes := func(want ...string) {
		t.Helper()
		all := run(t, "ip", "-n", s.host, "route") + run(t, "ip", "-n", s.host, "-6", "route")
		for _, at := range []string{"10.96.0.10", "10.96.0.11", "fd00:96::11", "10.97.0.0/16"} {
			is := false
			for line := range strings.Lines(all) {
				is = is || strings.HasPrefix(line, at+" ")
			}
			if should := strings.Contains(strings.Join(want, " ")+" ", at+" "); is != should {
				t.Errorf("a route to %s is there: %v, want %v", at, is, should)
			}
		}
	}
	s.want.Services = []Service{{Name: "default:first", Addr: netip.MustParseAddr("10.96.0.10")}}
	s.want.Source = near
	s.good()
	changes.Answered(changes.Mark(), nil)
	s.want.Services = append(s.want.Services, Service{Name: "default:second", Addr: netip.MustParseAddr("10.96.0.11")})
	s.want.Routed = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	s.good()
	routes("10.96.0.10", "10.96.0.11", "10.97.0.0/16")
	c, is := changes.Newest()
	if !is || len(c.Objects) != 2 {
		t.Fatalf("the newest change: %v", c)
	}
	changes.Set(c.Number, hostchanges.Reverting)
	changes.Save()
	problems := s.apply()
	for _, object := range []string{"service default:second", "native network 10.97.0.0/16"} {
		if err := problems[object]; err == nil || !strings.Contains(err.Error(), "rolled back") {
			t.Errorf("%s: %v", object, err)
		}
	}
	if _, is := changes.Newest(); len(problems) != 2 || is {
		t.Errorf("problems %v, there is another change: %v", problems, is)
	}
	routes("10.96.0.10")
	changes = hostchanges.Open(dir, slog.New(slog.DiscardHandler))
	s.restart(true)
	s.stack.changes = changes
	if problems := s.apply(); len(problems) != 2 {
		t.Errorf("after a restart: problems %v", problems)
	}
	routes("10.96.0.10")
	changes.Set(c.Number, hostchanges.Reapplied)
	s.good()
	routes("10.96.0.10", "10.96.0.11", "10.97.0.0/16")
	if c, is := changes.Newest(); is {
		t.Errorf("what was applied again is a change: %v", c)
	}

	changes.Set(c.Number, hostchanges.RolledBack)
	s.want.Services, s.want.Routed = s.want.Services[:1], nil
	s.good() // what is not wanted is not missed
	if left := changes.Suspended(hostchanges.Routes); len(left) > 0 {
		t.Errorf("suspended for ever: %v", left)
	}
}

// TestSuspendedLearnedRoutesAreTakenBack: likewise for those of the physical network, also
// while not all is known of it.
func TestSuspendedLearnedRoutesAreTakenBack(t *testing.T) {
	s := newSite6(t)
	f := Fabric{Changes: hostchanges.Open(t.TempDir(), slog.New(slog.DiscardHandler))}
	first, second := netip.MustParsePrefix("10.50.0.0/16"), netip.MustParsePrefix("10.51.0.0/16")
	want := FabricConfig{Device: "up0", Private: s.want.Private.Interface, Routes: map[netip.Prefix][]netip.Addr{first: {far}}}
	apply := func(there ...netip.Prefix) {
		t.Helper()
		if err := in(t, s.host, func() error {
			if err := f.Apply(context.Background(), want, false); err != nil {
				return err
			}
			list, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: fabricProtocol}, netlink.RT_FILTER_PROTOCOL)
			if len(list) != len(there) {
				t.Errorf("routes %v, want those to %v", list, there)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	apply(first)
	f.Changes.Answered(f.Changes.Mark(), nil)
	want.Routes[second] = []netip.Addr{far}
	apply(first, second)
	c, _ := f.Changes.Newest()
	f.Changes.Set(c.Number, hostchanges.Reverting)
	want.Keep = true
	apply(first)
	f.Changes.Set(c.Number, hostchanges.Reapplied)
	apply(first, second)
}

// TestRoutesAreRemovedBeforeTheDesiredStateIsKnown: after a restart without a netmaster no
// Apply removes routes; those of others stay.
func TestRoutesAreRemovedBeforeTheDesiredStateIsKnown(t *testing.T) {
	s := newSite6(t)
	s.want.Routed = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("fd00:97::/64")}
	s.want.Source = near
	s.good()
	run(t, "ip", "-n", s.host, "route", "add", "10.98.0.0/16", "via", far.String())
	count := func() int {
		all := run(t, "ip", "-n", s.host, "route") + run(t, "ip", "-n", s.host, "-6", "route")
		return strings.Count(all, "10.97.0.0/16") + strings.Count(all, "fd00:97::/64")
	}
	before := count()
	var removed RemovedRoutes
	if err := in(t, s.host, func() error {
		return removed.Remove(append(s.want.Routed, netip.MustParsePrefix("10.98.0.0/16")))
	}); err != nil {
		t.Fatal(err)
	}
	if n := count(); before != 2 || n != 0 {
		t.Errorf("%d routes before, %d after", before, n)
	}
	if !strings.Contains(run(t, "ip", "-n", s.host, "route"), "10.98.0.0/16") {
		t.Error("another's route is removed")
	}
	if err := in(t, s.host, removed.Restore); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != before {
		t.Errorf("%d routes are there again", n)
	}
}

// TestFabricTableIsRepaired: a table towards the physical network that somebody deletes is
// put back at the next look, and counted once; another device is no repair.
func TestFabricTableIsRepaired(t *testing.T) {
	s := newSite6(t)
	done := &repairs{}
	f := Fabric{Repairs: done}
	want := FabricConfig{Device: "up0", Private: s.want.Private.Interface, Own: map[netip.Addr]netip.Addr{netip.MustParseAddr("172.20.0.9"): netip.MustParseAddr("10.1.1.9")}}
	apply := func(repaired bool) {
		t.Helper()
		if err := in(t, s.host, func() error { return f.Apply(t.Context(), want, true) }); err != nil {
			t.Fatal(err)
		}
		if got := done.take("rules ip " + FabricTable); got != repaired || len(done.names) > 0 {
			t.Errorf("repaired: %v, and %v", got, done.names)
		}
	}
	apply(false)
	apply(false)
	run(t, "ip", "netns", "exec", s.host, "nft", "delete", "table", "ip", FabricTable)
	apply(true)
	apply(false)
	want.Device = "down0"
	apply(false)
}
