package hoststack

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestTrafficPolicyChoosesBackendsByClient: clients outside have targets of their own, at addresses and at ports of
// nodes, all of them or some, and with affinity; where they have none they are refused,
// though the host itself is led.
func TestTrafficPolicyChoosesBackendsByClient(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		s.named(s.pod(0), "a")
		s.named(s.pod(1), "b")
		sources := func(f Frontend, all ...string) *Frontend {
			for _, p := range all {
				f.Sources = append(f.Sources, netip.MustParsePrefix(p))
			}
			return &f
		}
		apart := Frontend{Own: Choice{Targets: []Target{s.pod(0)}}, Outside: Choice{Targets: []Target{s.pod(1)}}}
		stays := apart
		stays.Affinity = time.Hour
		far, elsewhere := []string{"198.51.100.0/24", "2001:db8:7::/64"}, []string{"203.0.113.0/24", "2001:db8:8::/64"}
		for i, x := range []struct {
			front        *Frontend
			own, outside string
		}{
			{&apart, "a", "b"},
			{sources(apart, far...), "a", "b"},
			{sources(apart, elsewhere...), "", ""},
			{&stays, "a", "b"},
			{sources(stays, far...), "a", "b"},
			{sources(stays, elsewhere...), "", ""},
			{&Frontend{Own: apart.Own}, "a", ""},
			{&Frontend{Outside: apart.Outside}, "", "b"},
		} {
			at, node := FrontendAddr{s.vip, model.ProtoTCP, 80}, FrontendAddr{desired.AnyNode(s.vip), model.ProtoTCP, 30080}
			s.frontends.Set(at, x.front)
			s.frontends.Set(node, x.front)
			s.lead()
			// Who is remembered, is so the second time.
			var all []question
			for turn := range 2 {
				for _, to := range []string{netip.AddrPortFrom(s.near, 30080).String(), s.at(80)} {
					for _, q := range []question{{"this host", s.host, "tcp", "", to, x.own}, {"others", s.beyond, "tcp", "", to, x.outside}} {
						if q.seen != "" || turn == 0 {
							q.name = fmt.Sprint(i, ", ", q.name)
							all = append(all, q)
						}
					}
				}
			}
			s.asks(all...)
		}
	})
}
