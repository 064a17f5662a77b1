package ovs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// samplesPerSecond bounds what the switch sends up, audit events excepted, which
// pipeline.AuditRate bounds: each sample leaves the switch's fast path.
const samplesPerSecond = 500

// maxSuppressed bounds how many kinds of packets are reported together.
const maxSuppressed = 4096

// switchMonitor is a monitor under way.
type switchMonitor struct {
	cfg         Config
	name        func(openflow.PacketIn) (driver.FlowEvent, bool)
	opts        driver.MonitorOptions // guarded by Driver.mu
	done        bool                  // it is ending; likewise
	queue       *driver.FlowQueue
	samples     chan openflow.PacketIn
	conn        *openflow.Conn // of its own: what it sends must not hold up changes; nil while it is away
	came        atomic.Uint64  // packets on conn
	met         uint64         // packets that had met the switch's bounds before conn
	cut         uint64         // packets that the bounds had cut before conn
	passed      uint64         // packets that had passed the bounds since, at the tick before
	lost        uint64         // packets cut, or lost on the way to conn, as told already
	suppressed  map[reportKey]*suppressedEvent
	asking      driver.MonitorBudget
	established driver.EstablishedQueue
	more        chan struct{} // there is more in living
	ended       chan struct{} // closed when the flows are as before
}

// reportKey is what packets that are reported together have in common.
type reportKey struct {
	kind         driver.FlowKind
	reason, port string
	network      model.NetworkID
	src, dst     string
	proto        model.Protocol
	dstPort      uint16
	icmpType     uint8
	decisions    [2]driver.Decision
	policy       string
}

type suppressedEvent struct {
	event    driver.FlowEvent
	reported time.Time
	count    uint64
}

// Monitor implements driver.Driver. Flows that drop, and if asked for flows that allow
// connections, also send the packet to a connection of the monitor's own. Meters bound
// these packets: audit events by the port's share, all others over the whole bridge. Flows
// and meters are as before when the monitor ends.
func (d *Driver) Monitor(ctx context.Context, opts driver.MonitorOptions) (<-chan driver.FlowEvent, error) {
	w := &switchMonitor{
		cfg: d.cfg, name: d.nameFlow, opts: opts, queue: driver.NewFlowQueue(),
		samples: make(chan openflow.PacketIn, samplesPerSecond), suppressed: map[reportKey]*suppressedEvent{},
		more: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.run.Err() != nil:
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: the driver is closed")
	case d.flows.watching != nil:
		return nil, model.Errorf(model.ErrConflict, "open vswitch: there is a monitor already")
	}
	if err := w.connect(ctx); err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: monitor: %w", err)
	}
	d.flows.watching = w
	d.flows.pic.policies.listen(true)
	if err := d.flows.rewriteMonitored(ctx, w.monitorActions); err != nil {
		d.flows.watching, d.flows.shared = nil, nil
		d.flows.pic.policies.listen(false)
		return nil, errors.Join(fmt.Errorf("monitor: %w", err), d.flows.rewriteMonitored(ctx, nil), w.conn.Close())
	}
	d.reportEstablished(ctx)
	d.wg.Go(func() {
		w.run(ctx, d.run)
		d.endMonitor(w)
	})
	return w.queue.Events(), nil
}

// nameFlow resolves a packet that the switch sent up to a flow event.
func (d *Driver) nameFlow(p openflow.PacketIn) (driver.FlowEvent, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names.flowEvent(p)
}

// ChangeMonitor implements driver.Driver.
func (d *Driver) ChangeMonitor(ctx context.Context, opts driver.MonitorOptions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.flows.watching
	if w == nil || w.done {
		return model.Errorf(model.ErrNotFound, "open vswitch: it is not monitored")
	}
	w.opts = opts
	return d.flows.rewriteMonitored(ctx, w.monitorActions)
}

// rewriteMonitored rewrites the flows that monitoring changes, in one atomic bundle.
func (t *flows) rewriteMonitored(ctx context.Context, dress func(key, body string) string) error {
	t.pic.ledger.setWatch(dress)
	if !t.known || t.conns.sw == nil {
		return nil // the next Apply or replay writes everything
	}
	return t.write(ctx, t.pic.ledger.edits())
}

// monitorActions is what monitoring makes of a flow's body.
func (w *switchMonitor) monitorActions(key, body string) string {
	if !pipeline.IsMonitored(key[0], binary.BigEndian.Uint64([]byte(body[:8])), w.opts) {
		return body // most flows are not watchable, and decoding takes its time
	}
	f, err := openflow.FromParts(key, body)
	if err != nil {
		return body // it is one of ours, so it can be read
	}
	return pipeline.MonitoredFlow(f, w.opts).Body()
}

// connect opens the monitor's connection.
func (w *switchMonitor) connect(ctx context.Context) error {
	conn, err := dial(ctx, w.cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	w.came.Store(0)
	err = conn.ReceivePackets(ctx, samplesPerSecond, w.receive)
	if err == nil {
		w.met, w.cut, err = conn.PacketCounts(ctx, pipeline.AuditMeters()...)
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	w.conn, w.passed, w.lost = conn, 0, 0
	return nil
}

// receive takes a packet from the connection.
func (w *switchMonitor) receive(p openflow.PacketIn) {
	w.came.Add(1)
	select {
	case w.samples <- p:
	default:
		w.queue.AddLost(1)
	}
}

// run passes events on until ctx or the driver ends.
func (w *switchMonitor) run(ctx, ofDriver context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ofDriver, cancel)()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var gone <-chan struct{}
		if w.conn != nil {
			gone = w.conn.Done()
		}
		select {
		case <-ctx.Done():
			return
		case p := <-w.samples:
			w.take(p)
		case <-w.more:
			w.established.Report(w.queue, &w.asking)
		case <-gone: // the switch; its flows are replayed by others
			_ = w.conn.Close()
			w.conn = nil
		case <-tick.C:
			w.tick(ctx)
			w.asking.NextSecond()
			w.established.Report(w.queue, &w.asking)
			tick.Reset(time.Second) // a late one must not bring the next one closer
		}
	}
}

// endMonitor makes the flows be as before.
func (d *Driver) endMonitor(w *switchMonitor) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d.mu.Lock()
	w.done = true
	d.flows.pic.policies.listen(false)
	err := d.flows.rewriteMonitored(ctx, nil)
	d.mu.Unlock()
	if w.conn != nil {
		if err == nil {
			err = w.conn.StopPackets(ctx, pipeline.AuditMeters()...)
		}
		_ = w.conn.Close() // nothing was left unsaid
	}
	if err != nil {
		w.cfg.Log.Warn("end the monitor; what it added goes with the next change", "error", err)
	}
	d.mu.Lock()
	d.flows.watching, d.flows.shared = nil, nil // now that the bound is gone, another may set its own
	d.mu.Unlock()
	w.queue.Close()
	close(w.ended)
}

// tick tells what was held back and what was lost, and connects again.
func (w *switchMonitor) tick(ctx context.Context) {
	now := time.Now()
	for k, h := range w.suppressed {
		switch {
		case now.Sub(h.reported) < time.Second:
		case h.count == 0:
			delete(w.suppressed, k)
		default:
			h.event.Count, h.event.Time = h.count, now
			h.reported, h.count = now, 0
			w.queue.Send(h.event)
		}
	}
	if w.conn == nil {
		if err := w.connect(ctx); err != nil {
			w.cfg.Log.Debug("the monitor has lost the connection to the switch", "error", err)
		}
		return
	}
	w.reportLost(ctx)
}

// reportLost reports packets that the switch did not deliver. The switch counts the packets that
// its meters cut, but not the packets that find its queues full, when this process or the
// switch is slow. So packets that have passed the meters and not arrived by the next tick
// count as lost too. If they arrive later, the next losses are so much less.
func (w *switchMonitor) reportLost(ctx context.Context) {
	met, cut, err := w.conn.PacketCounts(ctx, pipeline.AuditMeters()...)
	if err != nil || met < w.met || cut < w.cut {
		return // of a switch that goes away; it counts from zero
	}
	met, cut = met-w.met, cut-w.cut
	lost := cut
	if came := w.came.Load(); w.passed > came {
		lost += w.passed - came
	}
	if lost > w.lost {
		w.queue.AddLost(lost - w.lost)
		w.lost = lost
	}
	w.passed = met - cut
}

// take tells of one packet, unless one like it was told of less than a second ago.
func (w *switchMonitor) take(p openflow.PacketIn) {
	e, ok := w.name(p)
	if !ok {
		return
	}
	k := reportKey{
		kind: e.Kind, reason: e.Reason, port: e.Port, network: e.Network, src: e.Src.String(), dst: e.Dst.String(),
		proto: e.Proto, dstPort: e.DstPort, icmpType: e.ICMPType, policy: e.Policy,
	}
	copy(k.decisions[:], e.Decisions) // of its two ends
	h := w.suppressed[k]
	if h != nil && e.Time.Sub(h.reported) < time.Second {
		h.count++
		return
	}
	if h != nil {
		e.Count += h.count
	}
	if h != nil || len(w.suppressed) < maxSuppressed {
		w.suppressed[k] = &suppressedEvent{event: e, reported: e.Time}
	}
	w.queue.Send(e)
}
