package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestPoolsFollowTheTrafficPolicy: who gets new connections, by traffic policy: active backends, or leaving ones
// where the policy finds no active one; the nearest ones while it is known of all active
// ones how near they are.
func TestPoolsFollowTheTrafficPolicy(t *testing.T) {
	type backends map[model.EndpointID]Backend
	here, zone, far := Backend{Local: true, Near: NearHost}, Backend{Near: NearZone}, Backend{Near: NearFar}
	in := func(b Backend, s BackendState) Backend {
		b.State = s
		return b
	}
	for _, x := range []struct {
		what  string
		have  backends
		among TrafficPolicy
		want  string
	}{
		{"all", backends{"a": here, "b": far}, TrafficCluster, "[a b]"},
		{"one leaves", backends{"a": in(here, BackendLeaving), "b": far}, TrafficCluster, "[b]"},
		{"both leave", backends{"a": in(here, BackendLeaving), "b": in(far, BackendLeaving)}, TrafficCluster, "[a b]"},
		{"one leaves, one drains", backends{"a": in(here, BackendLeaving), "b": in(far, BackendDraining)}, TrafficCluster, "[a]"},
		{"one is unhealthy", backends{"a": in(here, BackendUnhealthy), "b": far}, TrafficCluster, "[b]"},
		{"here", backends{"a": here, "b": far}, TrafficLocal, "[a]"},
		{"the only one here leaves", backends{"a": in(here, BackendLeaving), "b": far}, TrafficLocal, "[a]"},
		{"none is here", backends{"b": far}, TrafficLocalDrop, "[]"},
		{"nothing is known", backends{"a": {}, "b": {}, "c": {}}, TrafficNearest, "[a b c]"},
		{"of one it is not known", backends{"a": here, "b": zone, "c": {}}, TrafficNearest, "[a b c]"},
		{"two of the zone", backends{"a": far, "b": zone, "c": zone}, TrafficNearest, "[b c]"},
		{"one of the host", backends{"a": here, "b": zone, "c": zone}, TrafficNearest, "[a]"},
		{"all are far", backends{"a": far, "b": far, "c": far}, TrafficNearest, "[a b c]"},
		{"the near ones take nothing new", backends{"a": far, "b": in(zone, BackendDraining), "c": in(zone, BackendLeaving)}, TrafficNearest, "[a]"},
		{"it is not known of one that is not active", backends{"a": here, "b": far, "c": in(Backend{}, BackendDraining)}, TrafficNearest, "[a]"},
		{"all leave", backends{"a": in(here, BackendLeaving), "b": in(far, BackendLeaving)}, TrafficNearest, "[a b]"},
	} {
		for _, v6 := range []bool{false, true} {
			var s Service
			for id, b := range x.have {
				b.IPv4 = netip.MustParseAddr("10.1.1.1")
				if v6 {
					b.IPv4, b.IPv6 = netip.Addr{}, netip.MustParseAddr("fd00::1")
				}
				s.Backends = s.Backends.Set(model.EndpointKey{ID: id}, &b)
			}
			got := []string{}
			pool := s.Pools().Of(v6, x.among)
			for k, b := range s.Backends.All() {
				if pool.Has(b) {
					got = append(got, string(k.ID))
				}
			}
			if slices.Sort(got); fmt.Sprint(got) != x.want {
				t.Errorf("%s, policy %d, IPv6 %v: %v, want %s", x.what, x.among, v6, got, x.want)
			}
			if other := s.Pools().Of(!v6, x.among); slices.ContainsFunc(got, func(id string) bool {
				b, _ := s.Backends.Get(model.EndpointKey{ID: model.EndpointID(id)})
				return other.Has(b)
			}) {
				t.Errorf("%s: a backend without an address of a family is chosen by it", x.what)
			}
		}
	}
}
