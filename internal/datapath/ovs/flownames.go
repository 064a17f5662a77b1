package ovs

import (
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxRules bounds the memory for ids of rules that are gone: counters and
// decisions may still speak of them.
const maxRules = 20000

// flowNames resolves flows and packets of the switch to objects of the desired state.
// Driver.mu guards it.
type flowNames struct {
	flows     *flows
	rules     map[uint32]string // rule ids by the number in cookies
	rulesLeft int               // how many of rules the last clean-up has left
}

// learnAll learns the rules that are new in want. When more than maxRules, and more
// than twice as many as the last clean-up left, have gathered, it forgets all but
// want's: so a pass costs what has changed, however many rules there are.
func (x *flowNames) learnAll(want desired.Host) {
	for c := range want.PolicySets.Diff(x.flows.pic.have.PolicySets) {
		x.learnRules(c.Old, c.New)
	}
	if len(x.rules) <= max(maxRules, 2*x.rulesLeft) {
		return
	}
	clear(x.rules)
	for _, s := range want.PolicySets.All() {
		x.learnRules(nil, s)
	}
	x.rulesLeft = len(x.rules)
}

// learnRules remembers the ids behind the numbers in cookies.
func (x *flowNames) learnRules(old, now *desired.PolicySet) {
	for r := range ruleChanges(old, now) {
		if r.new != nil {
			x.rules[pipeline.RuleNumber(r.id)] = r.id
		}
	}
}

// describe prints a flow without its table, and what its cookie stands for.
func (x *flowNames) describe(s openflow.FlowStats, byNumber map[uint32]string) string {
	f := s.Flow
	if s.Err != nil {
		return fmt.Sprintf("priority=%d foreign, not decoded: %v", f.Priority, s.Err)
	}
	kind, n, ours := pipeline.KindOf(f.Cookie)
	f.Cookie = 0
	_, text, _ := strings.Cut(f.String(), ", ")
	text = nameMeters(namePorts(text, byNumber))
	switch {
	case !ours:
		return text + " # foreign"
	case kind == pipeline.KindDrop:
		return text + " # " + pipeline.Reason(n)
	case kind.IsRule():
		return text + " # rule " + x.rules[n]
	}
	return text
}

// flowEvent says what a packet that the switch sent up stands for.
func (x *flowNames) flowEvent(p openflow.PacketIn) (driver.FlowEvent, bool) {
	e := driver.FlowEvent{
		Time: time.Now(), Count: 1, Kind: driver.FlowDrop, Network: model.NetworkID(p.Register(pipeline.RegNetwork)),
	}
	readFrame(p.Frame, &e)
	kind, number, ours := pipeline.KindOf(p.Cookie)
	if !ours {
		return e, false
	}
	in := p.Register(openflow.InPort)
	for name, n := range x.flows.pic.numbers {
		if n == in {
			e.Port = name
		}
	}
	if port, ok := x.flows.pic.have.Ports.Get(e.Port); ok {
		e.Network = port.Network // the register may have the network that the packet is routed to
	}
	if e.Port == "" && in == x.flows.pic.config.Host && in != 0 {
		for _, port := range x.flows.pic.have.Ports.All() {
			switch { // commit would translate the private address
			case port.Private.IsValid() && port.Private == e.Dst:
				e.Dst = port.IPv4
			case port.Private6.IsValid() && port.Private6 == e.Dst:
				e.Dst = port.IPv6
			}
		}
	}
	if audit, ok := pipeline.AuditEventOf(p.Table, p.Register); ok {
		return x.auditEvent(e, audit)
	}
	sets := map[bool]uint32{true: p.Register(pipeline.RegOutSet), false: p.Register(pipeline.RegInSet)}
	out, tier, policy := pipeline.PolicyStage(p.Table)
	switch {
	case kind.Denies() && policy:
		e.Reason = driver.DropPolicy
		e.Decisions = []driver.Decision{{Direction: direction(out), Rule: x.rules[number]}}
	case kind == pipeline.KindDrop && policy:
		e.Reason = driver.DropPolicy
		e.Decisions = []driver.Decision{{Direction: direction(out)}}
		e.Decisions[0].ByDefault(x.tierOf(sets[out], out, tier))
	case kind == pipeline.KindDrop:
		if x.flows.watching == nil || x.flows.watching.opts.NoDrops {
			return e, false // it came to be answered
		}
		e.Reason = pipeline.Reason(number)
	case pipeline.Commits(p.Table):
		if e.DstMAC[0]&1 != 0 {
			return e, false // a broadcast begins no connection
		}
		e.Kind = driver.FlowConnection
		if sets[true] != 0 {
			e.Decisions = append(e.Decisions, driver.Decision{Direction: model.Out, Rule: x.rules[p.Register(pipeline.RegRuleOut)]})
		}
		if sets[false] != 0 {
			e.Decisions = append(e.Decisions, driver.Decision{Direction: model.In, Rule: x.rules[p.Register(pipeline.RegRuleIn)]})
		}
	default:
		return e, false
	}
	return e, true
}

func direction(out bool) model.Direction {
	if out {
		return model.Out
	}
	return model.In
}

// auditEvent says what a packet reports beside its verdict.
func (x *flowNames) auditEvent(e driver.FlowEvent, a pipeline.AuditEvent) (driver.FlowEvent, bool) {
	if e.DstMAC[0]&1 != 0 {
		return e, false // a broadcast begins no connection
	}
	e.Kind = a.Kind
	said := driver.Decision{Direction: direction(a.Out), Rule: x.rules[a.Rule], Action: a.Action}
	if a.Tier >= 0 {
		said.ByDefault(x.tierOf(uint32(a.Set), a.Out, a.Tier))
	}
	e.Decisions = []driver.Decision{said}
	if a.Kind != driver.FlowLogged {
		if s, ok := x.flows.pic.have.PolicySets.Get(a.Set); ok {
			e.Policy = s.Audited
		}
	}
	return e, true
}

// tierOf is a tier of a policy set, zero when the set is not in force.
func (x *flowNames) tierOf(set uint32, out bool, tier int) desired.Tier {
	id := desired.PolicySetID(set)
	s, ok := x.flows.pic.have.PolicySets.Get(id)
	if !ok || x.flows.pic.policies.closed[id] != nil {
		return desired.Tier{}
	}
	tiers := tiersOf(s, out)
	if tier >= len(tiers) {
		return desired.Tier{}
	}
	return tiers[tier]
}
