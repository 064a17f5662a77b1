package control

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/ipam"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// parallel runs f(0..n-1) in n goroutines and returns their errors.
func parallel(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

// outcomes counts successes and errors of a kind, and fails on others.
func outcomes(t *testing.T, errs []error, allowed error) (ok int) {
	t.Helper()
	for _, err := range errs {
		switch {
		case err == nil:
			ok++
		case allowed == nil || !errors.Is(err, allowed):
			t.Errorf("unexpected error: %v", err)
		}
	}
	return ok
}

// replicas returns n controllers on one store.
func replicas(t *testing.T, n int) []*harness {
	t.Helper()
	cs := []*harness{newCluster(t)}
	for len(cs) < n {
		cs = append(cs, onStore(t, cs[0].st.Client()))
	}
	return cs
}

// Of 16 networks with one subnet, created at once, one stays (known fault 2),
// through one replica and through three; likewise wide ones around narrow ones.
func TestSameSubnetAtOnce(t *testing.T) {
	for _, n := range []int{1, 3} {
		cs := replicas(t, n)
		for round, subnet := range []string{"10.1.1.0/24", "10.0.0.0/8", "2001:db8::/64", "2001:db8::/32"} {
			errs := parallel(16, func(i int) error {
				return cs[i%n].try(network(fmt.Sprintf("n%d-%d", round, i), subnet))
			})
			want := 1
			if round == 1 || round == 3 { // around the one of the round before
				want = 0
			}
			if got := outcomes(t, errs, model.ErrConflict); got != want {
				t.Errorf("%d replicas, %s: %d networks, want %d", n, subnet, got, want)
			}
		}
		errs := parallel(17, func(i int) error {
			if i == 16 {
				return cs[0].try(network("wide", "11.0.0.0/12"))
			}
			return cs[i%n].try(network(fmt.Sprintf("narrow%d", i), fmt.Sprintf("11.%d.0.0/24", i%4)))
		})
		outcomes(t, errs, model.ErrConflict)
		checkInvariants(t, cs[0])
	}
}

// 16 networks in one tenant at once all get in when they do not overlap
// (known fault 1), with distinct tags and ids.
func TestConcurrentNetworksDoNotOverlap(t *testing.T) {
	cs := replicas(t, 2)
	for _, err := range parallel(16, func(i int) error {
		for j := range 10 {
			if err := cs[i%2].try(network(fmt.Sprintf("n%d-%d", i, j), fmt.Sprintf("10.%d.%d.0/24", i/8, i*16+j))); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if got := len(cs[1].fresh().Networks.List("")); got != 160 {
		t.Errorf("%d networks, want 160", got)
	}
	checkInvariants(t, cs[0])
}

// 300 endpoints beside 60 groups with a pool in the same network: all
// addresses differ and no stranger is in a pool (known fault 3).
func TestOtherEndpointsStayOutOfPools(t *testing.T) {
	cs := replicas(t, 2)
	cs[0].put(network("n", "10.1.0.0/22"))
	pool := func(i int) model.Group {
		return pooled(fmt.Sprintf("g%d", i), "n", fmt.Sprintf("10.1.%d.%d-10.1.%d.%d", i/30, i%30*8+1, i/30, i%30*8+6))
	}
	errs := parallel(24, func(i int) error {
		for j := range 15 {
			x := i*15 + j
			if x%6 == 0 {
				if err := cs[i%2].try(pool(x / 6)); err != nil && !errors.Is(err, model.ErrConflict) {
					return err
				}
				continue
			}
			if err := cs[i%2].try(endpoint("n", fmt.Sprintf("c%d", x))); err != nil {
				return err
			}
		}
		return nil
	})
	outcomes(t, errs, nil)
	if got := len(cs[0].fresh().Endpoints.OfNetwork(netKey("n"))); got != 300 {
		t.Errorf("%d endpoints, want 300", got)
	}
	checkInvariants(t, cs[0])
}

// The last addresses go to exactly as many as there are; one preferred address
// to exactly one (known fault 16); one endpoint id to one endpoint.
func TestLastAddressesAreGivenOnce(t *testing.T) {
	cs := replicas(t, 3)
	cs[0].put(network("tiny", "10.8.1.0/28"), network("n", "10.1.0.0/24"))
	errs := parallel(16, func(i int) error { return cs[i%3].try(endpoint("tiny", fmt.Sprintf("c%d", i))) })
	if got := outcomes(t, errs, model.ErrExhausted); got != 14 {
		t.Errorf("%d endpoints in a /28, want 14", got)
	}
	errs = parallel(16, func(i int) error { return cs[i%3].try(endpoint("n", fmt.Sprintf("c%d", i), withIP("10.1.0.99"))) })
	if got := outcomes(t, errs, model.ErrConflict); got != 1 {
		t.Errorf("%d endpoints with one address", got)
	}
	seen := make([]netip.Addr, 16)
	errs = parallel(16, func(i int) error {
		e, rev, err := cs[i%3].Endpoints.CreateEndpoint(testContext(t), Admin(), valid(endpoint("n", "same")))
		if seen[i] = e.IPv4; err == nil && rev == 0 {
			err = errors.New("no revision")
		}
		return err
	})
	outcomes(t, errs, nil)
	for _, a := range seen {
		if a != seen[0] {
			t.Errorf("one endpoint got the addresses %v", seen)
			break
		}
	}
	checkInvariants(t, cs[0])
}

// What a deletion and a creation do at once never leaves something that refers
// to nothing.
func TestConcurrentDeletionLeavesNoDanglingReference(t *testing.T) {
	cs := replicas(t, 2)
	for round := range 10 {
		cs[0].put(model.Tenant{Name: "t"})
		outcomesOf(t, parallel(12, func(i int) error {
			c := cs[i%2]
			switch i {
			case 0:
				return c.remove(model.TenantName("t"))
			case 1, 2:
				return c.try(network("t:n", "10.1.0.0/24"))
			case 3:
				return c.remove(netKey("t:n"))
			case 4, 5:
				return c.try(group("t:g", "n", "p"))
			case 6:
				return c.remove(groupKey("t:g"))
			case 7:
				return c.try(policy("t:p"))
			case 8:
				return c.try(rule("t:p", "1", func(r *model.Rule) { r.Group = "g" }))
			case 9:
				return c.remove(policyKey("t:p"))
			}
			return c.try(endpoint("t:n", fmt.Sprintf("c%d", i), inGroup("g")))
		}))
		checkInvariants(t, cs[round%2])
	}
}

// Endpoints of a group keep coming while somebody tries to delete it: they
// fail or the deletion does, never both succeed.
func TestDeleteGroupWhileFilling(t *testing.T) {
	cs := replicas(t, 2)
	cs[0].put(network("n", "10.1.0.0/22"))
	for round := range 5 {
		name := fmt.Sprintf("g%d", round)
		cs[0].put(group(name, "n"))
		outcomesOf(t, parallel(8, func(i int) error {
			if i < 2 {
				return cs[i].remove(groupKey(name))
			}
			var last error
			for j := range 5 {
				last = cs[i%2].try(endpoint("n", fmt.Sprintf("c%d-%d-%d", round, i, j), inGroup(model.GroupName(name))))
			}
			return last
		}))
		checkInvariants(t, cs[0])
	}
}

// Likewise a network while endpoints and reservations come.
func TestDeleteNetworkWhileFilling(t *testing.T) {
	cs := replicas(t, 2)
	for round := range 20 {
		name := fmt.Sprintf("n%d", round)
		cs[0].put(network(name, fmt.Sprintf("10.%d.0.0/24", round)))
		outcomesOf(t, parallel(4, func(i int) error {
			switch i {
			case 0, 1:
				return cs[i].remove(netKey(name))
			case 2:
				return cs[0].try(endpoint(name, "c"))
			}
			return cs[1].try(AddressRequest{Network: netKey(name)})
		}))
		v := cs[0].fresh()
		if _, ok := v.Networks.Get(netKey(name)); !ok && len(v.Endpoints.OfNetwork(netKey(name)))+len(v.Addresses.Addresses(netKey(name))) > 0 {
			t.Errorf("network %s is gone, its endpoints %v and addresses %v are not", name, v.Endpoints.OfNetwork(netKey(name)), v.Addresses.Addresses(netKey(name)))
		}
	}
	checkInvariants(t, cs[0])
}

// The tag range never ends up without a tag in use.
func TestTagRangeKeepsTagsInUse(t *testing.T) {
	cs := replicas(t, 2)
	for round := range 10 {
		cs[0].put(model.Global{VXLANs: model.TagRange{Lo: 1, Hi: 100}})
		outcomesOf(t, parallel(4, func(i int) error {
			if i == 0 {
				return cs[1].try(model.Global{VXLANs: model.TagRange{Lo: 50, Hi: 60}})
			}
			return cs[0].try(with(network(fmt.Sprintf("n%d-%d", round, i), fmt.Sprintf("10.%d.%d.0/24", round, i)), func(n *model.Network) {
				n.ReqTag = uint32(40 + round*4 + i)
			}))
		}))
		checkInvariants(t, cs[0])
	}
}

// outcomesOf fails on errors that are none of a user's.
func outcomesOf(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		if err == nil || errors.Is(err, model.ErrNotFound) || errors.Is(err, model.ErrInUse) || errors.Is(err, model.ErrConflict) || errors.Is(err, model.ErrInvalid) {
			continue
		}
		t.Errorf("unexpected error: %v", err)
	}
}

// checkInvariants reads everything and checks what must hold whatever happened.
func checkInvariants(t *testing.T, c *harness) {
	t.Helper()
	v := c.fresh()
	checkOwners(t, c)
	g, _ := v.Settings.Global()
	type tag struct {
		e model.Encap
		n uint32
	}
	tags, ids, idents := map[tag]bool{}, map[model.NetworkID]bool{}, map[model.Identity]bool{}
	unique := func(what string, fresh bool) {
		if !fresh {
			t.Errorf("%s is there twice", what)
		}
	}
	routers := map[model.RouterID]bool{}
	for _, t := range v.Tenants.List() {
		if t.Router != 0 {
			unique(fmt.Sprintf("router %d", t.Router), !routers[t.Router])
			routers[t.Router] = true
		}
	}
	var used ipam.Numbers
	for r := range routers {
		used.Add(uint32(r))
	}
	if owned := v.Addresses.numbers[tables.NumberRouter].used.String(); owned != used.String() {
		t.Errorf("tenants have the routers %s, but %s have an owner", used.String(), owned)
	}
	for _, n := range v.Networks.List("") {
		if _, ok := v.Tenants.Get(n.Key.Tenant); !ok {
			t.Errorf("network %s has no tenant", n.Key)
		}
		within := g.VXLANs
		if n.Encap == model.EncapVLAN {
			within = g.VLANs
		}
		if !within.Contains(n.Tag) {
			t.Errorf("tag %d of network %s is outside %s", n.Tag, n.Key, within)
		}
		unique(fmt.Sprintf("tag %d", n.Tag), !tags[tag{n.Encap, n.Tag}])
		unique(fmt.Sprintf("network id %d", n.ID), !ids[n.ID])
		unique(fmt.Sprintf("identity %d", n.Identity), !idents[n.Identity])
		tags[tag{n.Encap, n.Tag}], ids[n.ID], idents[n.Identity] = true, true, true
		for _, o := range v.Networks.List(n.Key.Tenant) {
			if o.Key != n.Key && (o.Subnet.IsValid() && o.Subnet.Overlaps(n.Subnet) || o.Subnet6.IsValid() && o.Subnet6.Overlaps(n.Subnet6)) {
				t.Errorf("networks %s and %s overlap", n.Key, o.Key)
			}
		}
		checkEndpoints(t, v, n)
	}
	v.mu.RLock()
	for k := range v.Endpoints.endpoints {
		if _, ok := v.Networks.networkRows.all[k.Network]; !ok {
			t.Errorf("endpoint %s has no network", k)
		}
	}
	v.mu.RUnlock()
	for _, g := range v.Groups.List("") {
		if _, ok := v.Networks.Get(g.NetworkKey()); !ok {
			t.Errorf("group %s has no network", g.Key)
		}
		for _, p := range g.Policies {
			if _, ok := v.Policies.GetContiv(model.PolicyKey{Tenant: g.Key.Tenant, Name: p}); !ok {
				t.Errorf("group %s has the lost policy %s", g.Key, p)
			}
		}
		unique(fmt.Sprintf("identity %d", g.ID), !idents[g.ID])
		idents[g.ID] = true
	}
	for _, p := range v.Policies.ListContiv("") {
		if _, ok := v.Tenants.Get(p.Key.Tenant); !ok {
			t.Errorf("policy %s has no tenant", p.Key)
		}
	}
	for _, r := range v.Policies.Rules("") {
		if _, ok := v.Policies.GetContiv(r.Key.PolicyKey()); !ok {
			t.Errorf("rule %s has no policy", r.Key)
		}
		if _, ok := v.Groups.Get(model.GroupKey{Tenant: r.Key.Tenant, Name: r.Group}); r.Group != "" && !ok {
			t.Errorf("rule %s names the lost group %s", r.Key, r.Group)
		}
	}
	checkPlan(t, c, v)
	checkMirror(t, c)
}

func checkEndpoints(t *testing.T, v *View, n model.Network) {
	t.Helper()
	owners := map[netip.Addr]model.EndpointID{}
	for _, e := range v.Endpoints.OfNetwork(n.Key) {
		for _, a := range []netip.Addr{e.IPv4, e.IPv6} {
			if !a.IsValid() {
				continue
			}
			if other, taken := owners[a]; taken {
				t.Errorf("endpoints %s and %s share %s", other, e.Key.ID, a)
			}
			owners[a] = e.Key.ID
			if a == n.Gateway || a == n.Gateway6 || !n.Subnet.Contains(a) && !n.Subnet6.Contains(a) {
				t.Errorf("endpoint %s has the unusable address %s", e.Key, a)
			}
			for _, g := range v.Groups.OfNetwork(n.Key) {
				if g.Pool.IsValid() && a.Is4() && g.Pool.Contains(a) != (g.Key.Name == e.Group) && (g.Pool.Contains(a) || g.Key.Name == e.Group) {
					t.Errorf("endpoint %s of group %q has %s, the pool of %s is %s", e.Key, e.Group, a, g.Key, g.Pool)
				}
			}
		}
		if _, ok := v.Groups.Get(model.GroupKey{Tenant: n.Key.Tenant, Name: e.Group}); e.Group != "" && !ok {
			t.Errorf("endpoint %s has the lost group %s", e.Key, e.Group)
		}
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if s := v.Addresses.spaces[n.Key]; s != nil {
		for a, o := range s.owners {
			if o.Reservation == nil && owners[a] != o.Endpoint {
				t.Errorf("address %s of network %s belongs to %q, but endpoint %q has it", a, n.Key, o.Endpoint, owners[a])
			}
			delete(owners, a)
		}
	}
	if len(owners) > 0 {
		t.Errorf("endpoints of network %s have addresses that nobody owns: %v", n.Key, owners)
	}
}

// checkMirror compares a view that followed the store with one read afresh.
func checkMirror(t *testing.T, c *harness) {
	t.Helper()
	kvs, rev, err := c.st.Client().Range(testContext(t), tables.StatePrefix)
	if err != nil {
		t.Fatal(err)
	}
	fresh := newView(c.log)
	b := store.Batch{Revision: rev, Snapshot: true}
	for _, kv := range kvs {
		b.Events = append(b.Events, store.Event{KV: kv})
	}
	if err := fresh.apply(b); err != nil {
		t.Fatal(err)
	}
	v := c.fresh()
	v.mu.RLock()
	defer v.mu.RUnlock()
	for name, pair := range map[string][2]any{
		"endpoints": {fresh.Endpoints.endpoints, v.Endpoints.endpoints}, "endpoints of groups": {fresh.Endpoints.endpointsOfGroup, v.Endpoints.endpointsOfGroup},
		"identities": {fresh.Identities.dictionary, v.Identities.dictionary},
		"texts":      {fresh.Endpoints.endpointsByText, v.Endpoints.endpointsByText}, "users": {fresh.Identities.identityUsers, v.Identities.identityUsers}, "pods": {fresh.Pods.podsIn, v.Pods.podsIn}, "pools": {fresh.Addresses.pools, v.Addresses.pools},
	} {
		if diff := cmp.Diff(pair[0], pair[1], cmpNet); diff != "" {
			t.Errorf("the view's %s differ from the store: %s", name, diff)
		}
	}
	read := contents(fresh)
	for name, followed := range contents(v) {
		if diff := cmp.Diff(read[name], followed, cmpNet, cmp.AllowUnexported(labelKey{}, policyUnion{}, ruleSum{})); diff != "" {
			t.Errorf("the view's %s differ from the store: %s", name, diff)
		}
	}
	for kind, n := range v.Addresses.numbers {
		if len(v.Addresses.settling) == 0 && n.String() != fresh.Addresses.numbers[kind].String() {
			t.Errorf("the view's %s numbers are %s, the store's %s", kind, n.String(), fresh.Addresses.numbers[kind].String())
		}
	}
	for k, s := range v.Addresses.spaces {
		if len(v.Addresses.settling) == 0 && len(s.pending) > 0 {
			t.Errorf("addresses of %s are still held: %v", k, s.pending)
		}
	}
}

func (r *rows[K, V]) contents() any { return r.all }

// contents is what the parts of a view say, without what they only remember.
func contents(v *View) map[string]any {
	return map[string]any{
		"aciFabric":             v.Settings.aciFabric,
		"aciGwRows":             v.Settings.aciGwRows.contents(),
		"answerers":             v.Hosts.l2Announcers.contents(),
		"appProfileRows":        v.Tenants.appProfileRows.contents(),
		"appProfilesOfGroup":    v.Tenants.appProfilesOfGroup,
		"appProfileMod":         v.Tenants.appProfileMod,
		"bgpRows":               v.Settings.bgpRows.contents(),
		"clusterServiceRows":    v.Kubernetes.clusterServiceRows.contents(),
		"serviceSliceRows":      v.Kubernetes.serviceSliceRows.contents(),
		"clusterNodeRows":       v.Kubernetes.clusterNodeRows.contents(),
		"slicesOfService":       v.Kubernetes.slicesOfService,
		"servicesAt":            v.Kubernetes.servicesAt,
		"frontedAt":             v.Kubernetes.frontendsAt,
		"nodesAt":               v.Kubernetes.nodesAt,
		"clusterFronts":         v.Kubernetes.frontendCount,
		"serviceRanges":         v.AddressOwners.serviceRanges,
		"policyRows":            v.Policies.policyRows.contents(),
		"extContractsRows":      extContractsRows(v).contents(),
		"globalRows":            v.Settings.globalRows.contents(),
		"groupRows":             v.Groups.groupRows.contents(),
		"groupsOfNetwork":       v.Groups.groupsOfNetwork,
		"groupsOfPolicy":        v.Groups.groupsOfPolicy,
		"groupsOfNetProfile":    v.Groups.groupsOfNetProfile,
		"groupsOfExtContracts":  v.Groups.groupsOfExtContracts,
		"hostAddressRows":       v.Hosts.hostAddressRows.contents(),
		"drainRows":             v.Hosts.drainRows.contents(),
		"awayRows":              v.Hosts.awayRows.contents(),
		"hostRows":              v.Hosts.hostRows.contents(),
		"identityRecords":       v.Identities.identityRecords.contents(),
		"identitiesOf":          v.Identities.identitiesOf,
		"identitiesOfGroup":     v.Identities.identitiesOfGroup,
		"kubernetesCluster":     v.Settings.kubernetesCluster,
		"namespaceRows":         v.Identities.namespaceRows.contents(),
		"identitiesInNamespace": v.Identities.identitiesInNamespace,
		"netProfileRows":        netProfileRows(v).contents(),
		"networkRows":           v.Networks.networkRows.contents(),
		"pendingRows":           v.Pending.pendingRows,
		"identitiesWith":        v.Identities.identitiesWith,
		"replacementRows":       v.Policies.replacementRows,
		"ruleRows":              v.Policies.ruleRows.contents(),
		"rulesOfPolicy":         v.Policies.rulesOfPolicy,
		"rulesOfGroup":          v.Policies.rulesOfGroup,
		"serviceRows":           v.Services.serviceRows.contents(),
		"serviceFrontends":      v.Services.serviceFrontends,
		"servicesOfNetwork":     v.Services.servicesOfNetwork,
		"servicesByName":        v.Services.servicesByName,
		"endpointsByLabel":      v.Services.endpointsByLabel,
		"tenantRows":            v.Tenants.tenantRows.contents(),
		"dropped":               v.Tenants.dropped,
		"balancedAddrs":         []any{v.AddressOwners.balancedAddrs.by, v.AddressOwners.balancedAddrs.of},
		"policySizes":           []any{v.Policies.policySizes.unions, v.Policies.policySizes.rules}, // meters are made when they are asked for
	}
}
