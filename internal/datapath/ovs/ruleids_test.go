package ovs

import (
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestOldRuleIDsAreForgotten: ids of rules that are gone are not kept for ever, ids of rules
// that stand are not forgotten, and with more than maxRules standing a pass learns
// the rules that have changed, not all again.
func TestOldRuleIDsAreForgotten(t *testing.T) {
	d := newDriver(Config{})
	set := func(id desired.PolicySetID, tag string, n int) *desired.PolicySet {
		s := &desired.PolicySet{ID: id, In: []desired.Tier{{}}}
		for i := range n {
			r := &desired.Rule{ID: fmt.Sprintf("%s %d", tag, i)}
			s.In[0].Rules = s.In[0].Rules.Set(r.ID, r)
		}
		return s
	}
	stays := set(1, "stays", 2*maxRules)
	pass := func(i int) {
		want := desired.Host{}
		want.PolicySets = want.PolicySets.Set(1, stays).Set(2, set(2, fmt.Sprintf("pass %d", i), 100))
		d.names.learnAll(want)
		d.flows.pic.have = want
	}
	again := 0 // passes that learned all again
	for i := range 2000 {
		before := len(d.names.rules)
		pass(i)
		if len(d.names.rules) <= before {
			again++
		}
		if len(d.names.rules) > 4*maxRules+200 {
			t.Fatalf("pass %d: %d ids are kept", i, len(d.names.rules))
		}
	}
	if again > 10 {
		t.Errorf("%d passes of 2000 learned all rules again", again)
	}
	for _, s := range []string{"stays 0", "pass 1999 99"} {
		if !d.knows(s) {
			t.Errorf("the id %q of a rule that stands is forgotten", s)
		}
	}
}

func (d *Driver) knows(id string) bool {
	for _, known := range d.names.rules {
		if known == id {
			return true
		}
	}
	return false
}
