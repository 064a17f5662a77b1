package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestTenantRevisionsCountItsObjects: what is no endpoint of a tenant counts when it is written, and
// apart when it is deleted; neither endpoints nor other tenants do.
func TestTenantRevisionsCountItsObjects(t *testing.T) {
	c := base(t)
	for _, step := range []struct {
		name             string
		do               func()
		written, deleted bool
	}{
		{"nothing", func() {}, false, false},
		{"an endpoint with the labels of another", func() { c.put(endpoint("v1", "c77", inGroup("web"))) }, false, false},
		{"an endpoint of an identity that nobody had", func() {
			c.put(endpoint("v1", "c78", func(e *model.Endpoint) { e.Labels = map[string]string{"app": "new"} }))
		}, true, false},
		{"a rule", func() { c.put(rule("p1", "9")) }, true, false},
		{"a rule of another tenant", func() { c.put(rule("blue:p1", "9")) }, false, false},
		{"a rule that goes", func() { c.ok(c.remove(model.RuleKey{Tenant: "default", Policy: "p1", Rule: "9"})) }, false, true},
		{"an unconfirmed rule", func() {
			c.confirmingHost("h1", true)
			_, err := c.onTrial(c.Policies.ChangeRule(valid(rule("p2", "9"))))
			c.ok(err)
		}, true, false},
	} {
		w0, d0 := c.fresh().Revisions.TenantRevisions("default")
		step.do()
		v := c.fresh()
		w, d := v.Revisions.TenantRevisions("default")
		if (w > w0) != step.written || (d > d0) != step.deleted || max(w, d) > v.Revision() {
			t.Errorf("%s: written at %d, before %d; deleted at %d, before %d", step.name, w, w0, d, d0)
		}
	}
}

// TestHostsReachNamedRevisions: a host that follows a tenant reaches what netmaster names of
// it, without another commit, whatever gaps the mirrors of both have had.
func TestHostsReachNamedRevisions(t *testing.T) {
	for name, st := range map[string]*memory.Store{"etcd": memory.New(), "consul": memory.NewWith(memory.Consul)} {
		t.Run(name, func(t *testing.T) {
			c := onStore(t, st)
			c.put(network("v1", "10.1.1.0/24"), policy("p1"))
			host, revs := c.st.Client(), make(chan store.Revision, 1000)
			ctx, cancel := context.WithCancel(testContext(t))
			var g errgroup.Group
			g.Go(func() error {
				return host.Mirror(ctx, tables.TenantRest("default"), func(b store.Batch) error {
					revs <- b.Revision
					return nil
				})
			})
			random := rand.New(rand.NewSource(1))
			reached, paused, deletions := store.Revision(0), false, 0
			rules := map[string]bool{}
			for range 200 {
				switch n := strconv.Itoa(random.Intn(5)); random.Intn(6) {
				case 0:
					host.DropWatches()
				case 1:
					c.st.DropWatches()
				case 2:
					paused = !paused
					host.Pause(paused)
				case 3:
					c.put(endpoint("v1", fmt.Sprint("c", random.Int())))
				case 4:
					if rules[n] {
						c.ok(c.remove(model.RuleKey{Tenant: "default", Policy: "p1", Rule: model.RuleID(n)}))
						delete(rules, n)
					}
				case 5:
					if !rules[n] {
						c.put(rule("p1", n))
						rules[n] = true
					}
				}
				if paused {
					continue
				}
				written, deleted := c.fresh().Revisions.TenantRevisions("default")
				if deleted > written {
					deletions++
				}
				for reached < max(written, deleted) {
					select {
					case reached = <-revs:
					case <-ctx.Done():
						t.Fatalf("the host has reached revision %d; written was %d, deleted %d", reached, written, deleted)
					}
				}
			}
			if deletions == 0 {
				t.Error("no deletion was named")
			}
			host.Pause(false)
			cancel()
			if err := g.Wait(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// TestRevisionsOfAnotherStore: what was written into a former store, or into a state of
// it that is gone, says nothing of the one that is followed now.
func TestRevisionsOfAnotherStore(t *testing.T) {
	group := func(rev store.Revision) store.Event {
		k := model.GroupKey{Tenant: "blue", Name: "web"}
		return store.Event{KV: store.KV{Key: tables.Groups.Key(k), Value: []byte("{}"), Create: rev, Mod: rev}}
	}
	first, second := store.Incarnation{ID: "first"}, store.Incarnation{ID: "second"}
	for _, tt := range []struct {
		name string
		next store.Batch
		want store.Revision
	}{
		{"after a gap", store.Batch{Revision: 30, Listed: true, Store: first}, 20},
		{"an older state", store.Batch{Revision: 9, Listed: true, Store: first}, 0},
		{"another store", store.Batch{Revision: 30, Listed: true, Store: second}, 0},
		{"another store's row", store.Batch{Revision: 30, Listed: true, Store: second, Events: []store.Event{group(7)}}, 7},
	} {
		v := newView(slog.New(slog.DiscardHandler))
		for _, b := range []store.Batch{{Revision: 20, Snapshot: true, Listed: true, Store: first, Events: []store.Event{group(20)}}, tt.next} {
			if err := v.apply(b); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := v.Revisions.TenantRevisions("blue"); got != tt.want {
			t.Errorf("%s: written at %d, want %d", tt.name, got, tt.want)
		}
	}
}
