package control

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
)

// planWorld is a small cluster whose policies change at random.
type planWorld struct {
	*harness
	rand *rand.Rand
}

func newPlanWorld(t *testing.T, seed uint64) *planWorld {
	t.Helper()
	w := &planWorld{newCluster(t), rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a test's dice
	w.put(model.Tenant{Name: "blue"}, model.Global{FwdMode: model.FwdRouting}, network("blue:n", "10.1.0.0/24"), network("blue:m", "10.2.0.0/24", "fd02::/64"))
	w.put(policy("blue:p0"), policy("blue:p1"), policy("blue:p2"))
	w.put(group("blue:g0", "n", "p0"), group("blue:g1", "n"), group("blue:g2", "m", "p1"))
	for i := range 3 {
		w.put(with(w.rule(), func(r *model.Rule) {
			if r.Key.Rule = model.RuleID(fmt.Sprint("r", i)); r.Group == "g9" {
				r.Group = ""
			}
		}))
		w.create(endpoint("blue:n", fmt.Sprint("a", i), inGroup(model.GroupName(fmt.Sprint("g", i%2))), w.labels))
		w.create(endpoint("blue:m", fmt.Sprint("b", i), inGroup(pick[model.GroupName](w, "", "g2")), w.labels))
	}
	w.put(service("blue:s0", "n", "", "app=x"))
	return w
}

func pick[T any](w *planWorld, of ...T) T { return of[w.rand.IntN(len(of))] }

func (w *planWorld) labels(e *model.Endpoint) {
	e.Labels = map[string]string{"app": pick(w, "x", "y")}
}

func (w *planWorld) rule() model.Rule {
	return rule(pick(w, "blue:p0", "blue:p1", "blue:p2"), fmt.Sprint("r", w.rand.IntN(4)), func(r *model.Rule) {
		r.Direction, r.Priority, r.Action = pick(w, model.In, model.Out), 1+w.rand.IntN(3), pick(w, model.Allow, model.Deny, model.Deny)
		if r.Protocol = pick(w, model.AnyProtocol, model.ProtoTCP, model.ProtoUDP, model.ProtoICMP); r.Protocol.HasPorts() {
			r.Port = pick[uint16](w, 80, 443)
		}
		switch w.rand.IntN(3) {
		case 0:
			r.Group = pick[model.GroupName](w, "g0", "g1", "g2", "g9")
		case 1:
			r.Addr = netip.MustParsePrefix(pick(w, "10.1.0.2/32", "10.2.0.0/24", "8.0.0.0/8"))
		}
	})
}

func (w *planWorld) networkPolicy() model.NetworkPolicy {
	n := model.NetworkPolicy{Policy: networkPolicy(pick(w, "blue:l0", "blue:l1"), func(p *model.Policy) {
		p.Applies.MatchLabels = map[string]string{"app": pick(w, "x", "y")}
		p.Default.In = pick(w, model.Deny, model.Pass)
	})}
	for i := range 1 + w.rand.IntN(2) {
		r := networkRule(n.Policy.Key.String(), fmt.Sprint("r", i), bySelector(func(s *model.Selector) { s.Tenant, s.Group = "blue", pick[model.GroupName](w, "g0", "g1") }))
		r.Action = pick(w, model.Allow, model.Deny)
		n.Rules = append(n.Rules, r)
	}
	return n
}

// change is a random change, with what makes it.
func (w *planWorld) change() (Planned, func() error) {
	put := func(ch Change) (Planned, func() error) {
		return Planned{Put: &ch}, func() error { return err2(w.Put(testContext(w.t), Admin(), ch)) }
	}
	remove := func(d Deletion) (Planned, func() error) {
		return Planned{Delete: &d}, func() error { return err2(w.Delete(testContext(w.t), Admin(), d)) }
	}
	switch w.rand.IntN(10) {
	case 0, 1:
		return put(w.Policies.ChangeRule(valid(w.rule())))
	case 2, 3:
		return remove(w.Policies.DeleteRule(w.rule().Key))
	case 4:
		return put(w.Tenants.ChangeGroup(valid(pick(w, group("blue:g0", "n", "p0", "p1"), group("blue:g0", "n"), group("blue:g1", "n", "p2"), group("blue:g2", "m", "p1", "p2"), group("blue:g3", "m", "p0"))), false))
	case 5:
		return put(w.Policies.ReplaceNetworkPolicy(valid(w.networkPolicy())))
	case 6:
		return remove(DeleteNetworkPolicy(policyKey(pick(w, "blue:l0", "blue:l1")), model.OwnerUser))
	case 7:
		n := w.networkPolicy()
		if w.rand.IntN(2) == 0 {
			return remove(w.Policies.DeleteNetworkRule(n.Rules[0].Key, model.OwnerUser))
		}
		return put(w.Policies.ChangeNetworkRule(valid(n.Rules[0]), model.OwnerUser))
	case 8:
		if w.rand.IntN(2) == 0 {
			return remove(DeleteService(svcKey(pick(w, "blue:s0", "blue:s1"))))
		}
		return put(w.Services.ChangeService(valid(service(pick(w, "blue:s0", "blue:s1"), "n", "", pick(w, "app=x", "app=y", "app=z")))))
	}
	if w.rand.IntN(2) == 0 {
		return remove(DeletePolicy(policyKey(pick(w, "blue:p0", "blue:p2"))))
	}
	return put(w.Settings.ChangeGlobal(valid(model.Global{FwdMode: pick(w, model.FwdRouting, model.FwdBridge)})))
}

// anyone may know of all tenants.
type anyone struct{}

func (anyone) Has(model.TenantName) bool { return true }

// link is one way between two ends.
type link struct {
	from, to string
	v6       bool
}

// outsideAddrs stand for all addresses that are no endpoint's.
var outsideAddrs = []string{"8.8.8.8", "9.9.9.9", "2001:db8::1"}

// answers are all ports that are allowed, from each end to each.
func (w *planWorld) answers() map[link]reachability.Ports {
	w.t.Helper()
	out := map[link]reachability.Ports{}
	ask := func(from, to string) {
		var q analysis.Question
		var err [3]error
		q.From, err[0] = analysis.ParseSubject("from", from, "blue")
		q.To, err[1] = analysis.ParseSubject("to", to, "blue")
		q.Ports, err[2] = analysis.ParsePort("port", "")
		w.ok(errors.Join(err[:]...))
		got, failed := w.Analysis.Reach(testContext(w.t), q, anyone{})
		w.ok(failed)
		for _, row := range got.Rows {
			for _, p := range row.Parts {
				for _, f := range row.From {
					for _, t := range row.To {
						for v6, has := range map[bool]bool{false: row.IPv4, true: row.IPv6} {
							if at := (link{strings.TrimSuffix(strings.TrimSuffix(f, "/32"), "/128"), strings.TrimSuffix(strings.TrimSuffix(t, "/32"), "/128"), v6}); has && p.Allowed {
								out[at] = out[at].Or(p.Ports)
							}
						}
					}
				}
			}
		}
	}
	ask("tenant:blue", "tenant:blue")
	for _, a := range outsideAddrs {
		ask("tenant:blue", a)
	}
	return out
}

// sideNames are the ends on a side of a difference, as answers names them.
func sideNames(s reachability.Side) (out []string) {
	for _, k := range s.Endpoints {
		out = append(out, k.String())
	}
	for _, a := range outsideAddrs {
		for _, p := range s.Prefixes {
			if p.Contains(addr(a)) {
				out = append(out, a)
			}
		}
	}
	return out
}

// TestPlanIsWhatTheChangeDoes: in random clusters, the plan of a random change is the difference
// of the answers before and after it is really made, a change that is refused is refused in the
// same words, and a plan changes neither the store nor answers.
func TestPlanIsWhatTheChangeDoes(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(12) {
		w := newPlanWorld(t, seed)
		before := w.answers()
		for range 25 {
			planned, really := w.change()
			stored := w.dump()
			_, rows, refused := w.Plan(testContext(t), Admin(), []Planned{planned})
			if all, ok := errors.AsType[ChangeErrors](refused); ok {
				refused = all[0].Err
			}
			var effects analysis.Effects
			if refused == nil {
				var err error
				effects, err = w.Analysis.Plan(testContext(t), rows, anyone{})
				w.ok(err)
			}
			if diff := cmp.Diff(stored, w.dump()); diff != "" {
				t.Fatalf("seed %d: a plan has changed the store: %s", seed, diff)
			}
			if now := w.answers(); fmt.Sprint(now) != fmt.Sprint(before) {
				t.Fatalf("seed %d: after a plan the answers are others: %v, before %v", seed, now, before)
			}
			err := really()
			if fmt.Sprint(err) != fmt.Sprint(refused) {
				t.Fatalf("seed %d: planned: %v; really: %v", seed, refused, err)
			}
			if err != nil {
				seen["refused"]++
				continue
			}
			after := w.answers()
			opens, closes := map[link]reachability.Ports{}, map[link]reachability.Ports{}
			for _, f := range effects.Flows {
				in := closes
				if f.Opens {
					in = opens
				}
				for _, from := range sideNames(f.Difference.From) {
					if slices.Contains(outsideAddrs, from) {
						continue // answers look for published ports, plans do not; the conformance tests of reachability compare these
					}
					for _, to := range sideNames(f.Difference.To) {
						for v6, has := range map[bool]bool{false: f.IPv4, true: f.IPv6} {
							if has && from != to {
								in[link{from, to, v6}] = in[link{from, to, v6}].Or(f.Ports)
							}
						}
					}
				}
				seen[fmt.Sprint("opens ", f.Opens)]++
			}
			seen[fmt.Sprint("services ", len(effects.Services) > 0)]++
			all := map[link]bool{}
			for _, m := range []map[link]reachability.Ports{before, after, opens, closes} {
				for at := range m {
					all[at] = true
				}
			}
			for at := range all {
				if !opens[at].Equal(after[at].Without(before[at])) || !closes[at].Equal(before[at].Without(after[at])) {
					t.Fatalf("seed %d: %+v: before %v, after %v; planned were opening %v and closing %v", seed, at, before[at], after[at], opens[at], closes[at])
				}
			}
			before = after
		}
		w.stop()
	}
	for _, must := range []string{"refused", "opens true", "opens false", "services true"} {
		if seen[must] == 0 {
			t.Errorf("nothing was %q: %v", must, seen)
		}
	}
	t.Log(seen)
}

// TestPlanOfRowsThatHaveChangedIsRefused: what was tried on an older state is compared with none.
func TestPlanOfRowsThatHaveChangedIsRefused(t *testing.T) {
	w := newPlanWorld(t, 1)
	before := w.answers()
	ch := w.Tenants.ChangeGroup(valid(group("blue:g1", "n", "p0", "p1", "p2")), false)
	_, rows, err := w.Plan(testContext(t), Admin(), []Planned{{Put: &ch}})
	w.ok(err)
	w.put(group("blue:g1", "n", "p2"))
	w.put(group("blue:g1", "n"))
	w.fresh()
	if _, err := w.Analysis.Plan(testContext(t), rows, anyone{}); !errors.Is(err, analysis.ErrRowsMoved) {
		t.Errorf("got %v", err)
	}
	if now := w.answers(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("after a plan that was refused the answers are %v, before %v", now, before)
	}
}

// TestPlannedChangesAreMadeInTheirOrder: a rule cannot change, but be deleted and put again, and
// objects that are put beside each other find each other.
func TestPlannedChangesAreMadeInTheirOrder(t *testing.T) {
	w := newPlanWorld(t, 1)
	w.put(rule("blue:p0", "again"))
	changed := rule("blue:p0", "again", func(r *model.Rule) { r.Action = model.Deny })
	list := func() []Planned {
		d, again := w.Policies.DeleteRule(changed.Key), w.Policies.ChangeRule(valid(changed))
		g, p := w.Tenants.ChangeGroup(valid(group("blue:new", "n", "newp")), false), w.Policies.ChangePolicy(valid(policy("blue:newp")))
		return []Planned{{Delete: &d}, {Put: &again}, {Put: &g}, {Put: &p}}
	}
	out, rows, err := w.Plan(testContext(t), Admin(), list())
	w.ok(err)
	if out[1].Before != nil || out[1].After == nil || out[2].After == nil || len(rows) < 3 {
		t.Errorf("planned: %+v, %d rows", out, len(rows))
	}
	done, rev, err := w.ApplyPlanned(testContext(t), Admin(), list(), func() bool { return true })
	w.ok(err)
	if done != 4 || rev == 0 {
		t.Errorf("%d changes are made, at revision %d", done, rev)
	}
	v := w.fresh()
	if _, has := v.Groups.Get(groupKey("blue:new")); !has {
		t.Error("the group is not there")
	}
	if r, has := v.Policies.Rule(changed.Key); !has || r.Action != model.Deny {
		t.Errorf("the rule is %+v", r)
	}
}
