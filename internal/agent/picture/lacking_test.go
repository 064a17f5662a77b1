package picture

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
)

// TestLacking: what a driver cannot do is told while a picture asks for it, and
// only of a driver that cannot.
func TestLacking(t *testing.T) {
	set := func(log bool, audits ...desired.PolicySetID) *desired.PolicySet {
		return &desired.PolicySet{ID: 1, Audits: audits, In: []desired.Tier{{Rules: desired.RulesOf(desired.Rule{ID: "a"}, desired.Rule{ID: "b", Log: log})}}}
	}
	steps := []struct {
		name string
		sets []*desired.PolicySet
		want string // objects
	}{
		{"none", nil, ""},
		{"no wish", []*desired.PolicySet{set(false)}, ""},
		{"a rule with log", []*desired.PolicySet{set(true)}, "log of rules"},
		{"the same again", []*desired.PolicySet{set(true)}, "log of rules"},
		{"an audit besides", []*desired.PolicySet{set(true, 2)}, "log of rules,audited policies"},
		{"an audit", []*desired.PolicySet{set(false, 2)}, "audited policies"},
		{"gone", nil, ""},
	}
	for _, can := range []driver.Capabilities{{}, {Log: true}, {Audit: true}, {Log: true, Audit: true}} {
		l := NewLacking("third", can)
		for _, s := range steps {
			var pic desired.Host
			for _, x := range s.sets {
				pic.PolicySets = pic.PolicySets.Set(x.ID, x)
			}
			var got []string
			for _, p := range l.Problems(pic) {
				if !strings.HasPrefix(p.Text, "no effect: the data plane, third, ") {
					t.Errorf("text %q", p.Text)
				}
				got = append(got, p.Object)
			}
			var want []string
			for object := range strings.SplitSeq(s.want, ",") {
				if object == "log of rules" && !can.Log || object == "audited policies" && !can.Audit {
					want = append(want, object)
				}
			}
			if strings.Join(got, ",") != strings.Join(want, ",") {
				t.Errorf("%+v, %s: %q, want %q", can, s.name, got, want)
			}
		}
	}
}
