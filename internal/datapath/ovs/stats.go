package ovs

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Stats implements driver.Driver. Counters start at zero with the flow: when a rule's flows
// are written for the first time, and when the switch restarts.
func (d *Driver) Stats(ctx context.Context) (driver.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := driver.Stats{
		Ports: map[string]driver.PortStats{}, Rules: map[string]driver.RuleStats{}, Drops: map[string]uint64{},
	}
	if d.conns.sw == nil || d.conns.unresponsive.Load() {
		return out, errUnresponsive
	}
	ports, err := d.conns.sw.PortStats(ctx)
	if err != nil {
		return out, model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	byNumber := map[uint32]string{}
	for name, n := range d.flows.pic.numbers {
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
		if port, ok := d.flows.pic.have.Ports.Get(name); ok {
			s.Endpoint = port.Endpoint
		}
		out.Ports[name] = s
	}
	value, mask := pipeline.DecidingCookies()
	err = d.conns.sw.DumpFlows(ctx, openflow.Filter{Table: 0xff, Cookie: value, CookieMask: mask}, func(f openflow.FlowStats) {
		kind, n, _ := pipeline.KindOf(f.Flow.Cookie)
		switch {
		case kind.IsRule():
			if kind.Denies() {
				out.Drops[driver.DropPolicy] += f.Packets
			}
			id, ok := d.names.rules[n]
			if !ok {
				return
			}
			s := out.Rules[id]
			s.Packets += f.Packets
			s.Bytes += f.Bytes
			out.Rules[id] = s
		case kind == pipeline.KindDrop:
			// The switch counts at the flow for what is too big all that was measured; an
			// empty reason is of another version.
			if reason := pipeline.Reason(n); f.Packets > 0 && reason != "" && reason != driver.DropTooBig {
				out.Drops[reason] += f.Packets
			}
		}
	})
	if err != nil {
		return out, model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	if n := d.responder.tooBig.Load(); n > 0 {
		out.Drops[driver.DropTooBig] = n
	}
	err = d.flows.serviceStats(ctx, &out)
	return out, err
}
