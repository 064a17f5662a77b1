package driver

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// JudgedConnection is a connection as the policy of one of its ends is asked about it.
type JudgedConnection struct {
	Direction model.Direction // Out: of the source's policy, In: of the destination's
	Peer      desired.Peer
	Proto     model.Protocol
	Port      uint16 // of the destination; with ports
}

// Judge is what a set says of it.
func (a JudgedConnection) Judge(s *desired.PolicySet) desired.Ruling {
	return s.Judge(a.Direction, a.Peer, a.Proto, a.Port)
}

// PolicyEnd is one end of a connection that has a policy.
type PolicyEnd struct {
	JudgedConnection
	Set    *desired.PolicySet
	Audits []*desired.PolicySet // beside it, as far as they are in
}

// PolicyEndOf is the end of a connection whose policy is set; get finds the sets that
// are in, nil = none.
func PolicyEndOf(asked JudgedConnection, set *desired.PolicySet, get func(desired.PolicySetID) *desired.PolicySet) PolicyEnd {
	e := PolicyEnd{JudgedConnection: asked, Set: set}
	for _, id := range set.Audits {
		if s := get(id); s != nil {
			e.Audits = append(e.Audits, s)
		}
	}
	return e
}

// AuditEvents are reported for a new connection beside the verdict of the set in force: the
// rules with Log that it matched, and audited sets that would decide otherwise.
func (e PolicyEnd) AuditEvents(said desired.Ruling) (out []FlowEvent) {
	for _, r := range said.Logged {
		out = append(out, FlowEvent{Kind: FlowLogged, Decisions: []Decision{{Direction: e.Direction, Rule: r.ID, Action: r.Action}}})
	}
	for _, s := range e.Audits {
		if would, differs := e.auditDecision(said, s); differs {
			out = append(out, would)
		}
	}
	return out
}

// auditDecision is how an audited set would decide otherwise than the one that is in
// force said, if it would.
func (e PolicyEnd) auditDecision(said desired.Ruling, audited *desired.PolicySet) (FlowEvent, bool) {
	would := e.Judge(audited)
	out := FlowEvent{
		Kind: FlowWouldAllow, Policy: audited.Audited,
		Decisions: []Decision{DecisionOf(e.Direction, would)},
	}
	if said.Pass {
		out.Kind = FlowWouldDeny
	}
	return out, would.Pass != said.Pass
}

// AsAudit is an aside of what e tells of.
func (e FlowEvent) AsAudit(aside FlowEvent) FlowEvent {
	e.Reason = ""
	e.Kind, e.Decisions, e.Policy = aside.Kind, aside.Decisions, aside.Policy
	return e
}

// monitorShare is how much of a second goes into asking policies at most.
const monitorShare = time.Second / 4

// MonitorBudget bounds the processor time that a monitor spends on asking policies; nil =
// nothing does.
type MonitorBudget struct{ spent time.Duration }

// HasTime reports whether there is time in this second.
func (a *MonitorBudget) HasTime() bool { return a == nil || a.spent < monitorShare }

// Measure counts the time that the caller runs until it calls stop, on the same goroutine.
// The time that it waits for a processor does not count.
func (a *MonitorBudget) Measure() (stop func()) {
	if a == nil {
		return func() {}
	}
	runtime.LockOSThread()
	began := threadTime()
	return func() {
		a.spent += threadTime() - began
		runtime.UnlockOSThread()
	}
}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// NextSecond begins another second.
func (a *MonitorBudget) NextSecond() { a.spent = 0 }
