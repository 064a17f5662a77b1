package ovs

import (
	"fmt"
	"maps"
	"math/rand"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

func someRule(rng *rand.Rand, id string) *desired.Rule {
	r := &desired.Rule{
		ID: id, Priority: rng.Intn(3), Action: []model.Action{model.Allow, model.Deny, model.Pass}[rng.Intn(3)], AnyPeer: rng.Intn(5) == 0,
	}
	for range rng.Intn(4) {
		r.Identities = r.Identities.With(model.Identity(300 + rng.Intn(5)))
	}
	if rng.Intn(3) == 0 {
		r.CIDRs = []desired.CIDR{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}
	}
	if rng.Intn(2) == 0 {
		r.Ports = []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: uint16(80 + rng.Intn(2))}}
	}
	if rng.Intn(60) == 0 {
		r.Priority = pipeline.MaxRulePriority + 1 // which flows cannot express
	}
	return r
}

// setOf is the set that a flow of the policy stages is of, 0 of other flows.
func setOf(key string) desired.PolicySetID {
	f, err := openflow.FromParts(key, string(make([]byte, 8)))
	if out, _, ok := pipeline.PolicyStage(f.Table); ok && err == nil {
		for _, t := range f.Match {
			if out && t.Field == pipeline.RegOutSet || !out && t.Field == pipeline.RegInSet {
				return desired.PolicySetID(t.Value.Lo)
			}
		}
	}
	return 0
}

// edited returns a set in which something small is different.
func edited(rng *rand.Rand, s *desired.PolicySet) *desired.PolicySet {
	next := *s
	next.In, next.Out = append([]desired.Tier{}, s.In...), append([]desired.Tier{}, s.Out...)
	tiers := &next.In
	if rng.Intn(2) == 0 {
		tiers = &next.Out
	}
	switch k := rng.Intn(14); {
	case k > 11:
		next.Audits = nil
		for range rng.Intn(3) {
			next.Audits = append(next.Audits, desired.PolicySetID(1+rng.Intn(4))) // of which one is never there
		}
	case k == 0 && len(*tiers) > 0:
		*tiers = (*tiers)[:len(*tiers)-1]
	case k == 1 || len(*tiers) == 0:
		*tiers = append(*tiers, desired.Tier{Default: []model.Action{model.Pass, model.Deny}[rng.Intn(2)]}) // now and then too many
	default:
		t := &(*tiers)[rng.Intn(len(*tiers))]
		id := fmt.Sprint("r", rng.Intn(6))
		was, _ := t.Rules.Get(id)
		switch {
		case was == nil || k < 5:
			t.Rules = t.Rules.Set(id, someRule(rng, id))
		case k < 8:
			t.Rules = t.Rules.Delete(id)
		default:
			r := *was
			if who := model.Identity(300 + rng.Intn(5)); r.Identities.Has(who) {
				r.Identities = r.Identities.Without(who)
			} else {
				r.Identities = r.Identities.With(who)
			}
			t.Rules = t.Rules.Set(id, &r)
		}
	}
	return &next
}

// TestIncrementalPolicyFlowsEqualFull changes sets a little at a time, in ways that close
// and open them too, and checks that the flows are those of the last desired state
// alone.
func TestIncrementalPolicyFlowsEqualFull(t *testing.T) {
	closed, tooMany := 0, 0
	seeds := int64(8)
	if conformance.Full() {
		seeds = 30
	}
	for seed := range seeds {
		rng := rand.New(rand.NewSource(seed))
		most := 20 + rng.Intn(100)
		p, h := newFlowState(), desired.Host{}
		p.policies.most = most
		for step := range 100 {
			for range rng.Intn(4) {
				id := desired.PolicySetID(1 + rng.Intn(3))
				s, ok := h.PolicySets.Get(id)
				switch {
				case rng.Intn(8) == 0:
					name := fmt.Sprint("cv", rng.Intn(2))
					h.Ports = h.Ports.Set(name, &desired.Port{IfName: name, Policies: id})
				case rng.Intn(21) == 0:
					h.Ports = h.Ports.Delete(fmt.Sprint("cv", rng.Intn(2)))
				case !ok:
					h.PolicySets = h.PolicySets.Set(id, &desired.PolicySet{ID: id, Name: fmt.Sprint("set ", id)})
				case rng.Intn(20) == 0:
					h.PolicySets = h.PolicySets.Delete(id)
				default:
					h.PolicySets = h.PolicySets.Set(id, edited(rng, s))
				}
			}
			p.update(h, pipeline.Config{}, nil)
			flush(p.ledger)
			fresh := newFlowState()
			fresh.policies.most = most
			fresh.update(h, pipeline.Config{}, nil)
			if diff := cmp.Diff(wantedFlows(fresh.ledger), p.ledger.installed); diff != "" {
				t.Fatalf("seed %d, step %d: switch (-from scratch +incremental):\n%s", seed, step, diff)
			}
			if !maps.Equal(fresh.policies.needs, p.policies.needs) || fresh.policies.total != p.policies.total {
				t.Fatalf("seed %d, step %d: need %v, from scratch %v", seed, step, p.policies.needs, fresh.policies.needs)
			}
			decided := h // enforced flows are the same without the audit
			for id, s := range h.PolicySets.All() {
				if s.Audits == nil {
					continue
				}
				plain := *s
				plain.Audits = nil
				decided.PolicySets = decided.PolicySets.Set(id, &plain)
			}
			if len(p.policies.closed) == 0 { // else it has room for others
				fresh := newFlowState()
				fresh.update(decided, pipeline.Config{}, nil)
				for k, body := range p.ledger.installed {
					if id := setOf(k); pipeline.Stage(k[0]) <= pipeline.Output && fresh.ledger.owners[k] == nil {
						t.Fatalf("seed %d, step %d: the audit adds a flow of set %d: %q", seed, step, id, body)
					}
				}
				for k := range fresh.ledger.owners {
					want, _ := fresh.ledger.wanted(k)
					id := setOf(k)
					if enforced := p.policies.wanted(setForm{set: id}); p.ledger.installed[k] != want && (enforced || id == 0) {
						t.Fatalf("seed %d, step %d: the audit changes a flow of set %d", seed, step, id)
					}
				}
			}
			if a, b := fmt.Sprint(fresh.policies.closed), fmt.Sprint(p.policies.closed); len(fresh.policies.closed) != len(p.policies.closed) {
				t.Fatalf("seed %d, step %d: closed %s, from scratch %s", seed, step, b, a)
			}
			closed += len(p.policies.closed)
			for _, err := range p.policies.closed {
				if isTooMany(err) {
					tooMany++
				}
			}
			if rules := len(p.ledger.owned); rules > 100 {
				t.Fatalf("%d owners are left", rules)
			}
		}
	}
	if closed == tooMany || tooMany == 0 {
		t.Errorf("%d sets were closed, %d of them for their size: not all was tried", closed, tooMany)
	}
}

// TestSmallestIDOfEqualRulesIsReported: of rules of one weight with the same match the smallest ID is
// reported, whichever comes first, and the next one when it goes; verdicts of others do not
// change.
func TestSmallestIDOfEqualRulesIsReported(t *testing.T) {
	set := func(ids ...string) desired.Host {
		var rules desired.Rules
		for _, id := range ids {
			rules = rules.Set(id, &desired.Rule{ID: id, Priority: 1, Action: model.Deny, AnyPeer: true})
		}
		var h desired.Host
		h.PolicySets = h.PolicySets.Set(1, &desired.PolicySet{ID: 1, In: []desired.Tier{{Default: model.Pass, Rules: rules}}})
		return h
	}
	p := newFlowState()
	p.update(set(), pipeline.Config{}, nil)
	flush(p.ledger)
	for _, step := range []struct {
		rules, told string
		changes     int
	}{{"b", "b", 1}, {"b c", "b", 0}, {"a b c", "a", 1}, {"a c", "a", 0}, {"c", "c", 1}, {"", "", 1}} {
		p.update(set(strings.Fields(step.rules)...), pipeline.Config{}, nil)
		if n := flush(p.ledger); n != step.changes {
			t.Errorf("rules %q: %d changes, want %d", step.rules, n, step.changes)
		}
		var told []string
		for k, body := range p.ledger.installed {
			f, err := openflow.FromParts(k, body)
			if err != nil {
				t.Fatal(err)
			}
			if kind, n, _ := pipeline.KindOf(f.Cookie); kind == pipeline.KindDeny {
				for _, id := range []string{"a", "b", "c"} {
					if pipeline.RuleNumber(id) == n {
						told = append(told, id)
					}
				}
			}
		}
		if told := strings.Join(told, " "); told != step.told {
			t.Errorf("rules %q: %q is told, want %q", step.rules, told, step.told)
		}
	}
}

// TestLargestSetIsClosedWhenFlowsRunOut: what a host takes is bounded, the largest set is closed with
// the count, and is in again when there is room.
func TestLargestSetIsClosedWhenFlowsRunOut(t *testing.T) {
	set := func(id desired.PolicySetID, rules int) *desired.PolicySet {
		tier := desired.Tier{Default: model.Pass}
		for i := range rules {
			r := &desired.Rule{ID: strconv.Itoa(i), Action: model.Allow, Identities: desired.IdentitiesOf(model.Identity(i))}
			tier.Rules = tier.Rules.Set(r.ID, r)
		}
		return &desired.PolicySet{ID: id, Name: fmt.Sprint("set ", id), In: []desired.Tier{tier}}
	}
	p, h := newFlowState(), desired.Host{}
	p.policies.most = 100
	for _, step := range []struct {
		small, large int
		problem      string
	}{
		{40, 60, ""},
		{40, 61, "its rules take 61 flows, and those of all policies on this host 101; at most 100 are possible"},
		{39, 61, ""},
		{41, 61, "its rules take 61 flows"},
		{41, 59, ""},
		{41, 10000, "its rules take 10000 flows"},
	} {
		h.PolicySets = h.PolicySets.Set(1, set(1, step.small)).Set(2, set(2, step.large))
		p.update(h, pipeline.Config{}, nil)
		flush(p.ledger)
		var said []string
		for _, x := range p.policies.problems() {
			said = append(said, x.Object+": "+x.Err.Error())
		}
		got := strings.Join(said, "; ")
		if named := strings.HasPrefix(got, "policy set set 2: ") && strings.Contains(got, step.problem); (step.problem == "") != (got == "") || got != "" && !named {
			t.Errorf("%d and %d rules: problem %q, want %q", step.small, step.large, got, step.problem)
		}
		if want := step.small; got != "" && p.policies.closed[1] != nil || len(p.ledger.installed) < want {
			t.Errorf("%d and %d rules: the small set is not in", step.small, step.large)
		}
	}
}

// ruleShapes are rules of different kinds, by their number.
var ruleShapes = map[string]func(i int) *desired.Rule{
	"identities": func(i int) *desired.Rule {
		return &desired.Rule{Identities: desired.IdentitiesOf(model.Identity(300+i), model.Identity(20000+i)), Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: 80}}}
	},
	"cidrs": func(i int) *desired.Rule {
		return &desired.Rule{
			CIDRs: []desired.CIDR{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}},
			Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(1024 + i), Hi: uint16(1030 + i)}},
		}
	},
	"equal": func(int) *desired.Rule {
		return &desired.Rule{AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: 53, Hi: 53}}}
	},
}

// manyRules is a set of n rules of a shape.
func manyRules(id desired.PolicySetID, shape string, n int) *desired.PolicySet {
	t := desired.Tier{Tier: model.TierContiv, Default: model.Deny}
	for i := range n {
		r := ruleShapes[shape](i)
		r.ID, r.Priority, r.Action = fmt.Sprintf("blue:p:%d", i), i%100, model.Allow
		t.Rules = t.Rules.Set(r.ID, r)
	}
	return &desired.PolicySet{ID: id, Name: "many", In: []desired.Tier{t}}
}

// flip changes one rule of manyRules: its action.
func flip(s *desired.PolicySet, i int) *desired.PolicySet {
	next := *s
	next.In = append([]desired.Tier{}, s.In...)
	id := fmt.Sprintf("blue:p:%d", i)
	was, _ := s.In[0].Rules.Get(id)
	r := *was
	if r.Action = model.Deny; was.Action == model.Deny {
		r.Action = model.Allow
	}
	next.In[0].Rules = s.In[0].Rules.Set(id, &r)
	return &next
}

// BenchmarkRuleChange measures one changed rule among many, without the switch:
// the cost must not grow with them.
func BenchmarkRuleChange(b *testing.B) {
	for shape := range ruleShapes {
		for _, n := range []int{10, 10000} {
			b.Run(fmt.Sprintf("%s/%d", shape, n), func(b *testing.B) {
				p, h := newFlowState(), desired.Host{}
				s := manyRules(1, shape, n)
				h.PolicySets = h.PolicySets.Set(1, s)
				p.update(h, pipeline.Config{}, nil)
				flush(p.ledger)
				rng := rand.New(rand.NewSource(1))
				for b.Loop() {
					s = flip(s, rng.Intn(n))
					h.PolicySets = h.PolicySets.Set(1, s)
					p.update(h, pipeline.Config{}, nil)
					flush(p.ledger)
				}
			})
		}
	}
}
