package ovs

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxRules bounds the memory for ids of rules that are gone: counters and
// decisions may still speak of them.
const maxRules = 20000

// learnAll learns the rules that are new in want. When more than maxRules, and more
// than twice as many as the last clean-up left, have gathered, it forgets all but
// want's: so a pass costs what has changed, however many rules there are.
func (d *Driver) learnAll(want desired.Host) {
	for c := range want.PolicySets.Diff(d.pic.have.PolicySets) {
		d.learnRules(c.Old, c.New)
	}
	if len(d.rules) <= max(maxRules, 2*d.kept) {
		return
	}
	clear(d.rules)
	for _, s := range want.PolicySets.All() {
		d.learnRules(nil, s)
	}
	d.kept = len(d.rules)
}

// learnRules remembers the ids behind the numbers in cookies.
func (d *Driver) learnRules(old, now *desired.PolicySet) {
	for r := range ruleChanges(old, now) {
		if r.new != nil {
			d.rules[pipeline.RuleNumber(r.id)] = r.id
		}
	}
}

// Stats implements driver.Driver. Counters start anew with the flow: when a
// rule's flows are written for the first time, and when the switch restarts.
func (d *Driver) Stats(ctx context.Context) (driver.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := driver.Stats{
		Ports: map[string]driver.PortStats{}, Rules: map[string]driver.RuleStats{}, Drops: map[string]uint64{},
	}
	if d.sw == nil || d.silent.Load() {
		return out, errSilent
	}
	ports, err := d.sw.PortStats(ctx)
	if err != nil {
		return out, model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	byNumber := map[uint32]string{}
	for name, n := range d.pic.numbers {
		byNumber[n] = name
	}
	for _, p := range ports {
		name, ok := byNumber[p.Port]
		if !ok {
			continue
		}
		s := driver.PortStats{ // what the container receives, the switch sends
			RxPackets: p.TxPackets, RxBytes: p.TxBytes, TxPackets: p.RxPackets, TxBytes: p.RxBytes,
		}
		if port, ok := d.pic.have.Ports.Get(name); ok {
			s.Endpoint = port.Endpoint
		}
		out.Ports[name] = s
	}
	value, mask := pipeline.DecidingCookies()
	err = d.sw.DumpFlows(ctx, openflow.Filter{Table: 0xff, Cookie: value, CookieMask: mask}, func(f openflow.FlowStats) {
		kind, n, _ := pipeline.KindOf(f.Flow.Cookie)
		switch kind {
		case pipeline.KindAllow, pipeline.KindDeny, pipeline.KindPass:
			if kind == pipeline.KindDeny {
				out.Drops[driver.DropPolicy] += f.Packets
			}
			id, ok := d.rules[n]
			if !ok {
				return
			}
			s := out.Rules[id]
			s.Packets += f.Packets
			s.Bytes += f.Bytes
			out.Rules[id] = s
		case pipeline.KindDrop:
			// The switch counts at the flow for what is too big all that was measured; an
			// empty reason is of another version.
			if reason := pipeline.Reason(n); f.Packets > 0 && reason != "" && reason != driver.DropTooBig {
				out.Drops[reason] += f.Packets
			}
		case pipeline.KindBase, pipeline.KindNetwork, pipeline.KindPort, pipeline.KindRemote, pipeline.KindRule, pipeline.KindAside, pipeline.KindService, pipeline.KindCount, pipeline.KindGroup, pipeline.KindDefault:
		}
	})
	if err != nil {
		return out, model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	if n := d.tooBig.Load(); n > 0 {
		out.Drops[driver.DropTooBig] = n
	}
	err = d.serviceStats(ctx, &out)
	return out, err
}
