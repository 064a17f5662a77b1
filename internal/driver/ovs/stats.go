package ovs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// learnRules remembers the ids behind the numbers in cookies.
func (d *Driver) learnRules(s *desired.PolicySet) {
	if s == nil {
		return
	}
	for _, tiers := range [][]desired.Tier{s.In, s.Out} {
		for _, t := range tiers {
			for i := range t.Rules {
				d.rules[pipeline.RuleNumber(t.Rules[i].ID)] = t.Rules[i].ID
			}
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
	if d.sw == nil {
		return out, model.Errorf(model.ErrUnavailable, "open vswitch: the switch does not answer")
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
			if f.Packets > 0 {
				out.Drops[pipeline.Reason(n)] += f.Packets
			}
		case pipeline.KindBase, pipeline.KindNetwork, pipeline.KindPort, pipeline.KindRemote, pipeline.KindDefault:
		}
	})
	if err != nil {
		return out, model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	return out, nil
}

// Inspect implements driver.Driver: ports, then flows by stage with counters,
// as the switch has them.
func (d *Driver) Inspect(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sw == nil || d.db == nil {
		return "", model.Errorf(model.ErrUnavailable, "open vswitch: the switch or its database does not answer")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "bridge %s datapath %s\n", d.cfg.Bridge, d.cfg.Datapath)
	d.db.mu.Lock()
	have := d.db.byName()
	d.db.mu.Unlock()
	var names []string
	for name, h := range have {
		if h.bridge == d.cfg.Bridge {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		h := have[name]
		fmt.Fprintf(&b, "port %s number %d", name, h.number())
		if m := h.port.ExternalIDs[markKey]; m != "" {
			fmt.Fprintf(&b, " %s", m)
		} else {
			b.WriteString(" foreign")
		}
		if e := h.port.ExternalIDs[endpointKey]; e != "" {
			fmt.Fprintf(&b, " %s", e)
		}
		if e := h.failure(); e != "" {
			fmt.Fprintf(&b, " error %q", e)
		}
		b.WriteByte('\n')
	}
	var flows []openflow.FlowStats
	if err := d.sw.DumpFlows(ctx, openflow.AllFlows, func(s openflow.FlowStats) { flows = append(flows, s) }); err != nil {
		return "", model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	text := make(map[string]string, len(flows))
	for _, f := range flows {
		text[f.Flow.Key()] = f.Flow.String()
	}
	slices.SortFunc(flows, func(x, y openflow.FlowStats) int {
		return cmp.Or(cmp.Compare(x.Flow.Table, y.Flow.Table), cmp.Compare(y.Flow.Priority, x.Flow.Priority),
			strings.Compare(text[x.Flow.Key()], text[y.Flow.Key()]))
	})
	stage := pipeline.Stage(0xff)
	for _, f := range flows {
		if s := pipeline.Stage(f.Flow.Table); s != stage {
			stage = s
			fmt.Fprintf(&b, "stage %d %s\n", stage, stage)
		}
		fmt.Fprintf(&b, "  %d packets %s", f.Packets, d.describe(f))
		b.WriteByte('\n')
	}
	return b.String(), nil
}

func (d *Driver) describe(f openflow.FlowStats) string {
	s := f.Flow.String()
	if f.Err != nil {
		return fmt.Sprintf("cookie=%#x, table=%d, priority=%d (%v)", f.Flow.Cookie, f.Flow.Table, f.Flow.Priority, f.Err)
	}
	kind, n, ours := pipeline.KindOf(f.Flow.Cookie)
	switch {
	case !ours:
		return s + " (foreign)"
	case kind == pipeline.KindDrop:
		return s + " (" + pipeline.Reason(n) + ")"
	case kind == pipeline.KindAllow || kind == pipeline.KindDeny || kind == pipeline.KindPass:
		return s + " (rule " + d.rules[n] + ")"
	}
	return s
}
