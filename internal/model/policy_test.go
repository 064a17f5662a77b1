package model

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// TestContivThereAndBack: a rule in 1.x's words is the same after it was stored
// as a general one, and the general one is valid.
func TestContivThereAndBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		r := Rule{
			Key: RuleKey{"t", "p", "1"}, Direction: []Direction{In, Out}[rnd.IntN(2)], Priority: 1 + rnd.IntN(100),
			Action: []Action{Allow, Deny}[rnd.IntN(2)], Protocol: Protocol(rnd.IntN(257) - 1),
		}
		if rnd.IntN(2) == 0 {
			r.Protocol = ProtoTCP
		}
		if r.Protocol.HasPorts() {
			r.Port = uint16(rnd.IntN(3) * rnd.IntN(32768))
		}
		switch rnd.IntN(4) {
		case 0:
			r.Group = "g"
		case 1:
			r.Network = "n"
		case 2:
			r.RawAddr = []string{"10.1.2.3/8", "10.0.0.7", "fd00::7/64"}[rnd.IntN(3)]
			r.Addr, _ = ParsePeerAddr("a", r.RawAddr)
		}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		if err := r.General().Validate(); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		b, err := json.Marshal(r.General())
		if err != nil {
			t.Fatal(err)
		}
		var stored PolicyRule
		if err := json.Unmarshal(b, &stored); err != nil {
			t.Fatal(err)
		}
		if back, ok := stored.Contiv(); !ok || back != r {
			t.Fatalf("%+v came back as %+v, %v, from %s", r, back, ok, b)
		}
	}
	p := ContivPolicy{Key: PolicyKey{"t", "p"}}
	if err := p.General().Validate(); err != nil {
		t.Error(err)
	}
	if back, ok := p.General().Contiv(); !ok || back != p {
		t.Errorf("policy came back as %v, %v", back, ok)
	}
}

// TestTiersAreStoredByName: tiers are stored by name, and one that is not known is read as
// such.
func TestTiersAreStoredByName(t *testing.T) {
	last := Tier(0)
	for _, tier := range Tiers() {
		if tier <= last {
			t.Errorf("%v does not come after %v", tier, last)
		}
		last = tier
		b, err := json.Marshal(Policy{Tier: tier})
		var p Policy
		if err != nil || json.Unmarshal(b, &p) != nil || p.Tier != tier || !strings.Contains(string(b), `"`+tier.String()+`"`) {
			t.Errorf("%v is stored as %s and read as %v", tier, b, p.Tier)
		}
	}
	var p Policy
	if err := json.Unmarshal([]byte(`{"tier":"cloud"}`), &p); err != nil || p.Tier.IsKnown() {
		t.Errorf("an unknown tier is read as %v, %v", p.Tier, err)
	}
}

// TestSelectorsAreParsedAndPrinted: what selectors select, what they are written as, and which are
// refused.
func TestSelectorsAreParsedAndPrinted(t *testing.T) {
	who := IdentityRecord{Network: NetworkKey{"t", "n"}, Group: "g", Labels: map[string]string{"app": "web", "x/y": ""}}
	need := func(key string, op Operator, values ...string) Selector {
		return Selector{Tenant: "t", MatchExpressions: []Requirement{{key, op, values}}}
	}
	for _, tc := range []struct {
		s       Selector
		selects bool
		text    string
		refused string // a part of the error
	}{
		{Selector{Tenant: "t"}, true, "t:", ""},
		{Selector{Tenant: "u"}, false, "u:", ""},
		{Selector{Tenant: "t", Network: "n", Group: "g"}, true, "t: network n group g", ""},
		{Selector{Tenant: "t", Group: "h"}, false, "t: group h", ""},
		{Selector{Tenant: "t", MatchLabels: map[string]string{"app": "web"}}, true, "t: app=web", ""},
		{need("app", OpIn, "web"), true, "t: app=web", ""},
		{need("app", OpIn, "web", "db", "web"), true, "t: app in (db,web)", ""},
		{need("app", OpNotIn, "web"), false, "t: app notin (web)", ""},
		{need("none", OpNotIn, "web"), true, "t: none notin (web)", ""},
		{need("x/y", OpExists), true, "t: x/y", ""},
		{need("app", OpDoesNotExist), false, "t: !app", ""},
		{need("app", "Like", "w"), false, "t: app like (w)", "must be one of In, NotIn"},
		{need("app", OpIn), false, "t: app in ()", "must not be empty"},
		{need("app", OpExists, "a"), true, "t: app", "must be empty"},
		{need("a b", OpExists), false, `t: "a b"`, "must be a label"},
		{need(strings.Repeat("a", 64), OpExists), false, "t: " + strings.Repeat("a", 64), "must be a label"},
		{need("app", OpIn, "a/b"), false, "t: app=a/b", "must be empty or at most 63"},
		{Selector{Tenant: "t", MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []Requirement{{"app", OpNotIn, []string{"web"}}}}, false, "t: app=web, app notin (web)", "must be able to select"},
		{Selector{Tenant: "t", MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []Requirement{{"app", OpDoesNotExist, nil}}}, false, "t: !app, app=web", "must be able to select"},
		{Selector{Tenant: "t", MatchExpressions: []Requirement{{"a", OpIn, []string{"1"}}, {"a", OpIn, []string{"2"}}}}, false, "t: a=1, a=2", "must be able to select"},
	} {
		if got := tc.s.Selects(who); got != tc.selects {
			t.Errorf("%v selects: %v", tc.s, got)
		}
		if got := tc.s.String(); got != tc.text {
			t.Errorf("text %q, want %q", got, tc.text)
		}
		err := tc.s.Validate("applies")
		if (err != nil) != (tc.refused != "") || err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.refused)) {
			t.Errorf("%v: %v, want %q", tc.s, err, tc.refused)
		}
	}
}

// TestBadPoliciesAreRefused names what is refused of general policies and rules.
func TestBadPoliciesAreRefused(t *testing.T) {
	prefix := netip.MustParsePrefix
	good := Policy{
		Key: PolicyKey{"t", "p"}, Kind: KindNetwork, Owner: OwnerUser, Tier: TierAdmin, Order: 5, Applies: Selector{Tenant: "t"},
		Default: Defaults{In: Deny},
	}
	rule := PolicyRule{
		Key: RuleKey{"t", "p", "1"}, Direction: In, Priority: 1, Action: Pass,
		Peers: []Peer{{CIDR: prefix("10.0.0.0/8"), Except: []netip.Prefix{prefix("10.1.0.0/16")}}, {Network: NetworkKey{"t", "n"}}, {Selector: &Selector{Tenant: "t"}}},
		Ports: []PortMatch{{Protocol: ProtoTCP, Lo: 80, Hi: 90}, {Protocol: ProtoICMP, Hi: 65535}, {Protocol: ProtoSCTP, Name: "diameter"}},
	}
	if err := errors.Join(good.Validate(), rule.Validate()); err != nil {
		t.Fatal(err)
	}
	policy := func(change func(*Policy)) error { p := good; change(&p); return p.Validate() }
	with := func(change func(*PolicyRule)) error { r := rule; change(&r); return r.Validate() }
	peer := func(p Peer) error { return with(func(r *PolicyRule) { r.Peers = []Peer{p} }) }
	port := func(m PortMatch) error { return with(func(r *PolicyRule) { r.Ports = []PortMatch{m} }) }
	for part, err := range map[string]error{
		`tier "tier 7": must be one of admin, contiv, kubernetes, baseline`: policy(func(p *Policy) { p.Tier = 7 }),
		`order "201": must be between 0 and 200`:                            policy(func(p *Policy) { p.Order = 201 }),
		`defaultIn "log"`:                                                   policy(func(p *Policy) { p.Default.In = "log" }),
		`kind "x"`:                                                          policy(func(p *Policy) { p.Kind = "x" }),
		`owner "x"`:                                                         policy(func(p *Policy) { p.Owner = "x" }),
		"in the policy's own tenant":                                        policy(func(p *Policy) { p.Applies.Tenant = "u" }),
		"must be empty for a policy that":                                   policy(func(p *Policy) { p.Attached = true }),
		"by one of selector":                                                peer(Peer{}),
		"of the policy's own tenant":                                        peer(Peer{Selector: &Selector{Tenant: "u"}}),
		"a part of 10.0.0.0/8":                                              peer(Peer{CIDR: prefix("10.0.0.0/8"), Except: []netip.Prefix{prefix("11.0.0.0/16")}}),
		"bits set beyond":                                                   peer(Peer{CIDR: prefix("10.0.0.1/8")}),
		"not end before they begin":                                         port(PortMatch{Protocol: ProtoTCP, Lo: 90, Hi: 80}),
		"must be empty unless protocol":                                     port(PortMatch{Protocol: ProtoICMP, Lo: 1, Hi: 2}),
		`protocol "-1"`:                                                     port(PortMatch{Protocol: AnyProtocol, Hi: 65535}),
		`action "log"`:                                                      with(func(r *PolicyRule) { r.Action = "log" }),
		`priority "0"`:                                                      with(func(r *PolicyRule) { r.Priority = 0 }),
		`peers "65": must be at most 64`:                                    with(func(r *PolicyRule) { r.Peers = make([]Peer, 65) }),
		`ports "65": must be at most 64`:                                    with(func(r *PolicyRule) { r.Ports = make([]PortMatch, 65) }),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %s", err, part)
		}
	}
}
