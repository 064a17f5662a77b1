package hoststack

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestSuspendedRoutesAreTakenBack: the routes that came last are taken back together, are
// told of, and are there again when they are resumed; earlier ones stay.
func TestSuspendedRoutesAreTakenBack(t *testing.T) {
	s := newSite6(t)
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
	began := time.Now()
	s.want.Services = append(s.want.Services, Service{Name: "default:second", Addr: netip.MustParseAddr("10.96.0.11")})
	s.want.Natives = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	s.good()
	routes("10.96.0.10", "10.96.0.11", "10.97.0.0/16")
	c := s.stack.Changes()
	at := c.Newest(began)
	if at.IsZero() || !c.Newest(at).IsZero() {
		t.Fatalf("the newest change was at %v", at)
	}
	c.Suspend(at)
	problems := s.apply()
	for _, object := range []string{"service default:second", "native network 10.97.0.0/16"} {
		if err := problems[object]; err == nil || !strings.Contains(err.Error(), "rolled back") {
			t.Errorf("%s: %v", object, err)
		}
	}
	if len(problems) != 2 || !c.Newest(began).IsZero() {
		t.Errorf("problems %v, the newest change is now of %v", problems, c.Newest(began))
	}
	routes("10.96.0.10")
	c.Resume(at)
	s.good()
	routes("10.96.0.10", "10.96.0.11", "10.97.0.0/16")

	c.Suspend(at)
	s.want.Services, s.want.Natives = s.want.Services[:1], nil
	s.good() // what is not wanted is not missed
	if left := c.Suspended(); len(left) > 0 {
		t.Errorf("suspended for ever: %v", left)
	}
}

// TestSuspendedLearnedRoutesAreTakenBack: likewise for those of the physical network, also
// while not all is known of it.
func TestSuspendedLearnedRoutesAreTakenBack(t *testing.T) {
	s := newSite6(t)
	var f Fabric
	first, second := netip.MustParsePrefix("10.50.0.0/16"), netip.MustParsePrefix("10.51.0.0/16")
	want := FabricWant{Device: "up0", Private: s.want.Private.Interface, Routes: map[netip.Prefix][]netip.Addr{first: {far}}}
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
	began := time.Now()
	want.Routes[second] = []netip.Addr{far}
	apply(first, second)
	at := f.Changes.Newest(began)
	f.Changes.Suspend(at)
	want.Keep = true
	apply(first)
	f.Changes.Resume(at)
	apply(first, second)
}
