package reference

import (
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// noteAudits notes the audits that have come or changed with a desired state.
func (d *Driver) noteAudits(sets desired.Map[desired.PolicySetID, *desired.PolicySet]) {
	if d.pendingAudits == nil {
		d.pendingAudits = driver.PendingAudits{}
	}
	d.pendingAudits.Note(d.audited, sets)
	d.audited = sets
}

// reportEstablished reports to the monitor how the audits that were not reported yet would judge
// the established connections.
func (d *Driver) reportEstablished() {
	m, t := d.k.monitor, d.k.tables
	if m == nil || len(d.pendingAudits) == 0 {
		return
	}
	living := d.listEstablished()
	var all driver.EstablishedQueue
	all.Add(living, d.pendingAudits, func(a driver.ConnectionGroup) []driver.PolicyEnd {
		return a.PolicyEnds(func(name string) *desired.PolicySet {
			if port := t.ports[name]; port != nil {
				return t.sets[port.Policies]
			}
			return nil
		}, func(addr netip.Addr) desired.Peer { return t.peerAt(t.networks[a.Network], addr) }, t.set)
	})
	all.Report(m.queue, nil)
	d.pendingAudits = nil
}

// living are the connections that live.
func (d *Driver) listEstablished() driver.EstablishedConnections {
	living := driver.EstablishedConnections{}
	t := d.k.tables
	for f, as := range d.k.conns.conns {
		if t.networks[as.network] == nil {
			continue
		}
		a := driver.ConnectionGroup{Network: as.network, Src: f.src, Dst: f.dst, Proto: f.proto, DstPort: f.dstPort, Routed: as.outside, To: as.to}
		if port := t.stations.at(addrKey{f.domain, f.src}).port; port != nil {
			a.From = port.IfName
		}
		living.Add(a, f.srcPort)
	}
	return living
}

// Established implements driver.ConnectionLister.
func (d *Driver) Established(context.Context) (driver.EstablishedConnections, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	return d.listEstablished(), nil
}

// set returns a policy set that is in the data plane; nil = it is not in.
func (t *tables) set(id desired.PolicySetID) *desired.PolicySet { return t.sets[id] }
