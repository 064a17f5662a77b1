package statemirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// filtered is a store as a netmaster passes it on: of each tenant what the host reads of it.
type filtered struct {
	store.Store
	mu      sync.Mutex
	rows    func(model.TenantName) tables.HostRows
	changes waiting.Changes
}

// now returns how much of a tenant is passed on, and waits first until that is not was.
func (f *filtered) now(ctx context.Context, of model.TenantName, was tables.HostRows) (is tables.HostRows, err error) {
	err = f.changes.Until(ctx, func() (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		is = f.rows(of)
		return is != was, nil
	})
	return is, err
}

func (f *filtered) set(rows func(model.TenantName) tables.HostRows) {
	f.mu.Lock()
	f.rows = rows
	f.mu.Unlock()
	f.changes.Notify()
}

func (f *filtered) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	tenant, is := tables.TenantOfPrefix(prefixes[0])
	if !is {
		return f.Store.Mirror(ctx, prefixes, fn, opts...)
	}
	var o store.MirrorOptions
	for _, opt := range opts {
		opt(&o)
	}
	for was := tables.HostRows(-1); ; {
		rows, err := f.now(ctx, tenant, was)
		if err != nil {
			return err
		}
		was = rows
		if rows == tables.NoRows {
			o.Withheld()
			continue
		}
		within, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer end()
			_, _ = f.now(within, tenant, rows) // its error is the mirror's end
		}()
		err = f.Store.Mirror(within, prefixes, func(b store.Batch) error {
			var shown []store.Event
			for _, e := range b.Events {
				if rows.Shows(e.KV.Key) {
					shown = append(shown, e)
				}
			}
			if len(shown) == 0 && !b.Listed {
				return nil
			}
			b.Events, b.Partial = shown, b.Listed && rows != tables.AllRows
			return fn(b)
		}, opts...)
		end()
		<-ended
		if ctx.Err() != nil {
			return err
		}
	}
}

// TestHostRowsSuffice: a host that reads of each tenant no more than concerns it has the
// desired state of one that reads all of them.
func TestHostRowsSuffice(t *testing.T) {
	for seed := range 60 { // fewer find no tenant whose networks others share with this host's
		x := &randomCluster{
			Rand: rand.New(rand.NewSource(int64(100 + seed))), tenants: []model.TenantName{"default", "blue", "infra"},
			used: map[model.NetworkKey]bool{},
		}
		st := memory.New()
		put(t, st, func(tx store.Tx) error {
			return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()), tables.Hosts.Put(tx, model.Host{Name: "h1"}), tables.Hosts.Put(tx, model.Host{Name: "h2"}))
		})
		own := x.network()
		x.used[own] = true
		for range 60 {
			put(t, st, x.change)
		}
		put(t, st, func(tx store.Tx) error { return clientsOfAll(st, tx, x.tenants) })
		all := newCluster(t, st.Client())
		some := newCluster(t, &filtered{Store: st.Client(), rows: func(t model.TenantName) tables.HostRows {
			row, known, err := tenantRow(st, t)
			return tables.HostRowsOf(t, row, err == nil && known, false, false, func(t model.TenantName) bool { return t == own.Tenant })
		}})
		for _, c := range []*State{all, some} {
			c.Require(own)
			c.RequireTenant(model.DefaultTenant)
			follow(t, c)
		}
		for _, c := range []*State{all, some} {
			until(t, c, "it follows", func() error {
				if !c.Guard.follows() {
					return errors.New("not yet")
				}
				for p, m := range c.mirrors.byScope {
					if !m.ready && !m.withheld || m.staged {
						return fmt.Errorf("%s is not read", p)
					}
				}
				c.Endpoints.releaseRead()
				return nil
			})
		}
		all.mu.Lock()
		want, _ := all.comp.Compile(1)
		all.mu.Unlock()
		some.mu.Lock()
		got, _ := some.comp.Compile(1)
		some.mu.Unlock()
		if err := errors.Join(
			differ("network", want.Networks, got.Networks, (*desired.Network).Equal),
			differ("port", want.Ports, got.Ports, same),
			differ("remote", want.Remotes, got.Remotes, same),
			differ("service", want.Services, got.Services, (*desired.Service).Equal),
			differ("policy set", want.PolicySets, got.PolicySets, (*desired.PolicySet).Equal),
		); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// clientsOfAll has the tenants' rows name the clients of what others share of them, as
// netmasters do in the commit that shares it.
func clientsOfAll(st store.Reader, tx store.Tx, tenants []model.TenantName) error {
	rows := map[model.TenantName]model.Tenant{}
	for _, t := range tenants {
		if row, known, err := tenantRow(st, t); err != nil {
			return err
		} else if known {
			row.Clients = nil
			rows[t] = row
		}
	}
	for _, t := range tenants {
		for _, k := range rows[t].Shared {
			of := rows[k.Tenant]
			of.Clients = append(of.Clients, t)
			rows[k.Tenant] = of
		}
	}
	for _, row := range rows {
		if err := tables.Tenants.Put(tx, row); err != nil {
			return err
		}
	}
	return nil
}

func tenantRow(st store.Reader, t model.TenantName) (row model.Tenant, known bool, err error) {
	kv, err := st.Get(context.Background(), tables.Tenants.Key(t))
	if err != nil || !kv.Exists() {
		return row, false, err
	}
	row, _, err = store.DecodeRecord[model.Tenant](kv.Value)
	return row, err == nil, err
}

// TestWithheldTenantDelaysNoStart: what a netmaster withholds holds no start back, its endpoints count as
// lost, and it is in the desired state once it is passed on, and no longer after that.
func TestWithheldTenantDelaysNoStart(t *testing.T) {
	st := memory.New()
	put(t, st, func(tx store.Tx) error {
		return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()), tables.Networks.Put(tx, model.Network{Key: testEndpoint.Key.Network, ID: 1, Encap: model.EncapVXLAN, Tag: 1}))
	})
	f := &filtered{Store: st.Client(), rows: func(model.TenantName) tables.HostRows { return tables.NoRows }}
	c := newCluster(t, f)
	c.Require(testEndpoint.Key.Network)
	follow(t, c)
	network := func(want bool) func() error {
		return func() error {
			if !c.Guard.follows() {
				return errors.New("it does not follow")
			}
			compiled, _ := c.comp.Compile(1)
			_, has := c.mirrors.byScope[TenantScope("blue")].networks[testEndpoint.Key.Network]
			if has != want || compiled.Networks.Len() > 0 && !want {
				return fmt.Errorf("it has the network: %v", has)
			}
			return nil
		}
	}
	until(t, c, "withheld", network(false))
	c.mu.Lock()
	lost := c.Endpoints.lost([]Attachment{{Endpoint: testEndpoint.Key}})
	c.mu.Unlock()
	if !reflect.DeepEqual(lost, []Attachment{{Endpoint: testEndpoint.Key}}) {
		t.Errorf("lost are %v", lost)
	}
	if all, err := c.Lookup.HasTenant(t.Context(), "blue"); all || err != nil {
		t.Errorf("it has the tenant: %v, %v", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Lookup.AwaitTenant(ctx, "blue"); err == nil || !strings.Contains(err.Error(), "netmaster does not pass it on") {
		t.Errorf("waiting for it: %v", err)
	}
	f.set(func(model.TenantName) tables.HostRows { return tables.AllRows })
	until(t, c, "passed on", network(true))
	if err := c.Lookup.AwaitPolicies(t.Context(), "blue"); err != nil {
		t.Error(err)
	}
	f.set(func(model.TenantName) tables.HostRows { return tables.NoRows })
	until(t, c, "withheld again", network(false))
}

// TestOwnEndpointWaitsForPolicies: an endpoint of this host is in no desired state while its
// tenant's policies are left out, however long that takes.
func TestOwnEndpointWaitsForPolicies(t *testing.T) {
	st := memory.New()
	ep := testEndpoint
	ep.Identity = 0
	put(t, st, func(tx store.Tx) error {
		return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()),
			tables.Networks.Put(tx, model.Network{Key: ep.Key.Network, ID: 1, Encap: model.EncapVXLAN, Tag: 1}), tables.Endpoints.Put(tx, ep))
	})
	f := &filtered{Store: st.Client(), rows: func(model.TenantName) tables.HostRows { return tables.PeerRows }}
	c := newCluster(t, f, Attachment{Endpoint: ep.Key})
	c.Require(ep.Key.Network)
	follow(t, c)
	ports := func(want int) func() error {
		return func() error {
			if !c.Guard.follows() {
				return errors.New("it does not follow")
			}
			c.Endpoints.releaseRead()
			if got, _ := c.comp.Compile(1); got.Ports.Len() != want {
				return fmt.Errorf("%d ports", got.Ports.Len())
			}
			return nil
		}
	}
	until(t, c, "partial", ports(0))
	if all, err := c.Lookup.HasTenant(t.Context(), "blue"); all || err != nil {
		t.Errorf("it has the tenant: %v, %v", all, err)
	}
	if !c.Lookup.UsesLabels("blue") {
		t.Error("policies that are left out ask for no labels")
	}
	f.set(func(model.TenantName) tables.HostRows { return tables.AllRows })
	until(t, c, "all of it", ports(1))
}
