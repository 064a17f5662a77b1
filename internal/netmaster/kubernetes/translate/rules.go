package translate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// parsedRule is one rule of an object: what it says, before it is cut into rules of model.
type parsedRule struct {
	id        string // of the rule; its parts are numbered after it
	direction model.Direction
	priority  int
	action    model.Action
	anyPeer   bool // else peers, each of which matches some endpoint
	peers     []model.Peer
	anyPort   bool // else ports, of which none is no packet
	ports     []model.PortMatch
}

// rules cuts it into rules of a policy that hold as much as one may: each part of the
// peers with each part of the ports. They decide together, as one.
func (d parsedRule) rules(k model.PolicyKey) (out []model.PolicyRule) {
	for _, peers := range parts(d.anyPeer, d.peers, model.MaxRulePeers) {
		for _, ports := range parts(d.anyPort, d.ports, model.MaxRulePorts) {
			id := d.id
			if len(out) > 0 {
				id += fmt.Sprintf(".%d", len(out))
			}
			out = append(out, model.PolicyRule{
				Key:       model.RuleKey{Tenant: k.Tenant, Policy: k.Name, Rule: model.RuleID(id)},
				Direction: d.direction, Priority: d.priority, Action: d.action, Peers: peers, Ports: ports,
			})
		}
	}
	return out
}

// namesOfAddresses reports whether it asks for a port's name beside a block of addresses.
func (d parsedRule) namesOfAddresses() bool {
	return slices.ContainsFunc(d.peers, func(p model.Peer) bool { return p.CIDR.IsValid() }) &&
		slices.ContainsFunc(d.ports, func(m model.PortMatch) bool { return m.Name != "" })
}

// parts cuts a list; all stands for one part without anything, which is everything.
func parts[T any](all bool, list []T, size int) [][]T {
	if all {
		return [][]T{nil}
	}
	return slices.Collect(slices.Chunk(list, size))
}

// everything is the rule that an object is closed with.
func everything(id string, dir model.Direction, priority int) parsedRule {
	return parsedRule{id: id, direction: dir, priority: priority, action: model.Deny, anyPeer: true, anyPort: true}
}

// block reads a block of addresses with exceptions; none when these leave nothing.
func block(cidr string, except []string) (p model.Peer, nobody bool, err error) {
	if p.CIDR, err = prefix(cidr); err != nil {
		return p, false, err
	}
	for _, text := range except {
		x, err := prefix(text)
		switch {
		case err != nil:
			return p, false, err
		case x.Bits() <= p.CIDR.Bits() && x.Contains(p.CIDR.Addr()):
			return p, true, nil
		case p.CIDR.Contains(x.Addr()): // else it is beside the block, and takes nothing away
			p.Except = append(p.Except, x)
		}
	}
	if len(p.Except) > model.MaxRuleExcept {
		return p, false, model.InvalidField("except", len(p.Except), fmt.Sprintf("exceptions: at most %d can be had", model.MaxRuleExcept))
	}
	return p, false, nil
}

func prefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return p, model.InvalidField("cidr", s, "is no CIDR of IPv4 or IPv6")
	}
	return p.Masked(), nil
}
