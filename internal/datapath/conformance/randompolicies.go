package conformance

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// setPolicies attaches random policies, or none.
func (x *randomServices) setPolicies() {
	c := Case{}
	if x.r.IntN(3) > 0 && (x.single || x.bench.Differs[Chosen] == "") { // else whose denial it was does not show
		c = LabelCases(x.top, x.r.Uint64(), 1)[0]
	}
	if len(c.General) > 0 { // by address: of somebody outside, a service, or an endpoint
		k, n := c.General[0].Key, x.top.Networks[0]
		rule := model.PolicyRule{
			Key: model.RuleKey{Tenant: k.Tenant, Policy: k.Name, Rule: "addresses"}, Direction: one(x.r, model.In, model.Out), Priority: 4,
			Action: one(x.r, model.Allow, model.Deny),
		}
		for range 3 {
			at := byte(1 + x.r.IntN(5))
			for _, a := range one(x.r, []netip.Addr{Outside, Outside6}, []netip.Addr{host4(n, 199+at), host6(n, 199+at)}, []netip.Addr{host4(n, at), host6(n, at)}) {
				rule.Peers = append(rule.Peers, model.Peer{CIDR: netip.PrefixFrom(a, a.BitLen())})
			}
		}
		c.GeneralRules = append(c.GeneralRules, rule)
	}
	x.note("policies: %+v %+v %+v", c.Rules, c.General, c.GeneralRules)
	if err := x.w.Switch(c); err != nil {
		x.t.Fatal(err)
	}
}
