package ebpf

import (
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestOldRuleIDsAreForgotten: former names of rules are forgotten after a time, and present ones
// are not.
func TestOldRuleIDsAreForgotten(t *testing.T) {
	p := newPolicies()
	set := func(id desired.PolicySetID, rules ...string) *desired.PolicySet {
		s := &desired.PolicySet{ID: id, In: []desired.Tier{{}}}
		for _, r := range rules {
			s.In[0].Rules = s.In[0].Rules.Set(r, &desired.Rule{ID: r})
		}
		return s
	}
	learn := func(s *desired.PolicySet) {
		for _, r := range s.In[0].Rules.All() {
			p.learn(r)
		}
	}
	stays := set(1, "stays")
	learn(stays)
	for i := range 5 * maxRuleIDs {
		comes := set(2, fmt.Sprintf("rule %d", i))
		learn(comes)
		run := &applyRun{}
		run.want.PolicySets = run.want.PolicySets.Set(1, stays).Set(2, comes)
		p.forgetRules(run)
	}
	if n := len(p.ruleIDs); n > maxRuleIDs {
		t.Errorf("%d ids are kept", n)
	}
	if p.ruleIDs[ruleNumber("stays")] != "stays" {
		t.Error("the id of a rule that stands is forgotten")
	}
}
