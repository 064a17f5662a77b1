package desired

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFirstMatchInTheFirstTierDecides: tiers are asked in order, the first matching rule decides in each, and matched
// rules with Log are reported.
func TestFirstMatchInTheFirstTierDecides(t *testing.T) {
	tcp := func(lo, hi uint16) []model.PortMatch {
		return []model.PortMatch{{Protocol: model.ProtoTCP, Lo: lo, Hi: hi}}
	}
	s := &PolicySet{
		In: []Tier{
			{Tier: model.TierAdmin, Default: model.Pass, Rules: RulesOf(
				Rule{ID: "pass", Priority: 90, Action: model.Pass, Log: true, AnyPeer: true, Ports: tcp(80, 81)},
				Rule{ID: "deny", Priority: 90, Action: model.Deny, Log: true, Identities: Identities{}.With(7), Ports: tcp(81, 81)},
				Rule{ID: "allow", Priority: 91, Action: model.Allow, CIDRs: []CIDR{{
					Prefix: netip.MustParsePrefix("10.1.0.0/16"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.9.0/24")}, Network: 3,
				}}, Ports: tcp(82, 82)},
			)},
			{Tier: model.TierContiv, Default: model.Deny, Rules: RulesOf(
				Rule{ID: "a", Priority: 1, Action: model.Allow, Log: true, AnyPeer: true, Ports: tcp(80, 80)},
				Rule{ID: "b", Priority: 1, Action: model.Allow, AnyPeer: true, Ports: tcp(80, 80)},
			)},
		},
		Out: []Tier{{Tier: model.TierContiv, Default: model.Pass}},
	}
	at := func(id model.Identity, addr string, net model.NetworkID) Peer {
		return Peer{id, netip.MustParseAddr(addr), net}
	}
	for _, x := range []struct {
		dir    model.Direction
		peer   Peer
		port   uint16
		pass   bool
		rule   string
		tier   model.Tier
		logged []string
	}{
		{model.In, at(5, "10.1.1.1", 3), 80, true, "a", 0, []string{"pass", "a"}},
		{model.In, at(5, "10.1.1.1", 3), 81, false, "", model.TierContiv, []string{"pass"}},
		{model.In, at(7, "10.1.1.1", 3), 81, false, "deny", 0, []string{"deny"}},
		{model.In, at(5, "10.1.1.1", 3), 82, true, "allow", 0, nil},
		{model.In, at(5, "10.1.1.1", 4), 82, false, "", model.TierContiv, nil},
		{model.In, at(5, "10.1.9.1", 3), 82, false, "", model.TierContiv, nil},
		{model.Out, at(5, "10.1.1.1", 3), 82, true, "", 0, nil},
	} {
		said := s.Judge(x.dir, x.peer, model.ProtoTCP, x.port)
		var logged []string
		for _, r := range said.Logged {
			logged = append(logged, r.ID)
		}
		if said.Pass != x.pass || said.RuleID() != x.rule || said.Tier.Tier != x.tier || !cmp.Equal(logged, x.logged) {
			t.Errorf("%s, %+v, port %d: %v by %q, tier %d, logged %q; want %+v", x.dir, x.peer, x.port, said.Pass, said.RuleID(), said.Tier.Tier, logged, x)
		}
	}
}

// BenchmarkJudge measures a connection that the last of some rules decides about.
func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var rules Rules
			for i := range n {
				r := &Rule{
					ID: strconv.Itoa(i), Priority: 1 + i%100, Action: model.Allow, Identities: Identities{}.With(model.Identity(100 + i)),
					Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(i), Hi: uint16(i) + 100}},
				}
				rules = rules.Set(r.ID, r)
			}
			s := &PolicySet{In: []Tier{{Tier: model.TierContiv, Default: model.Deny, Rules: rules}}}
			for b.Loop() {
				if s.Judge(model.In, Peer{Identity: 5}, model.ProtoTCP, 5000).Pass {
					b.Fatal("it passes")
				}
			}
		})
	}
}
