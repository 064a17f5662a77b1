package driver

import (
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Asked is a connection as the policy of one of its ends is asked about it.
type Asked struct {
	Direction model.Direction // Out: of the source's policy, In: of the destination's
	Peer      desired.Peer
	Proto     model.Protocol
	Port      uint16 // of the destination; with ports
}

// Judge is what a set says of it.
func (a Asked) Judge(s *desired.PolicySet) desired.Ruling {
	return s.Judge(a.Direction, a.Peer, a.Proto, a.Port)
}

// Logged are the rules with Log that a new connection met at one end.
func (a Asked) Logged(said desired.Ruling) (out []FlowEvent) {
	for _, r := range said.Logged {
		out = append(out, FlowEvent{Kind: FlowLogged, Decisions: []Decision{{Direction: a.Direction, Rule: r.ID, Action: r.Action}}})
	}
	return out
}

// Would is how an audited set would decide otherwise than the one that is in
// force said, if it would.
func (a Asked) Would(said desired.Ruling, audited *desired.PolicySet) (FlowEvent, bool) {
	would := a.Judge(audited)
	e := FlowEvent{
		Kind: FlowWouldAllow, Policy: audited.Audited,
		Decisions: []Decision{{Direction: a.Direction, Rule: would.RuleID(), Tier: would.Tier}},
	}
	if said.Pass {
		e.Kind = FlowWouldDeny
	}
	return e, would.Pass != said.Pass
}
