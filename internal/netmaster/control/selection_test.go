package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// identities puts n into the store and returns them: of ten networks and as many
// groups, with a label app of n/10 values and, every third, a label env.
func (c *harness) identities(t testing.TB, n int) (out []model.IdentityRecord) {
	t.Helper()
	for i := range n {
		r := model.IdentityRecord{
			ID: model.IdentityFirst + model.Identity(i), Network: model.NetworkKey{Tenant: "default", Name: model.NetworkName(fmt.Sprint("n", i%10))},
			Group: model.GroupName(fmt.Sprint("g", i%7)), Labels: map[string]string{"app": fmt.Sprint("a", i/10)},
		}
		if i%3 == 0 {
			r.Labels["env"] = fmt.Sprint("e", i%2)
		}
		if r.Group == "g0" {
			r.Group = ""
		}
		if i%4 > 0 {
			r.Namespace = model.NamespaceName(fmt.Sprint("ns", i%4))
		}
		out = append(out, r)
	}
	for part := range slices.Chunk(out, 40) {
		if _, err := c.st.Update(testContext(t), func(tx store.Tx) error {
			for _, r := range part {
				if err := tables.Identities.Put(tx, r); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestIdentityCountsEqualSelectors: how many identities a selector selects is what asking each of
// them says, also once some have gone.
func TestIdentityCountsEqualSelectors(t *testing.T) {
	c := newCluster(t)
	all := c.identities(t, 200)
	if _, err := c.st.Update(testContext(t), func(tx store.Tx) error {
		for _, r := range all[:20] {
			tables.Identities.Delete(tx, tables.IdentityKey{Tenant: "default", ID: r.ID})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	all = all[20:]
	spaces, fence := map[model.NamespaceName]*model.Namespace{}, c.leader()
	for i := range 6 { // each twice, so that the first labels go
		n := model.Namespace{Name: model.NamespaceName(fmt.Sprint("ns", 1+i%3)), Labels: map[string]string{"team": fmt.Sprint("t", i/2)}}
		c.ok(c.Kubernetes.PutNamespace(testContext(t), fence, valid(n)))
		spaces[n.Name] = &n
	}
	v := c.fresh()
	r := rand.New(rand.NewPCG(1, 2))
	apps, envs := []string{"a2", "a3", "a7", "a19", "none"}, []string{"e0", "e1", "none"}
	some := func(of []string) []string { return of[r.IntN(2) : 2+r.IntN(len(of)-1)] }
	for range 2000 {
		s := model.Selector{Tenant: "default"}
		if r.IntN(4) == 0 {
			s.Network = model.NetworkName(fmt.Sprint("n", r.IntN(11)))
		}
		if r.IntN(4) == 0 {
			s.Group = model.GroupName(fmt.Sprint("g", 1+r.IntN(7)))
		}
		if r.IntN(3) == 0 {
			s.MatchLabels = map[string]string{"app": apps[r.IntN(len(apps))]}
		}
		for range r.IntN(3) {
			q := model.Requirement{Key: "app", Operator: []model.Operator{model.OpIn, model.OpNotIn, model.OpExists, model.OpDoesNotExist}[r.IntN(4)]}
			values := some(apps)
			if r.IntN(2) == 0 {
				q.Key, values = "env", some(envs)
			}
			if q.Operator == model.OpIn || q.Operator == model.OpNotIn {
				q.Values = values
			}
			s.MatchExpressions = append(s.MatchExpressions, q)
		}
		if r.IntN(3) == 0 {
			s.Namespaces = []model.Requirement{
				{Key: "team", Operator: []model.Operator{model.OpIn, model.OpNotIn}[r.IntN(2)], Values: []string{"t0", fmt.Sprint("t", r.IntN(3))}},
				{Key: model.NamespaceNameLabel, Operator: model.OpIn, Values: []string{"ns1", "ns3"}},
				{Key: "none", Operator: model.OpDoesNotExist},
			}[r.IntN(3):][:1]
		}
		want := 0
		for _, x := range all {
			if s.Selects(x.In(spaces[x.Namespace])) {
				want++
			}
		}
		v.mu.Lock()
		got := v.Identities.selected(s)
		v.mu.Unlock()
		if got != want {
			t.Fatalf("%s: %d of %d identities, want %d", s, got, len(all), want)
		}
	}
}

// BenchmarkCheckLimits asks whether one rule more fits into a policy of 20 rules by
// label, for hosts with Open vSwitch, by how many identities there are. What it
// takes, everybody who reads the view waits for.
func BenchmarkCheckLimits(b *testing.B) {
	rule := func(i int) model.PolicyRule {
		var peers []model.Peer
		for j := range 8 {
			peers = append(peers, model.Peer{Selector: &model.Selector{Tenant: "default", MatchLabels: map[string]string{"app": fmt.Sprint("a", 8*i+j)}}})
		}
		return model.PolicyRule{
			Key: model.RuleKey{Tenant: "default", Policy: "p", Rule: model.RuleID(strconv.Itoa(i))}, Direction: model.In, Action: model.Allow,
			Peers: peers, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: 80}},
		}
	}
	for _, n := range []int{2000, 20000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := newCluster(b)
			c.identities(b, n)
			if _, err := c.st.Update(testContext(b), func(tx store.Tx) error {
				for i := range 20 {
					if err := tables.Rules.Put(tx, rule(i)); err != nil {
						return err
					}
				}
				return tables.Hosts.Put(tx, model.Host{Name: "h1", Driver: model.DriverOVS})
			}); err != nil {
				b.Fatal(err)
			}
			v := c.fresh()
			start := time.Now()
			rounds := 0
			for b.Loop() {
				// With the rules that there are it is too much unless somebody counts.
				if _, err := v.Policies.checkLimits([]model.PolicyRule{rule(1000), rule(1001)}, nil, nil); err != nil {
					b.Fatal(err)
				}
				rounds++
			}
			b.ReportMetric(float64(time.Since(start).Microseconds())/float64(rounds), "us-held")
		})
	}
}
