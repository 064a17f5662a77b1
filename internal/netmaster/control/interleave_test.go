package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// between is a store that runs a hook once between the run of a transaction's
// function and its commit: the moment at which another's commit hurts most.
type between struct {
	*memory.Store
	hook atomic.Pointer[func()]
}

func (b *between) wrap(fn func(store.Tx) error) func(store.Tx) error {
	return func(tx store.Tx) error {
		err := fn(tx)
		if hook := b.hook.Swap(nil); hook != nil {
			(*hook)()
		}
		return err
	}
}

func (b *between) Update(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
	return b.Store.Update(ctx, b.wrap(fn))
}

func (b *between) UpdateCached(ctx context.Context, near store.CachedReader, fn func(store.Tx) error) (store.Revision, error) {
	return b.Store.UpdateCached(ctx, near, b.wrap(fn))
}

// pairBase starts a cluster in which each of pairRequests alone succeeds, and a
// second replica to run the other request of a pair.
func pairBase(t *testing.T) (a, b *harness, hook *atomic.Pointer[func()]) {
	t.Helper()
	b = newCluster(t)
	st := &between{Store: b.st.Client()}
	a = through(t, st, st.Store)
	b.put(
		model.Tenant{Name: "empty"}, network("n", "10.1.0.0/24"), network("m", "10.2.0.0/24"),
		group("g", "m"), policy("p"), policy("q"), rule("q", "1"),
		endpoint("m", "lab", func(e *model.Endpoint) { e.Labels = map[string]string{"app": "idle"} }),
	)
	b.ok(b.remove(model.EndpointKey{Network: netKey("m"), ID: "lab"}))
	b.ok(b.Repair.SweepOnce(testContext(t), b.leader())) // the identity of app=idle is marked
	a.fresh()
	return a, b, &st.hook
}

func pairRequests() map[string]func(*harness) error {
	try := func(o any) func(*harness) error { return func(c *harness) error { return c.try(o) } }
	remove := func(k any) func(*harness) error { return func(c *harness) error { return c.remove(k) } }
	return map[string]func(*harness) error{
		"delete tenant":     remove(model.TenantName("empty")),
		"network in tenant": try(network("empty:x", "10.1.0.0/24")),
		"policy in tenant":  try(policy("empty:x")),
		"delete network":    remove(netKey("n")),
		"endpoint":          try(endpoint("n", "c1")),
		"endpoint 15":       try(endpoint("n", "c2", withIP("10.1.0.15"))),
		"reserve 15":        try(AddressRequest{Network: netKey("n"), Preferred: addr("10.1.0.15")}),
		"reserve":           try(AddressRequest{Network: netKey("n")}),
		"group on network":  try(group("gn", "n")),
		"pool 10-20":        try(pooled("pool1", "n", "10.1.0.10-10.1.0.20")),
		"pool 1-15":         try(pooled("pool2", "n", "10.1.0.1-10.1.0.15")),
		"rule names network": try(rule("p", "1", func(r *model.Rule) {
			r.Network = "n"
		})),
		"delete group":     remove(groupKey("g")),
		"endpoint in g":    try(endpoint("m", "c3", inGroup("g"))),
		"rule names group": try(rule("p", "2", func(r *model.Rule) { r.Group = "g" })),
		"attach p":         try(group("g", "m", "p")),
		"attach q":         try(group("g", "m", "q")),
		"group with q":     try(group("gq", "m", "q")),
		"delete p":         remove(policyKey("p")),
		"delete q":         remove(policyKey("q")),
		"rule in q":        try(rule("q", "2")),
		"name as network":  try(network("same", "10.9.0.0/24")),
		"name as group":    try(group("same", "m")),
		"subnet":           try(network("s1", "10.8.1.0/24")),
		"subnet again":     try(network("s2", "10.8.1.128/25")),
		"wide subnet":      try(network("s3", "10.8.0.0/16")),
		"narrow the range": try(model.Global{VXLANs: model.TagRange{Lo: 1, Hi: 50}}),
		"tag 60":           try(with(network("t1", "10.7.1.0/24"), func(n *model.Network) { n.ReqTag = 60 })),
		"tag 60 again":     try(with(network("t2", "10.7.2.0/24"), func(n *model.Network) { n.ReqTag = 60 })),
		"use idle label":   try(endpoint("m", "c4", func(e *model.Endpoint) { e.Labels = map[string]string{"app": "idle"} })),
		"sweep": func(c *harness) error {
			kv, err := c.st.Get(testContext(c.t), cluster.LeaderKey)
			if err != nil {
				return err
			}
			return c.Repair.SweepOnce(testContext(c.t), Leader{Key: cluster.LeaderKey, Create: kv.Create})
		},
	}
}

// Every pair of requests, the one committed between the other's reads and its
// commit, leaves a state that could have come about one after the other.
func TestInterleavedRequestsAreSerializable(t *testing.T) {
	requests := pairRequests()
	names := slices.Sorted(maps.Keys(requests))
	for _, outer := range names {
		for _, inner := range names {
			if outer == inner {
				continue
			}
			t.Run(outer+" around "+inner, func(t *testing.T) {
				a, b, hook := pairBase(t)
				var innerErr error
				ran := false
				run := func() { ran = true; innerErr = requests[inner](b) }
				hook.Store(&run)
				outerErr := requests[outer](a)
				if !ran {
					t.Error("the inner request did not run")
				}
				outcomesOf(t, []error{outerErr, innerErr})
				if innerErr != nil && !errors.Is(innerErr, model.ErrUnavailable) {
					t.Errorf("%s, which came first, failed: %v", inner, innerErr)
				}
				checkInvariants(t, b)
				checkReferences(t, b)
			})
		}
	}
}

// checkReferences checks what checkInvariants cannot see in a view: that
// addresses, identities and records of endpoints exist, and nothing of what is
// gone is left.
func checkReferences(t *testing.T, c *harness) {
	t.Helper()
	v := c.fresh()
	records := map[tables.IdentityKey]bool{}
	for key := range c.dump() {
		ch, err := tables.Decode(store.Event{KV: store.KV{Key: key}})
		if err != nil {
			t.Fatal(err)
		}
		switch k := ch.Key.(type) {
		case tables.IdentityKey:
			records[k] = true
		case tables.AddressKey:
			if _, ok := v.Networks.Get(k.Network); !ok {
				t.Errorf("address %s of the lost network %s", k.Addr, k.Network)
			}
		}
	}
	need := func(what string, tenant model.TenantName, id model.Identity) {
		if !records[tables.IdentityKey{Tenant: tenant, ID: id}] {
			t.Errorf("%s has the identity %d, which has no record", what, id)
		}
	}
	for _, n := range v.Networks.List("") {
		need("network "+n.Key.String(), n.Key.Tenant, n.Identity)
		for _, e := range v.Endpoints.OfNetwork(n.Key) {
			need("endpoint "+e.Key.String(), n.Key.Tenant, e.Identity)
		}
		pools := v.Addresses.poolsOf(n.Key)
		for _, g := range v.Groups.OfNetwork(n.Key) {
			if g.Pool.IsValid() && pools[g.Key.Name] != g.Pool {
				t.Errorf("pool of %s is %s, the row says %s", g.Key, g.Pool, pools[g.Key.Name])
			}
			for name, p := range pools {
				if name != g.Key.Name && g.Pool.IsValid() && (p.Contains(g.Pool.First) || p.Contains(g.Pool.Last)) {
					t.Errorf("pools of %s and %s overlap", g.Key.Name, name)
				}
			}
		}
		v.mu.RLock()
		for a, o := range v.Addresses.spaces[n.Key].all() {
			for name, p := range pools {
				if p.Contains(a) && o.Group != name {
					t.Errorf("%s of group %q lies in the pool of %q", a, o.Group, name)
				}
			}
		}
		v.mu.RUnlock()
	}
	for _, g := range v.Groups.List("") {
		need("group "+g.Key.String(), g.Key.Tenant, g.ID)
	}
	for _, r := range v.Policies.Rules("") {
		if _, ok := v.Networks.Get(model.NetworkKey{Tenant: r.Key.Tenant, Name: r.Network}); r.Network != "" && !ok {
			t.Errorf("rule %s names the lost network %s", r.Key, r.Network)
		}
	}
	for _, left := range keysUnder(c, tables.AllocPrefix+"ref/") {
		ch, err := tables.Decode(store.Event{KV: store.KV{Key: left}})
		if k, ok := ch.Key.(tables.RefKey); err != nil || !ok || !strings.HasPrefix(k.From, string(k.Target.Tenant)+":") {
			t.Errorf("bad reference %s", left)
		}
	}
}

func (s *space) all() map[netip.Addr]owned {
	if s == nil {
		return nil
	}
	return s.owners
}

// counting is a store that counts the runs of transactions' functions.
type counting struct {
	*memory.Store
	runs atomic.Int64
}

func (s *counting) UpdateCached(ctx context.Context, near store.CachedReader, fn func(store.Tx) error) (store.Revision, error) {
	return s.Store.UpdateCached(ctx, near, func(tx store.Tx) error {
		s.runs.Add(1)
		return fn(tx)
	})
}

// Creators of endpoints in one process never conflict: each transaction runs
// once, since no two try the same address.
func TestCreatorsDoNotConflict(t *testing.T) {
	mem := memory.New()
	st := &counting{Store: mem}
	c := through(t, st, mem)
	c.put(network("n", "10.1.0.0/20", "2001:db8::/64"), group("web", "n"), pooled("pool", "n", "10.1.2.0-10.1.3.255"))
	c.fresh()
	before := st.runs.Load()
	const creators, each = 16, 20
	groups := []model.GroupName{"", "web", "pool"}
	outcomes(t, parallel(creators, func(i int) error {
		for j := range each {
			if err := c.try(endpoint("n", fmt.Sprintf("c%d-%d", i, j), inGroup(groups[j%3]))); err != nil {
				return err
			}
		}
		return nil
	}), nil)
	if runs := st.runs.Load() - before; runs != creators*each {
		t.Errorf("%d runs for %d endpoints", runs, creators*each)
	}
	checkInvariants(t, c)
}

// Addresses that a request holds are not given to others until it has failed, or until the
// view shows its result.
func TestReservedAddressesAreNotGivenTwice(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/30"))
	n, _ := c.fresh().Networks.Get(netKey("n"))
	ranges, cursor := allowed(n, false, nil, "")
	take := func() (*allocator, bool) {
		cl := c.newAllocator(Admin())
		_, ok := cl.addr(n, false, cursor, ranges)
		_, ok2 := cl.number(tables.NumberVLAN, 7, 8)
		if ok != ok2 {
			t.Errorf("address %v, number %v", ok, ok2)
		}
		return cl, ok
	}
	first, _ := take()
	second, _ := take()
	if _, ok := take(); ok {
		t.Error("three requests hold two candidates")
	}
	first.releaseAll(0)
	if _, ok := take(); !ok {
		t.Error("what a failed request held is not free")
	}
	second.releaseAll(c.view.Revision() + 1)
	if _, ok := take(); ok {
		t.Error("what a commit took is free before the view has seen it")
	}
	c.put(policy("p")) // the view moves on, and shows that they are unused
	c.fresh()
	if _, ok := take(); !ok {
		t.Error("what the view shows as free is not")
	}
}
