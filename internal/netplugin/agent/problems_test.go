package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestUnreadableRecordIsReported: a record that cannot be read is a problem of the host until
// it can.
func TestUnreadableRecordIsReported(t *testing.T) {
	b := newBed(t)
	b.ready()
	key := tables.Networks.Key(model.NetworkKey{Tenant: "default", Name: "default-net"})
	b.put(func(tx store.Tx) error { // the tenant has to be mirrored
		return tables.Tenants.Put(tx, model.Tenant{Name: "default"})
	})
	b.agent.mirror.cluster.AcquireTenant("default")
	kv, err := b.st.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(value []byte) { b.put(func(tx store.Tx) error { tx.Put(key, value, nil); return nil }) }
	write([]byte("{"))
	told := func() bool {
		return strings.Contains(b.agent.Observer.State().Problems["record "+key], "counts as missing")
	}
	b.eventually("it is told", func() error {
		if !told() {
			return fmt.Errorf("problems: %v", b.agent.Observer.State().Problems)
		}
		return nil
	})
	write(kv.Value)
	b.eventually("it is told no more", func() error {
		if told() {
			return fmt.Errorf("problems: %v", b.agent.Observer.State().Problems)
		}
		return nil
	})
}
