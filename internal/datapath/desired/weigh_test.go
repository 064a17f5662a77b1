package desired

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestChangeCostsWhatItTouches: a change weighs what it touches, whatever else the set has.
func TestChangeCostsWhatItTouches(t *testing.T) {
	tcp := func(lo, hi uint16) []model.PortMatch {
		return []model.PortMatch{{Protocol: model.ProtoTCP, Lo: lo, Hi: hi}}
	}
	set := func(change ...Rule) *PolicySet {
		rules := []Rule{
			{ID: "a", AnyPeer: true, Ports: tcp(1, 65534)},                                                     // 30 blocks
			{ID: "b", Identities: IdentitiesOf(300, 301, 302), Ports: append(tcp(80, 80), tcp(8000, 8007)...)}, // 3 x 2
			{ID: "c", CIDRs: []CIDR{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}}, {Prefix: netip.MustParsePrefix("11.0.0.0/8")}}}, // 16 + 1
		}
		return &PolicySet{ID: 1, In: []Tier{{Tier: model.TierKubernetes, Rules: RulesOf(append(rules, change...)...)}}}
	}
	base := set()
	two := set()
	two.Out, two.In = two.In, nil
	for name, x := range map[string]struct {
		old, now *PolicySet
		want     int
	}{
		"nothing":                     {base, base, 0},
		"all that comes":              {nil, base, 53},
		"all that goes":               {base, nil, 53},
		"both":                        {base, two, 106},
		"one identity of a rule":      {base, set(Rule{ID: "b", Identities: IdentitiesOf(300, 302, 303), Ports: append(tcp(80, 80), tcp(8000, 8007)...)}), 4},
		"a rule's ports":              {base, set(Rule{ID: "b", Identities: IdentitiesOf(300, 301, 302), Ports: tcp(80, 80)}), 9},
		"an action":                   {base, set(Rule{ID: "a", AnyPeer: true, Ports: tcp(1, 65534), Action: model.Deny}), 60},
		"a protocol, one that any is": {nil, &PolicySet{Out: []Tier{{Rules: RulesOf(Rule{AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoICMP}}})}}}, 1},
	} {
		if got := CountDifferences(x.old, x.now); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}
