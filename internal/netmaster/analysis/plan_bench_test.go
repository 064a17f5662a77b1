package analysis

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func (r rowsAlone) ReadCached(_ store.Revision, keys []string) (out []store.KV, rev store.Revision) {
	for _, kv := range r {
		for _, key := range keys {
			if kv.Key == key {
				out = append(out, kv)
			}
		}
	}
	return out, 1
}

// planned returns a row as it is, and as it would be with a value.
func (r rowsAlone) planned(tb testing.TB, key, value any) PlannedRow {
	tb.Helper()
	then, err := tables.Encode(key, value)
	if err != nil {
		tb.Fatal(err)
	}
	now := store.KV{Key: then.Key}
	for _, kv := range r {
		if kv.Key == then.Key {
			now = kv
		}
	}
	return PlannedRow{Now: now, Then: then.Value}
}

// BenchmarkPlan plans changes in a large cluster: a rule, a policy with its group, and the labels
// of an endpoint.
func BenchmarkPlan(b *testing.B) {
	rows := bigCluster(b)
	e := New(rows, slog.New(slog.DiscardHandler))
	rule := model.Rule{Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "0"}, Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.ProtoTCP, Port: 80}
	p := model.PolicyKey{Tenant: "blue", Name: "new"}
	policy := model.ContivPolicy{Key: p}.General()
	first := model.Rule{Key: model.RuleKey{Tenant: "blue", Policy: "new", Rule: "1"}, Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.AnyProtocol, Group: "g2"}
	g := model.GroupKey{Tenant: "blue", Name: "g1"}
	group := model.Group{Key: g, Network: "n1", Policies: []model.PolicyName{"p1", "new"}}
	for name, changes := range map[string][]PlannedRow{
		"rule":   {rows.planned(b, rule.Key, rule.General())},
		"policy": {rows.planned(b, p, policy), rows.planned(b, first.Key, first.General()), rows.planned(b, g, group)},
	} {
		if _, err := e.Plan(b.Context(), nil, everything{}); err != nil { // compiles the cluster
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				out, err := e.Plan(b.Context(), changes, everything{})
				if err != nil || len(out.Flows) == 0 {
					b.Fatal(out, err)
				}
			}
		})
	}
}

// BenchmarkCheck checks changes against 100 assertions in a large cluster.
func BenchmarkCheck(b *testing.B) {
	rule := model.Rule{Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "0"}, Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.ProtoTCP, Port: 80}
	outwards := rule
	outwards.Key.Rule, outwards.Direction = "out", model.Out
	prefix := rule
	prefix.Addr = netip.MustParsePrefix("10.9.9.0/24")
	g := model.GroupKey{Tenant: "blue", Name: "g1"}
	for _, from := range []string{"group:g%d", "any"} {
		rows := bigCluster(b)
		for i := range 100 {
			a := model.Assertion{Key: model.AssertionKey{Tenant: "blue", Name: fmt.Sprint("a", i)}, Verdict: model.Never, From: from, To: fmt.Sprint("group:g", i), Ports: []string{"tcp/22"}}
			if from != "any" {
				a.From = fmt.Sprintf(from, i+200)
			}
			kv, err := tables.Encode(a.Key, a)
			if err != nil {
				b.Fatal(err)
			}
			kv.Create, kv.Mod = 1, 1
			rows = append(rows, kv)
		}
		e := New(rows, slog.New(slog.DiscardHandler))
		all, err := e.Verdicts(b.Context(), false) // compiles the cluster
		if err != nil {
			b.Fatal(err)
		}
		for _, v := range all {
			if v.State != Holds {
				b.Fatal(v)
			}
		}
		for name, row := range map[string]PlannedRow{
			"rule": rows.planned(b, rule.Key, rule.General()), "rule-out": rows.planned(b, outwards.Key, outwards.General()), "rule-prefix": rows.planned(b, prefix.Key, prefix.General()),
			"group": rows.planned(b, g, model.Group{Key: g, Network: "n1", Policies: []model.PolicyName{"p1", "p2"}}),
		} {
			b.Run(name+"/"+from, func(b *testing.B) {
				for b.Loop() {
					if broken, err := e.Check(b.Context(), []PlannedRow{row}); err != nil || len(broken) > 0 {
						b.Fatal(broken, err)
					}
				}
			})
		}
	}
}
