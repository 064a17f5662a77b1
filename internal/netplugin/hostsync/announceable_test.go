package hostsync

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestAnnounceableAddressesFollowTrafficPolicies: a host could answer for load balancers' addresses at which its stack serves a
// frontend, by the traffic policy for external clients; for none without backends.
func TestAnnounceableAddressesFollowTrafficPolicies(t *testing.T) {
	a, b := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.8")
	var f announceable
	var all desired.Map[model.ServiceKey, *desired.Service]
	key := model.ServiceKey{Tenant: "default", Name: "shop/web"}
	put := func(outside desired.TrafficPolicy, backends ...desired.Backend) {
		s := &desired.Service{Balanced: []netip.Addr{a, b}, Frontends: []desired.Frontend{{Addr: a, Port: 80, ExternalPolicy: outside}}} // b is a node's: it has no frontend
		for i, x := range backends {
			x.IPv4 = netip.MustParseAddr("10.1.1.1")
			s.Backends = s.Backends.Set(model.EndpointKey{ID: model.EndpointID(rune('a' + i))}, &x)
		}
		all = all.Set(key, s)
	}
	local, far := desired.Backend{Local: true}, desired.Backend{}
	for _, x := range []struct {
		what     string
		outside  desired.TrafficPolicy
		backends []desired.Backend
		fit      bool
	}{
		{"to all", desired.TrafficCluster, []desired.Backend{far}, true},
		{"to nobody, who are refused", desired.TrafficCluster, nil, true},
		{"to those here, and there is one", desired.TrafficLocalDrop, []desired.Backend{far, local}, true},
		{"to those here, and there is none", desired.TrafficLocalDrop, []desired.Backend{far}, false},
		{"to those here, and one leaves", desired.TrafficLocalDrop, []desired.Backend{{Local: true, State: desired.BackendLeaving}}, true},
		{"to those here, and one is ill", desired.TrafficLocalDrop, []desired.Backend{{Local: true, State: desired.BackendUnhealthy}}, false},
	} {
		put(x.outside, x.backends...)
		f.follow(all, true)
		if got := f.addrs(); slices.Contains(got, a) != x.fit || slices.Contains(got, b) {
			t.Errorf("%s: %v", x.what, got)
		}
	}
	put(desired.TrafficCluster)
	if !f.follow(all, true) || f.follow(all, true) {
		t.Error("a change is not told, or what is none is")
	}
	if !f.follow(all, false) || len(f.addrs()) > 0 {
		t.Errorf("while nobody is served: %v", f.addrs())
	}
	if !f.follow(all, true) || len(f.addrs()) != 1 {
		t.Errorf("when clients are served again: %v", f.addrs())
	}
}
