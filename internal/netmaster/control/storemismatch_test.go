package control

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestWrongStoreIsReported: another store, an empty one or an older state is reported until the
// right one is back, it is adopted or restored, or hours have gone by.
func TestWrongStoreIsReported(t *testing.T) {
	for name, st := range map[string]*memory.Store{"etcd": memory.New(), "consul": memory.NewWith(memory.Consul)} {
		t.Run(name, func(t *testing.T) { testStoreTrouble(t, st, name == "consul") })
	}
}

// testStoreTrouble has a store's revisions go on, whatever is put into it, if it does that.
func testStoreTrouble(t *testing.T, st *memory.Store, goesOn bool) {
	t.Helper()
	began := st.Data()
	var later atomic.Int64
	c := onStore(t, st, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) } })
	told := func(what, want string) {
		t.Helper()
		c.eventually(what, func() error {
			if got := c.Store.Mismatch(); (got == "") != (want == "") || !strings.Contains(got, want) {
				return fmt.Errorf("told %q, want %q", got, want)
			}
			return nil
		})
	}
	settled := func() Incarnation { // a new cluster has its identity, and all is seen
		t.Helper()
		var i Incarnation
		c.eventually("an identity", func() (err error) { i, _, err = c.Store.Identity(t.Context()); return err })
		c.put(model.Tenant{Name: "blue"})
		c.fresh()
		return i
	}
	replace := func(with *memory.Data) {
		t.Helper()
		bump := store.Revision(0)
		if goesOn {
			rev, err := c.st.CommitRevision(t.Context())
			c.ok(err)
			bump = rev + 1000
		}
		c.st.Replace(with, bump)
	}
	right := settled()
	backup := c.st.Data()
	c.put(network("n", "10.1.1.0/24"))
	c.fresh()
	latest := c.st.Data()
	told("the store as it began", "")

	replace(began)
	told("an empty one", "was empty")
	settled()
	told("it is a new cluster's", "was empty")
	other := c.st.Data()
	replace(latest)
	told("the right one is back", "")

	replace(other)
	told("another one", "was another one")
	replace(backup)
	if goesOn { // as far as it was it may not come before it is seen, where only that tells
		c.put(model.Tenant{Name: "green"})
		c.fresh()
	}
	told("back, in an older state", "was another one")
	replace(latest)
	told("the right one is back again", "")

	replace(backup)
	told("an older state", "older state")
	for n := range 5 { // beyond where it was
		c.put(network(fmt.Sprint("more", n), fmt.Sprintf("10.2.%d.0/24", n)))
	}
	c.fresh()
	replace(c.st.Data())
	c.fresh()
	told("it has gone on", "older state")
	_, err := c.st.Update(t.Context(), func(tx store.Tx) error {
		return tables.Hosts.Put(tx, model.Host{Name: "h", Store: fmt.Sprintf("held:%s/%d", right.ID, right.Generation)})
	})
	c.ok(err)
	c.eventually("adopted", func() error { _, _, _, err := c.Store.Adopt(t.Context(), Admin(), true); return err })
	told("it is adopted", "")

	replace(backup)
	told("an older state again", "older state")
	later.Store(int64(storeMismatchFor + time.Minute))
	told("hours later", "")
	later.Store(0)
	told("hours earlier", "older state")
	restored := memory.New()
	restored.Replace(backup, 1_000_000)
	_, err = restored.Update(t.Context(), func(tx store.Tx) error {
		return tables.Incarnations.Put(tx, Incarnation{ID: right.ID, Generation: right.Generation + 1})
	})
	c.ok(err)
	replace(restored.Data())
	told("it is restored", "")
}
