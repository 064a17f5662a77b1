package control

import (
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// checkKinds checks what must hold of profiles, services and the like whatever
// happened.
func checkKinds(t *testing.T, c *harness) {
	t.Helper()
	checkMirror(t, c)
	v := c.fresh()
	tenant := func(what fmt.Stringer, k model.TenantName) {
		if _, ok := v.Tenants.Get(k); !ok {
			t.Errorf("%s has no tenant", what)
		}
	}
	for _, p := range NetProfiles(v, "") {
		tenant(p.Key, p.Key.Tenant)
	}
	for _, e := range ExtContracts(v, "") {
		tenant(e.Key, e.Key.Tenant)
	}
	for _, g := range v.Groups.List("") {
		if _, ok := NetProfile(v, model.NetProfileKey{Tenant: g.Key.Tenant, Name: g.NetProfile}); g.NetProfile != "" && !ok {
			t.Errorf("group %s has the lost net profile %s", g.Key, g.NetProfile)
		}
		for _, e := range g.ExtContracts {
			if _, ok := ExtContractsGroup(v, model.ExtContractsKey{Tenant: g.Key.Tenant, Name: e}); !ok {
				t.Errorf("group %s has the lost contracts %s", g.Key, e)
			}
		}
	}
	for _, p := range v.Tenants.AppProfiles("") {
		tenant(p.Key, p.Key.Tenant)
		for _, g := range p.Groups {
			if _, ok := v.Groups.Get(model.GroupKey{Tenant: p.Key.Tenant, Name: g}); !ok {
				t.Errorf("app profile %s has the lost group %s", p.Key, g)
			}
		}
	}
	owned := map[tables.AddressKey]string{}
	for _, s := range v.Services.List("") {
		tenant(s.Key, s.Key.Tenant)
		if _, ok := v.Networks.Get(s.Network); !ok {
			t.Errorf("service %s has no network", s.Key)
		}
		for _, a := range s.Addrs {
			owned[tables.AddressKey{Network: s.Network, Addr: a}] = s.Key.Name
		}
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	for k, s := range v.Addresses.spaces {
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
}
