package control

import (
	"context"
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestSweepDeletesRemainsOfDeletedNetworks: the leader's next round deletes the remains of a deleted network
// from the store, and objects can be created again.
func TestSweepDeletesRemainsOfDeletedNetworks(t *testing.T) {
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
	since, err := c.Repair.sweepGenerations(testContext(t), c.leader(), 0)
	c.ok(err)
	if count() == 0 {
		t.Error("the first round has removed generations that were touched just now")
	}
	c.put(network("m", "10.2.0.0/24"))
	before := count()
	_, err = c.Repair.sweepGenerations(testContext(t), c.leader(), since)
	c.ok(err)
	if n := count(); n == 0 || n >= before {
		t.Errorf("%d generations of %d are left; want those of the network that came since", n, before)
	}
	c.put(network("n", "10.1.0.0/24"))
}

// TestGenerationsAreBounded: tenants, networks and groups that come and go for
// ever leave no more generations than those of some rounds.
func TestGenerationsAreBounded(t *testing.T) {
	c := newCluster(t)
	fence := c.leader()
	var touched store.Revision
	var counts []int
	for round := range 8 {
		tenant := fmt.Sprintf("t%d", round)
		c.put(model.Tenant{Name: model.TenantName(tenant)})
		for i := range 10 {
			n, g := fmt.Sprintf("%s:n%d", tenant, i), fmt.Sprintf("%s:g%d", tenant, i)
			c.put(network(n, fmt.Sprintf("10.%d.0.0/24", i)), group(g, fmt.Sprintf("n%d", i)))
			e := c.create(endpoint(n, "e", inGroup(groupKey(g).Name)))
			for _, k := range []any{e.Key, groupKey(g), netKey(n)} {
				c.ok(c.remove(k))
			}
		}
		c.ok(c.remove(model.TenantName(tenant)))
		var err error
		touched, err = c.Repair.sweepGenerations(testContext(t), fence, touched)
		c.ok(err)
		kvs, _, err := c.store.Range(context.Background(), store.Root+"gen/")
		c.ok(err)
		counts = append(counts, len(kvs))
	}
	if last := counts[len(counts)-1]; last > counts[2] {
		t.Errorf("generations after each round: %v; want no more in the last than in the third", counts)
	}
	t.Logf("generations after each round: %v", counts)
}
