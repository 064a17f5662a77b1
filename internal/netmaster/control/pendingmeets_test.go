package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// meeting is a replica whose hook runs between a transaction's reads and its commit, and
// another one.
func meeting(t *testing.T) (a, b *harness, hook func(func())) {
	t.Helper()
	t.Helper()
	b = confirming(t)
	b.put(model.Tenant{Name: "gone"})
	st := &between{Store: b.st.Client()}
	a = through(t, st, st.Store)
	a.fresh()
	return a, b, func(do func()) { st.hook.Store(&do) }
}

// TestTrialKeepsCommitsOfOthers: what others commit between a trial and its locks stays, and the
// trial is made of that.
func TestTrialKeepsCommitsOfOthers(t *testing.T) {
	a, b, hook := meeting(t)
	vlans := model.TagRange{Lo: 1, Hi: 99}
	hook(func() { b.put(model.Global{VLANs: vlans}) })
	w, err := a.onTrial(a.Settings.ChangeGlobal(valid(routed())))
	a.ok(err)
	if now, _ := b.fresh().Settings.Global(); now.VLANs != vlans || now.FwdMode != model.FwdBridge {
		t.Errorf("another's change of the settings became %+v", now)
	}
	tr, _ := b.trial("", w.ID)
	if len(tr.Rows) != 1 {
		t.Fatalf("hosts are given %+v", tr)
	}
	row, err := tr.Rows[0].Change()
	if g, _ := row.Value.(model.Global); err != nil || g.VLANs != vlans || g.FwdMode != model.FwdRouting {
		t.Errorf("hosts are given %+v, %v", row, err)
	}
	a.ok(err2(a.Pending.Revert(testContext(t), Admin(), w.ID)))

	hook(func() { b.ok(b.remove(model.TenantName("gone"))) })
	gone := a.Policies.ChangePolicy(valid(model.ContivPolicy{Key: model.PolicyKey{Tenant: "gone", Name: "new"}}))
	if _, err := a.onTrial(gone); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("tried in a tenant that went meanwhile: %v", err)
	}
	if all := b.fresh().Pending.Waiting(); len(all) != 0 {
		t.Errorf("%+v waits", all)
	}
}

// TestStaleWriteAfterATrialIsRefused: who has read an object before it is tried does not write it afterwards.
func TestStaleWriteAfterATrialIsRefused(t *testing.T) {
	tagged := func(tag string) model.Group { return with(group("g", "n"), func(g *model.Group) { g.CfgdTag = tag }) }
	ruled := func(priority int) model.PolicyRule {
		r := networkRule("np", "1", model.Peer{CIDR: netip.MustParsePrefix("10.9.0.0/16")})
		r.Priority = priority
		return r
	}
	for name, test := range map[string]struct{ written, tried func(*harness) Change }{
		"settings": {
			func(c *harness) Change {
				return c.Settings.ChangeGlobal(valid(model.Global{VLANs: model.TagRange{Lo: 1, Hi: 99}}))
			},
			func(c *harness) Change { return c.Settings.ChangeGlobal(valid(routed())) },
		},
		"group": {
			func(c *harness) Change { return c.Tenants.ChangeGroup(valid(tagged("mine")), false) },
			func(c *harness) Change { return c.Tenants.ChangeGroup(valid(tagged("tried")), false) },
		},
		"rule": {
			func(c *harness) Change { return c.Policies.ChangeNetworkRule(valid(ruled(2)), model.OwnerUser) },
			func(c *harness) Change { return c.Policies.ChangeNetworkRule(valid(ruled(3)), model.OwnerUser) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, hook := meeting(t)
			b.put(model.NetworkPolicy{Policy: networkPolicy("np"), Rules: []model.PolicyRule{ruled(1)}})
			a.fresh()
			var w Waiting
			hook(func() {
				var err error
				w, err = b.onTrial(test.tried(b))
				b.ok(err)
			})
			if _, err := a.Put(testContext(t), Admin(), test.written(a)); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), w.ID) {
				t.Errorf("written under a trial: %v", err)
			}
			b.ok(b.confirm(w.ID, test.tried(b)))
		})
	}
}

// TestUnconfirmedListIsOneChange: a change of settings and of a tenant's policy is one: all of it is
// locked, keeps the tenant, and goes.
func TestUnconfirmedListIsOneChange(t *testing.T) {
	c := confirming(t)
	c.put(model.Tenant{Name: "bare"})
	fresh := model.ContivPolicy{Key: model.PolicyKey{Tenant: "bare", Name: "new"}}
	changes := func() []Change {
		return []Change{c.Settings.ChangeGlobal(valid(routed())), c.Policies.ChangePolicy(valid(fresh))}
	}
	hosts := func(id string) (n int) {
		for _, of := range []model.TenantName{"", "bare"} {
			if _, there := c.trial(of, id); there {
				n++
			}
		}
		return n
	}
	for what, end := range map[string]func(id string) error{
		"taken back": func(id string) error { return err2(c.Pending.Revert(testContext(t), Admin(), id)) },
		"confirmed":  func(id string) error { return c.confirm(id, changes()...) },
	} {
		w, err := c.onTrial(changes()...)
		c.ok(err)
		if n := hosts(w.ID); n != 2 {
			t.Errorf("hosts have %d of 2 parts", n)
		}
		c.refused(model.ErrConflict, w.ID, func() error { return c.remove(model.TenantName("bare")) })
		c.refused(model.ErrConflict, w.ID, func() error { _, err := c.onTrial(c.Policies.ChangePolicy(valid(fresh))); return err })
		c.ok(end(w.ID))
		if n := hosts(w.ID); n != 0 {
			t.Errorf("%s: hosts have %d parts still", what, n)
		}
		if what == "confirmed" {
			c.ok(c.remove(fresh.Key))
			c.put(model.Global{FwdMode: model.FwdBridge})
		}
	}
}

// TestChangeWaitsItsWholeTime: a change may wait for just the longest time, and is not rolled back
// before its time is over.
func TestChangeWaitsItsWholeTime(t *testing.T) {
	c := confirming(t)
	ch := c.Settings.ChangeGlobal(valid(routed()))
	w, _, err := c.Pending.Apply(testContext(t), Admin(), []Change{ch}, []json.RawMessage{[]byte(`{}`)}, MaxConfirm)
	c.ok(err)
	old := c.leader()
	c.leader()
	c.clock.advance(MaxConfirm - time.Millisecond)
	if left := c.fresh().Pending.Waiting(); len(left) != 1 || left[0].Left != time.Millisecond {
		t.Errorf("%+v waits", left)
	}
	ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Pending.EndPending(ended, old, time.Millisecond); err != nil { // ErrFenced, had it tried
		t.Errorf("taken back before its time: %v", err)
	}
	c.ok(c.confirm(w.ID, ch))
}
