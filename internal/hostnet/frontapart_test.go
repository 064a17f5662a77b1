package hostnet

import (
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFrontsApart: clients outside have targets of their own, at addresses and at ports of
// nodes, all of them or some, and with affinity; where they have none they are refused,
// though the host itself is led.
func TestFrontsApart(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		s.named(s.pod(0), "a")
		s.named(s.pod(1), "b")
		sources := func(f Front, all ...string) *Front {
			for _, p := range all {
				f.Sources = append(f.Sources, netip.MustParsePrefix(p))
			}
			return &f
		}
		apart := Front{Own: Choice{Targets: []Target{s.pod(0)}}, Outside: Choice{Targets: []Target{s.pod(1)}}}
		stays := apart
		stays.Affinity = time.Hour
		far, elsewhere := []string{"198.51.100.0/24", "2001:db8:7::/64"}, []string{"203.0.113.0/24", "2001:db8:8::/64"}
		for i, x := range []struct {
			front        *Front
			own, outside string
		}{
			{&apart, "a", "b"},
			{sources(apart, far...), "a", "b"},
			{sources(apart, elsewhere...), "", ""},
			{&stays, "a", "b"},
			{sources(stays, far...), "a", "b"},
			{sources(stays, elsewhere...), "", ""},
			{&Front{Own: apart.Own}, "a", ""},
			{&Front{Outside: apart.Outside}, "", "b"},
		} {
			at, node := FrontAt{s.vip, model.ProtoTCP, 80}, FrontAt{desired.AnyNode(s.vip), model.ProtoTCP, 30080}
			s.fronts.Set(at, x.front)
			s.fronts.Set(node, x.front)
			s.lead()
			// Who is remembered, is so the second time; who is dropped waits for long.
			all := []string{netip.AddrPortFrom(s.near, 30080).String()}
			if x.own+x.outside != "" {
				all = append(all, s.at(80), all[0], s.at(80))
			}
			for _, to := range all {
				if own, outside := s.ask(s.host, "tcp", "", to), s.ask(s.beyond, "tcp", "", to); own != x.own || outside != x.outside {
					t.Errorf("%d at %s: the host comes to %q, others to %q, want %q and %q", i, to, own, outside, x.own, x.outside)
				}
			}
		}
	})
}
