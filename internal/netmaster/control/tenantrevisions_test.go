package control

import (
	"log/slog"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestTenantRevisions: what is no endpoint of a tenant counts when it is written, and
// apart when it is deleted; neither endpoints nor other tenants do.
func TestTenantRevisions(t *testing.T) {
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
