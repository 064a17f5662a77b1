package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// eventually waits until ok returns nil.
func (c *harness) eventually(what string, ok func() error) {
	c.t.Helper()
	ctx := testContext(c.t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

// identity returns which store the cluster has.
func (c *harness) identity() Incarnation {
	c.t.Helper()
	i, rev, err := c.Store.Identity(testContext(c.t))
	c.ok(err)
	if rev == 0 {
		c.t.Error("the store's identity comes without a revision")
	}
	return i
}

// TestAdoptedStoreSucceedsItsPredecessors: the store succeeds all that hosts say they follow, and no
// other, in a later epoch; said again it succeeds the same; a store without
// identity cannot be adopted.
func TestAdoptedStoreSucceedsItsPredecessors(t *testing.T) {
	c := newCluster(t)
	was := c.identity()
	c.refused(model.ErrConflict, "no host reports", func() error { _, _, _, err := c.Store.Adopt(testContext(t), Admin(), true); return err })
	follows := func(marks ...string) {
		_, err := c.st.Update(t.Context(), func(tx store.Tx) error {
			for i, mark := range marks {
				if err := tables.Hosts.Put(tx, model.Host{Name: model.HostName(fmt.Sprintf("h%d", i)), Store: mark}); err != nil {
					return err
				}
			}
			return nil
		})
		c.ok(err)
	}
	follows("held:lost/7", "held:lost/8", "other/1", was.Mark(), fmt.Sprintf("held:%s/%d", was.ID, was.Generation+5), "")
	token := store.AccessTokens + "X"
	if _, err := c.st.Update(testContext(t), func(tx store.Tx) error { tx.Put(token, []byte("x"), nil); return nil }); err != nil {
		t.Fatal(err)
	}
	adopted, _, rev, err := c.Store.Adopt(testContext(t), Admin(), false)
	if c.dump()[token] != "" {
		t.Error("a token of before lets in again")
	}
	c.ok(err)
	if now := c.identity(); !slices.Equal(now.Replaces, adopted.Replaces) || !now.Same(adopted) || rev == 0 {
		t.Errorf("adopted %+v at %d, the store has %+v", adopted, rev, now)
	}
	if !slices.Equal(adopted.Replaces, []string{"lost", "other"}) || adopted.ID != was.ID || adopted.Since == "" {
		t.Errorf("adopted %+v, was %+v", adopted, was)
	}
	for _, follower := range []Incarnation{{ID: "lost", Generation: 8}, {ID: "other", Generation: 1}, was, {ID: was.ID, Generation: was.Generation + 5}} {
		if !adopted.Succeeds(follower) {
			t.Errorf("who follows %s does not follow %s", follower, adopted)
		}
	}
	if adopted.Succeeds(Incarnation{ID: "third", Generation: 1}) {
		t.Errorf("%+v succeeds a store that no host named", adopted)
	}
	follows("third/1", "other/1", was.Mark(), was.Mark(), was.Mark())
	again, ended, _, err := c.Store.Adopt(testContext(t), Admin(), false)
	c.ok(err)
	if ended {
		t.Error("tokens have ended, though no host knows a later state of this store")
	}
	if !slices.Equal(again.Replaces, []string{"lost", "other", "third"}) || again.Generation <= adopted.Generation {
		t.Errorf("adopted again as %+v, was %+v", again, adopted)
	}
	follows(again.Mark(), again.Mark(), again.Mark(), again.Mark(), again.Mark(), "")
	c.refused(model.ErrConflict, "no host reports", func() error { _, _, _, err := c.Store.Adopt(testContext(t), Admin(), true); return err })
	follows(fmt.Sprintf("held:%s", again.Mark())) // of an earlier revision
	_, _, _, err = c.Store.Adopt(testContext(t), Admin(), true)
	c.ok(err)
	c.stop() // it would write the identity again
	_, err = c.st.Update(t.Context(), func(tx store.Tx) error { tx.Delete(store.StoreIdentityKey); return nil })
	c.ok(err)
	if _, _, err := c.Store.Identity(testContext(t)); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("the identity of a store that has none: %v", err)
	}
	c.refused(model.ErrNotFound, "store identity", func() error { _, _, _, err := c.Store.Adopt(testContext(t), Admin(), true); return err })
}

// TestEmptyStoreGetsANewIdentity: under a running netmaster an empty store gets an identity of its own
// and the defaults, once, and is used; any other store is used as it is; each case is
// reported.
func TestEmptyStoreGetsANewIdentity(t *testing.T) {
	var log testenv.Log
	logged := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	c := newCluster(t, logged)
	other := onStore(t, c.st.Client(), logged)
	both := []*harness{c, other}
	right := c.identity()
	c.put(model.Tenant{Name: "blue"}, network("n", "10.1.1.0/24"))
	backup := c.st.Data()
	c.put(network("later", "10.1.2.0/24"))
	latest := c.st.Data()
	// is waits until the view has these networks and the store that identity.
	is := func(what, told string, want func(Incarnation) bool, networks ...string) {
		t.Helper()
		c.eventually(what+" is told", func() error {
			if !strings.Contains(log.String(), told) {
				return fmt.Errorf("no %q in\n%s", told, log.String())
			}
			return nil
		})
		for _, x := range both {
			x.eventually(what, func() error {
				i, _, err := x.Store.Identity(t.Context())
				if err != nil || !want(i) {
					return fmt.Errorf("it is %s, %w", i, err)
				}
				var names []string
				for _, n := range x.fresh().Networks.List("") {
					names = append(names, string(n.Key.Name))
				}
				if _, there := x.fresh().Settings.Global(); !there || !slices.Equal(names, networks) {
					return fmt.Errorf("settings %t, networks %v, want %v", there, names, networks)
				}
				return nil
			})
		}
	}
	c.st.Replace(memory.New().Data(), 0)
	is("a new identity", "the store has no identity: it is empty", func(i Incarnation) bool { return i.ID != "" && i.ID != right.ID && i.Generation == 1 })
	for i, x := range both { // and it is used
		x.put(network(fmt.Sprintf("n%d", i), fmt.Sprintf("10.1.%d.0/24", i+1)), endpoint(fmt.Sprintf("n%d", i), "c"))
	}
	is("the same for all", "no identity", c.identity().Same, "n0", "n1")
	checkInvariants(t, c)

	c.st.Replace(latest, 0)
	is("the right store again", "the store's identity has changed", right.Same, "later", "n")
	c.st.Replace(backup, 0)
	is("an older state", "the store is at an older state than before", right.Same, "n")
	restored := memory.New()
	restored.Replace(backup, 1_000_000)
	epoch := Incarnation{ID: right.ID, Generation: right.Generation + 1}
	_, err := restored.Update(t.Context(), func(tx store.Tx) error { return tables.Incarnations.Put(tx, epoch) })
	c.ok(err)
	c.st.Replace(restored.Data(), 0)
	is("a restored one", "the store was restored from a backup", epoch.Same, "n")
	checkInvariants(t, other)
}

// haltedStore is a store whose mirrors deliver nothing while halted is locked.
type haltedStore struct {
	*memory.Store
	halted sync.RWMutex
}

func (l *haltedStore) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	return l.Store.Mirror(ctx, prefixes, func(b store.Batch) error {
		l.halted.RLock()
		defer l.halted.RUnlock()
		return fn(b)
	}, opts...)
}

// TestUnseenReplacementAnswersNothing: with a store that was replaced by an emptier one, and
// a view that has not heard of it, nothing is read, nor taken for done, that is
// not there any more.
func TestUnseenReplacementAnswersNothing(t *testing.T) {
	mem := memory.New()
	st := &haltedStore{Store: mem}
	c := through(t, st, mem)
	began := mem.Data()
	c.put(model.Tenant{Name: "blue"})
	c.fresh()
	changes := []Change{ChangeTenant(valid(model.Tenant{Name: "blue"}), false)}
	st.halted.Lock()
	mem.Replace(began, 0)
	for what, ask := range map[string]func(ctx context.Context) error{
		"a view":    func(ctx context.Context) error { _, err := c.View(ctx); return err },
		"a dry run": func(ctx context.Context) error { _, _, _, err := c.Apply(ctx, Admin(), changes, true, nil); return err },
		"a change": func(ctx context.Context) error {
			_, _, _, err := c.Apply(ctx, Admin(), changes, false, nil)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := ask(ctx); err == nil {
			t.Errorf("%s is answered by what was", what)
		}
		cancel()
	}
	st.halted.Unlock()
	out, _, _, err := c.Apply(testContext(t), Admin(), changes, false, nil)
	c.ok(err)
	if out[0].Unchanged() {
		t.Error("a tenant that is not there is unchanged")
	}
	if _, there := c.fresh().Tenants.Get("blue"); !there {
		t.Error("what was applied is not there")
	}
}

// TestMissingStoreIdentityIsReported: what asks for the store's identity while it is away says so.
func TestMissingStoreIdentityIsReported(t *testing.T) {
	c := newCluster(t)
	c.st.Unavailable(true)
	defer c.st.Unavailable(false)
	if _, _, err := c.Store.Identity(context.Background()); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("Identity: %v", err)
	}
	if _, _, _, err := c.Store.Adopt(testContext(t), Admin(), true); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("Adopt: %v", err)
	}
}

// TestDeletedStoreIdentityIsRestored: a store whose identity somebody deletes gets the same one back, so that
// hosts go on following it; with the cluster's settings gone too it is a new cluster's.
func TestDeletedStoreIdentityIsRestored(t *testing.T) {
	c := newCluster(t)
	was := c.identity()
	for _, emptied := range []bool{false, true} {
		_, err := c.st.Update(t.Context(), func(tx store.Tx) error {
			tx.Delete(store.StoreIdentityKey)
			if emptied {
				tables.Globals.Delete(tx, tables.GlobalKey{})
			}
			return nil
		})
		c.ok(err)
		c.eventually("an identity", func() error {
			now, _, err := c.Store.Identity(t.Context())
			if err == nil && (now.ID == was.ID) == emptied {
				err = fmt.Errorf("it is %s, and was %s", now, was)
			}
			return err
		})
	}
}
