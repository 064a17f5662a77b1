package driver

import (
	"net/netip"
	"time"

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

// Alike are connections that live and differ in their source ports at most.
type Alike struct {
	Network  model.NetworkID
	Src, Dst netip.Addr
	Proto    model.Protocol
	DstPort  uint16 // with ports
	Routed   bool   // they go by the host
	From, To string // local ports at their ends; "" = elsewhere
}

// Count is how many are alike, and the lowest of their source ports.
type Count struct {
	N       uint64
	SrcPort uint16
}

// Living are connections that live.
type Living map[Alike]Count

// Add counts one. Broadcasts are none.
func (l Living) Add(a Alike, srcPort uint16) {
	if a.Dst.IsMulticast() || a.Dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return
	}
	if !a.Proto.HasPorts() {
		a.DstPort, srcPort = 0, 0
	}
	c, ok := l[a]
	if c.N++; !ok || srcPort < c.SrcPort {
		c.SrcPort = srcPort
	}
	l[a] = c
}

// Event is what is told of them, but for what an aside says.
func (a Alike) Event(c Count) FlowEvent {
	return FlowEvent{
		Time: time.Now(), Count: c.N, Living: true, Network: a.Network, Port: a.From,
		Src: a.Src, Dst: a.Dst, Proto: a.Proto, SrcPort: c.SrcPort, DstPort: a.DstPort,
	}
}

// About is an aside of what e tells of.
func (e FlowEvent) About(aside FlowEvent) FlowEvent {
	e.Reason = ""
	e.Kind, e.Decisions, e.Policy = aside.Kind, aside.Decisions, aside.Policy
	return e
}
