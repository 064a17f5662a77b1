package ovs

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The driver makes the answers that flows cannot: the virtual router's ICMP errors,
// and, on the kernel's datapath, its neighbour advertisements. The packets to answer
// come by a connection of their own, and each answer goes straight out of the port
// that asked. While the driver is away these packets are dropped.

// repliesPerSecond bounds the packets that come to be answered, refusals and
// questions each: such a packet leaves the switch's fast path, and costs this process
// some 20 us.
const repliesPerSecond = 200

// responder answers packets that flows cannot answer, and hands on other packets that the
// switch sends up. It does not wait for an Apply: it has its own copy of the desired state.
type responder struct {
	*env
	daemon   *daemon
	underlay *underlay

	latest     atomic.Pointer[desired.Host] // the desired state that the switch's flows are of
	named      atomic.Pointer[portNumbers]  // ports by the number that their flows are for
	reports    chan driver.MembershipReport
	probed     chan uint64
	answerc    atomic.Pointer[openflow.Conn] // by which it answers for routers; nil while there is none
	tunnelPort atomic.Uint32                 // its number; 0 = there is none
	tooBig     atomic.Uint64                 // packets that were told so
	listed     time.Time                     // when connections were listed last for a packet from outside; of answerOn
}

// serve answers until ctx ends, on one connection after the other.
func (a *responder) serve(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if conn, err := dial(ctx, a.cfg); err == nil {
			a.answerOn(ctx, conn)
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
func (a *responder) answerOn(ctx context.Context, conn *openflow.Conn) {
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := conn.ReceiveUnbounded(short, func(p openflow.PacketIn) {
		if pipeline.IsMembership(p.Table, p.Cookie) {
			a.handleMembership(conn, p)
		} else if pipeline.AnswersProbe(p.Table, p.Cookie) {
			a.hearProbe(p)
		} else if _, again := pipeline.ServiceRequest(p.Table, p.Cookie); again {
			a.begin(ctx, conn, p)
		} else if pipeline.Reopens(p.Table, p.Cookie) {
			a.deleteClosedConnection(ctx, conn, p)
		} else if frame := a.answerTo(p); frame != nil {
			_ = conn.SendPacket(p.Register(openflow.InPort), frame) // who asked asks again
		}
	})
	if err != nil {
		if ctx.Err() == nil {
			a.cfg.Log.Warn("routers send no ICMP errors", "error", err)
		}
		return
	}
	a.answerc.Store(conn)
	defer a.answerc.Store(nil)
	select {
	case <-ctx.Done():
	case <-conn.Done():
	}
}

// portAt is the endpoint at a port of the switch; nil = none.
func (a *responder) portAt(host *desired.Host, number uint32) *desired.Port {
	names := a.named.Load()
	if names == nil {
		return nil
	}
	port, _ := host.Ports.Get(names.ports[number])
	return port
}

// answerTo makes the answer to a packet that came to be answered, nil = none.
func (a *responder) answerTo(p openflow.PacketIn) []byte {
	if nobody, _ := pipeline.ServiceRequest(p.Table, p.Cookie); nobody {
		return refuseService(p.Frame)
	}
	refusal, refused := pipeline.RefusalOf(p.Table, p.Cookie)
	if !refused && !pipeline.IsRouterSolicitation(p.Table, p.Cookie) {
		return nil // for a monitor
	}
	host := a.latest.Load()
	if host == nil {
		return nil
	}
	network := model.NetworkID(p.Register(pipeline.RegNetwork))
	if refusal.TooBig {
		a.tooBig.Add(1)
		if port := a.portAt(host, p.Register(openflow.InPort)); port != nil && len(p.Frame) >= ethernetLen {
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
			untranslated(p)
		}
		mtu := a.underlay.mtu()
		if pipeline.TooBigForUplink(p.Register(pipeline.RegPort)) {
			mtu = a.underlay.uplinkMTU()
		}
		return routerError(n, refusal, mtu, p.Frame)
	}
	return advertise(p.Frame)
}
