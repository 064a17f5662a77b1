package tables

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestRulesInForceFollowTheirRows: after each batch, whatever comes in it and in which order, rules are
// what the rows of then mean.
func TestRulesInForceFollowTheirRows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	p := model.PolicyKey{Tenant: "t", Name: "p"}
	key := func(i int) model.RuleKey {
		return model.RuleKey{Tenant: p.Tenant, Policy: p.Name, Rule: model.RuleID(strconv.Itoa(i))}
	}
	rule := func(i int) model.PolicyRule {
		return model.PolicyRule{Key: key(i), Direction: model.In, Action: model.Deny, Priority: 1 + rnd.IntN(100)}
	}
	rules, staged := map[model.RuleKey]model.PolicyRule{}, map[model.RuleKey]StagedRule{}
	var replacing *Replacement
	f, told := NewInForce(), map[model.RuleKey]any{}
	for range 20_000 {
		events := map[string]store.Event{}
		put := func(k string, s sample) { events[k] = s.ev }
		gone := func(k string) { events[k] = store.Event{KV: store.KV{Key: k}} }
		for range 1 + rnd.IntN(4) {
			i := rnd.IntN(5)
			switch rnd.IntN(8) {
			case 0, 1:
				r := rule(i)
				rules[r.Key] = r
				put(Rules.Key(r.Key), row(t, Rules, r))
			case 2:
				delete(rules, key(i))
				gone(Rules.Key(key(i)))
			case 3:
				r := rule(i)
				staged[r.Key] = StagedRule{r.Key, &r}
				put(StagedRules.Key(StagedKey(r.Key)), row(t, StagedRules, staged[r.Key]))
			case 4:
				staged[key(i)] = StagedRule{Key: key(i)}
				put(StagedRules.Key(StagedKey(key(i))), row(t, StagedRules, staged[key(i)]))
			case 5:
				delete(staged, key(i))
				gone(StagedRules.Key(StagedKey(key(i))))
			case 6:
				replacing = &Replacement{Policy: p, ID: "x", Done: rnd.IntN(2) == 0}
				put(Replacements.Key(ReplacementKey(p)), row(t, Replacements, *replacing))
			case 7:
				replacing = nil
				gone(Replacements.Key(ReplacementKey(p)))
			}
		}
		enter := func(ch Change) {
			if k, ok := ch.Key.(model.RuleKey); ok {
				if told[k] = ch.Value; ch.Deleted() {
					delete(told, k)
				}
			}
		}
		for _, ev := range events { // in any order
			ch, err := f.Decode(ev)
			if err != nil {
				t.Fatal(err)
			}
			enter(ch)
		}
		for _, ch := range f.Rest() {
			enter(ch)
		}
		want := map[model.RuleKey]any{}
		for k, r := range rules {
			want[k] = r
		}
		for k, s := range staged {
			if replacing == nil || !replacing.Done {
				continue
			}
			if delete(want, k); s.Rule != nil {
				want[k] = *s.Rule
			}
		}
		if !reflect.DeepEqual(told, want) {
			t.Fatalf("told %v, want %v", told, want)
		}
		if f.Staged(p) != len(staged) {
			t.Fatalf("%d staged, want %d", f.Staged(p), len(staged))
		}
	}
}
