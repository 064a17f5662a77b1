package control

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// checkMore checks what must hold of the remaining kinds whatever happened.
func checkMore(t *testing.T, c *harness) {
	t.Helper()
	v := c.fresh()
	tenant := func(what fmt.Stringer, k model.TenantName) {
		if _, ok := v.Tenant(k); !ok {
			t.Errorf("%s has no tenant", what)
		}
	}
	for _, p := range v.NetProfiles("") {
		tenant(p.Key, p.Key.Tenant)
	}
	for _, e := range v.ExtContracts("") {
		tenant(e.Key, e.Key.Tenant)
	}
	for _, x := range v.Volumes("") {
		tenant(x.Key, x.Key.Tenant)
	}
	for _, g := range v.Groups("") {
		if _, ok := v.NetProfile(model.NetProfileKey{Tenant: g.Key.Tenant, Name: g.NetProfile}); g.NetProfile != "" && !ok {
			t.Errorf("group %s has the lost net profile %s", g.Key, g.NetProfile)
		}
		for _, e := range g.ExtContracts {
			if _, ok := v.ExtContractsGroup(model.ExtContractsKey{Tenant: g.Key.Tenant, Name: e}); !ok {
				t.Errorf("group %s has the lost contracts %s", g.Key, e)
			}
		}
	}
	for _, p := range v.AppProfiles("") {
		tenant(p.Key, p.Key.Tenant)
		for _, g := range p.Groups {
			if _, ok := v.Group(model.GroupKey{Tenant: p.Key.Tenant, Name: g}); !ok {
				t.Errorf("app profile %s has the lost group %s", p.Key, g)
			}
		}
	}
	owned := map[tables.AddressKey]string{}
	for _, s := range v.Services("") {
		tenant(s.Key, s.Key.Tenant)
		if _, ok := v.Network(s.NetworkKey()); !ok {
			t.Errorf("service %s has no network", s.Key)
		}
		owned[tables.AddressKey{Network: s.NetworkKey(), Addr: s.VIP}] = s.Key.Name
	}
	fresh := newView(c.log)
	kvs, rev, err := c.st.Client().Range(context.Background(), tables.StatePrefix)
	c.ok(err)
	b := store.Batch{Revision: rev, Snapshot: true}
	for _, kv := range kvs {
		b.Events = append(b.Events, store.Event{KV: kv})
	}
	c.ok(fresh.apply(b))
	v.mu.RLock()
	defer v.mu.RUnlock()
	for k, s := range v.spaces {
		for a, o := range s.owners {
			if ak := (tables.AddressKey{Network: k, Addr: a}); o.Service != owned[ak] {
				t.Errorf("address %s belongs to the service %q, but %q has it", a, o.Service, owned[ak])
			} else {
				delete(owned, ak)
			}
		}
	}
	if len(owned) > 0 {
		t.Errorf("services have addresses that nobody owns: %v", owned)
	}
	for name, pair := range map[string][2]any{
		"labels": {fresh.more.endpointsByLabel, v.more.endpointsByLabel}, "groups of net profiles": {fresh.more.groupsOfNetProfile, v.more.groupsOfNetProfile},
		"groups of contracts": {fresh.more.groupsOfExtContracts, v.more.groupsOfExtContracts}, "app profiles of groups": {fresh.more.appProfilesOfGroup, v.more.appProfilesOfGroup},
		"services": {fresh.more.services.all, v.more.services.all}, "services of networks": {fresh.more.servicesOfNetwork, v.more.servicesOfNetwork},
		"app profiles": {fresh.more.appProfiles.all, v.more.appProfiles.all}, "writes of app profiles": {fresh.more.appProfileMod, v.more.appProfileMod},
	} {
		if diff := cmp.Diff(pair[0], pair[1], cmpNet, cmp.AllowUnexported(labelKey{})); diff != "" {
			t.Errorf("the view's %s differ from the store: %s", name, diff)
		}
	}
}
