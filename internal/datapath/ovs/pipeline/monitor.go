package pipeline

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// Registers that only flows under monitoring set: the numbers of the rules
// that let a packet through, by direction; 0 = none.
const (
	RegRuleOut = of.Reg14
	RegRuleIn  = of.Reg15
)

// Registers that tell a monitor where a packet is.
const (
	RegNetwork = regNetwork
	RegPort    = regPort
	RegOutSet  = regEgressSet
	RegInSet   = regIngressSet
)

// sampleLen is how much of a packet monitoring wants to see: its headers.
const sampleLen = 256

// MonitoredFlow returns the flow as it is while somebody monitors. If drops are asked
// for, a flow that drops sends the packet up first; a flow of a rule with Log tells
// of the packet; a flow that denies by policy has audited sets evaluated. With
// connections, a flow of a rule that lets through notes the rule, and a flow that
// commits a connection sends its first packet up. Key, cookie and what becomes of
// the packet stay the same.
func MonitoredFlow(f of.Flow, opts driver.MonitorOptions) of.Flow {
	kind, number, ours := KindOf(f.Cookie)
	stage := Stage(f.Table)
	out, _, policy := PolicyStage(f.Table)
	if !ours {
		return f
	}
	var before, after []of.Action
	if f.Cookie&LogBit != 0 && policy {
		before = logActions(kind, number, out)
	}
	switch {
	case kind == KindDrop, kind.Denies():
		if !opts.NoDrops && len(f.Actions) == 0 {
			before = append(before, of.Controller{MaxLen: sampleLen})
		}
		if policy {
			after = denyActions(out)
		}
	case !opts.Connections:
	case kind == KindAllow && policy && out:
		before = append(before, of.Set(RegRuleOut, number))
	case kind == KindAllow && policy:
		before = append(before, of.Set(RegRuleIn, number))
	case stage == ConntrackCommit && commits(f):
		before = append(before, of.Controller{MaxLen: sampleLen})
	}
	f.Actions = slices.Concat(before, f.Actions, after)
	return f
}

func commits(f of.Flow) bool {
	for _, a := range f.Actions {
		if ct, ok := a.(of.CT); ok && ct.Commit {
			return true
		}
	}
	return false
}

// IsMonitored tells, from a flow's table and cookie alone, whether Watched may
// change it.
func IsMonitored(table uint8, cookie uint64, opts driver.MonitorOptions) bool {
	kind, _, ours := KindOf(cookie)
	_, _, policy := PolicyStage(table)
	switch {
	case !ours:
		return false
	case cookie&LogBit != 0:
		return true
	case kind == KindDrop, kind.Denies():
		return policy || !opts.NoDrops
	}
	return opts.Connections && (kind == KindAllow || Stage(table) == ConntrackCommit)
}

// PolicyStage tells which direction's and tier's policy a table holds.
func PolicyStage(table uint8) (out bool, tier int, ok bool) {
	switch s := Stage(table); {
	case s >= EgressPolicy0 && s < IngressPolicy0:
		return true, int(s - EgressPolicy0), true
	case s >= IngressPolicy0 && s < ConntrackCommit:
		return false, int(s - IngressPolicy0), true
	}
	return false, 0, false
}

// Commits reports whether a table is where connections are remembered.
func Commits(table uint8) bool { return Stage(table) == ConntrackCommit }
