package desired

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Peer is the other side of a connection as a policy sees it.
type Peer struct {
	Identity model.Identity
	Addr     netip.Addr
	Network  model.NetworkID
}

// Ruling is what the tiers of one direction say of a connection.
type Ruling struct {
	Pass   bool
	Rule   *Rule   // that decided; nil = none did
	Tier   Tier    // that denies by default
	Logged []*Rule // with Log, of the rules that matched, in order
}

// RuleID is the id of the rule that decided, "" = none did.
func (r Ruling) RuleID() string {
	if r.Rule == nil {
		return ""
	}
	return r.Rule.ID
}

// Tiers returns the tiers of a direction.
func (s *PolicySet) Tiers(dir model.Direction) []Tier {
	if dir == model.Out {
		return s.Out
	}
	return s.In
}

// Judge runs a connection, by its destination port where its protocol has any,
// through the tiers of one direction. It looks at each rule of the tiers that
// are asked.
func (s *PolicySet) Judge(dir model.Direction, p Peer, proto model.Protocol, port uint16) (out Ruling) {
	if !proto.HasPorts() {
		port = 0
	}
	for _, t := range s.Tiers(dir) {
		action := t.Default
		out.Rule = t.first(p, proto, port)
		if out.Rule != nil {
			if action = out.Rule.Action; out.Rule.Log {
				out.Logged = append(out.Logged, out.Rule)
			}
		}
		switch action {
		case model.Allow:
			out.Pass = true
			return out
		case model.Pass:
		default:
			if out.Rule == nil {
				out.Tier = t
			}
			return out
		}
	}
	out.Pass, out.Rule = true, nil
	return out
}

// first is the rule of a tier that decides, nil when none matches.
func (t Tier) first(p Peer, proto model.Protocol, port uint16) (first *Rule) {
	for _, r := range t.Rules.All() {
		if (first == nil || CompareRules(r, first) < 0) && r.Matches(p, proto, port) {
			first = r
		}
	}
	return first
}

// Matches reports whether a rule is for a connection.
func (r *Rule) Matches(p Peer, proto model.Protocol, port uint16) bool {
	if len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(m model.PortMatch) bool { return m.Matches(proto, port) }) {
		return false
	}
	return r.MatchesPeer(p)
}

// MatchesPeer reports whether a rule is for a peer's connections to some port.
func (r *Rule) MatchesPeer(p Peer) bool {
	if r.AnyPeer || r.Identities.Has(p.Identity) {
		return true
	}
	return slices.ContainsFunc(r.CIDRs, func(c CIDR) bool {
		return (c.Network == 0 || c.Network == p.Network) && c.Prefix.Contains(p.Addr) &&
			!slices.ContainsFunc(c.Except, func(x netip.Prefix) bool { return x.Contains(p.Addr) })
	})
}
