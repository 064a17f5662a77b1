package statemirror

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestEndpointWaitsForItsIdentity delivers the row of an endpoint before the record of
// its new identity, as two mirrors may.
func TestEndpointWaitsForItsIdentity(t *testing.T) {
	c := newCluster(t, memory.New())
	c.mu.Lock()
	defer c.mu.Unlock()
	nk := testEndpoint.Key.Network
	rest, eps := c.mirrors.start(TenantScope(nk.Tenant)), c.mirrors.start(EndpointsScope(nk))
	identity := func(id model.Identity) {
		c.input.enter(rest, tables.Change{Key: tables.IdentityKey{Tenant: nk.Tenant, ID: id}, Value: model.IdentityRecord{ID: id, Network: nk}})
		c.Endpoints.release()
	}
	endpoint := func(id string, identity model.Identity) {
		e := testEndpoint
		e.Key.ID, e.Identity = model.EndpointID(id), identity
		c.input.enter(eps, tables.Change{Key: e.Key, Value: e})
	}
	has := func(when, id string, want model.Identity) {
		t.Helper()
		k := testEndpoint.Key
		k.ID = model.EndpointID(id)
		pic, _ := c.comp.Compile(1)
		got := model.Identity(0)
		for _, p := range pic.Ports.All() {
			if p.Endpoint == k {
				got = p.Identity
			}
		}
		if got != want {
			t.Errorf("%s: the port of %s has identity %d, want %d", when, id, got, want)
		}
	}
	const first, second, third = model.IdentityFirst, model.IdentityFirst + 1, model.IdentityFirst + 2
	c.input.enter(rest, tables.Change{Key: nk, Value: model.Network{Key: nk, Encap: model.EncapVXLAN, Tag: 7, ID: 1, Subnet: netip.MustParsePrefix("10.1.1.0/24")}})
	c.input.setFollowed(eps, true)
	identity(first)
	endpoint("e1", first)
	has("identity first", "e1", first)
	endpoint("e1", second)
	has("endpoint first", "e1", first)
	identity(second)
	has("both are there", "e1", second)
	endpoint("e1", third)
	endpoint("e1", first)
	identity(third)
	has("changed back meanwhile", "e1", first)
	endpoint("e1", third+1)
	c.Endpoints.giveUpIdentities(identityGrace)
	has("a record that may come", "e1", first)
	c.Endpoints.giveUpIdentities(0)
	has("a record that is missing", "e1", third+1)
	endpoint("e1", third+2)
	c.input.enter(eps, tables.Change{Key: testEndpoint.Key})
	identity(third + 2)
	has("deleted meanwhile", "e1", 0)
}
