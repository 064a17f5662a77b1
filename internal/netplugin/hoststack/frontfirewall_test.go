package hoststack

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFrontendsWorkBehindAFirewall: where a firewall drops what is forwarded, as Docker sets it
// up, clients outside reach containers by services; backends that are none they reach with
// the exception that docs/how-to/kubernetes-services.md names.
func TestFrontendsWorkBehindAFirewall(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		tool := map[bool]string{false: "iptables-nft", true: "ip6tables-nft"}[s.vip.Is6()]
		iptables := func(args ...string) {
			run(t, append([]string{"ip", "netns", "exec", s.host, tool}, args...)...)
		}
		s.serve(s.conts, "tcp", s.pod(0).String())
		s.serve(s.beyond, "tcp", netip.AddrPortFrom(s.far, 99).String())
		s.frontends.Set(FrontendAddr{s.vip, model.ProtoTCP, 80}, frontendOf(s.pod(0)))
		s.frontends.Set(FrontendAddr{s.vip, model.ProtoTCP, 81}, frontendOf(Target{netip.AddrPortFrom(s.far, 99), External}))
		s.lead()
		iptables("-P", "FORWARD", "DROP")
		s.good()
		is := func(when, pod, beyond string) {
			t.Helper()
			if seen := s.ask(s.beyond, "tcp", "", s.at(80)); seen != pod {
				t.Errorf("%s: a container saw %q, want %q", when, seen, pod)
			}
			if seen := s.ask(s.beyond, "tcp", "", s.at(81)); seen != beyond {
				t.Errorf("%s: somebody else saw %q, want %q", when, seen, beyond)
			}
		}
		is("behind a firewall", s.far.String(), "")
		iptables("-I", "FORWARD", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
		is("with the exception", s.far.String(), s.near.String())
	})
}
