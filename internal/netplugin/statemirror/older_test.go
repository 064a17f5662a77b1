package statemirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestOlderStoreIsNotFollowedAtHigherRevisions: an older state of a store with a journal is not followed, though its
// revisions go on beyond what was seen, nor by the host's next run; the right one is, at once.
func TestOlderStoreIsNotFollowedAtHigherRevisions(t *testing.T) {
	st := memory.NewWith(memory.Consul)
	put(t, st, identified("a"))
	put(t, st, func(tx store.Tx) error { return tables.Hosts.Put(tx, model.Host{Name: "h2", Store: "a/1"}) })
	older := st.Data()
	put(t, st, func(tx store.Tx) error { return tables.Endpoints.Put(tx, testEndpoint) })
	own := Attachment{Endpoint: testEndpoint.Key}
	c := newCluster(t, st.Client(), own)
	c.Require(testEndpoint.Key.Network)
	remember := func(c *State) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Guard.SavePosition(ctx); close(done) }()
		return func() { cancel(); <-done }
	}
	stop := remember(c)
	follow(t, c)
	followed := func(c *State) func() error {
		return func() error {
			if _, there := c.mirrors.byScope[EndpointsScope(testEndpoint.Key.Network)].endpoints[testEndpoint.Key]; !there {
				return errors.New("its endpoint is not there")
			}
			return c.Guard.stale()
		}
	}
	holds := func(c *State) func() error {
		return func() error {
			if err := c.Guard.stale(); err == nil || !strings.Contains(err.Error(), "older state") || !strings.Contains(err.Error(), "goes on from there") {
				return fmt.Errorf("held by %w", err)
			}
			return nil
		}
	}
	until(t, c, "the store is followed", followed(c))
	put(t, st, func(tx store.Tx) error { return tables.Tenants.Put(tx, model.Tenant{Name: "x"}) })
	rev, err := st.CommitRevision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	until(t, c, "it is seen whole", func() error {
		if c.Guard.position.Revision < rev {
			return fmt.Errorf("up to %d of %d", c.Guard.position.Revision, rev)
		}
		return nil
	})
	right := st.Data()
	st.Replace(older, 1000)
	put(t, st, func(tx store.Tx) error { return tables.Tenants.Put(tx, model.Tenant{Name: "then"}) })
	until(t, c, "the older state is not followed", holds(c))
	if _, there := c.mirrors.byScope[EndpointsScope(testEndpoint.Key.Network)].endpoints[testEndpoint.Key]; !there {
		t.Error("the endpoint of this host is gone")
	}
	stop()
	c2, err := New(Config{
		Host: "h1", Store: st.Client(), Log: slog.New(slog.DiscardHandler), StateDir: c.StateDir, Grace: time.Hour,
		Agent: fakeAgent{own},
	})
	if err != nil {
		t.Fatal(err)
	}
	c2.Require(testEndpoint.Key.Network)
	follow(t, c2)
	until(t, c2, "nor by the next run", holds(c2))
	st.Replace(right, 0)
	until(t, c, "the right one is followed", followed(c))
	until(t, c2, "the right one is followed by the next run", followed(c2))
}

// TestOlderOneByOne: of mirrors that list an older state one after the other, the first has
// none of them follow it: neither at once, nor once others are waited for no longer.
func TestOlderOneByOne(t *testing.T) {
	a := store.Incarnation{ID: "a", Generation: 1}
	c := newCluster(t, memory.New(), Attachment{Endpoint: testEndpoint.Key})
	c.mu.Lock()
	c.Guard.state, c.Guard.source = following, fromStore
	global, single := c.mirrors.start(Scope{}), c.mirrors.start(EndpointsScope(testEndpoint.Key.Network))
	c.mu.Unlock()
	deliver := func(m *mirror, b store.Batch) {
		t.Helper()
		b.Listed, b.Store = true, a
		b.Older = !b.Snapshot && strings.HasPrefix(c.mirrors.sinceOf(m), "was")
		if err := c.deliver(t.Context(), m, b); err != nil {
			t.Fatal(err)
		}
	}
	deliver(global, store.Batch{Revision: 5, Place: "was 5", Snapshot: true})
	deliver(single, store.Batch{Revision: 5, Place: "was 5", Snapshot: true, Events: []store.Event{row(t, tables.Endpoints, testEndpoint, 5)}})
	if err := c.Guard.stale(); err != nil {
		t.Fatalf("held by what was first: %v", err)
	}
	deliver(global, store.Batch{Revision: 9, Place: "is 9"})
	if c.Guard.stale() == nil {
		t.Error("the older state is followed before all of it is there")
	}
	late := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.Guard.follows() {
			t.Fatal("it is not held")
		}
		c.Guard.since = time.Now().Add(-2 * relistTimeout)
		c.judge()
	}
	late()
	if err := c.Guard.stale(); err != nil {
		t.Errorf("a mirror that does not list is waited for for ever: %v", err)
	}
	deliver(single, store.Batch{Revision: 11, Place: "is 11", Events: []store.Event{gone(testEndpoint, 11)}})
	late()
	if err := c.Guard.stale(); err == nil || !strings.Contains(err.Error(), "lacks 1 of 1 attachments") {
		t.Errorf("held by %v", err)
	}
	if _, there := single.endpoints[testEndpoint.Key]; !there {
		t.Error("the endpoint of this host is gone")
	}
}
