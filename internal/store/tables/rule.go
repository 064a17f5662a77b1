package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// RulesOf is the scope of a policy's rules.
func RulesOf(p model.PolicyKey) string {
	return TenantPrefix(p.Tenant) + "rules/" + store.Segment(string(p.Name)) + "/"
}

// Rules holds rules by policy. Records of version 1 are in 1.x's words.
var Rules = declare(TableSpec[model.RuleKey, model.PolicyRule]{
	Kinds: []string{"rule"},
	Noun:  "rule", Version: 2,
	Path: "state/tenant/*/rules/*/*",
	Parse: func(n []string) (model.RuleKey, bool) {
		return model.RuleKey{Tenant: model.TenantName(n[0]), Policy: model.PolicyName(n[1]), Rule: model.RuleID(n[2])}, true
	},
	KeyOf: func(r model.PolicyRule) model.RuleKey { return r.Key },
	Show:  model.RuleKey.String,
	Scope: func(k model.RuleKey) string { return RulesOf(k.PolicyKey()) },
	Name:  func(k model.RuleKey) string { return store.Segment(string(k.Rule)) },
	Old: func(b []byte) (model.PolicyRule, error) {
		r, _, err := store.DecodeRecord[model.Rule](b)
		return r.General(), err
	},
})
