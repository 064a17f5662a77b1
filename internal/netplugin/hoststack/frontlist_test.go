package hoststack

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNftListsAllFrontends: the nft of this machine (1.0.6 in Debian 12) lists all that there is,
// as people and programs do with the ruleset of a host, while clients are remembered too.
func TestNftListsAllFrontends(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		s.named(s.pod(0), "a")
		differs := frontendOf(s.pod(0), s.pod(1))
		differs.Outside = Choice{Targets: []Target{s.pod(0)}}
		limited := frontendOf(s.pod(0))
		for _, p := range []string{"198.51.100.0/24", "2001:db8:7::/64"} {
			limited.Sources = append(limited.Sources, netip.MustParsePrefix(p))
		}
		stays := *limited
		stays.Affinity = time.Hour
		for i, f := range []*Frontend{&stays, limited, differs, {Outside: Choice{Drop: true}}} {
			s.frontends.Set(FrontendAddr{s.vip, model.ProtoTCP, uint16(80 + i)}, f)
			s.frontends.Set(FrontendAddr{desired.AnyNode(s.vip), model.ProtoTCP, uint16(30080 + i)}, f)
		}
		s.lead()
		if seen := s.ask(s.beyond, "tcp", "", s.at(80)); seen != "a" {
			t.Fatalf("not reached: %q", seen)
		}
		for _, how := range [][]string{{"list", "ruleset"}, {"-j", "list", "ruleset"}, {"-s", "list", "table", family(s.vip), ServicesTable}} {
			out, err := exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", s.host, "nft"}, how...)...).CombinedOutput()
			for _, want := range []string{s.pods[0].String(), s.vip.String(), s.far.String(), "@apart", "seed 0x1", "timeout 1h"} {
				if how[0] != "-j" && !strings.Contains(string(out), want) {
					t.Errorf("nft %v does not show %q", how, want)
				}
			}
			if err != nil || len(out) == 0 {
				t.Errorf("nft %v: %v: %s", how, err, out[max(0, len(out)-300):])
			}
			if at := os.Getenv("SHOW"); at != "" && how[0] == "list" {
				t.Log(string(out))
			}
		}
	})
}

func family(a netip.Addr) string {
	if a.Is6() {
		return "ip6"
	}
	return "ip"
}
