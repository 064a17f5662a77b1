package tables

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestPendingRuleLocksItsPolicy: a change of a rule locks its whole policy, as it is, as it is replaced and as
// it is staged, and all that is deleted with any of it; nothing else, also of names that
// begin alike.
func TestPendingRuleLocksItsPolicy(t *testing.T) {
	at := func(tenant, name string) model.PolicyKey {
		return model.PolicyKey{Tenant: model.TenantName(tenant), Name: model.PolicyName(name)}
	}
	k := at("blue", "web")
	r := model.RuleKey{Tenant: k.Tenant, Policy: k.Name, Rule: "1"}
	g := model.GroupKey{Tenant: "blue", Name: "web"}
	n := model.NetworkKey{Tenant: "blue", Name: "web"}
	p := Pending{Locks: append(LockKeys(r), LockKeys(g)...)}
	for key, want := range map[string]bool{
		Policies.Key(k):                     true,
		Rules.Key(r):                        true,
		RulesOf(k):                          true,
		Replacements.Key(ReplacementKey(k)): true,
		StagedOf(k):                         true,
		StagedOf(k) + "1":                   true,
		Groups.Key(g):                       true,
		TenantPrefix("blue"):                true,
		Policies.Key(at("blue", "web2")):    false,
		RulesOf(at("blue", "web2")):         false,
		Policies.Key(at("red", "web")):      false,
		RulesOf(at("red", "web")):           false,
		Networks.Key(n):                     false,
		TenantPrefix("red"):                 false,
		Replacements.Key(ReplacementKey(at("blue", "db"))): false,
	} {
		if got := p.Locked(key); got != want {
			t.Errorf("%s is locked: %v, want %v", key, got, want)
		}
		if want && !Lockable(key) {
			t.Errorf("%s is not looked at", key)
		}
	}
	if got := LockKeys(model.EndpointKey{Network: n, ID: "e"}); got != nil {
		t.Errorf("an endpoint locks %v", got)
	}
}
