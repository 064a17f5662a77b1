package compile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestMissingReferencesDeny checks what stands in for what is missing: it denies,
// and there is a problem that says so.
func TestMissingReferencesDeny(t *testing.T) {
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
		}, []desired.Rule{
			{ID: id, Priority: 10005, Action: model.Pass}, {ID: id + " unknown peers", Priority: 10005, Action: model.Deny, Identities: desired.IdentitiesOf(300)},
		}, model.Pass, "tenant blue: identities [300]"},
		{
			"protocol below any", func(c *Compiler) {
				c.SetRule(rule(model.Allow, func(r *model.Rule) { r.Protocol = model.AnyProtocol - 1 }))
			},
			[]desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, AnyPeer: true}},
			model.Pass, fmt.Sprintf("rule blue:p1:r1: protocol %d is not known", int(model.AnyProtocol-1)),
		},
		{"ports that end before they begin", func(c *Compiler) {
			r := rule(model.Allow, func(*model.Rule) {})
			r.Ports = []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 81, Hi: 80}}
			c.SetRule(r)
		}, []desired.Rule{{ID: id, Priority: 10005, Action: model.Deny, AnyPeer: true}}, model.Pass, "rule blue:p1:r1: ports 81-80 end before they begin"},
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

// TestMalformedPolicyDeniesItsSubjects: whom a policy applies to that has what this
// version does not know gets and sends nothing, and there is a problem that says so.
func TestMalformedPolicyDeniesItsSubjects(t *testing.T) {
	blue := model.TenantName("blue")
	n1 := model.NetworkKey{Tenant: blue, Name: "n1"}
	e := model.Endpoint{Key: model.EndpointKey{Network: n1, ID: "e1"}, Identity: 300, Host: "h1", MAC: model.MAC{2, 2, 10, 0, 0, 1}}
	for problem, edit := range map[string]func(*model.Policy){
		"its tier is not known":                          func(p *model.Policy) { p.Tier = 99 },
		"order -1 is not known":                          func(p *model.Policy) { p.Order = -1 },
		fmt.Sprintf("order %d is not", model.MaxOrder+1): func(p *model.Policy) { p.Order = model.MaxOrder + 1 },
		"it selects in another tenant":                   func(p *model.Policy) { p.Applies.Tenant = "red" },
		`default "log" is not known`:                     func(p *model.Policy) { p.Default.In = "log" },
		`default "drop" is not known`:                    func(p *model.Policy) { p.Default.Out = "drop" },
		`operator "like" is not known`:                   func(p *model.Policy) { p.Applies.MatchExpressions = []model.Requirement{{Key: "a", Operator: "like"}} },
	} {
		t.Run(problem, func(t *testing.T) {
			c := New("h1")
			c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
			c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
			c.SetNetwork(model.Network{Key: n1, Encap: model.EncapVXLAN, Tag: 7, ID: 7})
			c.SetIdentity(model.IdentityRecord{ID: 300, Network: n1})
			c.SetEndpoint(e)
			p := model.Policy{Key: model.PolicyKey{Tenant: blue, Name: "p"}, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierAdmin, Order: model.MaxOrder, Applies: model.Selector{Tenant: blue}}
			c.SetPolicy(p)
			if pic, problems := c.Compile(1); len(problems) > 0 || shutOf(pic, e) {
				t.Fatalf("what is known denies: %v", problems)
			}
			edit(&p)
			c.SetPolicy(p)
			pic, problems := c.Compile(2)
			if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), "policy blue:p: "+problem) {
				t.Errorf("problems %v, want %q", problems, problem)
			}
			if !shutOf(pic, e) {
				t.Error("the port of its subject is not shut")
			}
		})
	}
}

// shutOf reports whether an endpoint's port denies everything, both ways.
func shutOf(pic desired.Host, e model.Endpoint) bool {
	port, _ := pic.Ports.Get(IfName(e.Key))
	set, ok := pic.PolicySets.Get(port.Policies)
	denies := func(tiers []desired.Tier) bool { return len(tiers) > 0 && tiers[0].Default == model.Deny }
	return ok && port.Policies != 0 && denies(set.In) && denies(set.Out)
}

// TestInterfaceNamesAreShortAndDistinct checks the limits of an interface name and that keys do not share one.
func TestInterfaceNamesAreShortAndDistinct(t *testing.T) {
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
