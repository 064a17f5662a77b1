package ovs

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The driver makes the answers that flows cannot: the virtual router's ICMP errors,
// and, on the kernel's datapath, its neighbour advertisements. The packets to answer
// come by a connection of their own, and each answer goes straight out of the port
// that asked. While the driver is away these packets are dropped.

// answersPerSecond bounds the packets that come to be answered, refusals and
// questions each: such a packet leaves the switch's fast path, and costs this process
// some 20 us.
const answersPerSecond = 200

// setMeters bounds the packets that come to be answered. A switch that cannot bound
// them sends none.
func (d *Driver) setMeters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	d.answers = true
	for _, id := range []uint32{pipeline.MeterRefusals, pipeline.MeterQuestions, pipeline.MeterServices, pipeline.MeterReopen} {
		if err := d.sw.SetMeter(ctx, id, answersPerSecond); err != nil {
			d.answers = false
			d.cfg.Log.Warn("routers do not answer what they refuse, since the switch cannot bound it", "error", err)
			return
		}
	}
	if err := d.sw.SetMeter(ctx, pipeline.MeterProbes, pipeline.ProbeRate); err != nil {
		d.answers = false
		d.cfg.Log.Warn("tunnels are not tested, and routers do not answer, since the switch cannot bound it", "error", err)
		return
	}
	if err := d.sw.Share(ctx, pipeline.MembershipRate, pipeline.MembershipMeters()...); err != nil {
		d.answers = false
		d.cfg.Log.Warn("who hears multicast is not known, and routers do not answer, since the switch cannot bound it", "error", err)
	}
}

// keepAnswering answers until ctx ends, on one connection after the other.
func (d *Driver) keepAnswering(ctx context.Context) {
	defer d.wg.Done()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if conn, err := d.dial(ctx); err == nil {
			d.answerOn(ctx, conn)
			_ = conn.Close() // nothing is lost with it
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C: // a switch that is away
		}
	}
}

// answerOn answers until the connection or ctx ends.
func (d *Driver) answerOn(ctx context.Context, conn *openflow.Conn) {
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := conn.TakePackets(short, func(p openflow.PacketIn) {
		if pipeline.TellsMembership(p.Table, p.Cookie) {
			d.hear(conn, p)
		} else if pipeline.AnswersProbe(p.Table, p.Cookie) {
			d.hearProbe(p)
		} else if _, again := pipeline.ServiceAsks(p.Table, p.Cookie); again {
			d.begin(ctx, conn, p)
		} else if pipeline.Reopens(p.Table, p.Cookie) {
			d.forgetClosed(ctx, conn, p)
		} else if frame := d.answerTo(p); frame != nil {
			_ = conn.SendPacket(p.Register(openflow.InPort), frame) // who asked asks again
		}
	})
	if err != nil {
		if ctx.Err() == nil {
			d.cfg.Log.Warn("routers do not answer what they refuse", "error", err)
		}
		return
	}
	d.answerc.Store(conn)
	defer d.answerc.Store(nil)
	select {
	case <-ctx.Done():
	case <-conn.Done():
	}
}

// portAt is the endpoint at a port of the switch; nil = none.
func (d *Driver) portAt(host *desired.Host, number uint32) *desired.Port {
	names := d.named.Load()
	if names == nil {
		return nil
	}
	port, _ := host.Ports.Get(names.ports[number])
	return port
}

// answerTo makes the answer to a packet that came to be answered, nil = none.
func (d *Driver) answerTo(p openflow.PacketIn) []byte {
	if nobody, _ := pipeline.ServiceAsks(p.Table, p.Cookie); nobody {
		return refuseService(p.Frame)
	}
	refusal, refused := pipeline.RefusalOf(p.Table, p.Cookie)
	if !refused && !pipeline.AsksRouter(p.Table, p.Cookie) {
		return nil // for a monitor
	}
	host := d.latest.Load()
	if host == nil {
		return nil
	}
	network := model.NetworkID(p.Register(pipeline.RegNetwork))
	if refusal.TooBig {
		d.tooBig.Add(1)
		if port := d.portAt(host, p.Register(openflow.InPort)); port != nil && len(p.Frame) >= ethernetLen {
			network = port.Network // the packet may be routed by now
			copy(p.Frame[6:12], port.MAC[:])
		}
	}
	n, ok := host.Networks.Get(network)
	if !ok {
		return nil
	}
	if refused {
		if pipeline.IsService(p.Register(pipeline.RegService)) {
			asSent(p)
		}
		mtu := d.mtu()
		if pipeline.TooBigForUplink(p.Register(pipeline.RegPort)) {
			mtu = d.uplinkMTU()
		}
		return refuse(n, refusal, mtu, p.Frame)
	}
	return advertise(p.Frame)
}
