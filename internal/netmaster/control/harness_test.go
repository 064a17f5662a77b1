package control

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var cmpNet = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// clock is a hand-moved clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// harness is a store with a controller on it.
type harness struct {
	*Controller
	t     testing.TB
	st    *memory.Store
	clock *clock
	stop  func()
}

// testContext ends a test that hangs.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newCluster(t testing.TB, opts ...func(*Options)) *harness {
	t.Helper()
	return onStore(t, memory.New(), opts...)
}

// onStore starts a controller, such as a second replica, on a store.
func onStore(t testing.TB, st *memory.Store, opts ...func(*Options)) *harness {
	t.Helper()
	return through(t, st, st, opts...)
}

// through starts a controller that reaches a store through a wrapper of it.
func through(t testing.TB, wrapper store.Store, st *memory.Store, opts ...func(*Options)) *harness {
	t.Helper()
	clk := &clock{now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}
	o := Options{Now: clk.Now}
	for _, opt := range opts {
		opt(&o)
	}
	c := &harness{Controller: New(wrapper, o), t: t, st: st, clock: clk}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(c.stop)
	if err := c.await(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

// fresh returns the view with everything committed so far.
func (c *harness) fresh() *View {
	c.t.Helper()
	v, err := c.View(testContext(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// dump reads the whole store.
func (c *harness) dump() map[string]string {
	c.t.Helper()
	kvs, _, err := c.st.Client().Range(context.Background(), store.Root)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range kvs {
		out[kv.Key] = string(kv.Value)
	}
	out[store.StoreIdentityKey] = "of each store its own"
	return out
}

// ok fails the test on an error.
func (c *harness) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// refused checks that a request fails with the kind and a text that holds part,
// and that the store is byte for byte what it was.
func (c *harness) refused(kind error, part string, request func() error) {
	c.t.Helper()
	before := c.dump()
	err := request()
	if !errors.Is(err, kind) || err != nil && !strings.Contains(err.Error(), part) {
		c.t.Errorf("got %v; want an error of kind %q with %q", err, kind, part)
	}
	if err != nil && strings.Contains(err.Error(), store.Root) {
		c.t.Errorf("the text shows a key of the store: %v", err)
	}
	if diff := cmp.Diff(before, c.dump()); diff != "" {
		c.t.Errorf("a refused request changed the store: %s", diff)
	}
}

func (c *harness) put(objects ...any) {
	c.t.Helper()
	for _, o := range objects {
		c.ok(c.try(o))
	}
}

// try puts or creates an object.
func (c *harness) try(o any) error {
	ctx := testContext(c.t)
	if v, ok := o.(model.Validator); ok { // as callers of control have to
		if err := v.Validate(); err != nil {
			return err
		}
	}
	var ch Change
	switch x := o.(type) {
	case model.Global:
		ch = c.Settings.ChangeGlobal(valid(x))
	case model.Tenant:
		ch = ChangeTenant(valid(x), false)
	case model.Network:
		ch = c.Networks.ChangeNetwork(valid(x))
	case model.Group:
		ch = c.Tenants.ChangeGroup(valid(x), false)
	case model.ContivPolicy:
		ch = c.Policies.ChangePolicy(valid(x))
	case model.Rule:
		ch = c.Policies.ChangeRule(valid(x))
	case model.NetworkPolicy:
		ch = c.Policies.ReplaceNetworkPolicy(valid(x))
	case model.NetProfile:
		ch = ChangeNetProfile(valid(x))
	case model.AppProfile:
		ch = c.Tenants.ChangeAppProfile(valid(x))
	case model.Service:
		ch = c.Services.ChangeService(valid(x))
	case model.ExtContracts:
		ch = ChangeExtContracts(valid(x))
	case model.Bgp:
		ch = c.Settings.ChangeBgp(valid(x))
	case model.AciGw:
		ch = ChangeAciGw(valid(x))
	case model.Endpoint:
		_, _, err := c.Endpoints.CreateEndpoint(ctx, Admin(), valid(x))
		return err
	case AddressRequest:
		_, _, err := c.Addresses.AllocAddress(ctx, Admin(), x)
		return err
	default:
		c.t.Fatalf("cannot put a %T", o)
	}
	_, err := c.Put(ctx, Admin(), ch)
	return err
}

// remove deletes what a key names.
func (c *harness) remove(key any) error {
	var d Deletion
	switch k := key.(type) {
	case tables.GlobalKey:
		d = c.Settings.DeleteGlobal()
	case model.TenantName:
		d = DeleteTenant(k)
	case model.NetworkKey:
		d = c.Networks.DeleteNetwork(k)
	case model.GroupKey:
		d = DeleteGroup(k)
	case model.PolicyKey:
		d = DeletePolicy(k)
	case model.RuleKey:
		d = c.Policies.DeleteRule(k)
	case model.NetProfileKey:
		d = DeleteNetProfile(k)
	case model.AppProfileKey:
		d = c.Tenants.DeleteAppProfile(k)
	case model.ServiceKey:
		d = DeleteService(k)
	case model.ExtContractsKey:
		d = DeleteExtContracts(k)
	case tables.BgpKey:
		d = DeleteBgp(k.Host)
	case tables.AciGwKey:
		d = DeleteAciGw()
	case model.EndpointKey:
		return err3(c.Endpoints.DeleteEndpoint(testContext(c.t), Admin(), k))
	default:
		c.t.Fatalf("cannot remove a %T", key)
	}
	return err2(c.Delete(testContext(c.t), Admin(), d))
}

// err2 and err3 are the errors of calls with two and with three results.
func err2[A any](_ A, err error) error         { return err }
func err3[A, B any](_ A, _ B, err error) error { return err }

// valid proves an object valid; an invalid one has no proof.
func valid[T model.Validator](x T) model.Valid[T] {
	v, _ := model.Check(x)
	return v
}

func netKey(s string) model.NetworkKey {
	t, n, ok := strings.Cut(s, ":")
	if !ok {
		t, n = "default", s
	}
	return model.NetworkKey{Tenant: model.TenantName(t), Name: model.NetworkName(n)}
}

func groupKey(s string) model.GroupKey {
	k := netKey(s)
	return model.GroupKey{Tenant: k.Tenant, Name: model.GroupName(k.Name)}
}

func policyKey(s string) model.PolicyKey {
	k := netKey(s)
	return model.PolicyKey{Tenant: k.Tenant, Name: model.PolicyName(k.Name)}
}

// network makes a VXLAN network from a key and subnets of either family.
func network(key string, subnets ...string) model.Network {
	n := model.Network{Key: netKey(key), Type: model.NetworkData, Encap: model.EncapVXLAN}
	for _, s := range subnets {
		if strings.Contains(s, ":") {
			n.Subnet6 = netip.MustParsePrefix(s)
			continue
		}
		var err error
		if n.Subnet, n.Range, err = model.ParseSubnet4("subnet", s); err != nil {
			panic(err)
		}
	}
	return n
}

func with[T any](x T, change func(*T)) T {
	change(&x)
	return x
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func group(key, net string, policies ...model.PolicyName) model.Group {
	return model.Group{Key: groupKey(key), Network: model.NetworkName(net), Policies: policies}
}

func pooled(key, net, pool string) model.Group {
	r, err := model.ParseAddrRange("ipPool", pool)
	if err != nil {
		panic(err)
	}
	return model.Group{Key: groupKey(key), Network: model.NetworkName(net), Pool: r}
}

func policy(key string) model.ContivPolicy { return model.ContivPolicy{Key: policyKey(key)} }

func rule(pol, id string, change ...func(*model.Rule)) model.Rule {
	p := policyKey(pol)
	r := model.Rule{
		Key:       model.RuleKey{Tenant: p.Tenant, Policy: p.Name, Rule: model.RuleID(id)},
		Direction: model.In, Priority: 1, Action: model.Allow, Protocol: model.AnyProtocol,
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func endpoint(net, id string, change ...func(*model.Endpoint)) model.Endpoint {
	e := model.Endpoint{Key: model.EndpointKey{Network: netKey(net), ID: model.EndpointID(id)}, Host: "host1", Name: "name-" + id}
	for _, f := range change {
		f(&e)
	}
	return e
}

func inGroup(g model.GroupName) func(*model.Endpoint) {
	return func(e *model.Endpoint) { e.Group = g }
}

func withIP(ips ...string) func(*model.Endpoint) {
	return func(e *model.Endpoint) {
		for _, s := range ips {
			if a := addr(s); a.Is4() {
				e.IPv4 = a
			} else {
				e.IPv6 = a
			}
		}
	}
}

// create creates an endpoint and returns it.
func (c *harness) create(e model.Endpoint) model.Endpoint {
	c.t.Helper()
	got, _, err := c.Endpoints.CreateEndpoint(testContext(c.t), Admin(), valid(e))
	c.ok(err)
	return got
}
