package agent

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/l2announce"
)

// announced is what was last announced to VLAN networks. Only the runner's goroutine uses it.
type announced struct {
	ports    desired.Map[string, *desired.Port]
	networks desired.Map[model.NetworkID, *desired.Network]
}

// announceVLAN has the endpoints on VLAN networks announced that the data plane has now.
func (l *l2Announcers) announceVLAN(want desired.Host, report driver.Report) {
	l.announcer.Follow(l.announced.follow(want), func(ifName string) bool {
		st, ok := report.Ports.Get(ifName)
		return ok && st.Err == nil
	})
}

// follow returns the endpoints that differ from the last ones, at the cost of what has
// changed.
func (x *announced) follow(want desired.Host) map[string]*l2announce.Station {
	moved := map[model.NetworkID]bool{}
	for ch := range want.Networks.Diff(x.networks) {
		if !ch.Had || !ch.Has || ch.Old.Encap != ch.New.Encap || ch.Old.Tag != ch.New.Tag {
			moved[ch.Key] = true
		}
	}
	changed := map[string]*l2announce.Station{}
	for ch := range want.Ports.Diff(x.ports) {
		changed[ch.Key] = stationOf(want, ch.New)
	}
	if len(moved) > 0 {
		for name, p := range want.Ports.All() {
			if moved[p.Network] {
				changed[name] = stationOf(want, p)
			}
		}
	}
	x.ports, x.networks = want.Ports, want.Networks
	return changed
}

// stationOf is an endpoint as VLANs see it; nil = it is on none.
func stationOf(want desired.Host, p *desired.Port) *l2announce.Station {
	if p == nil {
		return nil
	}
	n, _ := want.Networks.Get(p.Network)
	if n == nil || n.Encap != model.EncapVLAN {
		return nil
	}
	s := &l2announce.Station{Tag: uint16(n.Tag), MAC: p.MAC[:]} //nolint:gosec // a VLAN's tag
	for _, addr := range []netip.Addr{p.IPv4, p.IPv6} {
		if addr.IsValid() {
			s.Addrs = append(s.Addrs, addr)
		}
	}
	return s
}
