package reachability

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

func randomTiers(d *rand.Rand) (out []desired.Tier) {
	for i := range d.IntN(4) {
		t := desired.Tier{Tier: model.Tier(i + 1), Default: pick(d, model.Allow, model.Deny, model.Pass, model.Pass)}
		for r := range d.IntN(6) {
			rule := desired.Rule{
				ID: fmt.Sprint(i, "-", r), Priority: d.IntN(3), Action: pick(d, model.Allow, model.Deny, model.Pass), AnyPeer: d.IntN(3) == 0,
			}
			if d.IntN(2) == 0 {
				rule.Identities = desired.IdentitiesOf(model.Identity(300 + d.IntN(2)))
			}
			if d.IntN(2) == 0 {
				rule.CIDRs = []desired.CIDR{{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}}}
			}
			if d.IntN(3) > 0 {
				_, rule.Ports = randomPorts(d)
			}
			t.Rules = t.Rules.Set(rule.ID, &rule)
		}
		out = append(out, t)
	}
	return out
}

func TestPartsAreRuledAsTheirPacketsAre(t *testing.T) {
	for seed := range uint64(3000) {
		d := rand.New(rand.NewPCG(seed, 2))
		set := &desired.PolicySet{In: randomTiers(d), Out: randomTiers(d)}
		ordered := orderSet(set)
		for _, dir := range []model.Direction{model.In, model.Out} {
			peer := desired.Peer{Identity: model.Identity(300 + d.IntN(3)), Addr: netip.AddrFrom4([4]byte{10, byte(d.IntN(2)), byte(d.IntN(2)), 1})}
			parts := ordered.judge(dir, peer)
			for _, e := range edges {
				want := set.Judge(dir, peer, e.Protocol, e.Lo)
				var got []ruled
				for _, p := range parts {
					if p.ports.Has(e.Protocol, e.Lo) {
						got = append(got, p)
					}
				}
				if len(got) != 1 || got[0].Pass != want.Pass || got[0].Rule != want.Rule {
					t.Fatalf("seed %d, %v, %+v, %v: the parts say %+v, the set says %+v", seed, dir, peer, e, got, want)
				}
			}
		}
	}
}
