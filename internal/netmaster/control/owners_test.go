package control

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// checkOwners checks that all that is allocated has its owner and the other way round.
func checkOwners(t *testing.T, c *harness) {
	t.Helper()
	found, err := c.Repair.Owners(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Kind != Leftover {
			t.Errorf("%s: %s", f.Kind, f.Text)
		}
	}
}

// ownedCluster has one of each kind of what is allocated.
func ownedCluster(t *testing.T) *harness {
	t.Helper()
	c := newCluster(t)
	c.put(
		model.Tenant{Name: "blue"},
		network("n1", "10.1.0.0/16", "2001:db8::/64"),
		with(network("n2", "10.2.0.0/16"), func(n *model.Network) { n.Encap = model.EncapVLAN }),
		network("n6", "2001:db8:1::/64"),
		network("blue:far", "10.3.0.0/16"),
		policy("p1"),
		group("g1", "n1", "p1"), pooled("g2", "n2", "10.2.9.1-10.2.9.99"), group("blue:bg", "far"),
		rule("p1", "1", func(r *model.Rule) { r.Group = "g2" }),
		model.AppProfile{Key: model.AppProfileKey{Tenant: "default", Name: "app"}, Groups: []model.GroupName{"g1", "g2"}},
		endpoint("n1", "e1", inGroup("g1"), func(e *model.Endpoint) { e.Labels = map[string]string{"k": "v"} }),
		endpoint("n2", "e2", inGroup("g2")),
		endpoint("n6", "e6"),
		endpoint("n1", "mac", func(e *model.Endpoint) { e.MAC = model.MAC{0x0a, 1, 2, 3, 4, 5} }),
		endpoint("blue:far", "e3", inGroup("bg")),
		model.Service{
			Key: model.ServiceKey{Tenant: "default", Name: "svc"}, Network: netKey("n1"),
			Selectors: []model.ServiceSelector{{Key: "k", Value: "v"}}, Ports: []model.ServicePort{{Port: 80, Target: 80, Protocol: model.ProtoTCP, Text: "80:80:TCP"}},
		},
		AddressRequest{Network: netKey("n1"), Host: "host1"},
	)
	c.put(model.Tenant{Name: "default", Shared: []model.NetworkKey{netKey("blue:far")}})
	return c
}

// TestEveryLostAllocationIsFound: a cluster in order has no finding; each row of allocations that is
// lost, and each owner that is lost behind its allocations, is found and repaired.
func TestEveryLostAllocationIsFound(t *testing.T) {
	c := ownedCluster(t)
	checkOwners(t, c)
	before := c.dump()
	lost := map[string]int{}
	for _, key := range keysUnder(c, tables.StatePrefix) {
		rec, ch, err := tables.Look(store.KV{Key: key, Value: []byte(before[key]), Create: 1})
		if err != nil || rec.Noun == "" {
			continue
		}
		_, identity := ch.Key.(tables.IdentityKey)
		if len(allocationsIn(ch)) == 0 && !identity {
			continue
		}
		c.raw(func(tx store.Tx) { tx.Delete(key) })
		found, err := c.Repair.Owners(testContext(t))
		c.ok(err)
		if len(found) == 0 {
			t.Errorf("nobody misses %s", key)
		}
		lost[rec.Noun]++
		c.repairAll(t)
		if c.dump()[key] == "" && rec.Noun != "interned identity" && !identity {
			t.Errorf("%s is still lost after a repair", key)
		}
	}
	for _, noun := range []string{"address", "number", "interned identity", "identity", "MAC", "name", "reference", "subnet block", "address pools", "plan of shared networks"} {
		if lost[noun] == 0 {
			t.Errorf("no %s was lost: the test is not whole", noun)
		}
	}
	checkInvariants(t, c)
}

// TestEndpointRecordComesBack: an endpoint whose record alone was deleted is created again with all that
// is allocated to it, and no other endpoint gets any of that.
func TestEndpointRecordComesBack(t *testing.T) {
	c := ownedCluster(t)
	mac := model.MAC{0x0a, 1, 2, 3, 4, 5}
	for _, e := range append(c.Current().Endpoints.List("default"), c.Current().Endpoints.List("blue")...) {
		before := c.dump()
		c.raw(func(tx store.Tx) { tables.Endpoints.Delete(tx, e.Key) })
		for _, taken := range []model.Endpoint{
			endpoint("n1", "thief", func(o *model.Endpoint) { o.Key.Network, o.IPv4, o.IPv6 = e.Key.Network, e.IPv4, e.IPv6 }),
			endpoint("n1", "thief", func(o *model.Endpoint) { o.MAC = mac }),
		} {
			c.refused(model.ErrConflict, "", func() error { return c.try(taken) })
		}
		got, _, err := c.Endpoints.CreateEndpoint(testContext(t), Admin(), valid(e))
		if diff := cmp.Diff(before, c.dump()); diff != "" || err != nil || got.MAC != e.MAC {
			t.Errorf("%s came back with MAC %s (was %s): %v %s", e.Key, got.MAC, e.MAC, err, diff)
		}
	}
	checkOwners(t, c)
}

// Addresses of Kubernetes' services are Kubernetes' own: no allocation is missed.
func TestServicesOfKubernetesOwnNothing(t *testing.T) {
	c := newCluster(t)
	c.ok(c.Kubernetes.PutClusterRows(testContext(t), c.leader(), ClusterRows{
		Services: []model.Valid[model.Service]{valid(clusterService("a", "10.96.0.1"))},
		Slices:   []model.Valid[model.ServiceSlice]{valid(slice("a-1", "a", "10.1.0.1"))},
		Nodes:    []model.Valid[model.ClusterNode]{valid(model.ClusterNode{Name: "n1", Addrs: []netip.Addr{addr("192.168.7.1")}})},
	}))
	checkOwners(t, c)
}

// repairAll repairs, and checks that all is well then.
func (c *harness) repairAll(t *testing.T) (done []Repaired) {
	t.Helper()
	done, _, err := c.Repair.RepairOwners(testContext(t), Admin())
	c.ok(err)
	for _, r := range done {
		if r.Err != nil {
			t.Errorf("repair %q: %v", r.Text, r.Err)
		}
	}
	checkOwners(t, c)
	return done
}

// raw writes to the store behind all use-cases.
func (c *harness) raw(fn func(store.Tx)) {
	c.t.Helper()
	_, err := c.st.Client().Update(testContext(c.t), func(tx store.Tx) error {
		fn(tx)
		return nil
	})
	c.ok(err)
}

// TestAllocationsWithoutOwnerAreFreed: what is allocated to who is not there, or does not have it, is found
// and freed, and can be had by others then.
func TestAllocationsWithoutOwnerAreFreed(t *testing.T) {
	c := ownedCluster(t)
	put := func(err error) { c.ok(err) }
	stray := tables.AddressKey{Network: netKey("n1"), Addr: addr("10.1.7.7")}
	bad := []struct {
		what string
		do   func(store.Tx) error
	}{
		{"address 10.1.7.7 of network default:n1", func(tx store.Tx) error {
			return tables.Addresses.Put(tx, tables.Address{AddressKey: stray, Endpoint: "gone"})
		}},
		{"address 10.1.7.8 of network default:n1", func(tx store.Tx) error {
			return tables.Addresses.Put(tx, tables.Address{AddressKey: tables.AddressKey{Network: netKey("n1"), Addr: addr("10.1.7.8")}, Service: "gone"})
		}},
		{"number vlan 77", func(tx store.Tx) error {
			return tables.Numbers.Put(tx, tables.Number{NumberKey: tables.NumberKey{Kind: tables.NumberVLAN, Number: 77}, Owner: "default:gone"})
		}},
		{"number vni 777", func(tx store.Tx) error {
			return tables.Numbers.Put(tx, tables.Number{NumberKey: tables.NumberKey{Kind: tables.NumberVNI, Number: 777}, Owner: "default:n1"})
		}},
		{"number identity 9999", func(tx store.Tx) error {
			return tables.Numbers.Put(tx, tables.Number{NumberKey: tables.NumberKey{Kind: tables.NumberIdentity, Number: 9999}, Owner: "default:n1"})
		}},
		{"content of identity 4711 of tenant default", func(tx store.Tx) error {
			return tables.InternedIdentities.Put(tx, tables.Interned{InternKey: tables.InternKey{Tenant: "default", Hash: "00ff"}, ID: 4711})
		}},
		{"MAC 0a:00:00:00:00:01 of network default:n1", func(tx store.Tx) error {
			return tables.ChosenMACs.Put(tx, tables.MACOwner{MACKey: tables.MACKey{Network: netKey("n1"), MAC: model.MAC{0x0a, 0, 0, 0, 0, 1}}, Endpoint: "e1"})
		}},
		{"name default:gone", func(tx store.Tx) error {
			return tables.Names.Put(tx, tables.Name{NameKey: tables.NameKey{Tenant: "default", Name: "gone"}, Kind: "network"})
		}},
		{`reference of endpoint "default:n1:gone" to group "default:g1"`, func(tx store.Tx) error {
			return addReference(tx, tables.TargetGroup(groupKey("g1")), "endpoint", "default:n1:gone")
		}},
		{`reference of rule "default:gone:1" to group "default:g1"`, func(tx store.Tx) error {
			return addReference(tx, tables.TargetGroup(groupKey("g1")), ruleReference, "default:gone:1")
		}},
		{"subnet 10.9.0.0/24 of tenant default", func(tx store.Tx) error {
			return allocateSubnet(tx, netKey("gone"), "subnet", netip.MustParsePrefix("10.9.0.0/24"))
		}},
		{"address pool 10.1.3.1-10.1.3.9 of network default:n1", func(tx store.Tx) error {
			return putPool(tx, pooled("gone", "n1", "10.1.3.1-10.1.3.9"))
		}},
		{"subnet 10.8.0.0/24 in the plan of shared networks", func(tx store.Tx) error {
			return planNetwork(Scope{}, tx, network("gone", "10.8.0.0/24"))
		}},
	}
	_, err := c.st.Client().Update(testContext(t), func(tx store.Tx) error {
		for _, b := range bad {
			if err := b.do(tx); err != nil {
				return err
			}
		}
		return nil
	})
	put(err)
	found, err := c.Repair.Owners(testContext(t))
	c.ok(err)
	got := map[string]OwnerFinding{}
	for _, f := range found {
		got[f.Object] = f
	}
	for _, b := range bad {
		kind := NoOwner
		if strings.HasPrefix(b.what, "reference of rule") {
			kind = Leftover
		}
		if f := got[b.what]; f.Kind != kind || !f.Repair {
			t.Errorf("%s: found %+v", b.what, f)
		}
	}
	if len(found) != len(bad) {
		t.Errorf("found %d, planted %d: %v", len(found), len(bad), found)
	}
	c.put(endpoint("n2", "other")) // goes on beside
	if done := c.repairAll(t); len(done) != len(bad) {
		t.Errorf("repaired %d of %d", len(done), len(bad))
	}
	c.put(endpoint("n1", "gone", func(e *model.Endpoint) { e.IPv4 = stray.Addr; e.Group = "g1" }), network("gone", "10.9.0.0/24"))
	checkInvariants(t, c)
}

// TestConflictingAllocationsAreFound: what an endpoint has and another one's row claims is taken back when
// the other does not have it, and only said when both do.
func TestConflictingAllocationsAreFound(t *testing.T) {
	c := ownedCluster(t)
	e1, _ := c.fresh().Endpoints.Get(model.EndpointKey{Network: netKey("n1"), ID: "e1"})
	k := tables.AddressKey{Network: netKey("n1"), Addr: e1.IPv4}
	c.raw(func(tx store.Tx) { c.ok(tables.Addresses.Put(tx, tables.Address{AddressKey: k, Endpoint: "mac"})) })
	found, err := c.Repair.Owners(testContext(t))
	c.ok(err)
	if len(found) != 1 || found[0].Kind != NotAllocated || !found[0].Repair || !strings.Contains(found[0].Text, "allocated to another one") {
		t.Fatalf("found %+v", found)
	}
	c.repairAll(t)
	two := e1
	two.Key.ID = "two"
	c.raw(func(tx store.Tx) { c.ok(tables.Endpoints.Put(tx, two)) })
	found, err = c.Repair.Owners(testContext(t))
	c.ok(err)
	both := false
	for _, f := range found {
		both = both || strings.Contains(f.Text, "endpoint default:n1:two and endpoint default:n1:e1 both have address "+e1.IPv4.String()) && !f.Repair
	}
	if !both {
		t.Errorf("nobody says that two have %s: %+v", e1.IPv4, found)
	}
}

// TestUnreadableOwnersAreReportedUnchanged: unreadable, unknown and newer rows are reported, and a repair
// changes none of them.
func TestUnreadableOwnersAreReportedUnchanged(t *testing.T) {
	c := ownedCluster(t)
	net := tables.Networks.Key(netKey("blue:far"))
	newer := strings.Replace(c.dump()[net], `"v":1`, `"v":9`, 1)
	c.raw(func(tx store.Tx) {
		tx.Put(tables.Networks.Key(netKey("broken")), []byte("{"), nil)
		tx.Put(store.Root+"state/tenant/default/novelties/x", []byte("{}"), nil)
		tx.Put(net, []byte(newer), nil)
	})
	kinds := map[string]string{}
	found, err := c.Repair.Owners(testContext(t))
	c.ok(err)
	for _, f := range found {
		kinds[f.Kind] += f.Object
		if f.Repair || strings.Contains(f.Text, store.Root) {
			t.Errorf("bad finding %+v", f)
		}
	}
	for kind, object := range map[string]string{Unreadable: "state/tenant/default/networks/broken", UnknownRecord: "state/tenant/default/novelties/x", NewerRecord: "network"} {
		if kinds[kind] != object {
			t.Errorf("%s: got %q, want %q", kind, kinds[kind], object)
		}
	}
	before := c.dump()
	if _, _, err := c.Repair.RepairOwners(context.Background(), Admin()); err != nil {
		t.Fatal(err)
	}
	if after := c.dump(); after[net] != before[net] || len(after) != len(before) {
		t.Error("a repair changed what it cannot read")
	}
}

// TestRepairSparesNewOwners: what somebody takes between the look and the repair stays theirs.
func TestRepairSparesNewOwners(t *testing.T) {
	c := ownedCluster(t)
	k := tables.AddressKey{Network: netKey("n1"), Addr: addr("10.1.7.7")}
	c.raw(func(tx store.Tx) { c.ok(tables.Addresses.Put(tx, tables.Address{AddressKey: k, Endpoint: "late"})) })
	found, err := c.Repair.Owners(testContext(t))
	c.ok(err)
	c.raw(func(tx store.Tx) { tables.Addresses.Delete(tx, k) })
	c.put(endpoint("n1", "late", func(e *model.Endpoint) { e.IPv4 = k.Addr }))
	if done, err := c.Repair.freeUnowned(testContext(t), c.as(Admin()), found[0]); done || err != nil {
		t.Errorf("freed what somebody has: %t, %v", done, err)
	}
	checkInvariants(t, c)
}
