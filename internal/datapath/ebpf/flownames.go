package ebpf

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// flowNames resolves numbers and addresses in flow events to ports, rules, policy sets and
// peers of the desired state. Driver.mu guards what it reads.
type flowNames struct {
	applied   *applied
	ports     *ports
	endpoints *endpoints
	networks  *networks
	policies  *policies
}

// name gives an event the names of the desired state; it returns the source of further ones.
func (n *flowNames) name(f *driver.FlowEvent, e event) (audits []verdict) {
	if e.Ifindex != 0 {
		for name, i := range n.ports.indexes {
			if uint32(i) == e.Ifindex {
				f.Port = name
			}
		}
	}
	if e.Audits != 0 {
		audits = n.verdicts(e)
	}
	if f.Kind == driver.FlowDrop && e.InSet != 0 {
		e.OutSet = 0 // which has not denied it
	}
	f.Decisions = slices.Concat(
		n.decision(model.Out, e.OutSet, e.OutRule, e.Tier), n.decision(model.In, e.InSet, e.InRule, e.Tier))
	return audits
}

// decision names who decided at one end, if it has a policy.
func (n *flowNames) decision(dir model.Direction, set uint32, rule uint64, tier uint8) []driver.Decision {
	if set == 0 {
		return nil
	}
	x := driver.Decision{Direction: dir, Rule: n.policies.ruleIDs[rule]}
	if s, ok := n.applied.host.PolicySets.Get(desired.PolicySetID(set)); ok && rule == 0 {
		tiers := s.In
		if dir == model.Out {
			tiers = s.Out
		}
		if int(tier) < len(tiers) {
			x.ByDefault(tiers[tier])
		}
	}
	return []driver.Decision{x}
}

// endOf is the end here of a connection whose set has a number; false when its
// rules are not in.
func (n *flowNames) endOf(asked driver.JudgedConnection, set uint32) (driver.PolicyEnd, bool) {
	s := n.policies.setIn(desired.PolicySetID(set))
	if s == nil {
		return driver.PolicyEnd{}, false
	}
	return driver.PolicyEndOf(asked, s, n.audited), true
}

// audited is an audited set; nil = it is none of the desired state's.
func (n *flowNames) audited(id desired.PolicySetID) *desired.PolicySet {
	s, _ := n.applied.host.PolicySets.Get(id)
	return s
}

// peerAt is who policy takes an address for: set_peer of bpf/forward.h.
func (n *flowNames) peerAt(net uint32, a addr, way bool) desired.Peer {
	p := desired.Peer{Addr: a.netip(), Network: model.NetworkID(net)}
	switch h, known := n.endpoints.Hosts.have[n.keyOf(net, a)]; {
	case way:
		p.Identity = model.IdentityExternal
	case known:
		p.Identity, p.Network = model.Identity(h.Identity), model.NetworkID(h.Net)
	case n.networks.Networks.have[net].Encap == encapVLAN:
		p.Identity = model.IdentityExternal
	}
	return p
}

// verdict is what the programs found at an end.
type verdict struct {
	driver.PolicyEnd
	passed bool
	number uint64 // of the rule that decided; 0 = none
	rule   string // its id, where it is known
}

// verdicts are those of an event, of the ends that have a policy.
func (n *flowNames) verdicts(e event) (out []verdict) {
	add := func(dir model.Direction, set uint32, peer addr, passed bool, number uint64) {
		if set == 0 {
			return
		}
		asked := driver.JudgedConnection{Direction: dir, Peer: n.peerAt(e.Net, peer, e.Path != 0), Proto: model.Protocol(e.Proto), Port: e.DstPort}
		if at, ok := n.endOf(asked, set); ok {
			out = append(out, verdict{at, passed, number, n.policies.ruleIDs[number]})
		}
	}
	add(model.Out, e.OutSet, e.Dst, e.Reason == 0 || e.InSet != 0, e.OutRule)
	add(model.In, e.InSet, e.Src, e.Reason == 0, e.InRule)
	return out
}

// is reports whether a ruling is the verdict. It is not when the desired state has changed
// since: then it is unknown which rules the connection matched. Of rules that differ in
// their ids only, the programs and desired may name two.
func (v verdict) is(said desired.Ruling) bool {
	if said.Pass != v.passed || (said.Rule == nil) != (v.number == 0) {
		return false
	}
	if said.Rule == nil || ruleNumber(said.Rule.ID) == v.number {
		return true
	}
	for _, t := range v.Set.Tiers(v.Direction) {
		if r, ok := t.Rules.Get(v.rule); ok && rankOf(r).weight == rankOf(said.Rule).weight {
			return true
		}
	}
	return false
}

// keyOf is the key of an address, by its domain or a network of it.
func (n *flowNames) keyOf(space uint32, a addr) domainAddr {
	if n, ok := n.applied.host.Networks.Get(model.NetworkID(space)); ok && uint32(n.ID) == space && !a.linkLocal() {
		space = uint32(n.Domain())
	}
	return domainAddr{space, a}
}

// sameEndpoints is same_owners of bpf/conntrack.h.
func (n *flowNames) sameEndpoints(k connKey, c conn) bool {
	same := func(ip addr, hand uint32) bool {
		return hand == 0 || hand == n.endpoints.Hosts.have[n.keyOf(k.Domain, ip)].OwnerVersion
	}
	return same(k.Lo, c.LoOwnerVersion) && same(k.Hi, c.HiOwnerVersion)
}

// policyEndpoints are the ends here of connections that live.
func (n *flowNames) policyEndpoints(a driver.ConnectionGroup) []driver.PolicyEnd {
	return a.PolicyEnds(func(name string) *desired.PolicySet {
		if o, local := n.applied.host.Ports.Get(name); local {
			return n.policies.setIn(o.Policies)
		}
		return nil
	}, func(ip netip.Addr) desired.Peer { return n.peerAt(uint32(a.Network), toAddr(ip), a.Routed) }, n.audited)
}
