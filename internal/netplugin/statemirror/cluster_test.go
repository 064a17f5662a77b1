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
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// fakeAgent has attachments, and does nothing.
type fakeAgent []Attachment

func (a fakeAgent) Own() []Attachment { return a }
func (fakeAgent) Kick(string)         {}
func (fakeAgent) Soon(string)         {}
func (fakeAgent) OnOwnHost()          {}
func (fakeAgent) OnInfra()            {}
func (fakeAgent) OnLost()             {}
func (fakeAgent) OnFreeze(string)     {}

// newCluster is a State of host h1, whose directory is the test's.
func newCluster(t *testing.T, st store.Store, own ...Attachment) *State {
	t.Helper()
	c, err := New(Config{
		Host: "h1", Store: st, Log: slog.New(slog.DiscardHandler), StateDir: t.TempDir(), HostChanges: hostchanges.Open(t.TempDir(), slog.New(slog.DiscardHandler)),
		Agent: fakeAgent(own),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// follow has a State follow its store until the test ends.
func follow(t *testing.T, c *State) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx, time.Minute); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

// until waits for a condition of the State, which is locked meanwhile.
func until(t *testing.T, c *State, what string, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last error
	if err := c.wait(ctx, func() (bool, error) { last = ok(); return last == nil, nil }); err != nil {
		t.Fatalf("%s: %v, %v", what, err, last)
	}
}

func put(t *testing.T, st store.Store, fn func(store.Tx) error) {
	t.Helper()
	if _, err := st.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func identified(id string) func(store.Tx) error {
	return func(tx store.Tx) error {
		return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()), tables.Incarnations.Put(tx, store.Incarnation{ID: id, Generation: 1}))
	}
}

var testEndpoint = model.Endpoint{
	Key:  model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "e1"},
	Host: "h1", MAC: model.MAC{2, 2, 10, 1, 1, 1}, Identity: model.IdentityFirst,
}

// TestListsAreOfOneStore: when another store gets its identity between the list
// of a tenant and the list of the global part, both lists are of that store: the
// host says which store it is, and follows the right one when it is back.
func TestListsAreOfOneStore(t *testing.T) {
	st := memory.New()
	put(t, st, identified("a"))
	put(t, st, func(tx store.Tx) error { return tables.Endpoints.Put(tx, testEndpoint) })
	c := newCluster(t, st.Client(), Attachment{Endpoint: testEndpoint.Key})
	c.Require(testEndpoint.Key.Network)
	follow(t, c)
	followed := func() error { return c.Guard.stale() }
	until(t, c, "the first store is followed", followed)
	right := st.Data()
	other := memory.New()
	put(t, other, identified("b"))
	st.Replace(other.Data(), 0)
	holds := func() error {
		if err := c.Guard.stale(); err == nil || !strings.Contains(err.Error(), "it is store b") {
			return fmt.Errorf("held by %w", err)
		}
		return nil
	}
	until(t, c, "the other is not followed", holds)
	c.mu.Lock()
	c.mirrors.byScope[EndpointsScope(testEndpoint.Key.Network)].of = store.Incarnation{}
	c.Guard.state, c.Guard.why = syncing, "" // as if it had been listed a moment earlier
	c.mu.Unlock()
	until(t, c, "nor once it has been listed again", holds)
	st.Replace(right, 0)
	until(t, c, "the right one is followed", followed)
}

// TestEmptyTenantIsFollowed: a tenant that has no rows, and was listed before its store
// got an identity, looks the same in an empty store, so its mirror has nothing to tell:
// the host says all the same that the store is another one.
func TestEmptyTenantIsFollowed(t *testing.T) {
	st := memory.New()
	c := newCluster(t, st.Client(), Attachment{Endpoint: testEndpoint.Key})
	c.RequireTenant("default")
	follow(t, c)
	until(t, c, "the empty store is listed", func() error {
		if !c.mirrors.byScope[TenantScope("default")].ready {
			return errors.New("not yet")
		}
		return nil
	})
	put(t, st, identified("a"))
	put(t, st, func(tx store.Tx) error { return tables.Endpoints.Put(tx, testEndpoint) })
	c.Require(testEndpoint.Key.Network)
	followed := func() error {
		if err := c.Guard.stale(); err != nil || c.Guard.position.ID != "a" {
			return fmt.Errorf("it follows %q, held by %w", c.Guard.position.ID, err)
		}
		return nil
	}
	until(t, c, "the store with its identity is followed", followed)
	right := st.Data()
	st.Replace(memory.New().Data(), 0)
	until(t, c, "the empty one is not followed", func() error {
		if err := c.Guard.stale(); err == nil || !strings.Contains(err.Error(), "the store is empty") {
			return fmt.Errorf("held by %w", err)
		}
		return nil
	})
	st.Replace(right, 0)
	until(t, c, "the right one is followed", followed)
}

// TestUnneededEndpointsAreForgotten: of an endpoint that no attachment needs nothing is kept, once it
// has been out of the mirror for a while.
func TestUnneededEndpointsAreForgotten(t *testing.T) {
	st := memory.New()
	put(t, st, identified("a"))
	c := newCluster(t, st.Client())
	c.Acquire(testEndpoint.Key.Network)
	follow(t, c)
	until(t, c, "the store is followed", func() error { return c.Guard.stale() })
	k := testEndpoint.Key
	c.Endpoints.Hide(k)
	put(t, st, func(tx store.Tx) error { return tables.Endpoints.Put(tx, testEndpoint) })
	there := func() error {
		if _, ok := c.mirrors.byScope[EndpointsScope(testEndpoint.Key.Network)].endpoints[k]; !ok {
			return errors.New("it is not in the mirror")
		}
		return nil
	}
	until(t, c, "the endpoint comes", there)
	c.Endpoints.Forget(k)
	later := time.Now().Add(time.Hour)
	c.Endpoints.dropForgotten(later, time.Minute)
	if late := c.Endpoints.Orphans(later, OrphanGrace); len(late) != 1 || late[0].Key != k {
		t.Errorf("late endpoints: %v", late)
	}
	put(t, st, func(tx store.Tx) error { tables.Endpoints.Delete(tx, k); return nil })
	until(t, c, "the endpoint goes", func() error {
		if there() == nil {
			return errors.New("it is in the mirror")
		}
		return nil
	})
	c.Endpoints.dropForgotten(later, time.Minute)
	if len(c.Endpoints.hidden) != 0 {
		t.Errorf("kept: %v", c.Endpoints.hidden)
	}
}

// TestListBehindOtherMirrorsIsNotOlder: a list that was read a moment before what another mirror has
// delivered meanwhile is no older state of the store; one that was begun after it is.
func TestListBehindOtherMirrorsIsNotOlder(t *testing.T) {
	c := newCluster(t, memory.New())
	c.mu.Lock()
	c.Guard.state, c.Guard.source = following, fromStore
	one, other := c.mirrors.start(TenantScope("blue")), c.mirrors.start(TenantScope("green"))
	c.mu.Unlock()
	deliver := func(m *mirror, rev store.Revision, listed bool) {
		t.Helper()
		if err := c.deliver(t.Context(), m, store.Batch{Revision: rev, Listed: listed}); err != nil {
			t.Fatal(err)
		}
	}
	deliver(one, 5, true)
	deliver(one, 8, false)
	deliver(other, 6, true)
	if err := c.Guard.stale(); err != nil {
		t.Errorf("held by a list beside another mirror: %v", err)
	}
	c.mirrors.onState(t.Context(), other, errors.New("the connection ended"))
	deliver(other, 7, true)
	if c.Guard.stale() == nil {
		t.Error("an older state of the store is followed")
	}
}
