package pipeline

import (
	"github.com/contiv/netplugin/v2/internal/driver"
	of "github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
)

// Registers that only flows under monitoring set: the numbers of the rules
// that let a packet through, by direction; 0 = none.
const (
	RegRuleOut = of.Reg14
	RegRuleIn  = of.Reg15
)

// Registers that say where a packet is, for who monitors.
const (
	RegNetwork = regNetwork
	RegOutSet  = regOut
	RegInSet   = regIn
)

// sampleLen is how much of a packet monitoring wants to see: its headers.
const sampleLen = 256

// Watched returns the flow as it is while somebody monitors: what drops sends
// the packet up before, if drops are asked for. With connections, rules that let
// through note themselves, and what remembers a connection sends its first
// packet up. Key, cookie and what becomes of the packet stay the same.
func Watched(f of.Flow, opts driver.MonitorOptions) of.Flow {
	kind, number, ours := KindOf(f.Cookie)
	stage := Stage(f.Table)
	switch {
	case !ours:
	case kind == KindDrop, kind == KindDeny:
		if len(f.Actions) == 0 && !opts.NoDrops {
			f.Actions = []of.Action{of.Controller{MaxLen: sampleLen}}
		}
	case !opts.Connections:
	case kind == KindAllow && stage >= Out0 && stage < In0:
		f.Actions = append([]of.Action{of.Set(RegRuleOut, number)}, f.Actions...)
	case kind == KindAllow && stage >= In0 && stage < Commit:
		f.Actions = append([]of.Action{of.Set(RegRuleIn, number)}, f.Actions...)
	case stage == Commit && commits(f):
		f.Actions = append([]of.Action{of.Controller{MaxLen: sampleLen}}, f.Actions...)
	}
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

// Watchable tells, from a flow's table and cookie alone, whether Watched may
// change it.
func Watchable(table uint8, cookie uint64, opts driver.MonitorOptions) bool {
	kind, _, ours := KindOf(cookie)
	return ours && (!opts.NoDrops && (kind == KindDrop || kind == KindDeny) || opts.Connections && (kind == KindAllow || Stage(table) == Commit))
}

// PolicyStage tells which direction's and tier's policy a table holds.
func PolicyStage(table uint8) (out bool, tier int, ok bool) {
	switch s := Stage(table); {
	case s >= Out0 && s < In0:
		return true, int(s - Out0), true
	case s >= In0 && s < Commit:
		return false, int(s - In0), true
	}
	return false, 0, false
}

// Commits tells whether a table is where connections are remembered.
func Commits(table uint8) bool { return Stage(table) == Commit }
