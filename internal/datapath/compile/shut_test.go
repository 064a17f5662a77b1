package compile

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestMissingReferences checks what stands in for what is missing: it denies,
// and there is a problem that says so.
func TestMissingReferences(t *testing.T) {
	blue := model.TenantName("blue")
	n1 := model.NetworkKey{Tenant: blue, Name: "n1"}
	rule := func(action model.Action, edit func(*model.Rule)) model.PolicyRule {
		r := model.Rule{
			Key: model.RuleKey{Tenant: blue, Policy: "p1", Rule: "r1"}, Direction: model.In,
			Priority: 5, Action: action, Protocol: model.AnyProtocol,
		}
		edit(&r)
		return r.General()
	}
	byGroup := func(r *model.Rule) { r.Group = "gone" }
	byNetwork := func(r *model.Rule) { r.Network = "gone" }
	shut := desired.Rule{ID: "shut/blue:g1", Priority: 100, Action: model.Deny, AnyPeer: true}
	id := "blue:p1:r1"
	for _, test := range []struct {
		name    string
		change  func(c *Compiler)
		in      []desired.Rule
		def     model.Action
		problem string
	}{
		{"group", func(c *Compiler) { c.DeleteGroup(model.GroupKey{Tenant: blue, Name: "g1"}) }, []desired.Rule{shut}, model.Deny, "group blue:g1: unknown"},
		{"policy", func(c *Compiler) { c.DeletePolicy(model.PolicyKey{Tenant: blue, Name: "p1"}) }, []desired.Rule{shut}, model.Deny, "group blue:g1: its policy p1 is unknown"},
		{
			"peer group of an allow", func(c *Compiler) { c.SetRule(rule(model.Allow, byGroup)) },
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Allow}},
			model.Pass, "rule blue:p1:r1: group blue:gone is unknown: the rule matches nothing",
		},
		{
			"peer group of a deny", func(c *Compiler) { c.SetRule(rule(model.Deny, byGroup)) },
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, AnyPeer: true}},
			model.Pass, "rule blue:p1:r1: group blue:gone is unknown: the rule denies any peer",
		},
		{
			"peer group of a pass", func(c *Compiler) { c.SetRule(rule(model.Pass, byGroup)) },
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, AnyPeer: true}},
			model.Pass, "rule blue:p1:r1: group blue:gone is unknown: the rule denies any peer",
		},
		{
			"peer network of an allow", func(c *Compiler) { c.SetRule(rule(model.Allow, byNetwork)) },
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Allow}},
			model.Pass, "rule blue:p1:r1: network blue:gone is unknown: the rule matches nothing",
		},
		{
			"peer network of a deny", func(c *Compiler) { c.SetRule(rule(model.Deny, byNetwork)) },
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, AnyPeer: true}},
			model.Pass, "rule blue:p1:r1: network blue:gone is unknown: the rule denies any peer",
		},
		{
			"unknown action", func(c *Compiler) { c.SetRule(rule("log", func(*model.Rule) {})) },
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, AnyPeer: true}},
			model.Pass, `rule blue:p1:r1: action "log" is not known`,
		},
		{
			"unknown protocol", func(c *Compiler) { c.SetRule(rule(model.Allow, func(r *model.Rule) { r.Protocol = 999 })) },
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, AnyPeer: true}},
			model.Pass, "rule blue:p1:r1: protocol 999 is not known",
		},
		{"identity record", func(c *Compiler) {
			c.SetRule(rule(model.Deny, func(r *model.Rule) { r.Group = "g1" }))
			c.DeleteIdentity(blue, 300)
		}, []desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, Identities: desired.IdentitiesOf(300)}}, model.Pass, "tenant blue: identities [300]"},
		{"identity record of a pass", func(c *Compiler) {
			r := rule(model.Allow, func(r *model.Rule) { r.Group = "g1" })
			r.Action = model.Pass
			c.SetRule(r)
			c.DeleteIdentity(blue, 300)
		}, []desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, Identities: desired.IdentitiesOf(300)}}, model.Pass, "tenant blue: identities [300]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New("h1")
			c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
			c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
			c.SetNetwork(model.Network{Key: n1, Encap: model.EncapVXLAN, Tag: 7, ID: 7})
			c.SetGroup(model.Group{Key: model.GroupKey{Tenant: blue, Name: "g1"}, Network: "n1", Policies: []model.PolicyName{"p1"}})
			c.SetPolicy(model.ContivPolicy{Key: model.PolicyKey{Tenant: blue, Name: "p1"}}.General())
			c.SetIdentity(model.IdentityRecord{ID: 300, Network: n1, Group: "g1"})
			e := model.Endpoint{Key: model.EndpointKey{Network: n1, ID: "e1"}, Group: "g1", Identity: 300, Host: "h1", MAC: model.MAC{2, 2, 10, 0, 0, 1}}
			c.SetEndpoint(e)
			if _, problems := c.Compile(1); len(problems) > 0 {
				t.Fatalf("problems before anything is missing: %v", problems)
			}
			test.change(c)
			pic, problems := c.Compile(2)
			if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), test.problem) {
				t.Errorf("problems %v, want %q", problems, test.problem)
			}
			port, ok := pic.Ports.Get(IfName(e.Key))
			if !ok {
				t.Fatal("the port is gone")
			}
			set, ok := pic.PolicySets.Get(port.Policies)
			if !ok || port.Policies == 0 {
				t.Fatalf("the port has no policy set (%d)", port.Policies)
			}
			want := []desired.Tier{{Tier: model.TierContiv, Rules: desired.RulesOf(test.in...), Default: test.def}}
			if diff := cmp.Diff(want, set.In, byValue...); diff != "" {
				t.Errorf("in (-want +got):\n%s", diff)
			}
			if test.def == model.Deny && len(set.Out) == 0 {
				t.Error("the stand-in does not deny outwards")
			}
		})
	}
}

// TestIfName checks the limits of an interface name and that keys do not share one.
func TestIfName(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"a:b:c", "a:b:d", "a:b.c:d", "tenant:network:a-very-long-endpoint-id-of-a-container.with.dots"} {
		k, err := model.ParseEndpointKey(s)
		if err != nil {
			t.Fatal(err)
		}
		name := IfName(k)
		if len(name) != 15 || !strings.HasPrefix(name, "cv") || name != strings.ToLower(name) {
			t.Errorf("IfName(%s) = %q", s, name)
		}
		if other, dup := seen[name]; dup {
			t.Errorf("%s and %s share %s", s, other, name)
		}
		seen[name] = s
	}
}
