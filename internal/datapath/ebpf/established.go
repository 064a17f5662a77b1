package ebpf

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// reportEstablished has the running monitor, if there is one, report how the audits that
// were not reported yet would judge the established connections. It reads the tables of
// connections only then.
func (d *Driver) reportEstablished() error {
	m := d.monitor
	if m == nil || len(d.pendingAudits) == 0 {
		return nil
	}
	concerned := d.pendingAudits.Sets()
	living, err := d.dp.listEstablished(func(set uint32) bool { return concerned[desired.PolicySetID(set)] })
	if err != nil {
		return fmt.Errorf("report established connections: %w", err)
	}
	m.established.Add(living, d.pendingAudits, d.policyEndpoints)
	d.pendingAudits = driver.PendingAudits{}
	_ = m.ring.Flush() // fails when it is closed, and then there is no listener
	return nil
}

// Established implements driver.ConnectionLister.
func (d *Driver) Established(ctx context.Context) (driver.EstablishedConnections, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if d.closed {
		return nil, model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	living, err := d.dp.listEstablished(func(uint32) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("list established connections: %w", err)
	}
	return living, nil
}

// listEstablished reads the connections that live, with an end at a port here whose policy set concerns
// the caller.
func (dp *datapath) listEstablished(concerns func(set uint32) bool) (driver.EstablishedConnections, error) {
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for name, i := range dp.ports.indexes {
		names[uint32(i)] = name
	}
	living := driver.EstablishedConnections{}
	take := func(k connKey, c conn) {
		src, dst, sport, dport := k.Lo, k.Hi, k.LoPort, k.HiPort
		if c.Flipped != 0 {
			src, dst, sport, dport = dst, src, dport, sport
		}
		from := dp.endpoints.Hosts.have[dp.names.keyOf(k.Domain, src)]
		to, local := dp.ports.Ports.have[c.InIfindex]
		ours := from.Ifindex != 0 && concerns(from.Set) || local && concerns(to.Set)
		if !ours || expired(k, c, now) || !dp.names.sameEndpoints(k, c) {
			return
		}
		net := from.Net
		if net == 0 {
			net = to.Net
		}
		living.Add(driver.ConnectionGroup{
			Network: model.NetworkID(net), Src: src.netip(), Dst: dst.netip(), Proto: model.Protocol(k.Proto), DstPort: dport,
			Routed: c.State&connViaHost != 0, From: names[from.Ifindex], To: names[c.InIfindex],
		}, sport)
	}
	return living, errors.Join(eachEntry("conns", dp.obj.Conns, 1, take), eachEntry("halfopen", dp.obj.Halfopen, 1, take))
}

// policyEndpoints are the ends here of connections that live.
func (d *Driver) policyEndpoints(a driver.ConnectionGroup) []driver.PolicyEnd {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dp.names.policyEndpoints(a)
}
