package control

import (
	"maps"
	"net/netip"
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

func contracts(s string) model.ExtContracts {
	return model.ExtContracts{Key: ecKey(s), Type: model.ContractsProvided}
}

// more adds one of each kind of profile, service and the like to base.
func more(t *testing.T) *harness {
	t.Helper()
	c := base(t)
	c.addHost("host1")
	c.put(
		model.NetProfile{Key: npKey("np"), DSCP: 10}, model.NetProfile{Key: npKey("free")}, contracts("ec"), contracts("ec2"),
		with(group("web", "v1", "p1"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} }),
		app("app1", "web", "idle"), service("s1", "v1", "10.1.1.100", "app=web"), service("s2", "v2", "", "app=db"),
		model.Bgp{Host: "host1", RouterIP: netip.MustParsePrefix("50.1.1.2/24"), AS: 1, NeighborAS: 2}, model.AciGw{PhysicalDomain: "d"},
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
func TestRefusalsHaveKindAndSentence(t *testing.T) {
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
	} {
		c.put(o)
		c.refused(model.ErrInUse, noun, func() error { return c.remove(model.TenantName("full")) })
		c.ok(c.remove(keyOf(o)))
	}
	c.ok(c.remove(model.TenantName("full")))
	c.refused(model.ErrNotFound, "nosuch", func() error {
		return err2(c.Addresses.ReleaseAddress(testContext(t), Admin(), netKey("nosuch"), addr("10.1.1.100")))
	})
	c.refused(model.ErrInUse, `service "s1"`, func() error {
		return err2(c.Addresses.ReleaseAddress(testContext(t), Admin(), netKey("v1"), addr("10.1.1.100")))
	})
}

func keyOf(o any) any {
	switch x := o.(type) {
	case model.NetProfile:
		return x.Key
	case model.ExtContracts:
		return x.Key
	case model.AppProfile:
		return x.Key
	}
	return nil
}

// What is put again as it is changes nothing; what is deleted leaves nothing.
func TestUnchangedPutsAndDeletesLeaveNothing(t *testing.T) {
	c := newCluster(t)
	c.addHost("host1")
	c.put(model.Tenant{Name: "t"}, network("t:n", "10.7.0.0/24"), policy("t:p"), group("t:g", "n"))
	objects := []any{
		model.NetProfile{Key: npKey("t:np"), Burst: 7},
		contracts("t:ec"), app("t:app", "g"), service("t:s", "n", "", "a=b"),
		model.Bgp{Host: "host1", RouterIP: netip.MustParsePrefix("50.1.1.2/24"), AS: 1, NeighborAS: 2},
		model.AciGw{},
	}
	before := c.contents()
	c.put(objects...)
	c.put(with(group("t:g", "n", "p"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} }))
	full := c.dump()
	c.put(objects...)
	c.put(with(group("t:g", "n", "p"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} }))
	if d := cmp.Diff(full, c.dump()); d != "" {
		t.Errorf("putting everything again changes the store: %s", d)
	}
	c.put(group("t:g", "n"))
	for _, k := range []any{npKey("t:np"), ecKey("t:ec"), appKey("t:app"), svcKey("t:s"), tables.BgpKey{Host: "host1"}, tables.AciGwKey{}} {
		c.ok(c.remove(k))
	}
	if d := cmp.Diff(before, c.contents()); d != "" {
		t.Errorf("something is left: %s", d)
	}
	checkKinds(t, c)
}

// contents is what the store holds apart from generations and hints.
func (c *harness) contents() map[string]string {
	d := c.dump()
	maps.DeleteFunc(d, func(k, _ string) bool {
		return k == store.CommitKey || strings.HasPrefix(k, store.Root+"gen/") || strings.Contains(k, "/alloc/cursor/")
	})
	return d
}
