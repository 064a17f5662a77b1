package compile

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestTierNamesTheDecidingDefaults: of three policies of a tier the default of one
// denies, then of two; the third lets it to the next tier.
func TestTierNamesTheDecidingDefaults(t *testing.T) {
	network := model.NetworkKey{Tenant: "blue", Name: "n1"}
	c := New("h1")
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
	c.SetNetwork(model.Network{Key: network, Encap: model.EncapVXLAN, Tag: 7, ID: 7})
	c.SetIdentity(model.IdentityRecord{ID: model.IdentityFirst, Network: network})
	e := model.Endpoint{Key: model.EndpointKey{Network: network, ID: "e1"}, Host: "h1", Identity: model.IdentityFirst, MAC: model.MAC{2, 2, 10, 0, 0, 1}}
	c.SetEndpoint(e)
	put := func(name model.PolicyName, in model.Action) {
		c.SetPolicy(model.Policy{
			Key: model.PolicyKey{Tenant: "blue", Name: name}, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierKubernetes,
			Order: 1, Applies: model.Selector{Tenant: "blue"}, Default: model.Defaults{In: in},
		})
	}
	in := func() desired.Tier {
		t.Helper()
		pic, _ := c.Compile(1)
		p, _ := pic.Ports.Get(IfName(e.Key))
		set, ok := pic.PolicySets.Get(p.Policies)
		if !ok || len(set.In) != 1 || len(set.Out) != 0 {
			t.Fatalf("the set is %+v", set)
		}
		return set.In[0]
	}
	put("a", model.Deny)
	put("b", model.Pass)
	put("c", model.Allow)
	if x := in(); x.Default != model.Deny || x.DefaultOf != "blue:a" {
		t.Errorf("%s of %q decides", x.Default, x.DefaultOf)
	}
	put("b", model.Deny)
	if x := in(); x.DefaultOf != "blue:a,blue:b" {
		t.Errorf("%q decide", x.DefaultOf)
	}
}
