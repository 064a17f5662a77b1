package control

import (
	"context"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestSweepGenerations: what a deleted network leaves of itself in the store
// goes when the leader comes round the next time, and objects can be made anew.
func TestSweepGenerations(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"))
	c.ok(c.remove(model.NetworkKey{Tenant: model.DefaultTenant, Name: "n"}))
	count := func() int {
		kvs, _, err := c.store.Range(context.Background(), store.Root+"gen/")
		c.ok(err)
		return len(kvs)
	}
	if count() == 0 {
		t.Fatal("a network that came and went has left no generation: this test shows nothing")
	}
	since, err := c.sweepGenerations(testContext(t), c.leader(), 0)
	c.ok(err)
	if count() == 0 {
		t.Error("the first round has removed generations that were touched just now")
	}
	c.put(network("m", "10.2.0.0/24"))
	before := count()
	_, err = c.sweepGenerations(testContext(t), c.leader(), since)
	c.ok(err)
	if n := count(); n == 0 || n >= before {
		t.Errorf("%d generations of %d are left; want those of the network that came since", n, before)
	}
	c.put(network("n", "10.1.0.0/24"))
}
