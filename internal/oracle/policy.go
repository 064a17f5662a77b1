package oracle

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// peer is the other side of a connection as a policy sees it.
type peer struct {
	identity model.Identity
	addr     netip.Addr
	network  model.NetworkID
}

// ruling is what the tiers of one direction say of a connection.
type ruling struct {
	pass   bool
	rule   string            // id of the rule that decided; "" = none did
	tier   model.Tier        // that denies by default
	logged []driver.Decision // of the rules with Log that it met, in order
}

// decide runs a connection through the tiers of one direction.
func decide(tiers []desired.Tier, dir model.Direction, p peer, proto model.Protocol, port uint16) (out ruling) {
	for _, t := range tiers {
		action, id := t.Default, ""
		var first *desired.Rule
		for _, r := range t.Rules.All() {
			if (first == nil || desired.CompareRules(r, first) < 0) && matches(r, p, proto, port) {
				first = r
			}
		}
		if first != nil {
			if action, id = first.Action, first.ID; first.Log {
				out.logged = append(out.logged, driver.Decision{Direction: dir, Rule: id, Action: action})
			}
		}
		switch action {
		case model.Allow:
			out.pass, out.rule = true, id
			return out
		case model.Pass:
		default:
			if out.rule = id; id == "" {
				out.tier = t.Tier
			}
			return out
		}
	}
	out.pass = true
	return out
}

func matches(r *desired.Rule, p peer, proto model.Protocol, port uint16) bool {
	if len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(m model.PortMatch) bool { return m.Matches(proto, port) }) {
		return false
	}
	if r.AnyPeer {
		return true
	}
	if r.Identities.Has(p.identity) {
		return true
	}
	return slices.ContainsFunc(r.CIDRs, func(c desired.CIDR) bool {
		return (c.Network == 0 || c.Network == p.network) && c.Prefix.Contains(p.addr) &&
			!slices.ContainsFunc(c.Except, func(x netip.Prefix) bool { return x.Contains(p.addr) })
	})
}
