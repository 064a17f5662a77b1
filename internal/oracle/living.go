package oracle

import (
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// noteAudits notes the audits that have come or changed with a picture.
func (d *Driver) noteAudits(sets desired.Map[desired.PolicySetID, *desired.PolicySet]) {
	for _, a := range desired.NewAudits(d.audited, sets) {
		if d.untold == nil {
			d.untold = map[desired.Audit]bool{}
		}
		d.untold[a] = true
	}
	d.audited = sets
}

// tellLiving tells who monitors, if anybody does, how the audits that nobody has
// been told of would judge the connections that live.
func (d *Driver) tellLiving() {
	m, t := d.k.monitor, d.k.tables
	if m == nil || len(d.untold) == 0 {
		return
	}
	living := driver.Living{}
	for f, as := range d.k.conns.conns {
		a := driver.Alike{Network: f.network, Src: f.src, Dst: f.dst, Proto: f.proto, DstPort: f.dstPort, Routed: as.routed, To: as.to}
		if port := t.byAddr(f.network, f.src).port; port != nil {
			a.From = port.IfName
		}
		living.Add(a, f.srcPort)
	}
	for a, n := range living {
		for _, e := range d.wouldBe(a) {
			m.queue.Send(a.Event(n).About(e))
		}
	}
	d.untold = nil
}

// wouldBe is how the audits would judge a connection that lives.
func (d *Driver) wouldBe(a driver.Alike) (out []driver.FlowEvent) {
	t := d.k.tables
	net := t.networks[a.Network]
	if net == nil {
		return nil
	}
	for _, end := range []struct {
		name  string
		asked driver.Asked
	}{
		{a.From, driver.Asked{Direction: model.Out, Peer: t.peerAt(net, a.Dst), Proto: a.Proto, Port: a.DstPort}},
		{a.To, driver.Asked{Direction: model.In, Peer: t.peerAt(net, a.Src), Proto: a.Proto, Port: a.DstPort}},
	} {
		port := t.ports[end.name]
		if port == nil || t.sets[port.Policies] == nil {
			continue
		}
		if a.Routed {
			end.asked.Peer.Identity = model.IdentityExternal
		}
		set := t.sets[port.Policies]
		said := end.asked.Judge(set)
		for _, id := range set.Audits {
			if s := t.sets[id]; s != nil && d.untold[desired.Audit{Set: set.ID, Audited: id}] {
				if e, differs := end.asked.Would(said, s); differs {
					out = append(out, e)
				}
			}
		}
		if !said.Pass {
			return out
		}
	}
	return out
}
