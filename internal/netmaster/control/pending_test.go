package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// confirming is a cluster with a host that knows of changes that wait.
func confirming(t *testing.T) *harness {
	t.Helper()
	c := newCluster(t)
	c.confirmingHost("h1", true)
	c.put(network("n", "10.1.0.0/24"), policy("p"), group("g", "n"), rule("p", "1"))
	return c
}

func (c *harness) confirmingHost(name model.HostName, knows bool) {
	c.t.Helper()
	_, err := c.st.Client().Update(testContext(c.t), func(tx store.Tx) error {
		return tables.Hosts.Put(tx, model.Host{Name: name, Confirms: knows})
	})
	c.ok(err)
}

// onTrial tries changes for a minute.
func (c *harness) onTrial(changes ...Change) (Waiting, error) {
	w, _, err := c.Pending.Apply(testContext(c.t), Admin(), changes, []json.RawMessage{[]byte(`{}`)}, time.Minute)
	return w, err
}

// confirm confirms a change as the given ones.
func (c *harness) confirm(id string, changes ...Change) error {
	return err2(c.Pending.Confirm(testContext(c.t), Admin(), id, func([]json.RawMessage) ([]Change, error) { return changes, nil }))
}

func routed() model.Global { return model.Global{FwdMode: model.FwdRouting} }

// trial reads what hosts have of a change.
func (c *harness) trial(t model.TenantName, id string) (out tables.Trial, there bool) {
	c.t.Helper()
	_, err := c.st.Update(testContext(c.t), func(tx store.Tx) error {
		row, err := tables.TrialsOf(t).Peek(tx, tables.TrialKey{Tenant: t, ID: id})
		out, there = row.Value, row.Exists()
		return err
	})
	c.ok(err)
	return out, there
}

func (c *harness) mode() model.FwdMode {
	c.t.Helper()
	g, _ := c.fresh().Settings.Global()
	return g.FwdMode
}

// TestConfirmedChangeComesIntoForce: until it is confirmed the settings are as they were, hosts get the new ones,
// and other changes of them are refused. Once it is confirmed, they are as after any other
// change, and nothing is left of the trial.
func TestConfirmedChangeComesIntoForce(t *testing.T) {
	c := confirming(t)
	ch := c.Settings.ChangeGlobal(valid(routed()))
	w, err := c.onTrial(ch)
	c.ok(err)
	if c.mode() != model.FwdBridge {
		t.Errorf("the mode is %q before it is confirmed", c.mode())
	}
	tr, there := c.trial("", w.ID)
	if !there || len(tr.Rows) != 1 || tr.Within != time.Minute {
		t.Fatalf("hosts are given %+v", tr)
	}
	row, err := tr.Rows[0].Change()
	if g, _ := row.Value.(model.Global); err != nil || g.FwdMode != model.FwdRouting || g.PvtSubnet != model.DefaultGlobal().PvtSubnet {
		t.Errorf("hosts are given %+v, %v", row, err)
	}
	if all := c.fresh().Pending.Waiting(); len(all) != 1 || all[0].ID != w.ID || all[0].Left != time.Minute {
		t.Errorf("%+v waits", all)
	}
	c.refused(model.ErrConflict, w.ID, func() error { return c.try(model.Global{VLANs: model.TagRange{Lo: 1, Hi: 99}}) })
	c.refused(model.ErrConflict, w.ID, func() error { _, err := c.onTrial(ch); return err })
	c.put(rule("p", "2")) // another object
	c.clock.advance(59 * time.Second)
	c.ok(c.confirm(w.ID, ch))
	if c.mode() != model.FwdRouting {
		t.Errorf("the mode is %q when it is confirmed", c.mode())
	}
	if _, there := c.trial("", w.ID); there || len(c.fresh().Pending.Waiting()) > 0 {
		t.Error("something is left of the trial")
	}
	c.put(model.Global{VLANs: model.TagRange{Lo: 1, Hi: 99}})
	c.refused(model.ErrNotFound, "no unconfirmed change", func() error { return c.confirm(w.ID, ch) })
	c.refused(model.ErrNotFound, "no unconfirmed change", func() error { return err2(c.Pending.Revert(testContext(t), Admin(), w.ID)) })
}

// TestUnconfirmedChangeIsRolledBack: after its time a change cannot be confirmed any more, and the leader
// rolls it back, a former leader does not. A revert rolls it back too.
func TestUnconfirmedChangeIsRolledBack(t *testing.T) {
	c := confirming(t)
	ch := c.Settings.ChangeGlobal(valid(routed()))
	w, err := c.onTrial(ch)
	c.ok(err)
	c.clock.advance(time.Minute)
	c.refused(model.ErrConflict, "time is up", func() error { return c.confirm(w.ID, ch) })
	old := c.leader()
	fence := c.leader()
	c.refused(store.ErrFenced, "", func() error { return c.Pending.EndPending(testContext(t), old, time.Hour) })
	if c.mode() != model.FwdBridge {
		t.Errorf("the mode is %q", c.mode())
	}
	endAllPending(t, c, fence)
	if _, there := c.trial("", w.ID); there {
		t.Error("hosts are given it still")
	}
	w, err = c.onTrial(ch)
	c.ok(err)
	c.ok(err2(c.Pending.Revert(testContext(t), Admin(), w.ID)))
	if _, there := c.trial("", w.ID); there || c.mode() != model.FwdBridge {
		t.Error("it is there after it was taken back")
	}
	c.put(routed())
}

// endAllPending runs the leader's task until nothing waits.
func endAllPending(t *testing.T, c *harness, l Leader) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() { done <- c.Pending.EndPending(ctx, l, 5*time.Millisecond) }()
	c.eventually("it is taken back", func() error {
		if n := len(c.fresh().Pending.Waiting()); n > 0 {
			return fmt.Errorf("%d changes wait", n)
		}
		return nil
	})
	cancel()
	c.ok(<-done)
}

// TestPendingOutlivesNetmaster: another netmaster that comes during the wait knows by the
// time of day how much is left, and if that has gone back it takes the change back
// rather than to let it be confirmed too late.
func TestPendingOutlivesNetmaster(t *testing.T) {
	for _, test := range []struct {
		name string
		at   time.Duration
		left time.Duration
	}{
		{"in time", 20 * time.Second, 40 * time.Second},
		{"too late", 70 * time.Second, 0},
		{"clock gone back", -time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := confirming(t)
			ch := a.Settings.ChangeGlobal(valid(routed()))
			w, err := a.onTrial(ch)
			a.ok(err)
			at := a.clock.Now().Add(test.at)
			b := onStore(t, a.st, func(o *Options) { o.Now = func() time.Time { return at } })
			all := b.fresh().Pending.Waiting()
			if len(all) != 1 || all[0].Left != test.left {
				t.Fatalf("%+v waits, want %v left", all, test.left)
			}
			if test.left > 0 {
				b.ok(b.confirm(w.ID, ch))
				return
			}
			b.refused(model.ErrConflict, "time is up", func() error { return b.confirm(w.ID, ch) })
			endAllPending(t, b, b.leader())
		})
	}
}

// TestUnconfirmedPolicyLocksItsGroup: a rule and the policy of a group are tried together; the whole policy and
// the group are locked, and its references do not count before it is confirmed.
func TestUnconfirmedPolicyLocksItsGroup(t *testing.T) {
	c := confirming(t)
	r := rule("p", "2", func(r *model.Rule) { r.Group = "g" })
	g := group("g", "n")
	g.Policies = []model.PolicyName{"p"}
	changes := []Change{c.Policies.ChangeRule(valid(r)), c.Tenants.ChangeGroup(valid(g), false)}
	w, err := c.onTrial(changes...)
	c.ok(err)
	tr, _ := c.trial(model.DefaultTenant, w.ID)
	if len(tr.Rows) != 2 {
		t.Fatalf("hosts are given %+v", tr)
	}
	if _, there := c.fresh().Policies.Rule(r.Key); there {
		t.Error("the rule is there before it is confirmed")
	}
	for what, do := range map[string]func() error{
		"another rule":  func() error { return c.try(rule("p", "3")) },
		"rule deleted":  func() error { return c.remove(model.RuleKey{Tenant: "default", Policy: "p", Rule: "1"}) },
		"policy gone":   func() error { return c.remove(policyKey("p")) },
		"group gone":    func() error { return c.remove(groupKey("g")) },
		"group changed": func() error { x := g; x.Policies = nil; x.CfgdTag = "x"; return c.try(x) },
	} {
		t.Run(what, func(*testing.T) { c.refused(model.ErrConflict, w.ID, do) })
	}
	c.ok(c.confirm(w.ID, changes...))
	if _, there := c.fresh().Policies.Rule(r.Key); !there {
		t.Error("the rule is not there")
	}
	checkInvariants(t, c)
	c.refused(model.ErrInUse, "", func() error { return c.remove(policyKey("p")) })
}

// TestTenantStaysWhileAChangeIsUnconfirmed: a tenant stays while something of it waits to be confirmed, also
// where it has no row yet, and nothing of a tenant is tried that goes meanwhile.
func TestTenantStaysWhileAChangeIsUnconfirmed(t *testing.T) {
	c := confirming(t)
	c.put(model.Tenant{Name: "bare"}, model.Tenant{Name: "gone"})
	of := func(tenant model.TenantName) Change {
		return c.Policies.ChangePolicy(valid(model.ContivPolicy{Key: model.PolicyKey{Tenant: tenant, Name: "new"}}))
	}
	w, err := c.onTrial(of("bare"))
	c.ok(err)
	c.refused(model.ErrConflict, w.ID, func() error { return c.remove(model.TenantName("bare")) })
	c.ok(c.remove(model.TenantName("gone")))
	c.refused(model.ErrNotFound, "gone", func() error { _, err := c.onTrial(of("gone")); return err })
	c.ok(err2(c.Pending.Revert(testContext(t), Admin(), w.ID)))
	c.ok(c.remove(model.TenantName("bare")))
}

// TestUntryableChangesWriteNothing: what cannot be tried, and that nothing is written then.
func TestUntryableChangesWriteNothing(t *testing.T) {
	c := confirming(t)
	n, p := c.Networks.ChangeNetwork(valid(network("m", "10.2.0.0/24"))), c.Policies.ChangePolicy(valid(policy("q")))
	filter := model.Global{GeneratedLabels: model.LabelFilter{"run"}}
	try := func(within time.Duration, changes ...Change) func() error {
		return func() error { _, _, err := c.Pending.Apply(testContext(t), Admin(), changes, nil, within); return err }
	}
	mode := c.Settings.ChangeGlobal(valid(routed()))
	c.refused(model.ErrInvalid, "between 10s and 1h0m0s", try(9*time.Second, mode))
	c.refused(model.ErrInvalid, "between 10s and 1h0m0s", try(time.Hour+1, mode))
	c.refused(model.ErrInvalid, "make it first", try(time.Minute, n))
	c.refused(model.ErrInvalid, "make it first", try(time.Minute, ChangeTenant(valid(model.Tenant{Name: "t"}), false)))
	c.refused(model.ErrInvalid, "generatedLabels", try(time.Minute, c.Settings.ChangeGlobal(valid(filter))))
	c.refused(model.ErrInvalid, "nothing would change", try(time.Minute, c.Settings.ChangeGlobal(valid(model.Global{FwdMode: model.FwdBridge}))))
	c.refused(model.ErrNotFound, `policy`, try(time.Minute, c.Policies.ChangeRule(valid(rule("nosuch", "1")))))
	c.confirmingHost("h2", false)
	c.refused(model.ErrConflict, "h2", try(time.Minute, mode))
	c.confirmingHost("h2", true)
	c.ok(try(time.Minute, p)())
}

// TestImpossibleConfirmationKeepsWaiting: a change that cannot be made any more waits on, and says why.
func TestImpossibleConfirmationKeepsWaiting(t *testing.T) {
	c := confirming(t)
	c.put(group("g2", "n"))
	ch := c.Policies.ChangeRule(valid(rule("p", "2", func(r *model.Rule) { r.Group = "g2" })))
	w, err := c.onTrial(ch)
	c.ok(err)
	c.ok(c.remove(groupKey("g2")))
	c.refused(model.ErrNotFound, "g2", func() error { return c.confirm(w.ID, ch) })
	bad := errors.New("unreadable")
	err = err2(c.Pending.Confirm(testContext(t), Admin(), w.ID, func([]json.RawMessage) ([]Change, error) { return nil, bad }))
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), w.ID) {
		t.Errorf("unreadable objects: %v", err)
	}
	if len(c.fresh().Pending.Waiting()) != 1 {
		t.Error("it waits no more")
	}
}

// TestStoredWriteOnTrial: a write of what is stored is refused too while hosts try something
// else: by itself, in a list, in a dry run, and as another trial.
func TestStoredWriteOnTrial(t *testing.T) {
	ruled := func(c *harness, priority int) Change {
		r := with(networkRule("np", "1"), func(r *model.PolicyRule) { r.Priority = priority })
		return c.Policies.ReplaceNetworkPolicy(valid(model.NetworkPolicy{Policy: networkPolicy("np"), Rules: []model.PolicyRule{r}}))
	}
	firstRule := func(c *harness) Change { return c.Policies.ChangeRule(valid(rule("p", "1"))) }
	secondRule := func(c *harness) Change { return c.Policies.ChangeRule(valid(rule("p", "2"))) }
	for name, test := range map[string]struct{ stored, tried func(*harness) Change }{
		"settings": {
			func(c *harness) Change { return c.Settings.ChangeGlobal(valid(model.Global{FwdMode: model.FwdBridge})) },
			func(c *harness) Change { return c.Settings.ChangeGlobal(valid(routed())) },
		},
		"group": {
			func(c *harness) Change { return c.Tenants.ChangeGroup(valid(group("g", "n")), false) },
			func(c *harness) Change { return c.Tenants.ChangeGroup(valid(group("g", "n", "p")), false) },
		},
		"policy":         {func(c *harness) Change { return c.Policies.ChangePolicy(valid(policy("p"))) }, secondRule},
		"rule":           {firstRule, secondRule},
		"network policy": {func(c *harness) Change { return ruled(c, 1) }, func(c *harness) Change { return ruled(c, 2) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := confirming(t)
			ctx := testContext(t)
			c.ok(err2(c.Put(ctx, Admin(), ruled(c, 1))))
			c.ok(err2(c.Put(ctx, Admin(), test.stored(c)))) // it is what is stored
			w, err := c.onTrial(test.tried(c))
			c.ok(err)
			list := []Change{c.Networks.ChangeNetwork(valid(network("n", "10.1.0.0/24"))), test.stored(c)}
			for what, do := range map[string]func() error{
				"put":   func() error { return err2(c.Put(ctx, Admin(), test.stored(c))) },
				"trial": func() error { _, err := c.onTrial(test.stored(c)); return err },
				"apply": func() error { _, _, _, err := c.Apply(ctx, Admin(), list, false, nil); return err },
				"dry":   func() error { _, _, _, err := c.Apply(ctx, Admin(), list, true, nil); return err },
			} {
				c.refused(model.ErrConflict, w.ID, do)
				if e, ok := errors.AsType[*ChangeError](do()); what == "apply" && (!ok || e.Index != 1) {
					t.Errorf("%s does not say which object of the list", what)
				}
			}
			_, _, _, err = c.Apply(ctx, Admin(), list[:1], false, nil)
			c.ok(err)
			c.ok(c.confirm(w.ID, test.tried(c)))
		})
	}
	c := newCluster(t)
	c.confirmingHost("h1", true)
	w, err := c.onTrial(c.Settings.ChangeGlobal(valid(routed())))
	c.ok(err)
	c.refused(model.ErrConflict, w.ID, func() error { return c.remove(tables.GlobalKey{}) })
}
