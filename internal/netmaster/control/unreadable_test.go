package control

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestUnreadableRecordIsAMissingObject: an unreadable record is a missing object, for netmaster as for hosts, and
// not the object that it was before; written again, it is there again.
func TestUnreadableRecordIsAMissingObject(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"))
	k := model.NetworkKey{Tenant: model.DefaultTenant, Name: "n"}
	key := tables.Networks.Key(k)
	kv, err := c.store.Get(testContext(t), key)
	c.ok(err)
	write := func(value []byte) {
		t.Helper()
		_, err := c.store.Update(testContext(t), func(tx store.Tx) error { tx.Put(key, value, nil); return nil })
		c.ok(err)
	}
	write([]byte("{"))
	if n, ok := c.fresh().Networks.Get(k); ok {
		t.Errorf("the view still has %+v", n)
	}
	write(kv.Value)
	if _, ok := c.fresh().Networks.Get(k); !ok {
		t.Error("the view does not have it again")
	}
}
