package desired

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// MaxPriority is the highest priority of a Rule: 201 orders of policies, each
// with priorities 1 to 100 of its rules.
const MaxPriority = 200*100 + 100

// RulesOf returns rules by ID; the last of an ID counts.
func RulesOf(rules ...Rule) Rules {
	var m Rules
	for _, r := range rules {
		m = m.Set(r.ID, &r)
	}
	return m
}

// CompareRules orders rules as they decide: higher priority first, then Deny
// before Pass before Allow, then by ID.
func CompareRules(a, b *Rule) int {
	switch {
	case a.Priority != b.Priority:
		return b.Priority - a.Priority
	case a.Action != b.Action:
		return actionRank(a.Action) - actionRank(b.Action)
	}
	return strings.Compare(a.ID, b.ID)
}

func actionRank(a model.Action) int {
	switch a {
	case model.Allow:
		return 2
	case model.Pass:
		return 1
	case model.Deny:
	}
	return 0 // also what is no action
}

// Ordered returns a tier's rules in deciding order. It costs as much as there are
// rules: use Map.Diff to follow changes.
func (t Tier) Ordered() []*Rule {
	var out []*Rule
	for _, r := range t.Rules.All() {
		out = append(out, r)
	}
	slices.SortFunc(out, CompareRules)
	return out
}
