package compile

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestPortsWithPendingLabelsAreClosed: the port of an endpoint whose labels come later is closed while any
// policy of its tenant selects by labels, on this host or on others; a rule that denies by
// labels takes it for a peer, one that allows does not, and one that passes has another beside
// it that denies it.
func TestPortsWithPendingLabelsAreClosed(t *testing.T) {
	blue := model.TenantName("blue")
	network := model.NetworkKey{Tenant: blue, Name: "n1"}
	key := model.PolicyKey{Tenant: blue, Name: "p"}
	const known, later = model.IdentityFirst, model.IdentityFirst + 1
	rule := func(action model.Action, s model.Selector) model.PolicyRule {
		return model.PolicyRule{
			Key: model.RuleKey{Tenant: blue, Policy: "p", Rule: "1"}, Direction: model.In, Priority: 50, Action: action, Peers: []model.Peer{{Selector: &s}},
		}
	}
	app := model.Selector{Tenant: blue, MatchLabels: map[string]string{"app": "bad"}}
	not := model.Selector{Tenant: blue, MatchExpressions: []model.Requirement{{Key: "app", Operator: model.OpNotIn, Values: []string{"bad"}}}}
	all := model.Selector{Tenant: blue}
	elsewhere := model.Selector{Tenant: blue, Network: "n2", MatchLabels: app.MatchLabels}
	here := model.Selector{Tenant: blue, Group: "g1"}
	either := rule(model.Pass, not)
	either.Peers = append(either.Peers, model.Peer{Selector: &all})
	for name, test := range map[string]struct {
		applies model.Selector
		rule    model.PolicyRule
		shut    bool
		peers   []model.Identity
	}{
		"deny by a label":              {here, rule(model.Deny, app), true, []model.Identity{later}},
		"deny by a label's absence":    {here, rule(model.Deny, not), true, []model.Identity{known, later}},
		"deny by a label elsewhere":    {here, rule(model.Deny, elsewhere), true, nil},
		"allow by a label":             {here, rule(model.Allow, app), true, nil},
		"allow by a label's absence":   {here, rule(model.Allow, not), true, []model.Identity{known}},
		"pass by a label's absence":    {here, rule(model.Pass, not), true, []model.Identity{known}},
		"pass all, named twice":        {here, either, true, []model.Identity{known, later}},
		"allow all":                    {here, rule(model.Allow, all), false, []model.Identity{known, later}},
		"applies by a label":           {app, rule(model.Allow, all), true, nil},
		"applies by a label elsewhere": {elsewhere, rule(model.Allow, all), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := New("h1")
			c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
			c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
			c.SetNetwork(model.Network{Key: network, Encap: model.EncapVXLAN, Tag: 7, ID: 7})
			c.SetNetwork(model.Network{Key: model.NetworkKey{Tenant: blue, Name: "n2"}, Encap: model.EncapVXLAN, Tag: 8, ID: 8})
			c.SetGroup(model.Group{Key: model.GroupKey{Tenant: blue, Name: "g1"}, Network: "n1"})
			c.SetIdentity(model.IdentityRecord{ID: known, Network: network, Group: "g1"})
			c.SetIdentity(model.IdentityRecord{ID: later, Network: network, LabelsLater: true})
			port := func(id model.EndpointID, group model.GroupName, identity model.Identity) string {
				e := model.Endpoint{Key: model.EndpointKey{Network: network, ID: id}, Group: group, Host: "h1", Identity: identity, MAC: model.MAC{2, 2, 10, 0, 0, byte(identity)}}
				c.SetEndpoint(e)
				return IfName(e.Key)
			}
			first, second := port("e1", "g1", known), port("e2", "", later)
			shut := func(pic desired.Host, name string) bool {
				p, _ := pic.Ports.Get(name)
				s, ok := pic.PolicySets.Get(p.Policies)
				return ok && len(s.In) == 1 && s.In[0].Default == model.Deny && len(s.Out) == 1 && s.Out[0].Default == model.Deny
			}
			p := model.Policy{Key: key, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierAdmin, Order: 100, Applies: test.applies}
			c.SetPolicy(p)
			c.SetRule(test.rule)
			pic, problems := c.Compile(1)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if got := shut(pic, second); got != test.shut {
				t.Errorf("the port is shut: %v, want %v", got, test.shut)
			}
			if o, _ := pic.Ports.Get(first); o.Policies != 0 {
				s, _ := pic.PolicySets.Get(o.Policies)
				denied := slices.DeleteFunc([]model.Identity{later}, func(model.Identity) bool {
					return test.rule.Action != model.Pass || slices.Contains(test.peers, later)
				})
				for _, r := range s.In[0].Rules.All() {
					if r.ID == test.rule.Key.String()+" unknown peers" {
						if r.Action != model.Deny || !r.Identities.Equal(desired.IdentitiesOf(denied...)) {
							t.Errorf("rule %+v, want one that denies %d", r, denied)
						}
						denied = nil
						continue
					}
					if r.Action != test.rule.Action || !r.Identities.Equal(desired.IdentitiesOf(test.peers...)) {
						t.Errorf("rule %+v, want %s of %d", r, test.rule.Action, test.peers)
					}
				}
				if len(denied) > 0 {
					t.Errorf("no rule denies %d", denied)
				}
			}
			c.SetIdentity(model.IdentityRecord{ID: later, Network: network})
			if pic, _ = c.Compile(2); shut(pic, second) {
				t.Error("the port is shut though its labels are known")
			}
			c.SetIdentity(model.IdentityRecord{ID: later, Network: network, LabelsLater: true})
			c.DeleteRule(test.rule.Key)
			c.DeletePolicy(key)
			if pic, _ = c.Compile(3); shut(pic, second) || c.Identities.UsesLabels(blue) {
				t.Error("the port is shut though no policy asks for labels")
			}
		})
	}
}
