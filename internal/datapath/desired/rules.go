package desired

import (
	"slices"
	"strings"
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

// CompareRules orders rules as they decide: higher priority first, then by the
// rank of their actions, then by ID.
func CompareRules(a, b *Rule) int {
	switch {
	case a.Priority != b.Priority:
		return b.Priority - a.Priority
	case a.Action != b.Action:
		return a.Action.Rank() - b.Action.Rank()
	}
	return strings.Compare(a.ID, b.ID)
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
