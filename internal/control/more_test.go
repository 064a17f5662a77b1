package control

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func npKey(s string) model.NetProfileKey {
	k := netKey(s)
	return model.NetProfileKey{Tenant: k.Tenant, Name: string(k.Name)}
}

func ecKey(s string) model.ExtContractsKey { return model.ExtContractsKey(npKey(s)) }

func svcKey(s string) model.ServiceKey { return model.ServiceKey(npKey(s)) }

func appKey(s string) model.AppProfileKey { return model.AppProfileKey(npKey(s)) }

func contracts(s string) model.ExtContracts {
	return model.ExtContracts{Key: ecKey(s), Type: model.ContractsProvided}
}

func app(s string, groups ...model.GroupName) model.AppProfile {
	return model.AppProfile{Key: appKey(s), Groups: groups}
}

// service makes one with port 80 and the selectors "key=value".
func service(key, net, ip string, selectors ...string) model.Service {
	s := model.Service{Key: svcKey(key), Network: model.NetworkName(net)}
	if ip != "" {
		s.ReqAddr = addr(ip)
	}
	for _, text := range selectors {
		sel, err := model.ParseServiceSelector(text)
		if err != nil {
			panic(err)
		}
		s.Selectors = append(s.Selectors, sel)
	}
	p, err := model.ParseServicePort("80:8080:TCP")
	if err != nil {
		panic(err)
	}
	s.Ports = append(s.Ports, p)
	return s
}

func labelled(labels ...string) func(*model.Endpoint) {
	return func(e *model.Endpoint) {
		e.Labels = map[string]string{}
		for _, l := range labels {
			k, v, _ := strings.Cut(l, "=")
			e.Labels[k] = v
		}
	}
}

// more adds one of each remaining kind to base.
func more(t *testing.T) *harness {
	t.Helper()
	c := base(t)
	c.addHost("host1")
	c.put(
		model.NetProfile{Key: npKey("np"), DSCP: 10}, model.NetProfile{Key: npKey("free")}, contracts("ec"), contracts("ec2"),
		with(group("web", "v1", "p1"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} }),
		app("app1", "web", "idle"), service("s1", "v1", "10.1.1.100", "app=web"), service("s2", "v2", "", "app=db"),
		model.Bgp{Host: "host1", RouterIP: netip.MustParsePrefix("50.1.1.2/24"), AS: 1, NeighborAS: 2}, model.AciGw{PhysicalDomain: "d"},
		model.Volume{Key: model.VolumeKey(npKey("vol"))}, model.VolumeProfile{Key: model.VolumeProfileKey(npKey("vp"))},
	)
	return c
}

func (c *harness) addHost(h model.HostName) {
	c.t.Helper()
	_, err := c.st.Client().Update(testContext(c.t), func(tx store.Tx) error { return tables.Hosts.Put(tx, model.Host{Name: h}) })
	c.ok(err)
}

// Every request about the remaining kinds that is refused: its kind, a part of
// its sentence, and that nothing changed.
func TestRefusedMore(t *testing.T) {
	c := more(t)
	c.put(model.Tenant{Name: "full"})
	for _, tc := range []struct {
		name string
		kind error
		part string
		put  any // or
		del  any
	}{
		{name: "profile of unknown tenant", kind: model.ErrNotFound, part: `tenant "nosuch"`, put: model.NetProfile{Key: npKey("nosuch:x")}},
		{name: "profile's DSCP", kind: model.ErrInvalid, part: "DSCP", put: model.NetProfile{Key: npKey("x"), DSCP: 64}},
		{name: "delete profile in use", kind: model.ErrInUse, part: "default:web", del: npKey("np")},
		{name: "delete unknown profile", kind: model.ErrNotFound, part: "nosuch", del: npKey("nosuch")},
		{name: "group gets unknown profile", kind: model.ErrNotFound, part: `netProfile "nosuch"`, put: with(group("web", "v1"), func(g *model.Group) { g.NetProfile = "nosuch" })},
		{name: "new group with unknown profile (known fault 12)", kind: model.ErrNotFound, part: "nosuch", put: with(pooled("x", "v1", "10.1.1.50-10.1.1.60"), func(g *model.Group) { g.NetProfile = "nosuch" })},
		{name: "profile of another tenant", kind: model.ErrNotFound, part: "blue:np", put: with(group("blue:x", "v1"), func(g *model.Group) { g.NetProfile = "np" })},
		{name: "group gets unknown contracts", kind: model.ErrNotFound, part: `extContractsGrps "nosuch"`, put: with(group("web", "v1"), func(g *model.Group) { g.ExtContracts = []string{"ec", "nosuch"} })},
		{name: "delete contracts in use", kind: model.ErrInUse, part: "default:web", del: ecKey("ec")},
		{name: "contracts of unknown tenant", kind: model.ErrNotFound, part: "nosuch", put: contracts("nosuch:x")},
		{name: "too many references", kind: model.ErrInvalid, part: "together with policies", put: with(group("web", "v1", "p1", "p2"), func(g *model.Group) { g.ExtContracts = strings.Split("a,b,c,d,e,f,g,h,i", ",") })},
		{name: "app of unknown group", kind: model.ErrNotFound, part: `endpointGroups "nosuch"`, put: app("x", "web", "nosuch")},
		{name: "app gets unknown group", kind: model.ErrNotFound, part: "nosuch", put: app("app1", "nosuch")},
		{name: "app of another tenant's group", kind: model.ErrNotFound, part: "blue:web", put: app("blue:x", "web")},
		{name: "delete group of an app", kind: model.ErrInUse, part: "default:app1", del: groupKey("idle")},
		{name: "delete unknown app", kind: model.ErrNotFound, part: "nosuch", del: appKey("nosuch")},
		{name: "service on unknown network", kind: model.ErrNotFound, part: "default:nosuch", put: service("x", "nosuch", "", "a=b")},
		{name: "service of unknown tenant", kind: model.ErrNotFound, part: "nosuch", put: service("nosuch:x", "v1", "", "a=b")},
		{name: "service's address taken by a service (known fault 16)", kind: model.ErrConflict, part: `load-balanced service "s1"`, put: service("x", "v1", "10.1.1.100", "a=b")},
		{name: "service's address taken by an endpoint", kind: model.ErrConflict, part: "c1", put: service("x", "v1", "10.1.1.1", "a=b")},
		{name: "service moves to a taken address", kind: model.ErrConflict, part: "c1", put: service("s1", "v1", "10.1.1.1", "app=web")},
		{name: "service's address is the gateway", kind: model.ErrInvalid, part: "gateway", put: service("x", "v1", "10.1.1.254", "a=b")},
		{name: "service's address outside", kind: model.ErrInvalid, part: "inside the subnet", put: service("x", "v1", "10.99.1.1", "a=b")},
		{name: "service's address in a pool", kind: model.ErrConflict, part: "pool", put: service("x", "v2", "10.1.2.15", "a=b")},
		{name: "service changes its network (known fault 24)", kind: model.ErrConflict, part: "networkName", put: service("s1", "v2", "", "app=web")},
		{name: "endpoint takes a service's address", kind: model.ErrConflict, part: `load-balanced service "s1"`, put: endpoint("v1", "x", withIP("10.1.1.100"))},
		{name: "pool over a service's address", kind: model.ErrConflict, part: `load-balanced service "s1"`, put: pooled("x", "v1", "10.1.1.99-10.1.1.101")},
		{name: "delete unknown service", kind: model.ErrNotFound, part: "nosuch", del: svcKey("nosuch")},
		{name: "delete network with a service", kind: model.ErrInUse, part: "default:v2", del: netKey("v2")},
		{name: "BGP of unknown host (known fault 26)", kind: model.ErrNotFound, part: "host2", put: model.Bgp{Host: "host2", RouterIP: netip.MustParsePrefix("50.1.1.2/24"), AS: 1, NeighborAS: 2}},
		{name: "delete unknown BGP", kind: model.ErrNotFound, part: "host2", del: tables.BgpKey{Host: "host2"}},
		{name: "delete unknown volume", kind: model.ErrNotFound, part: "nosuch", del: model.VolumeKey(npKey("nosuch"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.t = t
			c.refused(tc.kind, tc.part, func() error {
				if tc.put != nil {
					return c.try(tc.put)
				}
				return c.remove(tc.del)
			})
		})
	}
	c.t = t
	// A tenant goes when it holds nothing, and not before, whatever it holds.
	for noun, o := range map[string]any{
		"net profiles": model.NetProfile{Key: npKey("full:x")}, "external contracts": contracts("full:x"), "app profiles": app("full:x"),
		"volumes": model.Volume{Key: model.VolumeKey(npKey("full:x"))}, "volume profiles": model.VolumeProfile{Key: model.VolumeProfileKey(npKey("full:x"))},
	} {
		c.put(o)
		c.refused(model.ErrInUse, noun, func() error { return c.remove(model.TenantName("full")) })
		c.ok(c.remove(keyOf(o)))
	}
	c.ok(c.remove(model.TenantName("full")))
	c.refused(model.ErrNotFound, "nosuch", func() error { return c.ReleaseAddress(testContext(t), netKey("nosuch"), addr("10.1.1.100")) })
	c.refused(model.ErrInUse, `service "s1"`, func() error { return c.ReleaseAddress(testContext(t), netKey("v1"), addr("10.1.1.100")) })
}

func keyOf(o any) any {
	switch x := o.(type) {
	case model.NetProfile:
		return x.Key
	case model.ExtContracts:
		return x.Key
	case model.AppProfile:
		return x.Key
	case model.Volume:
		return x.Key
	case model.VolumeProfile:
		return x.Key
	}
	return nil
}

// What is put again as it is changes nothing; what is deleted leaves nothing.
func TestLifeCycleMore(t *testing.T) {
	c := newCluster(t)
	c.addHost("host1")
	c.put(model.Tenant{Name: "t"}, network("t:n", "10.7.0.0/24"), policy("t:p"), group("t:g", "n"))
	objects := []any{
		model.NetProfile{Key: npKey("t:np"), Burst: 7},
		contracts("t:ec"), app("t:app", "g"), service("t:s", "n", "", "a=b"),
		model.Bgp{Host: "host1", RouterIP: netip.MustParsePrefix("50.1.1.2/24"), AS: 1, NeighborAS: 2},
		model.AciGw{},
		model.Volume{Key: model.VolumeKey(npKey("t:v"))},
		model.VolumeProfile{Key: model.VolumeProfileKey(npKey("t:v"))},
	}
	before := c.meaning()
	c.put(objects...)
	c.put(with(group("t:g", "n", "p"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} }))
	full := c.dump()
	c.put(objects...)
	c.put(with(group("t:g", "n", "p"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} }))
	if d := cmp.Diff(full, c.dump()); d != "" {
		t.Errorf("putting everything again changes the store: %s", d)
	}
	c.put(group("t:g", "n"))
	for _, k := range []any{npKey("t:np"), ecKey("t:ec"), appKey("t:app"), svcKey("t:s"), tables.BgpKey{Host: "host1"}, tables.AciGwKey{}, model.VolumeKey(npKey("t:v")), model.VolumeProfileKey(npKey("t:v"))} {
		c.ok(c.remove(k))
	}
	if d := cmp.Diff(before, c.meaning()); d != "" {
		t.Errorf("something is left: %s", d)
	}
	checkKinds(t, c)
}

// meaning is what the store holds apart from generations and hints.
func (c *harness) meaning() map[string]string {
	d := c.dump()
	maps.DeleteFunc(d, func(k, _ string) bool {
		return k == store.CommitKey || strings.HasPrefix(k, store.Root+"gen/") || strings.Contains(k, "/alloc/cursor/")
	})
	return d
}

// A group's policies, net profile and contracts change while it has endpoints,
// and the view's links follow.
func TestGroupChangesLive(t *testing.T) {
	c := more(t)
	c.put(with(group("web", "v1", "p2"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "free", []string{"ec2"} }))
	v := c.fresh()
	for name, got := range map[string]int{
		"p1": len(v.GroupsOfPolicy(policyKey("p1"))), "np": len(v.GroupsOfNetProfile(npKey("np"))), "ec": len(v.GroupsOfExtContracts(ecKey("ec"))),
	} {
		if got != 0 {
			t.Errorf("%s still has %d groups", name, got)
		}
	}
	if len(v.GroupsOfPolicy(policyKey("p2"))) != 1 || len(v.GroupsOfNetProfile(npKey("free"))) != 1 || len(v.GroupsOfExtContracts(ecKey("ec2"))) != 1 {
		t.Error("what the group names now does not have it")
	}
	c.ok(c.remove(npKey("np")))
	c.ok(c.remove(ecKey("ec")))
	c.refused(model.ErrInUse, "default:web", func() error { return c.remove(npKey("free")) })
	checkKinds(t, c)
}

// An app profile of any size ties its groups: none can go before it.
func TestLargeAppProfile(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.0.0.0/8"))
	var names []model.GroupName
	for i := range 3*appBatch + 1 {
		names = append(names, model.GroupName(fmt.Sprintf("g%d", i)))
		c.put(group(string(names[i]), "n"))
	}
	c.put(app("big", names...))
	check := func(want ...model.GroupName) {
		t.Helper()
		p, _ := c.fresh().AppProfile(appKey("big"))
		if d := cmp.Diff(want, p.Groups); d != "" {
			t.Fatal(d)
		}
		for _, g := range names {
			k, ok := c.fresh().AppProfileOf(groupKey(string(g)))
			if ok != slices.Contains(want, g) || ok && k != appKey("big") {
				t.Errorf("group %s is in %v", g, k)
			}
		}
	}
	check(names...)
	c.refused(model.ErrInUse, "default:big", func() error { return c.remove(groupKey("g20")) })
	slices.Reverse(names)
	c.put(app("big", names[:20]...))
	check(names[:20]...)
	c.ok(c.remove(groupKey("g0")))
	c.put(app("small", names[0]))
	if k, _ := c.fresh().AppProfileOf(groupKey(string(names[0]))); k != appKey("small") {
		t.Errorf("the group is in %v, not in the profile that took it last", k)
	}
	c.ok(c.remove(appKey("big")))
	c.refused(model.ErrInUse, "default:small", func() error { return c.remove(groupKey(string(names[0]))) })
	c.ok(c.remove(groupKey(string(names[1]))))
	checkKinds(t, c)
}

// Providers are the endpoints of the service's network with all its labels:
// found as labels come and go, and found again by a netmaster that starts.
func TestProviders(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16"), network("other", "10.2.0.0/16"), service("web", "n", "", "app=web", "tier=front"), service("all", "n", "", "app=web"))
	c.create(endpoint("n", "e1", labelled("app=web", "tier=front", "x=y")))
	c.create(endpoint("n", "e2", labelled("app=web")))
	c.create(endpoint("n", "e3"))
	c.create(endpoint("other", "e4", labelled("app=web", "tier=front")))
	want := func(c *harness, service string, ids ...model.EndpointID) {
		t.Helper()
		v := c.fresh()
		s, ok := v.Service(svcKey(service))
		if !ok {
			t.Fatal("no service")
		}
		got := []model.EndpointID{}
		for _, e := range v.Providers(s) {
			got = append(got, e.Key.ID)
			if !slices.ContainsFunc(v.ServicesOf(e), func(o model.Service) bool { return o.Key == s.Key }) {
				t.Errorf("endpoint %s does not know that it provides %s", e.Key, s.Key)
			}
		}
		if d := cmp.Diff(append([]model.EndpointID{}, ids...), got); d != "" {
			t.Error(d)
		}
	}
	want(c, "web", "e1")
	want(c, "all", "e1", "e2")
	update := func(id model.EndpointID, u EndpointUpdate) {
		u.Key = model.EndpointKey{Network: netKey("n"), ID: id}
		c.ok(c.UpdateEndpoint(testContext(t), u))
	}
	update("e3", EndpointUpdate{Container: "c3", Labels: map[string]string{"app": "web", "tier": "front"}})
	want(c, "web", "e1", "e3")
	update("e2", EndpointUpdate{Labels: map[string]string{"tier": "back"}})
	want(c, "web", "e1", "e3")
	update("e1", EndpointUpdate{Stopped: true})
	want(c, "web", "e3")
	c.put(service("web", "n", "", "tier=back"))
	want(c, "web", "e2")
	restarted := onStore(t, c.st.Client())
	want(restarted, "web", "e2")
	want(restarted, "all", "e2", "e3")
	c.ok(c.remove(model.EndpointKey{Network: netKey("n"), ID: "e2"}))
	want(c, "web")
	checkKinds(t, c)
}

// A service keeps its address through changes, takes another that it asks for,
// and frees what it had.
func TestServiceAddress(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/29"), network("six", "2001:db8::/64"), pooled("g", "n", "10.1.0.1-10.1.0.2"))
	vip := func(want string) {
		t.Helper()
		s, _ := c.fresh().Service(svcKey("s"))
		if s.VIP.String() != want {
			t.Errorf("the address is %s, want %s", s.VIP, want)
		}
	}
	c.put(service("s", "n", "", "a=b"))
	vip("10.1.0.3") // not in the pool
	c.put(service("s", "n", "", "a=c"))
	vip("10.1.0.3")
	c.put(service("s", "n", "10.1.0.6", "a=c"))
	vip("10.1.0.6")
	c.put(service("s", "n", "", "a=d"))
	vip("10.1.0.6")
	if e := c.create(endpoint("n", "e", withIP("10.1.0.3"))); e.IPv4 != addr("10.1.0.3") {
		t.Error(e.IPv4)
	}
	c.put(AddressRequest{Network: netKey("n"), Preferred: addr("10.1.0.4")}, service("s", "n", "10.1.0.4", "a=d")) // reserved for anybody
	vip("10.1.0.4")
	c.put(service("six", "six", "", "a=b"))
	if s, _ := c.fresh().Service(svcKey("six")); !s.VIP.Is6() {
		t.Errorf("the address is %s", s.VIP)
	}
	checkKinds(t, c)
}

// One address to one of 16 services and endpoints, asked for at once through
// three replicas.
func TestServiceAddressAtOnce(t *testing.T) {
	cs := replicas(t, 3)
	cs[0].put(network("n", "10.1.0.0/24"))
	for _, c := range cs {
		c.fresh()
	}
	errs := parallel(16, func(i int) error {
		if i%2 == 0 {
			return cs[i%3].try(service(fmt.Sprintf("s%d", i), "n", "10.1.0.9", "a=b"))
		}
		return cs[i%3].try(endpoint("n", fmt.Sprintf("e%d", i), withIP("10.1.0.9")))
	})
	if n := outcomes(t, errs, model.ErrConflict); n != 1 {
		t.Errorf("%d have the address", n)
	}
	checkInvariants(t, cs[1])
	checkKinds(t, cs[1])
}

// A tenant is deleted, or something appears in it, never both.
func TestDeleteTenantWhileFilling(t *testing.T) {
	cs := replicas(t, 2)
	kinds := []func(i int) any{
		func(int) any { return model.NetProfile{Key: npKey("t:np")} },
		func(int) any { return contracts("t:ec") },
		func(int) any { return app("t:app", "g") },
		func(int) any { return service("t:s", "n", "", "a=b") },
		func(int) any { return model.Volume{Key: model.VolumeKey(npKey("t:v"))} },
		func(int) any { return network("t:n", "10.1.0.0/24") },
		func(int) any {
			return with(group("t:g", "n"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} })
		},
	}
	for round := range 10 {
		cs[0].put(model.Tenant{Name: "t"})
		outcomesOf(t, parallel(20, func(i int) error {
			c := cs[i%2]
			switch i {
			case 0, 1:
				return c.remove(model.TenantName("t"))
			case 2:
				return c.remove(groupKey("t:g"))
			case 3:
				return c.remove(npKey("t:np"))
			case 4:
				return c.remove(ecKey("t:ec"))
			case 5:
				return c.remove(appKey("t:app"))
			case 6:
				return c.remove(svcKey("t:s"))
			case 7:
				return c.remove(netKey("t:n"))
			case 8:
				return c.remove(model.VolumeKey(npKey("t:v")))
			}
			return c.try(kinds[(i+round)%len(kinds)](i))
		}))
		checkInvariants(t, cs[round%2])
		checkKinds(t, cs[round%2])
	}
}

// The largest group fits one transaction: when it is created, when all that it
// names changes at once, and when it is deleted.
func TestLargestGroup(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16"))
	g := pooled("g", "n", "10.1.1.1-10.1.1.9")
	other := g
	for i := range model.MaxGroupPolicies {
		a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
		c.put(policy(a), policy(b))
		g.Policies, other.Policies = append(g.Policies, model.PolicyName(a)), append(other.Policies, model.PolicyName(b))
	}
	for i := range model.MaxGroupRefs - model.MaxGroupPolicies {
		a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
		c.put(contracts(a), contracts(b))
		g.ExtContracts, other.ExtContracts = append(g.ExtContracts, a), append(other.ExtContracts, b)
	}
	c.put(model.NetProfile{Key: npKey("a")}, model.NetProfile{Key: npKey("b")})
	g.NetProfile, other.NetProfile = "a", "b"
	before := c.meaning()
	c.put(g)
	c.put(other)
	checkKinds(t, c)
	c.ok(c.remove(groupKey("g")))
	if d := cmp.Diff(before, c.meaning()); d != "" {
		t.Errorf("something is left: %s", d)
	}
}
