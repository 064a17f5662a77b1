package pipeline

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Reports about a new connection beside its verdict: rules with Log that it matched, and
// how audited sets would have judged it. All of it happens in stages that are not on a
// packet's path: flows of the policy stages resubmit there, while there is a monitor, and
// go on as before.

// Registers of these stages.
const (
	regAudited   = of.Reg10 // which hooks the packet has passed: 1 = IngressPolicy0's, 2 = ConntrackCommit's too
	regAuditKind = of.Reg11 // what a flow reports
	regAudit     = of.Reg12 // the audited set under evaluation
	regRule      = of.Reg13 // number of the rule that says or judges; after auditDefault the tier
)

// Values of regAuditKind. For audited sets: auditAllowed or auditDenied, what became of
// the packet at one end of its connection. For a rule with Log: auditLogged plus the
// index of its kind in ruleKinds. At the destination's end auditDirectionIn is added to either.
const (
	auditAllowed     = 1
	auditDenied      = 2
	auditDirectionIn = 4
	auditLogged      = 16
)

// MaxAudits is how many audited sets a set may have: a flow names them all.
const MaxAudits = 64

// Each container has a share of events of audits, so that none can use up all: the
// lowest bits of its port's number name the share, and each share has a meter.
const (
	auditMeterCount = 64
	firstMeter      = 256 // a number that others hardly choose
	// AuditRate is how much of a share is reported a second.
	AuditRate = 100
)

// AuditMeters are the meters that the flows of Hooks name.
func AuditMeters() []uint32 {
	out := make([]uint32, auditMeterCount)
	for i := range out {
		out[i] = firstMeter + uint32(i)
	}
	return out
}

var isNew = of.State(of.StateNew|of.StateTrk, 0)

// AuditEntryFlows returns the flows that evaluate audited sets where a connection has passed an end's
// policy, and the flows that report the results. They are there while there is a monitor.
func AuditEntryFlows() []of.Flow {
	l := &list{cookie: cookie(KindAudit, 0)}
	l.auditEntries()
	for i, meter := range AuditMeters() {
		l.sampleFlows(i, meter)
	}
	return l.flows
}

func (l *list) auditEntries() {
	for i, at := range []Stage{outward.after, inward.after} {
		l.add(at, priorityAuditEntry, match(isNew, of.Eq(regAudited, i)),
			of.Set(regAudited, i+1), goTo(EventOwner), of.Set(regAuditKind, auditAllowed+i*auditDirectionIn), goTo(Audit), goTo(at))
	}
	l.add(EventOwner, 10, match(origin(fromPort)), of.Move{From: of.InPort, To: regScratch})
	l.add(EventOwner, 0, nil, of.Move{From: regPort, To: regScratch}) // from elsewhere: the port that the packet is for
}

// sampleFlows adds the flows that send up the packets of a share.
func (l *list) sampleFlows(share int, meter uint32) {
	tell := of.Controller{MaxLen: sampleLen, Meter: meter}
	owner := of.Masked(regScratch, of.Uint(share), of.Uint(auditMeterCount-1))
	l.add(PolicyLog, 10, match(isNew, owner), tell)
	for _, end := range []int{0, auditDirectionIn} {
		l.add(WouldAllow, 10, match(of.Eq(regAuditKind, auditDenied+end), owner), tell)
		l.add(WouldDeny, 10, match(of.Eq(regAuditKind, auditAllowed+end), owner), tell)
		l.add(WouldDefault, 10, match(of.Eq(regAuditKind, auditAllowed+end), owner), tell)
	}
}

// Audits returns the flows that lead from a set to the sets that are audited
// beside it.
func Audits(s *desired.PolicySet) []of.Flow {
	if len(s.Audits) == 0 {
		return nil
	}
	l := &list{cookie: cookie(KindAudit, 0)}
	for end, d := range map[int]direction{0: outward, auditDirectionIn: inward} {
		var acts []of.Action
		for _, a := range s.Audits[:min(len(s.Audits), MaxAudits)] {
			acts = append(acts, of.Set(regAudit, a), goTo(d.audit))
		}
		for _, fate := range []int{auditAllowed, auditDenied} {
			l.add(Audit, 10, match(isNew, of.Eq(d.set, s.ID), of.Eq(regAuditKind, fate+end)), acts...)
		}
	}
	return l.flows
}

// judge is what an audited set's flow does instead of deciding.
func judge(kind Kind, number uint32) []of.Action {
	at := WouldAllow
	if kind.Denies() {
		at = WouldDeny
	}
	return []of.Action{of.Set(regRule, number), goTo(at)}
}

// logActions is what a flow of a rule with Log does first while monitored.
func logActions(kind Kind, number uint32, out bool) []of.Action {
	what := auditLogged + kind.ruleIndex()
	if !out {
		what += auditDirectionIn
	}
	return []of.Action{goTo(EventOwner), of.Set(regRule, number), of.Set(regAuditKind, what), goTo(PolicyLog)}
}

// denyActions is what a flow that denies by policy does last while monitored.
func denyActions(out bool) []of.Action {
	what := auditDenied
	if !out {
		what += auditDirectionIn
	}
	return []of.Action{goTo(EventOwner), of.Set(regAuditKind, what), goTo(Audit)}
}

// AuditEvent is what a packet tells that a stage of audits sent up.
type AuditEvent struct {
	Kind   driver.FlowKind // FlowLogged, FlowWouldDeny or FlowWouldAllow
	Out    bool
	Rule   uint32              // by RuleNumber; 0 = none
	Action model.Action        // of FlowLogged
	Set    desired.PolicySetID // the audited set; not of FlowLogged
	Tier   int                 // of FlowWouldDeny: the tier whose default denies; -1 = a rule denies
}

// AuditEventOf tells what a packet of a table says by its registers.
func AuditEventOf(table uint8, register func(of.Field) uint32) (AuditEvent, bool) {
	what := register(regAuditKind)
	a := AuditEvent{Out: what&auditDirectionIn == 0, Rule: register(regRule), Set: desired.PolicySetID(register(regAudit)), Tier: -1}
	switch Stage(table) {
	case PolicyLog:
		i := int(what & 3)
		if what&auditLogged == 0 || i >= len(ruleKinds) {
			return a, false
		}
		a.Kind, a.Action = driver.FlowLogged, ruleKinds[i].action
	case WouldAllow:
		a.Kind = driver.FlowWouldAllow
	case WouldDeny:
		a.Kind = driver.FlowWouldDeny
	case WouldDefault:
		a.Kind, a.Tier, a.Rule = driver.FlowWouldDeny, int(a.Rule), 0
	default:
		return a, false
	}
	return a, true
}
