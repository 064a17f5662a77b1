package agent

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/l2announce"
)

// macTable remembers the MAC of each address on this host's networks. It keeps the MAC when
// the endpoint goes, because neighbours keep it too. Only the runner's goroutine uses it.
type macTable struct {
	ports   desired.Map[string, *desired.Port]
	remotes desired.Map[desired.RemoteKey, *desired.Remote]
	known   map[binding]model.MAC
}

// binding is an address on a network.
type binding struct {
	network model.NetworkID
	addr    netip.Addr
}

// spareBindings is how many addresses without an endpoint a macTable may keep in any case.
const spareBindings = 4096

// follow returns the addresses whose MAC differs from the one before, at the cost of what
// has changed.
func (t *macTable) follow(want desired.Host) map[binding]model.MAC {
	if t.known == nil {
		t.known = map[binding]model.MAC{}
	}
	moved := map[binding]model.MAC{}
	note := func(network model.NetworkID, mac model.MAC, addrs ...netip.Addr) {
		for _, addr := range addrs {
			b := binding{network, addr}
			if was, ok := t.known[b]; ok && was != mac && addr.IsValid() {
				moved[b] = mac
			}
			t.known[b] = mac
		}
	}
	for ch := range want.Ports.Diff(t.ports) {
		if p := ch.New; ch.Has {
			note(p.Network, p.MAC, p.IPv4, p.IPv6)
		}
	}
	for ch := range want.Remotes.Diff(t.remotes) {
		if r := ch.New; ch.Has {
			note(r.Network, r.MAC, r.IPv4, r.IPv6)
		}
	}
	t.ports, t.remotes = want.Ports, want.Remotes
	if live := want.Ports.Len() + want.Remotes.Len(); len(t.known) > 4*live+spareBindings {
		*t = macTable{}
		t.follow(want) // forgets the addresses without an endpoint
	}
	return moved
}

// announceToNeighbours tells this host's endpoints which addresses of their networks have
// another MAC (RFC 5227 section 3, RFC 4861 section 7.2.6). Without that they would send to
// the former one until they ask again.
func (l *l2Announcers) announceToNeighbours(want desired.Host) {
	moved := l.macs.follow(want)
	if l.memberships == nil {
		return
	}
	for b, mac := range moved {
		frame := l2announce.Announcement(mac[:], b.addr)
		for name, p := range want.Ports.All() {
			if p.Network != b.network || p.MAC == mac {
				continue
			}
			if err := l.memberships.Send(name, frame); err != nil {
				l.log.Debug("a neighbour's new MAC was not announced to an endpoint; it resolves it within a minute", "port", name, "neighbour", b.addr, "mac", mac, "error", err)
			}
		}
	}
}
