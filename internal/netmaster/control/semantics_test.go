package control

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Addresses come in order, skip gateway and pools, and endpoints get the MAC of
// their IPv4 address.
func TestAddressesAreGivenInOrder(t *testing.T) {
	c := newCluster(t)
	c.put(
		with(network("tiny", "10.8.1.0/29", "2001:db8:8::/64"), func(n *model.Network) { n.Gateway, n.Gateway6 = addr("10.8.1.1"), addr("2001:db8:8::1") }),
		network("only6", "2001:db8:7::/64"), network("p2p", "10.8.9.0/31"), network("one", "10.8.9.9/32"),
		pooled("pool", "tiny", "10.8.1.3-10.8.1.4"),
	)
	type got struct{ V4, V6, MAC string }
	show := func(e model.Endpoint) got { return got{e.IPv4.String(), e.IPv6.String(), e.MAC.String()} }
	for i, tc := range []struct {
		e    model.Endpoint
		want got
	}{
		{endpoint("tiny", "c1"), got{"10.8.1.2", "2001:db8:8::2", "02:02:0a:08:01:02"}},
		{endpoint("tiny", "c2", inGroup("pool")), got{"10.8.1.3", "2001:db8:8::3", "02:02:0a:08:01:03"}},
		{endpoint("tiny", "c3"), got{"10.8.1.5", "2001:db8:8::4", "02:02:0a:08:01:05"}},
		{endpoint("tiny", "c4", inGroup("pool"), withIP("2001:db8:8::99")), got{"10.8.1.4", "2001:db8:8::99", "02:02:0a:08:01:04"}},
		{endpoint("tiny", "c5", withIP("10.8.1.6")), got{"10.8.1.6", "2001:db8:8::5", "02:02:0a:08:01:06"}},
		{endpoint("p2p", "c1"), got{"10.8.9.0", "invalid IP", "02:02:0a:08:09:00"}},
		{endpoint("p2p", "c2"), got{"10.8.9.1", "invalid IP", "02:02:0a:08:09:01"}},
		{endpoint("one", "c1"), got{"10.8.9.9", "invalid IP", "02:02:0a:08:09:09"}},
	} {
		if diff := cmp.Diff(tc.want, show(c.create(tc.e))); diff != "" {
			t.Errorf("endpoint %d: %s", i, diff)
		}
	}
	if e := c.create(endpoint("only6", "c1")); e.IPv4.IsValid() || e.IPv6 != addr("2001:db8:7::1") || e.MAC[0] != 2 || e.MAC[1] != 3 {
		t.Errorf("endpoint without IPv4 is %+v", e)
	}
	c.refused(model.ErrExhausted, "default:tiny", func() error { return c.try(endpoint("tiny", "x")) })
	c.refused(model.ErrExhausted, "pool 10.8.1.3-10.8.1.4", func() error { return c.try(endpoint("tiny", "x", inGroup("pool"))) })
	c.refused(model.ErrExhausted, "default:one", func() error { return c.try(AddressRequest{Network: netKey("one")}) })

	c.ok(c.remove(model.EndpointKey{Network: netKey("tiny"), ID: "c3"}))
	if e := c.create(endpoint("tiny", "c6")); e.IPv4 != addr("10.8.1.5") {
		t.Errorf("the freed address was not found, got %v", e.IPv4)
	}
}

// What is in use; addresses never count below what is there (known fault 18).
func TestUsageNeverCountsBelowZero(t *testing.T) {
	c := base(t)
	v := c.fresh()
	for net, want := range map[string][]netip.Addr{
		"v1": {addr("10.1.1.1"), addr("10.1.1.2")}, "v2": {addr("10.1.2.10")}, "v3": {}, "only6": {}, "nosuch": {},
	} {
		if diff := cmp.Diff(want, v.Addresses.Addresses(netKey(net)), cmpNet, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", net, diff)
		}
	}
	c.ok(c.remove(model.EndpointKey{Network: netKey("v1"), ID: "c1"}))
	c.ok(c.remove(model.EndpointKey{Network: netKey("v1"), ID: "c2"}))
	if got := c.fresh().Addresses.Addresses(netKey("v1")); len(got) != 0 {
		t.Errorf("addresses %v after all endpoints are gone", got)
	}
	if diff := cmp.Diff("1-5", v.Networks.TagsInUse(model.EncapVXLAN)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("100", v.Networks.TagsInUse(model.EncapVLAN)); diff != "" {
		t.Error(diff)
	}
}

// A reserved address becomes the endpoint's in one step, goes with it, and is
// swept only when its time is over.
func TestReservedAddressBecomesTheEndpoints(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(network("n", "10.1.0.0/24"), pooled("web", "n", "10.1.0.100-10.1.0.110"))
	k := netKey("n")
	alloc := func(r AddressRequest) string {
		t.Helper()
		a, _, err := c.Addresses.AllocAddress(ctx, Admin(), r)
		c.ok(err)
		return a.String()
	}
	if diff := cmp.Diff([]string{"10.1.0.1", "10.1.0.2", "10.1.0.100"}, []string{
		alloc(AddressRequest{Network: k}), alloc(AddressRequest{Network: k, Host: "host1"}), alloc(AddressRequest{Network: k, Group: "web"}),
	}); diff != "" {
		t.Error(diff)
	}
	c.refused(model.ErrConflict, "reserved for host1", func() error {
		return c.try(endpoint("n", "x", withIP("10.1.0.2"), func(e *model.Endpoint) { e.Host = "host9" }))
	})
	c.create(endpoint("n", "c2", withIP("10.1.0.2")))
	c.create(endpoint("n", "c100", withIP("10.1.0.100"), inGroup("web")))
	c.refused(model.ErrInUse, "endpoint", func() error { return err2(c.Addresses.ReleaseAddress(ctx, Admin(), k, addr("10.1.0.2"))) })
	c.ok(err2(c.Addresses.ReleaseAddress(ctx, Admin(), k, addr("10.1.0.1"))))
	c.refused(model.ErrNotFound, "not allocated", func() error { return err2(c.Addresses.ReleaseAddress(ctx, Admin(), k, addr("10.1.0.1"))) })
	c.ok(c.remove(model.EndpointKey{Network: k, ID: "c2"}))
	// A swarm's manager reserves for its workers.
	alloc(AddressRequest{Network: k, Preferred: addr("10.1.0.60"), Host: "host1", AnyHost: true})
	c.refused(model.ErrConflict, "belongs to host", func() error { return err2(c.Addresses.ReleaseAddress(ctx, Agent("host9"), k, addr("10.1.0.60"))) })
	c.create(endpoint("n", "c60", withIP("10.1.0.60"), func(e *model.Endpoint) { e.Host = "host9" }))
	c.ok(c.remove(model.EndpointKey{Network: k, ID: "c60"}))
	alloc(AddressRequest{Network: k, Preferred: addr("10.1.0.50")})

	term := c.leader()
	c.ok(c.Repair.SweepOnce(ctx, term))
	if got := len(c.fresh().Addresses.Addresses(k)); got != 2 {
		t.Errorf("%d addresses are held, want the endpoint's and the reserved one", got)
	}
	c.clock.advance(25 * time.Hour)
	alloc(AddressRequest{Network: k, Preferred: addr("10.1.0.50")}) // expired: to be had again
	c.clock.advance(25 * time.Hour)
	c.ok(c.Repair.SweepOnce(ctx, term))
	if diff := cmp.Diff("[10.1.0.100]", fmt.Sprint(c.fresh().Addresses.Addresses(k))); diff != "" {
		t.Error(diff)
	}
}

// TestChosenMACIsUniqueOnItsNetwork: a runtime may choose an endpoint's MAC; no network has one twice.
func TestChosenMACIsUniqueOnItsNetwork(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"), network("other", "10.2.0.0/24"))
	withMAC := func(s string) func(*model.Endpoint) {
		return func(e *model.Endpoint) {
			var err error
			if e.MAC, err = model.ParseMAC(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	try := func(net, id, mac string) func() error {
		return func() error { return c.try(endpoint(net, id, withMAC(mac))) }
	}
	c.create(endpoint("n", "c1", withMAC("02:00:00:00:00:07")))
	c.ok(try("n", "c1", "02:00:00:00:00:07")()) // idempotent
	c.refused(model.ErrConflict, "already exists with MacAddress", try("n", "c1", "02:00:00:00:00:08"))
	c.refused(model.ErrConflict, `in use by endpoint "c1"`, try("n", "c2", "02:00:00:00:00:07"))
	c.refused(model.ErrInvalid, "even first byte", try("n", "c2", "03:00:00:00:00:07"))
	c.refused(model.ErrInvalid, "its own, 02:02:0a:01:00", try("n", "c2", "02:02:0a:01:00:63"))
	c.ok(c.try(endpoint("n", "c3", withMAC("02:02:0a:01:00:63"), withIP("10.1.0.99")))) // what it has anyway
	c.ok(try("other", "c4", "02:00:00:00:00:07")())
	c.ok(c.remove(model.EndpointKey{Network: netKey("n"), ID: "c1"}))
	c.ok(try("n", "c5", "02:00:00:00:00:07")())
}

// leader makes a lock like an election's.
func (c *harness) leader() Leader {
	c.t.Helper()
	_, err := c.st.Update(testContext(c.t), func(tx store.Tx) error {
		tx.Delete(cluster.LeaderKey)
		return nil
	})
	c.ok(err)
	rev, err := c.st.Update(testContext(c.t), func(tx store.Tx) error { return tx.Create(cluster.LeaderKey, []byte("x"), nil) })
	c.ok(err)
	return Leader{Key: cluster.LeaderKey, Create: rev}
}

// A leader that has been replaced removes nothing.
func TestSweepIsFenced(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"), AddressRequest{Network: netKey("n")})
	old := c.leader()
	c.leader()
	c.clock.advance(25 * time.Hour)
	c.refused(store.ErrFenced, "leadership", func() error { return c.Repair.SweepOnce(testContext(t), old) })
	c.refused(store.ErrFenced, "leadership", func() error { return c.Repair.Sweep(testContext(t), old, time.Hour) })
}

// Group ids are unique and are not given to the next group, not even after a
// restart (known fault 7); networks' ids likewise.
func TestNumbersAreNotReusedSoon(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"))
	seen := map[model.Identity]string{}
	for i := range 6 {
		if i == 3 {
			c.stop()
			c = onStore(t, c.st)
		}
		name := fmt.Sprintf("g%d", i)
		c.put(group(name, "n"), network(fmt.Sprintf("m%d", i), fmt.Sprintf("10.2.%d.0/24", i)))
		g, _ := c.fresh().Groups.Get(groupKey(name))
		if other, dup := seen[g.ID]; dup || g.ID < model.IdentityFirst {
			t.Errorf("group %s has the identity %d of %q", name, g.ID, other)
		}
		seen[g.ID] = name
		n, _ := c.fresh().Networks.Get(netKey(fmt.Sprintf("m%d", i)))
		if want := model.NetworkID(i + 2); n.ID != want {
			t.Errorf("network %d has id %d, want %d", i, n.ID, want)
		}
		c.ok(c.remove(groupKey(name)))
		c.ok(c.remove(n.Key))
	}
}

// VLANs and VNIs come from the ranges, end, and come back.
func TestTagsComeFromTheirRanges(t *testing.T) {
	c := newCluster(t)
	c.put(model.Global{VLANs: model.TagRange{Lo: 100, Hi: 103}, VXLANs: model.TagRange{Lo: 5000, Hi: 5002}})
	vlan := func(i int) model.Network {
		return with(network(fmt.Sprintf("vl%d", i), fmt.Sprintf("10.8.%d.0/24", i)), func(n *model.Network) { n.Encap = model.EncapVLAN })
	}
	for i := range 4 {
		c.put(vlan(i))
	}
	c.refused(model.ErrExhausted, "vlan", func() error { return c.try(vlan(4)) })
	for i := range 3 {
		c.put(network(fmt.Sprintf("vx%d", i), fmt.Sprintf("10.9.%d.0/24", i)))
	}
	c.refused(model.ErrExhausted, "vni", func() error { return c.try(network("vx3", "10.9.3.0/24")) })
	c.ok(c.remove(netKey("vx1")))
	c.put(network("vx9", "10.9.9.0/24"))
	if n, _ := c.fresh().Networks.Get(netKey("vx9")); n.Tag != 5001 {
		t.Errorf("tag %d, want the only free one", n.Tag)
	}
	c.put(model.Global{VLANs: model.TagRange{Lo: 1, Hi: 104}})
	c.put(vlan(4))
}

// Labels that pass the filter make identities of their own; what nothing has
// any more goes after two rounds, and one that is used again in between stays.
func TestUnusedIdentitiesAreReleasedLater(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(network("n", "10.1.0.0/24"), group("web", "n"))
	labels := func(kv ...string) func(*model.Endpoint) {
		return func(e *model.Endpoint) {
			e.Labels = map[string]string{}
			for i := 0; i < len(kv); i += 2 {
				e.Labels[kv[i]] = kv[i+1]
			}
		}
	}
	plain := c.create(endpoint("n", "plain"))
	inWeb := c.create(endpoint("n", "web", inGroup("web")))
	noise := c.create(endpoint("n", "noise", inGroup("web"), labels("vcs-ref", "123")))
	a1 := c.create(endpoint("n", "a1", inGroup("web"), labels("app", "a", "vcs-ref", "1")))
	a2 := c.create(endpoint("n", "a2", inGroup("web"), labels("app", "a", "vcs-ref", "2")))
	b := c.create(endpoint("n", "b", inGroup("web"), labels("app", "b")))
	g, _ := c.fresh().Groups.Get(groupKey("web"))
	n, _ := c.fresh().Networks.Get(netKey("n"))
	ids := []model.Identity{plain.Identity, inWeb.Identity, noise.Identity, a1.Identity, a2.Identity}
	want := []model.Identity{n.Identity, g.ID, g.ID, a1.Identity, a1.Identity}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Error(diff)
	}
	if all := []model.Identity{n.Identity, g.ID, a1.Identity, b.Identity}; len(slices.Compact(slices.Sorted(slices.Values(all)))) != 4 {
		t.Errorf("identities %v are not distinct", all)
	}
	term := c.leader()
	count := func() int {
		c.fresh()
		return strings.Count(fmt.Sprint(keysUnder(c, tables.IdentitiesOf("default"))), "/identities/")
	}
	c.ok(c.remove(b.Key))
	c.ok(c.remove(a1.Key))
	c.ok(c.remove(a2.Key))
	c.ok(c.Repair.SweepOnce(ctx, term)) // marks a and b
	if got := count(); got != 4 {
		t.Errorf("%d identities after the first round, want 4", got)
	}
	c.ok(err2(c.Endpoints.UpdateEndpoint(ctx, Admin(), EndpointUpdate{Key: inWeb.Key, Labels: map[string]string{"app": "a"}, Container: "cont1"})))
	if e, _ := c.fresh().Endpoints.Get(inWeb.Key); e.Identity != a1.Identity || e.Container != "cont1" {
		t.Errorf("endpoint is %+v, want identity %d again", e, a1.Identity)
	}
	c.ok(c.Repair.SweepOnce(ctx, term)) // removes b only
	c.ok(c.Repair.SweepOnce(ctx, term))
	if got := count(); got != 3 {
		t.Errorf("%d identities at last, want those of network, group and app=a", got)
	}
	c.ok(err2(c.Endpoints.UpdateEndpoint(ctx, Admin(), EndpointUpdate{Key: inWeb.Key, Stopped: true})))
	if e, _ := c.fresh().Endpoints.Get(inWeb.Key); e.Identity != g.ID || e.Labels != nil || e.Container != "cont1" {
		t.Errorf("stopped endpoint is %+v", e)
	}
}

func keysUnder(c *harness, prefix string) []string {
	var out []string
	for k := range c.dump() {
		if strings.HasPrefix(k, prefix) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// The view computes what 1.x stored on both sides, and finds endpoints by the
// whole text only (known fault 30).
func TestViewComputesBothSidesOfLinks(t *testing.T) {
	c := base(t)
	c.create(endpoint("v1", "c10", inGroup("web")))
	v := c.fresh()
	names := func(xs any) string {
		switch xs := xs.(type) {
		case []model.Group:
			return join(xs, func(g model.Group) string { return g.Key.String() })
		case []model.Rule:
			return join(xs, func(r model.Rule) string { return r.Key.String() })
		case []model.Endpoint:
			return join(xs, func(e model.Endpoint) string { return string(e.Key.ID) })
		case []model.Network:
			return join(xs, func(n model.Network) string { return n.Key.String() })
		}
		return "?"
	}
	for _, tc := range []struct {
		name, want string
		got        any
	}{
		{"networks", "blue:v1 default:only6 default:v1 default:v2 default:v3 default:v6", v.Networks.List("")},
		{"networks of blue", "blue:v1", v.Networks.List("blue")},
		{"groups of v1", "default:db default:web", v.Groups.OfNetwork(netKey("v1"))},
		{"groups of p1", "default:web", v.Groups.OfPolicy(policyKey("p1"))},
		{"rules of p1", "default:p1:1 default:p1:6", v.Policies.RulesOfPolicy(policyKey("p1"))},
		{"rules naming db", "default:p1:6", v.Policies.RulesOfGroup(groupKey("db"))},
		{"endpoints of web", "c1 c10", v.Endpoints.OfGroup(groupKey("web"))},
		{"endpoints of v1", "c1 c10 c2", v.Endpoints.OfNetwork(netKey("v1"))},
		{"endpoints of host1", "c1 c10 c2 c9", v.Endpoints.OfHost("host1")},
		{"endpoint c1", "c1", v.Endpoints.Find("c1")},
		{"endpoint by name", "c10", v.Endpoints.Find("name-c10")},
		{"nobody", "", v.Endpoints.Find("c")},
	} {
		if diff := cmp.Diff(tc.want, names(tc.got)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
	c.ok(c.remove(model.RuleKey{Tenant: "default", Policy: "p1", Rule: "6"}))
	c.put(group("web", "v1", "p2"))
	v = c.fresh()
	if got := names(v.Policies.RulesOfGroup(groupKey("db"))) + names(v.Groups.OfPolicy(policyKey("p1"))); got != "" {
		t.Errorf("links stay: %s", got)
	}
}

func join[T any](xs []T, f func(T) string) string {
	var out []string
	for _, x := range xs {
		out = append(out, f(x))
	}
	return strings.Join(out, " ")
}

// Deleting a policy takes its rules along, however many, and then what they
// named can be deleted.
func TestDeletedPolicyTakesItsRulesAlong(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"), group("db", "n"), policy("p"))
	for i := range 60 {
		c.put(rule("p", strconv.Itoa(i), func(r *model.Rule) { r.Group = "db" }))
	}
	c.refused(model.ErrInUse, "rules", func() error { return c.remove(groupKey("db")) })
	c.ok(c.remove(policyKey("p")))
	if got := len(c.fresh().Policies.Rules("")); got != 0 {
		t.Errorf("%d rules are left", got)
	}
	c.put(policy("p"), rule("p", "50", func(r *model.Rule) { r.Group = "db" })) // over a reference left behind
	c.refused(model.ErrInUse, "default:p:50", func() error { return c.remove(groupKey("db")) })
	c.ok(c.remove(model.RuleKey{Tenant: "default", Policy: "p", Rule: "50"}))
	c.put(rule("p", "51")) // same id as one left behind, naming something else
	c.ok(c.remove(groupKey("db")))
	if left := keysUnder(c, tables.TargetGroup(groupKey("db")).Scope()); len(left) > 0 {
		t.Errorf("references are left: %v", left)
	}
}

// Hosts and whole networks or groups of endpoints can be cleaned up.
func TestEndpointsAreCleanedUpByHostOrNetwork(t *testing.T) {
	c := base(t)
	ctx := testContext(t)
	_, err := c.st.Update(ctx, func(tx store.Tx) error { return tables.Hosts.Put(tx, model.Host{Name: "host2"}) })
	c.ok(err)
	for i := range 20 {
		c.create(endpoint("v1", fmt.Sprintf("x%d", i), inGroup("web"), func(e *model.Endpoint) { e.Host = "host2" }))
	}
	if n, _, err := c.Hosts.RemoveHost(ctx, Admin(), "host2", true); n != 20 || err != nil {
		t.Errorf("deleted %d, %v; want 20", n, err)
	}
	if _, known := c.fresh().Hosts.Get("host2"); known {
		t.Error("the host is still there")
	}
	if n, _, err := c.Endpoints.DeleteEndpointsOfGroup(ctx, Admin(), groupKey("web")); n != 1 || err != nil {
		t.Errorf("deleted %d, %v; want 1", n, err)
	}
	if n, _, err := c.Endpoints.DeleteEndpointsOfNetwork(ctx, Admin(), netKey("v1")); n != 1 || err != nil {
		t.Errorf("deleted %d, %v; want 1", n, err)
	}
	for _, err := range []error{
		err3(c.Hosts.RemoveHost(ctx, Admin(), "nosuch", true)), err3(c.Endpoints.DeleteEndpointsOfGroup(ctx, Admin(), groupKey("nosuch"))), err3(c.Endpoints.DeleteEndpointsOfNetwork(ctx, Admin(), netKey("nosuch"))),
	} {
		if !errors.Is(err, model.ErrNotFound) {
			t.Errorf("got %v, want not found", err)
		}
	}
}

// Two endpoints of an IPv6-only network whose addresses have one hash get two
// MACs, and a MAC is free again when its endpoint is gone.
func TestCollidingMACsDiffer(t *testing.T) {
	c := newCluster(t)
	n := model.Network{
		Key: model.NetworkKey{Tenant: model.DefaultTenant, Name: "s64"}, Type: model.NetworkData, Encap: model.EncapVXLAN,
		Subnet6: netip.MustParsePrefix("2001:db8:4::/64"),
	}
	c.put(n)
	one := model.Endpoint{Key: model.EndpointKey{Network: n.Key, ID: "one"}, IPv6: netip.MustParseAddr("2001:db8:4::1")}
	created, _, err := c.Endpoints.CreateEndpoint(testContext(t), Admin(), valid(one))
	c.ok(err)
	// What the hash would collide with: the row of another endpoint's MAC.
	two := model.Endpoint{Key: model.EndpointKey{Network: n.Key, ID: "two"}, IPv6: netip.MustParseAddr("2001:db8:4::2")}
	taken := model.HashedMAC(n.Key, two.IPv6, 0)
	_, err = c.st.Update(testContext(t), func(tx store.Tx) error {
		return tables.ChosenMACs.Create(tx, tables.MACOwner{MACKey: tables.MACKey{Network: n.Key, MAC: taken}, Endpoint: "other"})
	})
	c.ok(err)
	got, _, err := c.Endpoints.CreateEndpoint(testContext(t), Admin(), valid(two))
	if err != nil || got.MAC == taken || got.MAC == created.MAC || !got.MAC.Derived() {
		t.Errorf("MAC %s (others %s, %s), %v", got.MAC, taken, created.MAC, err)
	}
	_, _, err = c.Endpoints.DeleteEndpoint(testContext(t), Admin(), one.Key)
	c.ok(err)
	again, _, err := c.Endpoints.CreateEndpoint(testContext(t), Admin(), valid(one))
	if err != nil || again.MAC != created.MAC {
		t.Errorf("made again: %s, before %s, %v", again.MAC, created.MAC, err)
	}
}

// An unknown group is named, although the network, which was guessed for want
// of it, does not exist either.
func TestUnknownGroupIsNamed(t *testing.T) {
	c := newCluster(t)
	_, _, err := c.Endpoints.CreateEndpoint(testContext(t), Admin(), valid(model.Endpoint{
		Key: model.EndpointKey{Network: model.NetworkKey{Tenant: model.DefaultTenant, Name: "default-net"}, ID: "e"}, Group: "nosuch",
	}))
	if !errors.Is(err, model.ErrNotFound) || !strings.Contains(err.Error(), `"default:nosuch"`) {
		t.Errorf("got %v", err)
	}
}

// An empty default network and an empty tag take away what is there, where that
// is asked for.
func TestEmptyFieldsAreCleared(t *testing.T) {
	c := newCluster(t)
	c.put(model.Tenant{Name: "blue"}, network("blue:n", "10.1.0.0/24"), model.Tenant{Name: "blue", DefaultNetwork: "n"}, model.Tenant{Name: "blue"})
	g := group("blue:g", "n")
	g.CfgdTag = "tag"
	c.put(g)
	g.CfgdTag = ""
	c.put(g)
	blue, _ := c.fresh().Tenants.Get("blue")
	if had, _ := c.fresh().Groups.Get(g.Key); blue.DefaultNetwork != "n" || had.CfgdTag != "tag" {
		t.Errorf("left out: %+v, %+v", blue, had)
	}
	for _, ch := range []Change{ChangeTenant(valid(model.Tenant{Name: "blue"}), true), c.Tenants.ChangeGroup(valid(g), true)} {
		if _, err := c.Put(testContext(t), Admin(), ch); err != nil {
			t.Fatal(err)
		}
	}
	blue, _ = c.fresh().Tenants.Get("blue")
	if had, _ := c.fresh().Groups.Get(g.Key); blue.DefaultNetwork != "" || had.CfgdTag != "" {
		t.Errorf("emptied: %+v, %+v", blue, had)
	}
}
