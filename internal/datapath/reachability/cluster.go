package reachability

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Cluster answers questions about one desired state after another. It is used by one
// goroutine at a time.
type Cluster struct {
	// HostOf tells on which host an endpoint is, with no name = on none. nil = all endpoints are
	// on one host, as the desired state says.
	HostOf func(model.EndpointKey) model.Host

	host      desired.Host
	byAddress portsByAddress
	byKey     map[model.EndpointKey]*desired.Port
	joined    map[desired.Domain]map[model.NetworkID]*desired.Network
	routed    routedNetworks
	sets      map[*desired.PolicySet]*orderedSet // that were asked
	control   controlPlane
}

// address is one of a domain.
type address struct {
	domain desired.Domain
	addr   netip.Addr
}

// portsByAddress are endpoints by each of their addresses.
type portsByAddress map[address]*desired.Port

// NewCluster returns a Cluster that knows nothing yet.
func NewCluster() *Cluster {
	return &Cluster{
		byAddress: map[address]*desired.Port{}, byKey: map[model.EndpointKey]*desired.Port{},
		joined: map[desired.Domain]map[model.NetworkID]*desired.Network{}, routed: map[model.NetworkID]*desired.Network{}, sets: map[*desired.PolicySet]*orderedSet{},
	}
}

// Update has the Cluster answer by a desired state of compile.NewWhole's. Its cost grows with what
// differs from the one before, but for networks that change their domain.
func (c *Cluster) Update(h desired.Host) {
	old := c.host
	c.host = h
	moved := false
	for d := range h.Networks.Diff(old.Networks) {
		if d.Had {
			delete(c.joined[d.Old.Domain()], d.Key)
			delete(c.routed, d.Key)
		}
		if d.Has && d.New.Routed {
			c.routed[d.Key] = d.New
		}
		if d.Has && d.New.Joined != 0 {
			if c.joined[d.New.Domain()] == nil {
				c.joined[d.New.Domain()] = map[model.NetworkID]*desired.Network{}
			}
			c.joined[d.New.Domain()][d.Key] = d.New
		}
		moved = moved || !d.Had || !d.Has || d.Old.Domain() != d.New.Domain()
	}
	if moved {
		clear(c.byAddress)
		clear(c.byKey)
		for _, p := range h.Ports.All() {
			c.enter(p)
		}
	} else {
		for d := range h.Ports.Diff(old.Ports) {
			if d.Had {
				c.forget(d.Old)
			}
		}
		for d := range h.Ports.Diff(old.Ports) {
			if d.Has {
				c.enter(d.New)
			}
		}
	}
	for d := range h.PolicySets.Diff(old.PolicySets) {
		if d.Had {
			delete(c.sets, d.Old)
		}
	}
}

func (c *Cluster) addresses(p *desired.Port) (out []address) {
	n, ok := c.host.Networks.Get(p.Network)
	if !ok {
		return nil
	}
	for _, a := range []netip.Addr{p.IPv4, p.IPv6} {
		if a.IsValid() {
			out = append(out, address{n.Domain(), a})
		}
	}
	return out
}

func (c *Cluster) enter(p *desired.Port) {
	c.byKey[p.Endpoint] = p
	for _, a := range c.addresses(p) {
		c.byAddress[a] = p
	}
}

func (c *Cluster) forget(p *desired.Port) {
	delete(c.byKey, p.Endpoint)
	for _, a := range c.addresses(p) {
		if c.byAddress[a] == p {
			delete(c.byAddress, a)
		}
	}
}

// Port finds an endpoint.
func (c *Cluster) Port(k model.EndpointKey) (*desired.Port, bool) {
	p, ok := c.byKey[k]
	return p, ok
}

// NetworkOf returns the network of a port; nil = it is not in the desired state.
func (c *Cluster) NetworkOf(p *desired.Port) *desired.Network {
	n, _ := c.host.Networks.Get(p.Network)
	return n
}

// isOtherNetwork reports whether an address is of another network of a network's domain.
func (c *Cluster) isOtherNetwork(n *desired.Network, a netip.Addr) bool {
	if n.Joined == 0 || n.Contains(a) {
		return false
	}
	for _, o := range c.joined[n.Domain()] {
		if o.Contains(a) {
			return true
		}
	}
	return false
}

// judge splits all ports by what an endpoint's policy says of a peer.
func (c *Cluster) judge(p *desired.Port, dir model.Direction, peer desired.Peer) []ruled {
	if p.Policies == 0 {
		return []ruled{{AllPorts(), Ruling{Pass: true}}}
	}
	set, ok := c.host.PolicySets.Get(p.Policies)
	if !ok {
		return []ruled{{AllPorts(), Ruling{Missing: true}}}
	}
	ordered := c.sets[set]
	if ordered == nil {
		ordered = orderSet(set)
		c.sets[set] = ordered
	}
	return ordered.judge(dir, peer)
}
