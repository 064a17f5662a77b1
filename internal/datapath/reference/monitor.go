package reference

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// monitor is what Monitor asked the data plane for.
type monitor struct {
	queue *driver.FlowQueue
	opts  driver.MonitorOptions
}

// Monitor implements driver.Driver.
func (d *Driver) Monitor(ctx context.Context, opts driver.MonitorOptions) (<-chan driver.FlowEvent, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	switch {
	case d.closed:
		return nil, model.Errorf(model.ErrUnavailable, "monitor: the driver is closed")
	case d.k.monitor != nil:
		return nil, model.Errorf(model.ErrConflict, "monitor: the data plane has a monitor already")
	}
	m := &monitor{queue: driver.NewFlowQueue(), opts: opts}
	d.k.monitor = m
	d.reportEstablished()
	stop := context.AfterFunc(ctx, func() {
		d.k.mu.Lock()
		defer d.k.mu.Unlock()
		d.k.endMonitor(m)
	})
	d.stopMonitor = func() { stop() }
	return m.queue.Events(), nil
}

// ChangeMonitor implements driver.Driver.
func (d *Driver) ChangeMonitor(_ context.Context, opts driver.MonitorOptions) error {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if d.closed || d.k.monitor == nil {
		return model.Errorf(model.ErrNotFound, "monitor: the data plane has no monitor")
	}
	d.k.monitor.opts = opts
	return nil
}

func (k *kernel) endMonitor(m *monitor) {
	if k.monitor == m {
		k.monitor = nil
	}
	if m != nil {
		m.queue.Close()
	}
}

// report reports what became of a packet to who monitors.
func (k *kernel) report(p *Packet, v *Verdict) {
	m := k.monitor
	if m == nil {
		return
	}
	net := k.networkOf(p)
	if p.Host { // told with the endpoint's own address, not the private one
		if _, sent, _ := k.tables.fromHost(p); sent != nil {
			p = sent
		}
	}
	e := driver.FlowEvent{
		Time: time.Now(), Kind: driver.FlowDrop, Count: 1, Reason: v.Drop, Network: net, Port: p.Port,
		SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, Proto: model.AnyProtocol,
	}
	if p.ARP != nil {
		e.ARP, e.Src, e.Dst = true, p.ARP.SenderIP, p.ARP.TargetIP
	} else if p.isIP() {
		e.Src, e.Dst, e.Proto, e.SrcPort, e.DstPort, e.ICMPType = p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort, p.ICMPType
	}
	for _, aside := range k.tables.auditEvents {
		m.queue.Send(e.AsAudit(aside))
	}
	switch said := k.tables.decisions; {
	case v.Drop != "" && m.opts.NoDrops:
		return
	case v.Drop == driver.DropPolicy:
		e.Decisions = said[len(said)-1:]
	case v.Drop != "":
	case m.opts.Connections && k.conns.fresh && !p.DstMAC.Multicast():
		e.Kind, e.Decisions = driver.FlowConnection, said
	default:
		return
	}
	m.queue.Send(e)
}

// networkOf is the network that a packet is on, if it is one that is known.
func (k *kernel) networkOf(p *Packet) model.NetworkID {
	t := k.tables
	switch {
	case p.Host:
		if port := t.byPrivate[p.Dst]; port != nil {
			return port.Network
		}
		if n := k.exposedTo(p); n != nil {
			return n.ID
		}
	case p.Port != "":
		if port := t.ports[p.Port]; port != nil {
			return port.Network
		}
	case p.Uplink:
		if n := t.byVLAN[p.VLAN]; n != nil {
			return n.ID
		}
	default:
		if n := t.networks[p.Network]; n != nil && n.Encap == model.EncapVXLAN {
			return n.ID
		}
	}
	return 0
}
