package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// manyRules makes a network policy with so many rules; those of two marks differ.
func manyRules(n int, mark int) model.NetworkPolicy {
	out := model.NetworkPolicy{Policy: networkPolicy("n")}
	for i := range n {
		out.Rules = append(out.Rules, networkRule("n", fmt.Sprintf("r%05d", i), model.Peer{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(mark), byte(i >> 8), byte(i)}), 32)}))
	}
	return out
}

// watched is a controller that calls hook after each commit.
func watched(t *testing.T, st *memory.Store, hook *func()) *harness {
	t.Helper()
	return through(t, &after{Store: st, hook: hook}, st)
}

// after is a store that runs a hook after each commit of an Update, one after the other, and
// takes none any more once it is dead.
type after struct {
	*memory.Store
	hook *func()
	dead bool
	mu   sync.Mutex
}

func (a *after) UpdateCached(ctx context.Context, near store.CachedReader, fn func(store.Tx) error) (store.Revision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead {
		return 0, model.Errorf(model.ErrUnavailable, "the netmaster has stopped")
	}
	rev, err := a.Store.UpdateCached(ctx, near, fn)
	if h := *a.hook; h != nil && err == nil {
		h()
	}
	return rev, err
}

// marks tells which of the two marks the rules in force have, and how many there are.
func marks(v *View, n int) (string, int) {
	count := map[byte]int{}
	rules := v.Policies.AnyRulesOf(policyKey("n"))
	for _, r := range rules {
		count[r.Peers[0].CIDR.Addr().As4()[1]]++
	}
	if len(count) > 1 || len(rules) != 0 && len(rules) != n {
		return fmt.Sprint("a mix: ", count), len(rules)
	}
	for m := range count {
		return fmt.Sprint(m), len(rules)
	}
	return "none", 0
}

// TestManyRulesAreReplacedAtOnce: rules beyond one transaction are replaced at once for every reader,
// on every store, and nothing is left behind.
func TestManyRulesAreReplacedAtOnce(t *testing.T) {
	for name, st := range map[string]*memory.Store{"etcd": memory.New(), "consul": memory.NewWith(memory.Consul)} {
		t.Run(name, func(t *testing.T) {
			var hook func()
			c, other := watched(t, st, &hook), onStore(t, st)
			const n = 500
			seen := map[string]bool{}
			hook = func() {
				v := other.fresh()
				m, _ := marks(v, n)
				seen[m] = true
				if p, ok := v.Policies.Get(policyKey("n")); m == "2" && (!ok || p.Order != 60) || m == "1" && p.Order != 50 {
					t.Errorf("rules %s with the policy %+v", m, p)
				}
			}
			c.put(manyRules(n, 1))
			second := manyRules(n, 2)
			second.Policy.Order = 60
			c.put(second)
			hook = nil
			if len(seen) != 3 || !seen["none"] || !seen["1"] || !seen["2"] {
				t.Errorf("others have seen %v", seen)
			}
			few := second
			few.Rules = few.Rules[:3]
			c.put(few)
			if m, n := marks(c.fresh(), 3); m != "2" || n != 3 {
				t.Errorf("then %s, %d rules", m, n)
			}
			noneStaged(t, c)
			c.ok(err2(c.Delete(testContext(t), Admin(), DeleteNetworkPolicy(policyKey("n"), model.OwnerUser))))
			for k := range c.dump() {
				if strings.Contains(k, "/rules/") && !strings.HasPrefix(k, store.Root+"gen") {
					t.Errorf("%s is left", k)
				}
			}
		})
	}
}

func noneStaged(t *testing.T, c *harness) {
	t.Helper()
	for k := range c.dump() {
		if ch, err := tables.Decode(store.Event{KV: store.KV{Key: k}}); err == nil {
			switch ch.Key.(type) {
			case tables.StagedKey, tables.ReplacementKey:
				t.Errorf("%s is left", k)
			}
		}
	}
}

// TestInterruptedReplaceLeavesOneWholePolicy: a netmaster that stops after any commit leaves the policy as it
// was, or as it was to be; the leader or the next change deletes the rest.
func TestInterruptedReplaceLeavesOneWholePolicy(t *testing.T) {
	const n = 150
	for _, how := range []string{"swept", "changed", "replaced", "deleted"} {
		for stop := 1; ; stop++ {
			st := memory.New()
			var hook func()
			mortal := &after{Store: st, hook: &hook}
			c, other := through(t, mortal, st), onStore(t, st)
			c.put(manyRules(n, 1))
			commits := 0
			hook = func() {
				commits++
				mortal.dead = commits == stop
			}
			_, err := c.Put(testContext(t), Admin(), c.Policies.ReplaceNetworkPolicy(valid(manyRules(n, 2))))
			hook = nil
			c.stop()
			m, _ := marks(other.fresh(), n)
			if m != "1" && m != "2" || m != "2" && err == nil {
				t.Fatalf("%s, stopped after %d commits: %s, %v", how, stop, m, err)
			}
			leader := other.leader()
			switch how {
			case "swept":
				for range 2 {
					other.ok(other.Repair.SweepOnce(testContext(t), leader))
				}
				if now, _ := marks(other.fresh(), n); now != m {
					t.Errorf("%s before it was swept, %s after", m, now)
				}
			case "changed":
				r := manyRules(n, 3).Rules[7]
				other.ok(other.putNetworkRule(r, model.OwnerUser))
				if rules := other.fresh().Policies.AnyRulesOf(policyKey("n")); len(rules) != n || !rules[7].Equal(r) || rules[8].Equal(manyRules(n, 3).Rules[8]) {
					t.Errorf("after a change: %d rules, %+v", len(rules), rules[7])
				}
			case "replaced":
				other.put(manyRules(n, 3))
				if now, _ := marks(other.fresh(), n); now != "3" {
					t.Errorf("%s after it was replaced", now)
				}
			case "deleted":
				other.ok(err2(other.Delete(testContext(t), Admin(), DeleteNetworkPolicy(policyKey("n"), model.OwnerUser))))
			}
			noneStaged(t, other)
			other.stop()
			if !mortal.dead {
				if stop < 4 {
					t.Errorf("it takes %d commits only", commits)
				}
				break
			}
		}
	}
}

// TestReplacementGivesWayToOtherChanges: other changes of rules succeed meanwhile, and the replacement
// gets a conflict and has changed nothing.
func TestReplacementGivesWayToOtherChanges(t *testing.T) {
	const n = 150
	for name, meanwhile := range map[string]func(c *harness) error{
		"a rule": func(c *harness) error { return c.putNetworkRule(manyRules(n, 3).Rules[7], model.OwnerUser) },
		"less": func(c *harness) error {
			return err2(c.Delete(testContext(c.t), Admin(), c.Policies.DeleteNetworkRule(manyRules(n, 1).Rules[7].Key, model.OwnerUser)))
		},
		"all": func(c *harness) error { return c.try(manyRules(n, 3)) },
		"no more": func(c *harness) error {
			return err2(c.Delete(testContext(c.t), Admin(), DeleteNetworkPolicy(policyKey("n"), model.OwnerUser)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := memory.New()
			var hook func()
			c, other := watched(t, st, &hook), onStore(t, st)
			c.put(manyRules(n, 1))
			commits := 0
			hook = func() {
				if commits++; commits == 2 { // the first rules are staged
					other.ok(meanwhile(other))
				}
			}
			err := c.try(manyRules(n, 2))
			hook = nil
			if !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "another client has changed") {
				t.Errorf("who replaces is told %v", err)
			}
			noneStaged(t, other)
			want := other.fresh().Policies.AnyRulesOf(policyKey("n"))
			for _, r := range want {
				if r.Peers[0].CIDR.Addr().As4()[1] == 2 {
					t.Fatalf("rule %s is of who failed", r.Key)
				}
			}
			checkMirror(t, other)
		})
	}
}

// TestStagedRulesKeepWhatTheyName: what staged rules name cannot go, and what they no longer name can.
func TestStagedRulesKeepWhatTheyName(t *testing.T) {
	st := memory.New()
	var hook func()
	c, other := watched(t, st, &hook), onStore(t, st)
	c.put(network("net", "10.0.0.0/16"), group("a", "net"), group("b", "net"))
	naming := func(g string) model.NetworkPolicy {
		n := manyRules(150, 1)
		for i := range n.Rules {
			n.Rules[i].Peers = []model.Peer{bySelector(func(s *model.Selector) { s.Group = model.GroupName(g) })}
		}
		return n
	}
	c.put(naming("a"))
	commits := 0
	hook = func() {
		if commits++; commits == 2 {
			for _, g := range []string{"a", "b"} {
				if err := other.remove(groupKey(g)); !errors.Is(err, model.ErrInUse) {
					t.Errorf("delete group %s: %v", g, err)
				}
			}
		}
	}
	c.put(naming("b"))
	hook = nil
	if err := c.try(naming("none")); !errors.Is(err, model.ErrNotFound) || !strings.Contains(err.Error(), `rules[0].peers[0].selector.group "none"`) {
		t.Errorf("a group that is not there: %v", err)
	}
	c.ok(c.remove(groupKey("a")))
	if err := c.remove(groupKey("b")); !errors.Is(err, model.ErrInUse) {
		t.Errorf("delete group b: %v", err)
	}
	noneStaged(t, c)
}

// TestListReplacesChangedRules: a list tells of a network policy that it changes when only rules
// differ, and makes the change also when the list is longer than a transaction.
func TestListReplacesChangedRules(t *testing.T) {
	c := newCluster(t)
	c.put(manyRules(2, 1))
	for _, others := range []int{0, 200} {
		changes := []Change{c.Policies.ReplaceNetworkPolicy(valid(manyRules(2, 2+others)))}
		for i := range others {
			changes = append(changes, c.Policies.ChangePolicy(valid(policy(fmt.Sprint("p", i)))))
		}
		out, done, _, err := c.Apply(testContext(t), Admin(), changes, false, func() bool { return true })
		if err != nil || done != len(changes) || out[0].Unchanged() {
			t.Errorf("with %d others: %d done, %v", others, done, err)
		}
		if m, _ := marks(c.fresh(), 2); m != strconv.Itoa(2+others) {
			t.Errorf("with %d others the rules are %s", others, m)
		}
	}
}

// TestReplacedRulesDoNotCount: what a policy has counts no more once it is replaced, nor does a
// rule whose place another takes.
func TestReplacedRulesDoNotCount(t *testing.T) {
	c := newCluster(t)
	wide := func(mark, rules int) model.NetworkPolicy {
		n := manyRules(rules, mark)
		for i := range n.Rules {
			r := &n.Rules[i]
			r.Peers = nil
			for j := range model.MaxRulePeers {
				r.Peers = append(r.Peers, model.Peer{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(mark), byte(i >> 8), byte(i), byte(j)}), 32)})
			}
			for j := range model.MaxRulePorts {
				r.Ports = append(r.Ports, model.PortMatch{Protocol: model.ProtoTCP, Lo: uint16(1 + 2*j), Hi: uint16(1 + 2*j)})
			}
		}
		return n
	}
	most := model.MaxPolicyEntries / (model.MaxRulePeers * (model.MaxRulePorts + 1))
	c.put(wide(1, most))
	c.put(wide(2, most))
	c.fresh()
	r := wide(3, most).Rules[5]
	c.ok(c.putNetworkRule(r, model.OwnerUser))
	r = wide(4, most).Rules[5]
	r.Key.Rule = "other"
	if err := c.putNetworkRule(r, model.OwnerUser); !errors.Is(err, model.ErrExhausted) {
		t.Errorf("one rule more: %v", err)
	}
	if err := c.try(wide(1, most+1)); !errors.Is(err, model.ErrExhausted) || !strings.Contains(err.Error(), strconv.Itoa(model.MaxPolicyEntries)) {
		t.Errorf("a policy with one rule more: %v", err)
	}
}
