package pipeline

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/desired"
	of "github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
)

// policySet is all flows of a set, of each key that of the rule with the
// smallest ID.
func policySet(t *testing.T, s *desired.PolicySet) []of.Flow {
	t.Helper()
	flows, err := SetFrame(s, false)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, out := range []bool{false, true} {
		tiers := s.In
		if out {
			tiers = s.Out
		}
		for i, tier := range tiers {
			for _, r := range tier.Ordered() {
				if err := CheckRule(r); err != nil {
					t.Fatal(err)
				}
				own := Rule(Config{}, Place{Set: s.ID, Out: out, Tier: i, Last: i == len(tiers)-1}, r)
				if n := FlowsOf(r); n < len(own) {
					t.Errorf("rule %s has %d flows, counted as %d", r.ID, len(own), n)
				}
				for _, f := range own {
					if k := f.Key(); !seen[k] {
						seen[k] = true
						flows = append(flows, f)
					}
				}
			}
		}
	}
	return flows
}
