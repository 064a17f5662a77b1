package ovs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// samplesPerSecond bounds what the switch sends up, asides excepted, which
// pipeline.ShareRate bounds: each sample leaves the switch's fast path.
const samplesPerSecond = 500

// maxHeld bounds how many kinds of packets are told together.
const maxHeld = 4096

// watch is a monitor under way.
type watch struct {
	d       *Driver
	opts    driver.MonitorOptions // guarded by d.mu
	over    bool                  // it is ending; likewise
	queue   *driver.FlowQueue
	samples chan openflow.PacketIn
	conn    *openflow.Conn // of its own: what it sends must not hold up changes; nil while it is away
	came    atomic.Uint64  // packets on conn
	met     uint64         // packets that had met the switch's bounds before conn
	cut     uint64         // packets that the bounds had cut before conn
	passed  uint64         // packets that had passed the bounds since, at the tick before
	lost    uint64         // packets cut, or lost on the way to conn, as told already
	held    map[alike]*heldEvent
	asking  driver.Asking
	living  driver.EstablishedQueue
	more    chan struct{} // there is more in living
	ended   chan struct{} // closed when the flows are as before
}

// alike is what packets that are told together have in common.
type alike struct {
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

type heldEvent struct {
	event driver.FlowEvent
	told  time.Time
	count uint64
}

// Monitor implements driver.Driver. The flows that drop, and those that let
// connections through when asked, also send the packet to a connection of the
// monitor's own. Meters bound these packets: asides by the port's share, all others
// over the whole bridge. Flows and meters are as before when the monitor ends.
func (d *Driver) Monitor(ctx context.Context, opts driver.MonitorOptions) (<-chan driver.FlowEvent, error) {
	w := &watch{
		d: d, opts: opts, queue: driver.NewFlowQueue(),
		samples: make(chan openflow.PacketIn, samplesPerSecond), held: map[alike]*heldEvent{},
		more: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.run.Err() != nil:
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: the driver is closed")
	case d.watching != nil:
		return nil, model.Errorf(model.ErrConflict, "open vswitch: it is monitored already")
	}
	if err := w.connect(ctx); err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: monitor: %w", err)
	}
	d.watching = w
	d.pic.policies.listen(true)
	if err := d.rewatch(ctx, w.dress); err != nil {
		d.watching, d.shared = nil, nil
		d.pic.policies.listen(false)
		return nil, errors.Join(fmt.Errorf("monitor: %w", err), d.rewatch(ctx, nil), w.conn.Close())
	}
	d.tellLiving(ctx)
	d.wg.Go(func() { w.run(ctx) })
	return w.queue.Events(), nil
}

// ChangeMonitor implements driver.Driver.
func (d *Driver) ChangeMonitor(ctx context.Context, opts driver.MonitorOptions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watching
	if w == nil || w.over {
		return model.Errorf(model.ErrNotFound, "open vswitch: it is not monitored")
	}
	w.opts = opts
	return d.rewatch(ctx, w.dress)
}

// rewatch rewrites the flows that monitoring changes, in one atomic bundle.
func (d *Driver) rewatch(ctx context.Context, dress func(key, body string) string) error {
	d.pic.ledger.setWatch(dress)
	if !d.known || d.sw == nil {
		return nil // the next Apply or replay writes everything
	}
	return d.write(ctx, d.pic.ledger.edits())
}

// dress is what monitoring makes of a flow's body.
func (w *watch) dress(key, body string) string {
	if !pipeline.Watchable(key[0], binary.BigEndian.Uint64([]byte(body[:8])), w.opts) {
		return body // most flows are not watchable, and decoding takes its time
	}
	f, err := openflow.FromParts(key, body)
	if err != nil {
		return body // it is one of ours, so it can be read
	}
	return pipeline.Watched(f, w.opts).Body()
}

// connect opens the monitor's connection.
func (w *watch) connect(ctx context.Context) error {
	conn, err := w.d.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	w.came.Store(0)
	err = conn.ReceivePackets(ctx, samplesPerSecond, w.receive)
	if err == nil {
		w.met, w.cut, err = conn.PacketCounts(ctx, pipeline.Shares()...)
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	w.conn, w.passed, w.lost = conn, 0, 0
	return nil
}

// receive takes a packet from the connection.
func (w *watch) receive(p openflow.PacketIn) {
	w.came.Add(1)
	select {
	case w.samples <- p:
	default:
		w.queue.Lose(1)
	}
}

// run passes events on until ctx or the driver ends.
func (w *watch) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.d.run, cancel)()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	defer w.end()
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
			w.living.Tell(w.queue, &w.asking)
		case <-gone: // the switch; its flows are replayed by others
			_ = w.conn.Close()
			w.conn = nil
		case <-tick.C:
			w.tick(ctx)
			w.asking.Tick()
			w.living.Tell(w.queue, &w.asking)
			tick.Reset(time.Second) // a late one must not bring the next one closer
		}
	}
}

// end makes the flows be as before.
func (w *watch) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w.d.mu.Lock()
	w.over = true
	w.d.pic.policies.listen(false)
	err := w.d.rewatch(ctx, nil)
	w.d.mu.Unlock()
	if w.conn != nil {
		if err == nil {
			err = w.conn.ForgetPackets(ctx, pipeline.Shares()...)
		}
		_ = w.conn.Close() // nothing was left unsaid
	}
	if err != nil {
		w.d.cfg.Log.Warn("end the monitor; what it added goes with the next change", "error", err)
	}
	w.d.mu.Lock()
	w.d.watching, w.d.shared = nil, nil // now that the bound is gone, another may set its own
	w.d.mu.Unlock()
	w.queue.Close()
	close(w.ended)
}

// tick tells what was held back and what was lost, and connects again.
func (w *watch) tick(ctx context.Context) {
	now := time.Now()
	for k, h := range w.held {
		switch {
		case now.Sub(h.told) < time.Second:
		case h.count == 0:
			delete(w.held, k)
		default:
			h.event.Count, h.event.Time = h.count, now
			h.told, h.count = now, 0
			w.queue.Send(h.event)
		}
	}
	if w.conn == nil {
		if err := w.connect(ctx); err != nil {
			w.d.cfg.Log.Debug("the monitor is without its switch", "error", err)
		}
		return
	}
	w.miss(ctx)
}

// miss tells of packets that the switch sent nobody. The switch counts the packets
// that its bounds cut, but not the packets that find its queues full, when this
// process or the switch is slow: so packets that have passed the bounds and not come
// by the next tick count as lost too. Should they come later still, the next losses
// are so much less.
func (w *watch) miss(ctx context.Context) {
	met, cut, err := w.conn.PacketCounts(ctx, pipeline.Shares()...)
	if err != nil || met < w.met || cut < w.cut {
		return // of a switch that goes away; it counts anew
	}
	met, cut = met-w.met, cut-w.cut
	lost := cut
	if came := w.came.Load(); w.passed > came {
		lost += w.passed - came
	}
	if lost > w.lost {
		w.queue.Lose(lost - w.lost)
		w.lost = lost
	}
	w.passed = met - cut
}

// take tells of one packet, unless one like it was told of less than a second ago.
func (w *watch) take(p openflow.PacketIn) {
	e, ok := w.d.flowEvent(p)
	if !ok {
		return
	}
	k := alike{
		kind: e.Kind, reason: e.Reason, port: e.Port, network: e.Network, src: e.Src.String(), dst: e.Dst.String(),
		proto: e.Proto, dstPort: e.DstPort, icmpType: e.ICMPType, policy: e.Policy,
	}
	copy(k.decisions[:], e.Decisions) // of its two ends
	h := w.held[k]
	if h != nil && e.Time.Sub(h.told) < time.Second {
		h.count++
		return
	}
	if h != nil {
		e.Count += h.count
	}
	if h != nil || len(w.held) < maxHeld {
		w.held[k] = &heldEvent{event: e, told: e.Time}
	}
	w.queue.Send(e)
}

// flowEvent says what a packet that the switch sent up stands for.
func (d *Driver) flowEvent(p openflow.PacketIn) (driver.FlowEvent, bool) {
	e := driver.FlowEvent{
		Time: time.Now(), Count: 1, Kind: driver.FlowDrop, Network: model.NetworkID(p.Register(pipeline.RegNetwork)),
	}
	readFrame(p.Frame, &e)
	kind, number, ours := pipeline.KindOf(p.Cookie)
	if !ours {
		return e, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	in := p.Register(openflow.InPort)
	for name, n := range d.pic.numbers {
		if n == in {
			e.Port = name
		}
	}
	if port, ok := d.pic.have.Ports.Get(e.Port); ok {
		e.Network = port.Network // the register may have the network that the packet is routed to
	}
	if e.Port == "" && in == d.pic.config.Host && in != 0 {
		for _, port := range d.pic.have.Ports.All() {
			switch { // commit would translate the private address
			case port.Private.IsValid() && port.Private == e.Dst:
				e.Dst = port.IPv4
			case port.Private6.IsValid() && port.Private6 == e.Dst:
				e.Dst = port.IPv6
			}
		}
	}
	if aside, ok := pipeline.AsideOf(p.Table, p.Register); ok {
		return d.asideEvent(e, aside)
	}
	sets := map[bool]uint32{true: p.Register(pipeline.RegOutSet), false: p.Register(pipeline.RegInSet)}
	out, tier, policy := pipeline.PolicyStage(p.Table)
	switch {
	case kind == pipeline.KindDeny && policy:
		e.Reason = driver.DropPolicy
		e.Decisions = []driver.Decision{{Direction: direction(out), Rule: d.rules[number]}}
	case kind == pipeline.KindDrop && policy:
		e.Reason = driver.DropPolicy
		e.Decisions = []driver.Decision{{Direction: direction(out)}}
		e.Decisions[0].ByDefault(d.tierOf(sets[out], out, tier))
	case kind == pipeline.KindDrop:
		if d.watching == nil || d.watching.opts.NoDrops {
			return e, false // it came to be answered
		}
		e.Reason = pipeline.Reason(number)
	case pipeline.Commits(p.Table):
		if e.DstMAC[0]&1 != 0 {
			return e, false // a broadcast begins no connection
		}
		e.Kind = driver.FlowConnection
		if sets[true] != 0 {
			e.Decisions = append(e.Decisions, driver.Decision{Direction: model.Out, Rule: d.rules[p.Register(pipeline.RegRuleOut)]})
		}
		if sets[false] != 0 {
			e.Decisions = append(e.Decisions, driver.Decision{Direction: model.In, Rule: d.rules[p.Register(pipeline.RegRuleIn)]})
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

// asideEvent says what a packet tells aside from its verdict.
func (d *Driver) asideEvent(e driver.FlowEvent, a pipeline.Aside) (driver.FlowEvent, bool) {
	if e.DstMAC[0]&1 != 0 {
		return e, false // a broadcast begins no connection
	}
	e.Kind = a.Kind
	said := driver.Decision{Direction: direction(a.Out), Rule: d.rules[a.Rule], Action: a.Action}
	if a.Tier >= 0 {
		said.ByDefault(d.tierOf(uint32(a.Set), a.Out, a.Tier))
	}
	e.Decisions = []driver.Decision{said}
	if a.Kind != driver.FlowLogged {
		if s, ok := d.pic.have.PolicySets.Get(a.Set); ok {
			e.Policy = s.Audited
		}
	}
	return e, true
}

// tierOf is a tier of a policy set, zero when the set is not in force.
func (d *Driver) tierOf(set uint32, out bool, tier int) desired.Tier {
	id := desired.PolicySetID(set)
	s, ok := d.pic.have.PolicySets.Get(id)
	if !ok || d.pic.policies.closed[id] != nil {
		return desired.Tier{}
	}
	tiers := tiersOf(s, out)
	if tier >= len(tiers) {
		return desired.Tier{}
	}
	return tiers[tier]
}
