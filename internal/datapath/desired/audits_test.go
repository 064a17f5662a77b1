package desired

import (
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestChangedAuditsAreNew: an audit is new where it comes to a set, and where the audited
// policy changes, but not where what is enforced does, or who is selected.
func TestChangedAuditsAreNew(t *testing.T) {
	rule := func(id string, action model.Action, ids ...model.Identity) Rule {
		r := Rule{ID: id, Priority: 1, Action: action}
		for _, i := range ids {
			r.Identities = r.Identities.With(i)
		}
		return r
	}
	set := func(id PolicySetID, def model.Action, rules ...Rule) PolicySet {
		return PolicySet{ID: id, In: []Tier{{Tier: model.TierContiv, Default: def, Rules: RulesOf(rules...)}}}
	}
	sets := func(enforced, would PolicySet, audits ...PolicySetID) (m Map[PolicySetID, *PolicySet]) {
		enforced.Audits, would.Audited = audits, "p"
		other := set(9, model.Deny)
		return m.Set(1, &enforced).Set(2, &would).Set(9, &other)
	}
	one, two := rule("one", model.Allow, 5), rule("two", model.Deny, 6)
	before := sets(set(1, model.Pass, one), set(2, model.Pass, one, two), 2)
	for _, x := range []struct {
		name string
		old  Map[PolicySetID, *PolicySet]
		now  Map[PolicySetID, *PolicySet]
		want []Audit
	}{
		{"it comes", sets(set(1, model.Pass, one), set(2, model.Pass)), before, []Audit{{1, 2}}},
		{"all come", Map[PolicySetID, *PolicySet]{}, before, []Audit{{1, 2}}},
		{"nothing", before, before, nil},
		{"it goes", before, sets(set(1, model.Pass, one), set(2, model.Pass)), nil},
		{"its rule changes", before, sets(set(1, model.Pass, one), set(2, model.Pass, one, rule("two", model.Allow, 6)), 2), []Audit{{1, 2}}},
		{"its rule goes", before, sets(set(1, model.Pass, one), set(2, model.Pass, one), 2), []Audit{{1, 2}}},
		{"whom its rule names", before, sets(set(1, model.Pass, one), set(2, model.Pass, one, rule("two", model.Deny, 6, 7)), 2), nil},
		{"its default", before, sets(set(1, model.Pass, one), set(2, model.Deny, one, two), 2), []Audit{{1, 2}}},
		{"the default of both", before, sets(set(1, model.Deny, one), set(2, model.Deny, one, two), 2), nil},
		{"a rule of both comes", before, sets(set(1, model.Pass, one, rule("three", model.Deny, 1)), set(2, model.Pass, one, two, rule("three", model.Deny, 1)), 2), nil},
		{"a rule of both goes", before, sets(set(1, model.Pass), set(2, model.Pass, two), 2), nil},
	} {
		if got := NewAudits(x.old, x.now); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}
