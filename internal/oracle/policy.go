package oracle

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// peer is the other side of a connection as a policy sees it.
type peer struct {
	identity model.Identity
	addr     netip.Addr
	network  model.NetworkID
}

// decide runs a connection through the tiers of one direction and returns
// whether it passes, the id of the rule that decided ("" when none did), and
// the tier that denies by default.
func decide(tiers []desired.Tier, p peer, proto model.Protocol, port uint16) (bool, string, model.Tier) {
	for _, t := range tiers {
		action, id := t.Default, ""
		for _, r := range t.Ordered() {
			if matches(r, p, proto, port) {
				action, id = r.Action, r.ID
				break
			}
		}
		switch action {
		case model.Allow:
			return true, id, 0
		case model.Pass:
		default:
			if id == "" {
				return false, "", t.Tier
			}
			return false, id, 0
		}
	}
	return true, "", 0
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
