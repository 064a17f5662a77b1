package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Replacement says that a policy's rules are being replaced by more rules than one
// transaction takes. Several transactions stage the new rules as StagedRules. One more sets
// Done: from its commit on the staged rules are in force in place of the rows of Rules.
// Afterwards they are moved there, and the Replacement is deleted. Other changes of the
// policy's rules end it first.
type Replacement struct {
	Policy model.PolicyKey `json:"policy"`
	ID     string          `json:"id"` // of the one use-case that stages
	Done   bool            `json:"done,omitempty"`
}

// ReplacementKey is the policy whose rules are being replaced.
type ReplacementKey model.PolicyKey

// Replacements holds one row for each policy whose rules are being replaced.
var Replacements = declare(TableSpec[ReplacementKey, Replacement]{
	Noun: "replacement of rules", Version: 1, Unlisted: true,
	Path: "state/tenant/*/replacements/*",
	Parse: func(n []string) (ReplacementKey, bool) {
		return ReplacementKey{Tenant: model.TenantName(n[0]), Name: model.PolicyName(n[1])}, true
	},
	KeyOf: func(r Replacement) ReplacementKey { return ReplacementKey(r.Policy) },
	Show:  func(k ReplacementKey) string { return model.PolicyKey(k).String() },
	Scope: func(k ReplacementKey) string { return TenantPrefix(k.Tenant) + "replacements/" },
	Name:  func(k ReplacementKey) string { return store.Segment(string(k.Name)) },
})

// StagedRule is what a rule will be, or is, by the Replacement of its policy.
type StagedRule struct {
	Key  model.RuleKey     `json:"key"`
	Rule *model.PolicyRule `json:"rule,omitempty"` // nil = there is none with that key any more
}

// StagedKey is the key of the rule.
type StagedKey model.RuleKey

// StagedOf is the prefix of a policy's staged rules.
func StagedOf(p model.PolicyKey) string {
	return TenantPrefix(p.Tenant) + "staged/" + store.Segment(string(p.Name)) + "/"
}

// StagedRules holds staged rules by policy.
var StagedRules = declare(TableSpec[StagedKey, StagedRule]{
	Noun: "staged rule", Version: 1, Unlisted: true,
	Path: "state/tenant/*/staged/*/*",
	Parse: func(n []string) (StagedKey, bool) {
		return StagedKey{Tenant: model.TenantName(n[0]), Policy: model.PolicyName(n[1]), Rule: model.RuleID(n[2])}, true
	},
	KeyOf: func(s StagedRule) StagedKey { return StagedKey(s.Key) },
	Show:  func(k StagedKey) string { return model.RuleKey(k).String() },
	Scope: func(k StagedKey) string { return StagedOf(model.RuleKey(k).PolicyKey()) },
	Name:  func(k StagedKey) string { return store.Segment(string(k.Rule)) },
})
