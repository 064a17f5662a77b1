package compile

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Hosts has the cluster's hosts: tunnel endpoints, own addresses, and which of them take
// no new connections of services.
//
// Takes: host rows, drained and silent hosts.
// Gives: tunnel endpoints and states of backends to other nodes; VTEP, Tunnels, Nodes;
// marks networks, endpoints, providers.
type Hosts struct {
	self      model.HostName
	rows      map[model.HostName]*model.Host
	byTunnel  map[netip.Addr]set[model.HostName] // by tunnel endpoint
	byAddress map[netip.Addr]set[model.HostName] // by each of their own addresses
	drained   set[model.HostName]
	unhealthy set[model.HostName]

	dirtySelf    bool // this host's row
	dirtyTunnels *marks[netip.Addr]
	dirtyNodes   *marks[netip.Addr]

	inv            *inventory
	out            *output
	problems       *problems
	dirtyNetworks  *marks[*network]
	dirtyEps       *marks[*endpoint]
	dirtyProviders *marks[*endpoint]
}

func (hs *Hosts) put(h model.Host) {
	old := hs.rows[h.Name]
	hs.rows[h.Name] = &h
	hs.touchInside(old, &h)
	hs.touchTunnel(h.Name, old, &h)
	hs.touchNode(h.Name, old, &h)
	if old == nil || old.VTEP != h.VTEP {
		hs.touchHost(h.Name)
	}
}

func (hs *Hosts) remove(name model.HostName) {
	if old := hs.rows[name]; old != nil {
		hs.touchInside(old, nil)
		hs.touchTunnel(name, old, nil)
		hs.touchNode(name, old, nil)
		delete(hs.rows, name)
		hs.touchHost(name)
	}
}

func (hs *Hosts) compile() {
	if hs.dirtySelf {
		hs.compileSelf()
	}
	hs.compileTunnels()
	hs.compileNodes()
}

func (hs *Hosts) compileSelf() {
	hs.dirtySelf = false
	object := "host " + string(hs.self)
	if h := hs.rows[hs.self]; h != nil {
		hs.out.VTEP = h.VTEP
		hs.problems.set(object, "")
	} else {
		hs.out.VTEP = netip.Addr{}
		hs.problems.set(object, "this host is not known to the cluster: it has no tunnel endpoint")
	}
}

// vtep returns another host's tunnel endpoint, zero when it is unknown or our own.
func (hs *Hosts) vtep(name model.HostName) netip.Addr {
	h := hs.rows[name]
	if h == nil {
		return netip.Addr{}
	}
	if own := hs.rows[hs.self]; own != nil && own.VTEP == h.VTEP {
		return netip.Addr{}
	}
	return h.VTEP
}

// touchTunnel has it looked at whose a tunnel endpoint is.
func (hs *Hosts) touchTunnel(name model.HostName, old, now *model.Host) {
	if old != nil && old.VTEP.IsValid() {
		removeFrom(hs.byTunnel, old.VTEP, name)
		hs.dirtyTunnels.add(old.VTEP)
	}
	if now != nil && now.VTEP.IsValid() {
		addTo(hs.byTunnel, now.VTEP, name)
		hs.dirtyTunnels.add(now.VTEP)
	}
}

// compileTunnels writes the other hosts' tunnel endpoints. What is this host's too
// is no other's.
func (hs *Hosts) compileTunnels() {
	for a := range hs.dirtyTunnels.of {
		var first model.HostName
		for name := range hs.byTunnel[a] {
			if name == hs.self {
				first = ""
				break
			}
			if first == "" || name < first {
				first = name
			}
		}
		if first == "" {
			hs.out.Tunnels = hs.out.Tunnels.Delete(a)
		} else {
			hs.out.Tunnels = hs.out.Tunnels.Set(a, first)
		}
	}
}

func (hs *Hosts) touchHost(name model.HostName) {
	if name == hs.self { // rare: which tunnels there are depends on our own end
		hs.dirtySelf = true
		for _, n := range hs.inv.networks {
			if n.id != 0 {
				hs.dirtyNetworks.add(n)
				for e := range eachEndpoint(n) {
					hs.dirtyEps.add(e)
				}
			}
		}
		return
	}
	for _, n := range hs.inv.networks {
		if eps := n.byHost[name]; len(eps) > 0 {
			hs.dirtyNetworks.add(n)
			for e := range eps {
				hs.dirtyEps.add(e)
			}
		}
	}
}

// addressesOf are a host's own addresses, by which its stack speaks to others.
func addressesOf(h *model.Host) []netip.Addr {
	if h == nil || !h.VTEP.IsValid() {
		return nil
	}
	return slices.DeleteFunc([]netip.Addr{h.VTEP, h.Control, h.IPv6}, func(a netip.Addr) bool { return !a.IsGlobalUnicast() })
}

// touchNode has it looked at whose a host's own addresses are.
func (hs *Hosts) touchNode(name model.HostName, old, now *model.Host) {
	for _, a := range addressesOf(old) {
		removeFrom(hs.byAddress, a, name)
		hs.dirtyNodes.add(a)
	}
	for _, a := range addressesOf(now) {
		addTo(hs.byAddress, a, name)
		hs.dirtyNodes.add(a)
	}
}

// compileNodes writes the addresses of the cluster's machines. Of several that say that
// they have one, this host is believed, or else the first by name.
func (hs *Hosts) compileNodes() {
	for a := range hs.dirtyNodes.of {
		var first model.HostName
		for name := range hs.byAddress[a] {
			if name == hs.self {
				first = name
				break
			}
			if first == "" || name < first {
				first = name
			}
		}
		if h := hs.rows[first]; h != nil {
			hs.out.Nodes = hs.out.Nodes.Set(a, h.VTEP)
		} else {
			hs.out.Nodes = hs.out.Nodes.Delete(a)
		}
	}
}
