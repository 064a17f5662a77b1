package statemirror

import (
	"errors"
	"fmt"
	"math/rand"
	"net/netip"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// randomCluster changes a store at random.
type randomCluster struct {
	*rand.Rand
	tenants []model.TenantName
	used    map[model.NetworkKey]bool // by attachments of h1
}

func (x *randomCluster) network() model.NetworkKey {
	return model.NetworkKey{Tenant: x.tenants[x.Intn(len(x.tenants))], Name: model.NetworkName(fmt.Sprint("n", x.Intn(4)))}
}

func (x *randomCluster) number(k model.NetworkKey) int {
	for i, t := range x.tenants {
		if t == k.Tenant {
			return 1 + 4*i + int(k.Name[1]-'0')
		}
	}
	return 0
}

func (x *randomCluster) labels() map[string]string {
	return map[string]string{"app": strconv.Itoa(x.Intn(3))}
}

// change is one transaction.
func (x *randomCluster) change(tx store.Tx) error {
	k := x.network()
	n := x.number(k)
	gone := x.Intn(5) == 0
	switch x.Intn(9) {
	case 0:
		mode := model.FwdBridge
		if x.Intn(2) == 0 {
			mode = model.FwdRouting
		}
		return tables.Globals.Put(tx, model.Global{FwdMode: mode})
	case 1:
		t := model.Tenant{Name: k.Tenant, Router: model.RouterID(n)}
		for other := x.network(); other.Tenant != k.Tenant && len(t.Shared) == 0; {
			t.Shared = append(t.Shared, other)
		}
		if err := tables.Tenants.Put(tx, t); err != nil || len(t.Shared) == 0 {
			return err
		}
		return tables.Tenants.Put(tx, model.Tenant{Name: t.Shared[0].Tenant, Router: model.RouterID(n + 100), Clients: []model.TenantName{k.Tenant}})
	case 2:
		if gone {
			tables.Networks.Delete(tx, k)
			return nil
		}
		row := model.Network{Key: k, ID: model.NetworkID(n), Encap: model.EncapVXLAN, Tag: uint32(n), Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n)}), 16)}
		switch x.Intn(4) {
		case 0:
			row.Encap, row.Gateway = model.EncapVLAN, row.Subnet.Addr().Next()
		case 1:
			row.Routed = x.Intn(2) == 0
		}
		return tables.Networks.Put(tx, row)
	case 3:
		s := model.Service{Key: model.ServiceKey{Tenant: k.Tenant, Name: "s" + string(k.Name)}, Network: k, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n), 9, 9})}, Selectors: []model.ServiceSelector{{Key: "app", Value: "1"}}}
		if gone {
			tables.LoadBalancers.Delete(tx, s.Key)
			return nil
		}
		return tables.LoadBalancers.Put(tx, s)
	case 4:
		p := model.PolicyKey{Tenant: k.Tenant, Name: "p"}
		return errors.Join(
			tables.Policies.Put(tx, model.Policy{Key: p, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv, Order: 100, Applies: model.Selector{Tenant: k.Tenant, MatchLabels: x.labels()}}),
			tables.Rules.Put(tx, model.PolicyRule{
				Key: model.RuleKey{Tenant: k.Tenant, Policy: p.Name, Rule: "1"}, Direction: model.In, Priority: 1, Action: model.Deny,
				Peers: []model.Peer{{Selector: &model.Selector{Tenant: k.Tenant, Network: k.Name, MatchLabels: x.labels()}}},
			}))
	}
	id := model.EndpointID(fmt.Sprint("e", x.Intn(4)))
	e := model.Endpoint{
		Key: model.EndpointKey{Network: k, ID: id}, Host: model.HostName(fmt.Sprint("h", 2+x.Intn(2))), Name: string(id), Container: "c" + string(id),
		IPv4: netip.AddrFrom4([4]byte{10, byte(n), 1, id[1]}), MAC: model.MAC{2, byte(n), id[1]}, Labels: x.labels(),
	}
	if x.used[k] && id == "e0" {
		e.Host = "h1"
	}
	if gone {
		tables.Endpoints.Delete(tx, e.Key)
		return nil
	}
	e.Identity = model.IdentityFirst + model.Identity(10*n+int(e.Labels["app"][0]-'0'))
	var err error
	if x.Intn(8) > 0 { // else it has no record, or keeps the one that it has
		err = tables.Identities.Put(tx, model.IdentityRecord{ID: e.Identity, Network: k, Labels: e.Labels})
	}
	return errors.Join(err, tables.Endpoints.Put(tx, e))
}

// byTenants is the desired state of a host that follows all of some tenants.
func byTenants(t *testing.T, st store.Store, of map[model.TenantName]bool) (desired.Host, []compile.Problem) {
	t.Helper()
	c := join(Config{Host: "h1", StateDir: t.TempDir(), Agent: fakeAgent(nil)}, StorePosition{}, compile.New("h1"))
	m := &mirror{values: map[any]any{}, endpoints: map[model.EndpointKey]endpointRow{}, networks: map[model.NetworkKey]model.Network{}, groups: map[model.GroupKey]model.Group{}}
	prefixes := []string{tables.GlobalPrefix}
	for name := range of {
		prefixes = append(prefixes, tables.TenantPrefix(name))
	}
	for _, p := range prefixes {
		kvs, _, err := st.Range(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			ch, err := tables.Decode(store.Event{KV: kv})
			if err != nil {
				t.Fatal(err)
			}
			c.input.enter(m, ch)
		}
	}
	c.Endpoints.releaseRead()
	return c.comp.Compile(1)
}

// differ says what is in one of two parts of a desired state and not in the other, or another.
func differ[K, V comparable](what string, want, got desired.Map[K, V], equal func(a, b V) bool) (err error) {
	for k, v := range want.All() {
		if w, ok := got.Get(k); !ok || !equal(v, w) {
			err = errors.Join(err, fmt.Errorf("%s %v: %+v, want %+v", what, k, w, v))
		}
	}
	for k := range got.All() {
		if _, ok := want.Get(k); !ok {
			err = errors.Join(err, fmt.Errorf("%s %v is there", what, k))
		}
	}
	return err
}

func same[V any](a, b V) bool { return reflect.DeepEqual(a, b) }

// sameState compares a desired state with that by tenants: they are equal but for names of
// endpoints on networks that do not concern the host, and for what is said of identities
// that only such endpoints have.
func (c *State) sameState(want desired.Host, problems []compile.Problem) error {
	got, saw := c.comp.Compile(1)
	err := errors.Join(
		differ("network", want.Networks, got.Networks, (*desired.Network).Equal),
		differ("port", want.Ports, got.Ports, same),
		differ("remote", want.Remotes, got.Remotes, same),
		differ("service", want.Services, got.Services, (*desired.Service).Equal),
		differ("tunnel", want.Tunnels, got.Tunnels, same),
		differ("name's network", want.DNS.Networks, got.DNS.Networks, same),
	)
	for k, r := range want.DNS.Records.All() {
		concerns := k.Service != (model.ServiceKey{}) || c.mirrors.endpoints(k.Endpoint.Network) != nil
		if g, has := got.DNS.Records.Get(k); concerns != has || has && !g.Equal(r) {
			err = errors.Join(err, fmt.Errorf("name %v: there %v, want %v", k, has, concerns))
		}
	}
	// Rules that deny have for peers the identities of endpoints that have no record, and
	// such that do not concern the host cannot come here.
	orphans := func(list []compile.Problem) (out []compile.Problem, tenants map[string]bool) {
		tenants = map[string]bool{}
		for _, p := range list {
			if len(p.Object) > 7 && p.Object[:7] == "tenant " {
				tenants[p.Object] = true
				continue
			}
			out = append(out, p)
		}
		return out, tenants
	}
	wantProblems, there := orphans(problems)
	gotProblems, _ := orphans(saw)
	if !reflect.DeepEqual(wantProblems, gotProblems) {
		err = errors.Join(err, fmt.Errorf("problems %v, want %v", gotProblems, wantProblems))
	}
	if len(there) == 0 {
		err = errors.Join(err, differ("policy set", want.PolicySets, got.PolicySets, (*desired.PolicySet).Equal))
	}
	return err
}

// TestNarrowMirrorsGiveTheSameState: a host that follows what concerns it has the desired state of one that
// follows all of its tenants, whatever comes, goes, and is joined, while attachments come
// and go; and what it follows is no more than that.
func TestNarrowMirrorsGiveTheSameState(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		x := &randomCluster{
			Rand: rand.New(rand.NewSource(int64(seed))), tenants: []model.TenantName{"default", "blue", "infra"},
			used: map[model.NetworkKey]bool{},
		}
		st := memory.New()
		put(t, st, func(tx store.Tx) error {
			return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()),
				tables.Hosts.Put(tx, model.Host{Name: "h1", VTEP: netip.MustParseAddr("10.9.0.1")}),
				tables.Hosts.Put(tx, model.Host{Name: "h2", VTEP: netip.MustParseAddr("10.9.0.2")}),
				tables.Hosts.Put(tx, model.Host{Name: "h3", VTEP: netip.MustParseAddr("10.9.0.3")}))
		})
		for range 30 {
			put(t, st, x.change)
		}
		c := newCluster(t, st.Client())
		first := x.network()
		x.used[first] = true
		c.Require(first)
		follow(t, c)
		less := false
		for step := range 12 {
			if x.Intn(2) == 0 {
				k := x.network()
				if x.used[k] = true; x.Intn(3) > 0 {
					c.Acquire(k)
				} else {
					c.Release(first)
					c.Acquire(k)
					first = k
				}
			}
			for range 3 {
				put(t, st, x.change)
			}
			until(t, c, fmt.Sprintf("seed %d, step %d", seed, step), func() error {
				if !c.Guard.follows() {
					return errors.New("no desired state yet")
				}
				of := map[model.TenantName]bool{}
				for p, m := range c.mirrors.byScope {
					if !m.ready || m.staged {
						return fmt.Errorf("%s: not read", p)
					}
					if p.isTenant() {
						of[p.Tenant] = true
					}
				}
				want, problems := byTenants(t, st, of)
				c.Endpoints.releaseRead()
				c.services.forgetClosed(0)
				for k := range x.used { // which have ports here
					if c.mirrors.uses[EndpointsScope(k)] > 0 && c.mirrors.endpoints(k) == nil {
						return fmt.Errorf("network %s is not followed", k)
					}
				}
				for k := range want.Networks.All() {
					n, _ := want.Networks.Get(k)
					if c.mirrors.endpoints(n.Key) == nil {
						return fmt.Errorf("network %s concerns this host and is not followed", n.Key)
					}
				}
				for name := range of {
					for i := range 4 {
						less = less || c.mirrors.endpoints(model.NetworkKey{Tenant: name, Name: model.NetworkName(fmt.Sprint("n", i))}) == nil
					}
				}
				return c.sameState(want, problems)
			})
		}
		if !less && seed == 0 {
			t.Error("all networks were followed all the time")
		}
		c.dropUnused(time.Now().Add(time.Hour), time.Minute)
	}
}

// TestManyNetworksShareOneMirror: of more networks than manyNetworks all endpoints of the tenant are
// followed by one mirror, before the first desired state and after.
func TestManyNetworksShareOneMirror(t *testing.T) {
	st := memory.New()
	key := func(i int) model.NetworkKey {
		return model.NetworkKey{Tenant: "blue", Name: model.NetworkName(fmt.Sprint("n", i))}
	}
	put(t, st, func(tx store.Tx) (err error) {
		err = tables.Globals.Put(tx, model.DefaultGlobal())
		for i := range manyNetworks + 2 {
			err = errors.Join(err, tables.Networks.Put(tx, model.Network{Key: key(i), ID: model.NetworkID(i + 1), Encap: model.EncapVXLAN, Tag: uint32(i + 1)}))
		}
		return err
	})
	for _, before := range []int{manyNetworks, manyNetworks + 1} {
		c := newCluster(t, st.Client())
		for i := range before {
			c.Require(key(i))
		}
		follow(t, c)
		followed := func(want int) func() error {
			return func() error {
				if _, is := c.mirrors.byScope[allEndpointsScope("blue")]; !c.Guard.follows() || len(c.mirrors.byScope) != want || is != (want == 3) {
					return fmt.Errorf("held %v, %d mirrors", !c.Guard.follows(), len(c.mirrors.byScope))
				}
				for p, m := range c.mirrors.byScope {
					if !m.ready || m.staged {
						return fmt.Errorf("%s: not read", p)
					}
				}
				return nil
			}
		}
		if before == manyNetworks {
			until(t, c, "as many as are followed one by one", followed(2+before))
			c.Acquire(key(before))
		}
		until(t, c, "one more", followed(3))
		if err := c.Lookup.AwaitEndpoints(t.Context(), key(0)); err != nil {
			t.Error(err)
		}
	}
}
