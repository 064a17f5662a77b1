package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestLeavingObjectsDenyUntilTheyAreGone: a rule that denies a group that is to go holds while the group is
// there, whatever holds it up, since somebody may still come in; it keeps the group until
// it goes itself. With the policy too about to go it denies more, not less.
func TestLeavingObjectsDenyUntilTheyAreGone(t *testing.T) {
	l := newObjectsLab(t, memory.New())
	l.start(l.ctrl.Run)
	l.start(l.objects.Run)
	l.lead(l.leader())
	const deny, group = `{"tenantName":"t","rules":[{"ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"g"}]}`, `{"tenantName":"t","networkName":"n","policies":["p"]}`
	l.add(objects.Tenants, "t", `{}`)
	l.add(objects.Networks, "n", `{"tenantName":"t","subnet":"10.1.0.0/16"}`)
	l.add(objects.EndpointGroups, "g", group)
	l.add(objects.Policies, "p", deny)
	l.said("policies p", applied)
	l.said("endpointgroups g", applied)
	rules := func(policy model.PolicyName) string {
		var text strings.Builder
		for _, r := range l.ctrl.Current().Policies.RulesOfPolicy(model.PolicyKey{Tenant: "t", Name: policy}) {
			fmt.Fprint(&text, r.Key.Rule, " ", r.Action, " ", r.Group, "; ")
		}
		return text.String()
	}
	// The group waits for the rule, which a change of the policy takes away.
	l.modify(objects.EndpointGroups, "g", group, going)
	l.said("endpointgroups g", "True InUse", "rule")
	if got := rules("p"); got != "1 deny g; " {
		t.Errorf("the rules are %q while the group is there", got)
	}
	l.modify(objects.Policies, "p", `{"tenantName":"t"}`)
	l.said("endpointgroups g", "waits=false")
	l.of[objects.EndpointGroups].Delete(l.object(objects.EndpointGroups, "g", group))

	// Both are to go, and a user's rule holds up the group.
	l.add(objects.EndpointGroups, "g", group)
	l.modify(objects.Policies, "p", deny)
	l.said("endpointgroups g", applied)
	l.until("the rule", func(*control.View) bool { return rules("p") == "1 deny g; " })
	users := model.PolicyKey{Tenant: "t", Name: "users"}
	policy, err := model.Check(model.ContivPolicy{Key: users})
	if err == nil {
		_, err = l.ctrl.Put(context.Background(), control.Admin(), l.ctrl.Policies.ChangePolicy(policy))
	}
	rule, bad := model.Check(model.Rule{Key: model.RuleKey{Tenant: "t", Policy: "users", Rule: "1"}, Direction: model.In, Action: model.Allow, Group: "g", Priority: 1})
	if err == nil && bad == nil {
		_, err = l.ctrl.Put(context.Background(), control.Admin(), l.ctrl.Policies.ChangeRule(rule))
	}
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	ctx, stop := context.WithCancel(context.Background())
	opened := make(chan string, 1)
	go func() { // all the while
		defer close(opened)
		for {
			if got, _ := l.ctrl.Current().Policies.Get(model.PolicyKey{Tenant: "t", Name: "p"}); got.Key.Name != "" && rules("p") != "1 deny g; " && rules("p") != "1 deny ; " {
				opened <- rules("p")
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	l.modify(objects.Policies, "p", deny, going)
	l.modify(objects.EndpointGroups, "g", group, going)
	l.said("endpointgroups g", "True InUse", "users")
	l.until("it denies everybody", func(*control.View) bool { return rules("p") == "1 deny ; " })
	stop()
	if got, ok := <-opened; ok {
		t.Errorf("the rules were %q while both were to go", got)
	}
	if _, err := l.ctrl.Delete(context.Background(), control.Admin(), l.ctrl.Policies.DeleteRule(model.RuleKey{Tenant: "t", Policy: "users", Rule: "1"})); err != nil {
		t.Fatal(err)
	}
	l.said("endpointgroups g", "waits=false")
	l.said("policies p", "waits=false")
}
