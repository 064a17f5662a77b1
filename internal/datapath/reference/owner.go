package reference

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// claimant is a port or a remote.
type claimant struct {
	local  bool
	port   string
	remote desired.RemoteKey
}

func portClaimant(name string) claimant             { return claimant{local: true, port: name} }
func remoteClaimant(key desired.RemoteKey) claimant { return claimant{remote: key} }

func keyOf(r *desired.Remote) desired.RemoteKey {
	return desired.RemoteKey{Network: r.Network, MAC: r.MAC}
}

// claimant returns the port or remote that a station is, by the name or key that its
// object says: an object that stands under another one is refused.
func (s station) claimant() claimant {
	switch {
	case s.port != nil:
		return portClaimant(s.port.IfName)
	case s.remote != nil:
		return remoteClaimant(keyOf(s.remote))
	}
	return claimant{}
}

func (c claimant) String() string {
	if c.local {
		return portName(c.port)
	}
	return remoteName(c.remote)
}

func (c claimant) key() any {
	if c.local {
		return c.port
	}
	return c.remote
}

// judgeClaimants judges ports and remotes, and each other claimant that claims, or
// had, something that they claim or claimed: whether it gets that may be another
// answer now.
func (p *desiredStates) judgeClaimants(old desired.Host, hasIface func(string) bool, again map[claimant]struct{}) {
	todo := slices.Collect(maps.Keys(again))
	meet := func(c claimant) {
		if _, known := again[c]; !known && c != (claimant{}) {
			again[c] = struct{}{}
			todo = append(todo, c)
		}
	}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, h := range []desired.Host{old, p.want} {
			mac, addrs, private := addressesOf(h, c)
			if name, ok := p.portMACs[mac]; ok {
				meet(portClaimant(name))
			}
			if c.local {
				meet(p.remoteAt(old, mac))
			}
			for l := range p.refusedBy[mac] {
				meet(l)
			}
			for _, a := range addrs {
				meet(p.addrs[a].claimant())
				for l := range p.refusedBy[a] {
					meet(l)
				}
			}
			meet(p.privates[private])
			for l := range p.refusedBy[private] {
				meet(l)
			}
		}
	}
	var ports []string
	var remotes []desired.RemoteKey
	for c := range again {
		p.release(old, c)
		if c.local {
			ports = append(ports, c.port)
		} else {
			remotes = append(remotes, c.remote)
		}
	}
	slices.Sort(ports)
	slices.SortFunc(remotes, func(a, b desired.RemoteKey) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), slices.Compare(a.MAC[:], b.MAC[:]))
	})
	for _, name := range ports {
		p.judgePort(name, hasIface)
	}
	for _, key := range remotes {
		p.judgeRemote(key)
	}
}

// remoteAt returns the claimant of a remote's key, if the newest desired state or the old
// one has that remote.
func (p *desiredStates) remoteAt(old desired.Host, mac desired.RemoteKey) claimant {
	_, has := p.want.Remotes.Get(mac)
	if _, had := old.Remotes.Get(mac); !has && !had {
		return claimant{}
	}
	return remoteClaimant(mac)
}

// addressesOf returns what an object of a desired state wants for itself.
func addressesOf(h desired.Host, c claimant) (mac desired.RemoteKey, addrs []addrKey, private netip.Addr) {
	var n model.NetworkID
	var v4, v6 netip.Addr
	if c.local {
		x, ok := h.Ports.Get(c.port)
		if !ok {
			return
		}
		n, mac, v4, v6, private = x.Network, desired.RemoteKey{Network: x.Network, MAC: x.MAC}, x.IPv4, x.IPv6, x.PrivateNumber()
	} else {
		x, ok := h.Remotes.Get(c.remote)
		if !ok {
			return
		}
		n, mac, v4, v6 = x.Network, desired.RemoteKey{Network: x.Network, MAC: x.MAC}, x.IPv4, x.IPv6
	}
	for _, a := range []netip.Addr{v4, v6} {
		if a.IsValid() {
			addrs = append(addrs, addrKeyOf(h, n, a))
		}
	}
	return mac, addrs, private
}

// addrKeyOf returns the key under which an endpoint on a network of a desired state claims
// an address.
func addrKeyOf(h desired.Host, id model.NetworkID, a netip.Addr) addrKey {
	if n, ok := h.Networks.Get(id); ok {
		return addrKey{n.Domain(), a}
	}
	return addrKey{desired.Domain(id), a}
}

// release takes from an object the MAC and addresses that it claims in a desired state,
// and forgets it as a loser.
func (p *desiredStates) release(h desired.Host, c claimant) {
	mac, addrs, private := addressesOf(h, c)
	lost := p.refused[c.key()] != nil
	forget := func(what any) {
		if delete(p.refusedBy[what], c); len(p.refusedBy[what]) == 0 {
			delete(p.refusedBy, what)
		}
	}
	if name, ok := p.portMACs[mac]; ok && c.local && name == c.port {
		delete(p.portMACs, mac)
	}
	for _, a := range addrs {
		if p.addrs[a].claimant() == c {
			delete(p.addrs, a)
		}
	}
	if p.privates[private] == c {
		delete(p.privates, private)
	}
	if lost && len(p.refusedBy) > 0 {
		forget(mac)
		forget(private)
		for _, a := range addrs {
			forget(a)
		}
	}
}

// updateOwner records whether an object is refused and, where others have what it
// claims, enters it as a loser.
func (p *desiredStates) updateOwner(c claimant, err error) {
	p.refuse(c.key(), err)
	if !errors.Is(err, model.ErrExists) {
		return
	}
	mac, addrs, private := addressesOf(p.want, c)
	lose := func(what any) {
		if p.refusedBy[what] == nil {
			p.refusedBy[what] = map[claimant]struct{}{}
		}
		p.refusedBy[what][c] = struct{}{}
	}
	lose(mac)
	for _, a := range addrs {
		lose(a)
	}
	if private.IsValid() {
		lose(private)
	}
}

// assign gives an object its MAC and addresses.
func (p *desiredStates) assign(who station, n model.NetworkID, mac model.MAC, addrs ...netip.Addr) error {
	if _, ok := p.want.Networks.Get(n); !ok || p.refused[n] != nil {
		return model.Errorf(model.ErrNotFound, "network %d does not exist", n)
	}
	if mac.Multicast() || mac == (model.MAC{}) {
		return model.Errorf(model.ErrInvalid, "MAC %s is not a unicast address", mac)
	}
	key := desired.RemoteKey{Network: n, MAC: mac}
	if other, dup := p.portMACs[key]; dup { // two remotes have two keys
		return model.Errorf(model.ErrExists, "MAC %s belongs to %s", mac, portName(other))
	}
	for i, a := range addrs {
		if !a.IsValid() {
			continue
		}
		if a.Is4() != (i == 0) {
			return model.Errorf(model.ErrInvalid, "address %s is of the wrong family", a)
		}
		if other, dup := p.addrs[addrKeyOf(p.want, n, a)]; dup {
			return model.Errorf(model.ErrExists, "address %s belongs to %s", a, other.claimant())
		}
	}
	if who.port != nil {
		p.portMACs[key] = who.port.IfName
	}
	for _, a := range addrs {
		if a.IsValid() {
			p.addrs[addrKeyOf(p.want, n, a)] = who
		}
	}
	return nil
}
