package compile

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A network whose endpoints are mirrored by network is in no desired state before they are.
// An endpoint without an identity record yet is denied by every deny rule at once.
func TestNetworkWaitsForItsEndpoints(t *testing.T) {
	c := New("h1")
	c.Interest.SetByNetwork()
	net := func(name model.NetworkName) model.NetworkKey { return model.NetworkKey{Tenant: "blue", Name: name} }
	c.SetGlobal(model.Global{FwdMode: model.FwdRouting})
	c.SetTenant(model.Tenant{Name: "blue", Router: 1})
	for i, n := range []model.NetworkName{"a", "b"} {
		c.SetNetwork(model.Network{Key: net(n), ID: model.NetworkID(i + 1), Encap: model.EncapVXLAN, Tag: uint32(i + 1), Subnet: netip.MustParsePrefix("10.0.0.0/8")})
	}
	c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("10.9.0.1")})
	c.SetHost(model.Host{Name: "h2", VTEP: netip.MustParseAddr("10.9.0.2")})
	policy := model.PolicyKey{Tenant: "blue", Name: "p"}
	c.SetPolicy(model.Policy{Key: policy, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv, Order: 100, Applies: model.Selector{Tenant: "blue", Network: "a"}})
	c.SetRule(model.PolicyRule{Key: model.RuleKey{Tenant: "blue", Policy: "p", Rule: "deny"}, Direction: model.In, Priority: 1, Action: model.Deny, Peers: []model.Peer{{Selector: &model.Selector{Tenant: "blue", Network: "b", MatchLabels: map[string]string{"app": "bad"}}}}})
	const own, unknown = model.IdentityFirst, model.IdentityFirst + 1
	c.SetIdentity(model.IdentityRecord{ID: own, Network: net("a")})
	networks := func(want int) {
		t.Helper()
		if h, _ := c.Compile(1); h.Networks.Len() != want {
			t.Errorf("%d networks, want %d", h.Networks.Len(), want)
		}
	}
	c.SetEndpoint(model.Endpoint{Key: model.EndpointKey{Network: net("a"), ID: "1"}, Host: "h1", MAC: model.MAC{2, 1}, Identity: own})
	networks(0)
	c.Interest.SetFollowed(net("a"), true)
	networks(1)
	if here := func(model.TenantName) bool { return false }; c.Interest.IsNeeded(net("b"), here) || c.Interest.AreAllNeeded("blue", here) {
		t.Error("a network concerns a host where nothing is")
	}
	if here := func(model.TenantName) bool { return true }; !c.Interest.IsNeeded(net("b"), here) || !c.Interest.AreAllNeeded("blue", here) {
		t.Error("a network that is joined to one that is here does not concern the host")
	}
	c.SetEndpoint(model.Endpoint{Key: model.EndpointKey{Network: net("b"), ID: "2"}, Host: "h2", MAC: model.MAC{2, 2}, Identity: unknown})
	networks(1)
	c.Interest.SetAllFollowed("blue", true)
	networks(2)
	h, _ := c.Compile(1)
	denied := false
	for _, s := range h.PolicySets.All() {
		for _, tier := range s.In {
			for _, r := range tier.Rules.All() {
				denied = denied || r.Action == model.Deny && r.Identities.Has(unknown)
			}
		}
	}
	if !denied {
		t.Error("an endpoint whose identity has no record yet is not denied")
	}
	c.Interest.SetAllFollowed("blue", false)
	networks(1)
	c.Interest.SetFollowed(net("a"), false)
	networks(0)
}
