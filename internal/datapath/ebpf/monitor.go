package ebpf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Monitor implements driver.Driver: the programs write into a ring buffer what
// is drained here. bpf/monitor.h says what they hold back.
func (d *Driver) Monitor(ctx context.Context, opts driver.MonitorOptions) (<-chan driver.FlowEvent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.run.Err() != nil {
		return nil, model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	if d.monitoring != nil {
		select {
		case <-d.monitoring:
		default:
			return nil, model.Errorf(model.ErrConflict, "ebpf driver: there is a monitor already")
		}
	}
	m := &monitor{
		obj: d.dp.obj, log: d.cfg.Log, queue: driver.NewFlowQueue(), reported: map[slotKey]*reportedEvent{}, perCPU: make([]eventSlot, cpus()),
	}
	var err error
	if m.ring, err = ringbuf.NewReader(d.dp.obj.Events); err != nil {
		return nil, fmt.Errorf("ebpf driver: open the ring buffer: %w", err)
	}
	if err = m.reset(); err == nil {
		err = d.dp.settings.setMonitor(monitorBits(opts))
	}
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: monitor: %w", errors.Join(err, m.ring.Close()))
	}
	done := make(chan struct{})
	d.monitoring, d.monitor = done, m
	if err := d.reportEstablished(); err != nil {
		d.cfg.Log.Warn("the monitor misses established connections", "error", err)
	}
	d.wg.Go(func() {
		defer m.queue.Close()
		defer close(done) // before: who sees the queue closed may begin another one
		m.run(ctx, d.run, d.nameFlow)
		d.endMonitor(m)
	})
	return m.queue.Events(), nil
}

// nameFlow resolves the names of an event. It returns the verdicts to audit.
func (d *Driver) nameFlow(f *driver.FlowEvent, e event) []verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dp.names.name(f, e)
}

func (d *Driver) endMonitor(m *monitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.monitor = nil
	if err := errors.Join(d.dp.settings.setMonitor(0), m.ring.Close()); err != nil {
		d.cfg.Log.Warn("end the monitor", "error", err)
	}
}

// ChangeMonitor implements driver.Driver.
func (d *Driver) ChangeMonitor(_ context.Context, opts driver.MonitorOptions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.monitor == nil {
		return model.Errorf(model.ErrNotFound, "ebpf driver: there is no monitor")
	}
	return d.dp.settings.setMonitor(monitorBits(opts))
}

// monitorBits are the options as the programs read them.
func monitorBits(opts driver.MonitorOptions) uint32 {
	bits := uint32(monitorMembership)
	if !opts.NoDrops {
		bits |= monitorDrops
	}
	if opts.Connections {
		bits |= monitorConnections
	}
	return bits
}

// slotKey finds an event_slot.
type slotKey struct{ cpu, slot uint32 }

// reportedEvent is an event, and how many packets alike have been reported beside it.
type reportedEvent struct {
	event
	sent uint64
}

// monitor drains the ring buffer.
type monitor struct {
	obj         *objects
	log         *slog.Logger
	name        func(*driver.FlowEvent, event) []verdict
	ring        *ringbuf.Reader
	queue       *driver.FlowQueue
	begun       uint64                     // by the programs' clock; what is older was meant for another reader
	lost        uint64                     // as counted by the programs, told already
	reported    map[slotKey]*reportedEvent // last event of each slot that may hold packets back
	perCPU      []eventSlot
	asking      driver.MonitorBudget
	established driver.EstablishedQueue
}

// reset makes the programs forget what they told an earlier reader.
func (m *monitor) reset() (err error) {
	for i := range uint32(eventSlots) {
		if err := m.obj.EventSlots.Put(i, m.perCPU); err != nil {
			return fmt.Errorf("write map event_slots: %w", err)
		}
	}
	if m.lost, err = m.readLost(); err != nil {
		return err
	}
	var now unix.Timespec
	err = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now)
	m.begun = uint64(now.Nano())
	return err
}

func (m *monitor) readLost() (sum uint64, err error) {
	var per []eventBudget
	for i := range uint32(2) { // without and with audits
		if err := m.obj.EventBudgets.Lookup(i, &per); err != nil {
			return 0, fmt.Errorf("read map event_budgets: %w", err)
		}
		for _, b := range per {
			sum += b.Lost
		}
	}
	return sum, nil
}

// run passes events on until ctx or the driver ends. name resolves their names.
func (m *monitor) run(ctx, ofDriver context.Context, name func(*driver.FlowEvent, event) []verdict) {
	m.name = name
	wake := func() { _ = m.ring.Flush() } // fails when it is closed, and then there is no waiter
	defer context.AfterFunc(ctx, wake)()
	defer context.AfterFunc(ofDriver, wake)()
	next := time.Now().Add(time.Second)
	m.ring.SetDeadline(next)
	var rec ringbuf.Record
	for ctx.Err() == nil && ofDriver.Err() == nil {
		err := m.ring.ReadInto(&rec)
		switch {
		case err == nil:
			m.take(rec.RawSample)
		case !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ringbuf.ErrFlushed):
			m.log.Warn("the monitor has ended", "error", err)
			return
		}
		if now := time.Now(); !now.Before(next) {
			m.tick()
			next = now.Add(time.Second)
			m.ring.SetDeadline(next)
		}
		m.established.Report(m.queue, &m.asking)
	}
}

func (m *monitor) take(raw []byte) {
	var e event
	if err := binary.Read(bytes.NewReader(raw), binary.NativeEndian, &e); err != nil || e.Time < m.begun {
		return // not of this layout, or of an earlier reader
	}
	k := slotKey{e.CPU, e.Slot}
	sent := uint64(0)
	was := m.reported[k]
	if was != nil {
		sent = was.sent
	}
	switch replaced := uint64(e.Replaced); {
	case was != nil && was.Hash == e.Hash:
		e.Count -= uint32(sent)
	case replaced > sent && was != nil:
		m.reportMore(was.event, replaced-sent)
	case replaced > sent:
		m.queue.AddLost(replaced)
	}
	m.reported[k] = &reportedEvent{event: e}
	m.tell(e, time.Now())
}

// reportMore reports n packets more that are like an event's.
func (m *monitor) reportMore(e event, n uint64) {
	e.Count = uint32(min(n, 1<<32-1))
	m.tell(e, time.Now())
}

// tick tells what the programs hold back of flows that have ended, and how
// much was lost.
func (m *monitor) tick() {
	m.asking.NextSecond()
	now, err := monotonic()
	if err != nil {
		return
	}
	for k, e := range m.reported {
		if now-e.Time < 2*uint64(time.Second) {
			continue
		}
		if err := m.obj.EventSlots.Lookup(k.slot, &m.perCPU); err != nil || int(k.cpu) >= len(m.perCPU) {
			delete(m.reported, k)
			continue
		}
		switch s := m.perCPU[k.cpu]; {
		case s.Hash != e.Hash || s.LastReported > e.Time:
			// The slot's next event is on its way.
		case s.Suppressed > e.sent:
			m.reportMore(e.event, s.Suppressed-e.sent)
			e.sent = s.Suppressed
		case s.Suppressed == 0:
			delete(m.reported, k)
		}
	}
	if lost, err := m.readLost(); err == nil && lost > m.lost {
		m.queue.AddLost(lost - m.lost)
		m.lost = lost
	}
}

// tell passes one event on, with the names that the desired state gives.
func (m *monitor) tell(e event, at time.Time) {
	if now, err := monotonic(); err == nil && now > e.Time {
		at = at.Add(-time.Duration(now - e.Time))
	}
	f := driver.FlowEvent{
		Time: at, Kind: driver.FlowDrop, Count: uint64(e.Count), Network: model.NetworkID(e.Net),
		SrcMAC: e.SrcMAC, DstMAC: e.DstMAC, Proto: model.AnyProtocol,
	}
	if int(e.Reason) < len(dropNames) {
		f.Reason = dropNames[e.Reason]
	}
	if f.Reason == "" {
		f.Kind = driver.FlowConnection
	}
	if e.ARP != 0 {
		f.ARP, f.Src, f.Dst = true, e.Src.netip(), e.Dst.netip()
	} else if e.Src != (addr{}) || e.Dst != (addr{}) {
		f.Src, f.Dst, f.Proto, f.ICMPType = e.Src.netip(), e.Dst.netip(), model.Protocol(e.Proto), e.Type
		if f.Proto.HasPorts() {
			f.SrcPort, f.DstPort = e.SrcPort, e.DstPort
		}
	}
	audits := m.name(&f, e)
	m.auditEvents(f, audits)
	if e.Plain != 0 {
		m.queue.Send(f)
	}
}
