package control

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// The store of a former version, or its backup, may have objects of kinds that are no more.
func TestDroppedObjectsAreDeletedAndNamed(t *testing.T) {
	var log testenv.Log
	c := newCluster(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	key := tables.TenantPrefix(model.DefaultTenant) + "volumes/v"
	_, err := c.st.Client().Update(testContext(t), func(tx store.Tx) error {
		tx.Put(key, []byte(`{"v":1,"key":{"tenant":"default","name":"v"},"size":"1G"}`), nil)
		return nil
	})
	c.ok(err)
	c.fresh()
	c.ok(c.Repair.SweepOnce(testContext(t), c.leader()))
	if _, there := c.dump()[key]; there {
		t.Error("it is still there")
	}
	if !strings.Contains(log.String(), "volume default:v") {
		t.Errorf("the log does not name it:\n%s", log.String())
	}
}
