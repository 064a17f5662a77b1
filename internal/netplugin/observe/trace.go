package observe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/tracepacket"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

const (
	// traceBegin is how long the sender's host leaves the others to watch for the packet.
	traceBegin = 700 * time.Millisecond
	// traceAnswer is how long it waits for an answer.
	traceAnswer = 1200 * time.Millisecond
	// traceWindow is how long hosts follow a packet: the data plane tells of drops once a second.
	traceWindow = 3 * time.Second
	// traceEvents bounds the events that a host tells of one packet.
	traceEvents = 16
)

// Trace follows a packet: it sends it if the sender is here, looks for it at the receivers that
// are here, and returns what the data plane decided about it. The connections that it began are
// forgotten.
func (a *Observer) Trace(ctx context.Context, t *cluster.PacketTrace) api.TraceHost {
	out := api.TraceHost{Host: string(a.cfg.Host)}
	fail := func(err error) { out.Problems = append(out.Problems, err.Error()) }
	if t == nil || len(t.Payload) != cluster.TracePayload || !t.Src.IsValid() || !t.Dst.IsValid() || t.Src.Addr().Is4() != t.Dst.Addr().Is4() {
		fail(model.Errorf(model.ErrInvalid, "the packet to trace is not complete"))
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, traceWindow)
	defer cancel()
	watcher := a.watchers.add(cluster.MonitorRequest{Connections: true})
	defer a.watchers.remove(watcher)
	connections, watching := a.watchReceivers(ctx, t, &out)
	if sender, is := a.attached(t.Sender); is {
		connections = append(connections, a.connectionOf(ctx, t.Sender, t, t.Dst))
		err := waiting.Pause(ctx, traceBegin)
		if err == nil {
			out.Answer, err = sendFrom(ctx, sender, t)
		}
		if out.Sent = err == nil; err != nil {
			fail(err)
		}
	}
	for open := true; open && len(out.Events) < traceEvents; {
		select {
		case e, more := <-watcher.events:
			if open = more; more && isOfPacket(e, t) {
				out.Events = append(out.Events, e)
			}
		case <-ctx.Done():
			open = false
		}
	}
	watching()
	if a.cfg.Can.Forgetter != nil && len(connections) > 0 {
		after, done := context.WithTimeout(context.WithoutCancel(ctx), traceWindow)
		defer done()
		if err := a.cfg.Can.Forgetter.Forget(after, connections); err != nil {
			fail(fmt.Errorf("the connection of the packet stays until it times out: %w", err))
		}
	}
	return out
}

// watchReceivers looks for the packet at the receivers that are here, and returns the connections
// that it may begin there. wait ends with the watch, and enters into out where it has arrived.
func (a *Observer) watchReceivers(ctx context.Context, t *cluster.PacketTrace, out *api.TraceHost) (connections []driver.Connection, wait func()) {
	var running sync.WaitGroup
	var mu sync.Mutex
	for _, r := range t.Receivers {
		entry, is := a.attached(r.Endpoint)
		if !is {
			continue
		}
		connections = append(connections, a.connectionOf(ctx, r.Endpoint, t, r.At))
		arrival, err := watchIn(entry, t.Payload)
		if err != nil {
			out.Problems = append(out.Problems, fmt.Sprintf("the packet was not looked for at %s: %v", r.Endpoint, err))
			continue
		}
		out.Watched = append(out.Watched, r.Endpoint.String())
		running.Go(func() {
			came, err := arrival.Wait(ctx)
			mu.Lock()
			defer mu.Unlock()
			if came {
				out.Arrived = append(out.Arrived, r.Endpoint.String())
			}
			if err != nil {
				out.Problems = append(out.Problems, fmt.Sprintf("%s: %v", r.Endpoint, err))
			}
		})
	}
	return connections, running.Wait
}

// attached is the attachment of an endpoint of this host.
func (a *Observer) attached(k model.EndpointKey) (attachment.Entry, bool) {
	all := a.cfg.Attachments.Entries()
	i := slices.IndexFunc(all, func(e attachment.Entry) bool { return e.Endpoint == k && e.State == attachment.StateDone })
	if i < 0 {
		return attachment.Entry{}, false
	}
	return all[i], true
}

// connectionOf is the connection that the packet begins, as an endpoint of this host has it.
func (a *Observer) connectionOf(ctx context.Context, k model.EndpointKey, t *cluster.PacketTrace, dst netip.AddrPort) driver.Connection {
	net, err := a.cfg.Cluster.Lookup.AwaitNetwork(ctx, k.Network)
	if err != nil {
		a.cfg.Log.Debug("the network of a traced packet is not known", "endpoint", k, "error", err)
	}
	c := driver.Connection{Network: net.ID, Protocol: t.Protocol, Src: t.Src, Dst: dst}
	if !t.Protocol.HasPorts() {
		c.Dst = netip.AddrPortFrom(dst.Addr(), t.Src.Port())
	}
	return c
}

func watchIn(e attachment.Entry, payload string) (*tracepacket.Arrival, error) {
	n, err := tracepacket.Namespace(e.Request.Netns, e.HostIf)
	if err != nil {
		return nil, err
	}
	defer func() { _ = n.Close() }() // it was only read
	return tracepacket.Watch(n, []byte(payload))
}

func sendFrom(ctx context.Context, e attachment.Entry, t *cluster.PacketTrace) (answer string, err error) {
	n, err := tracepacket.Namespace(e.Request.Netns, e.HostIf)
	if err != nil {
		return "", err
	}
	defer func() { _ = n.Close() }() // it was only read
	ctx, cancel := context.WithTimeout(ctx, traceAnswer)
	defer cancel()
	return tracepacket.Packet{Protocol: t.Protocol, Src: t.Src, Dst: t.Dst, Payload: []byte(t.Payload)}.Send(ctx, n)
}

// isOfPacket reports whether an event is about the packet. Drops that differ in their source port
// alone are one event.
func isOfPacket(e api.FlowEvent, t *cluster.PacketTrace) bool {
	if e.Event != api.FlowDrop && e.Event != api.FlowConnection || e.Protocol != protocolName(t.Protocol) || e.From.Address != t.Src.Addr().String() {
		return false
	}
	own := !t.Protocol.HasPorts() || e.From.Port == int(t.Src.Port()) || e.Event == api.FlowDrop
	to := []netip.AddrPort{t.Dst}
	for _, r := range t.Receivers {
		to = append(to, r.At)
	}
	return own && slices.ContainsFunc(to, func(at netip.AddrPort) bool {
		return e.To.Address == at.Addr().String() && (!t.Protocol.HasPorts() || e.To.Port == int(at.Port()))
	})
}
