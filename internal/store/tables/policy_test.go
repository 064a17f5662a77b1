package tables

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestRecordsOf1xPoliciesAreRead: records of Contiv's policies and rules in 1.x's words are read
// as what they mean.
func TestRecordsOf1xPoliciesAreRead(t *testing.T) {
	policy := model.ContivPolicy{Key: model.PolicyKey{Tenant: "a.b", Name: "p1"}}
	rule := model.Rule{
		Key: model.RuleKey{Tenant: "a.b", Policy: "p1", Rule: "1"}, Direction: model.In, Priority: 7,
		Action: model.Deny, Protocol: model.ProtoTCP, Port: 80, Group: "web",
	}
	b, err := store.EncodeRecord(1, policy)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Policies.Decode(store.KV{Key: Policies.Key(policy.Key), Value: b, Create: 1})
	if diff := cmp.Diff(policy.General(), p.Value); diff != "" || err != nil {
		t.Errorf("policy: %v\n%s", err, diff)
	}
	if b, err = store.EncodeRecord(1, rule); err != nil {
		t.Fatal(err)
	}
	r, err := Rules.Decode(store.KV{Key: Rules.Key(rule.Key), Value: b, Create: 1})
	if diff := cmp.Diff(rule.General(), r.Value, cmpAddrs); diff != "" || err != nil {
		t.Errorf("rule: %v\n%s", err, diff)
	}
}
