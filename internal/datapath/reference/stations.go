package reference

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// addrKey names an address in a domain; a link-local one, which is no router's
// affair, in its network, as if that were joined to none.
type addrKey struct {
	domain desired.Domain
	addr   netip.Addr
}

// spaceOf is where addresses that a packet on a network has are kept together.
func spaceOf(n *desired.Network, addrs ...netip.Addr) desired.Domain {
	for _, a := range addrs {
		if a.Is6() && a.IsLinkLocalUnicast() {
			return desired.Domain(n.ID)
		}
	}
	return n.Domain()
}

// station is an endpoint known on a network: a local port, or a remote one.
type station struct {
	port   *desired.Port
	remote *desired.Remote
}

func (s station) known() bool { return s != station{} }

// mac is zero of a station that is not known; so is identity.
func (s station) mac() model.MAC {
	switch {
	case s.port != nil:
		return s.port.MAC
	case s.remote != nil:
		return s.remote.MAC
	}
	return model.MAC{}
}

func (s station) identity() model.Identity {
	switch {
	case s.port != nil:
		return s.port.Identity
	case s.remote != nil:
		return s.remote.Identity
	}
	return 0
}

// network is 0 of a station that is not known.
func (s station) network() model.NetworkID {
	switch {
	case s.port != nil:
		return s.port.Network
	case s.remote != nil:
		return s.remote.Network
	}
	return 0
}

// stationTable finds stations by MAC and by address. Networks and remotes are the kernel's own
// maps. The kernel's mutex guards it.
type stationTable struct {
	networks map[model.NetworkID]*desired.Network
	remotes  map[desired.RemoteKey]*desired.Remote
	portMACs map[desired.RemoteKey]*desired.Port
	addrs    map[addrKey]station // link-local addresses of IPv6 excepted, which follow from MACs
	was      map[addrKey]station // owners of changed addresses before the current Apply; nil = not recorded
}

// byMAC finds who has a MAC: a port before a remote, while there are both.
func (x *stationTable) byMAC(n model.NetworkID, mac model.MAC) station {
	k := desired.RemoteKey{Network: n, MAC: mac}
	if p := x.portMACs[k]; p != nil {
		return station{port: p}
	}
	return station{remote: x.remotes[k]}
}

// byAddr finds who has an address that is used on a network: on any of its domain.
func (x *stationTable) byAddr(n *desired.Network, a netip.Addr) station {
	return x.at(addrKey{spaceOf(n, a), a})
}

// onNetwork is byAddr for stations on this very network, not elsewhere in its
// domain.
func (x *stationTable) onNetwork(n *desired.Network, a netip.Addr) station {
	if s := x.byAddr(n, a); s.network() == n.ID {
		return s
	}
	return station{}
}

func (x *stationTable) at(k addrKey) station {
	if s := x.addrs[k]; s.known() || !k.addr.Is6() {
		return s
	}
	b := k.addr.As16() // the reverse of MAC.LinkLocal
	mac := model.MAC{b[8] ^ 2, b[9], b[10], b[13], b[14], b[15]}
	if mac.LinkLocal() != k.addr {
		return station{}
	}
	return x.byMAC(model.NetworkID(k.domain), mac)
}

// setRemote and setPort replace an old object by a new one; nil = there is none.
func (x *stationTable) setRemote(old, now *desired.Remote) {
	if old != nil {
		x.note(old.Network, old.MAC.LinkLocal())
		x.remove(old.Network, station{remote: old}, old.IPv4, old.IPv6)
	}
	if now != nil {
		x.note(now.Network, now.MAC.LinkLocal())
		x.add(now.Network, station{remote: now}, now.IPv4, now.IPv6)
	}
}

func (x *stationTable) setPort(old, now *desired.Port) {
	if old != nil {
		x.note(old.Network, old.MAC.LinkLocal())
		x.remove(old.Network, station{port: old}, old.IPv4, old.IPv6)
		if k := (desired.RemoteKey{Network: old.Network, MAC: old.MAC}); x.portMACs[k] == old {
			delete(x.portMACs, k)
		}
	}
	if now != nil {
		x.note(now.Network, now.MAC.LinkLocal())
		x.add(now.Network, station{port: now}, now.IPv4, now.IPv6)
		x.portMACs[desired.RemoteKey{Network: now.Network, MAC: now.MAC}] = now
	}
}

func (x *stationTable) add(n model.NetworkID, s station, addrs ...netip.Addr) {
	for _, a := range addrs {
		if a.IsValid() {
			x.note(n, a)
			x.addrs[x.key(n, a)] = s
		}
	}
}

// key is the key of a station's address on a network.
func (x *stationTable) key(id model.NetworkID, a netip.Addr) addrKey {
	n := x.networks[id]
	if n == nil { // refused, or gone by half
		n = &desired.Network{ID: id}
	}
	return addrKey{spaceOf(n, a), a}
}

func (x *stationTable) remove(n model.NetworkID, s station, addrs ...netip.Addr) {
	for _, a := range addrs {
		if k := x.key(n, a); x.addrs[k] == s {
			x.note(n, a)
			delete(x.addrs, k)
		}
	}
}

// note remembers whose an address was before this Apply.
func (x *stationTable) note(n model.NetworkID, a netip.Addr) {
	k := x.key(n, a)
	if _, noted := x.was[k]; !noted && x.was != nil {
		x.was[k] = x.at(k)
	}
}
