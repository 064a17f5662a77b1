package driver

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// monitor is what Monitor asked the data plane for.
type monitor struct {
	queue       *FlowQueue
	connections bool
}

// Monitor implements Driver.
func (f *Fake) Monitor(ctx context.Context, opts MonitorOptions) (<-chan FlowEvent, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	switch {
	case f.closed:
		return nil, model.Errorf(model.ErrUnavailable, "monitor: the driver is closed")
	case f.k.monitor != nil:
		return nil, model.Errorf(model.ErrConflict, "monitor: the data plane is monitored already")
	}
	m := &monitor{queue: NewFlowQueue(), connections: opts.Connections}
	f.k.monitor = m
	stop := context.AfterFunc(ctx, func() {
		f.k.mu.Lock()
		defer f.k.mu.Unlock()
		f.k.endMonitor(m)
	})
	f.stopMonitor = func() { stop() }
	return m.queue.Events(), nil
}

func (k *fakeKernel) endMonitor(m *monitor) {
	if k.monitor == m {
		k.monitor = nil
	}
	if m != nil {
		m.queue.Close()
	}
}

// tell reports what became of a packet to who monitors.
func (k *fakeKernel) tell(p *Packet, v *Verdict) {
	m := k.monitor
	if m == nil {
		return
	}
	net := k.networkOf(p)
	if p.Host { // told as it is behind the way out
		if _, sent, _ := k.tables.fromHost(p); sent != nil {
			p = sent
		}
	}
	e := FlowEvent{
		Time: time.Now(), Kind: FlowDrop, Count: 1, Reason: v.Drop, Network: net, Port: p.Port,
		SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, Proto: model.AnyProtocol,
	}
	if p.ARP != nil {
		e.ARP, e.Src, e.Dst = true, p.ARP.SenderIP, p.ARP.TargetIP
	} else if p.isIP() {
		e.Src, e.Dst, e.Proto, e.SrcPort, e.DstPort, e.ICMPType = p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort, p.ICMPType
	}
	switch said := k.tables.decisions; {
	case v.Drop == DropPolicy:
		e.Decisions = said[len(said)-1:]
	case v.Drop != "":
	case m.connections && k.conns.fresh && !multicast(p.DstMAC):
		e.Kind, e.Decisions = FlowConnection, said
	default:
		return
	}
	m.queue.Send(e)
}

// networkOf is the network that a packet is on, if it is one that is known.
func (k *fakeKernel) networkOf(p *Packet) model.NetworkID {
	t := k.tables
	switch {
	case p.Host:
		if port := t.byPrivate[p.Dst]; port != nil {
			return port.Network
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
