package conformance

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// RoutedTopology is StandardTopology in forwarding mode routing, where its networks
// have gateways, with more networks: "vy" in both tenants, without gateways and
// with equal addresses, with the group app, whose endpoint on host 1 has in blue
// the address that red's endpoint on host 2 has; and blue's "vz", of IPv4 only,
// with the group far on host 2 alone.
func RoutedTopology() Topology {
	t := StandardTopology()
	t.Global.FwdMode = model.FwdRouting
	t.Tenants = []model.Tenant{{Name: "blue", Router: 1}, {Name: "red", Router: 2}}
	for i := range t.Networks {
		t.Networks[i].Gateway, t.Networks[i].Gateway6 = host4(t.Networks[i], 254), host6(t.Networks[i], 254)
	}
	t.addGroup(t.addNetwork("blue", "vy", model.EncapVXLAN, 102, 3), "app", 1, 2)
	t.addGroup(t.addNetwork("red", "vy", model.EncapVXLAN, 103, 3), "app", 2, 1)
	t.addNetwork("blue", "vz", model.EncapVXLAN, 104, 4)
	vz := &t.Networks[len(t.Networks)-1]
	vz.Subnet6, vz.Gateway = netip.Prefix{}, host4(*vz, 254)
	t.addGroup(*vz, "far", 2)
	return t
}

func (t Topology) vtep(host model.HostName) netip.Addr {
	for _, h := range t.Hosts {
		if h.Name == host {
			return h.VTEP
		}
	}
	return netip.Addr{}
}

// routed makes the first packet of a connection between networks, as host h1 sees
// it: sent to the router, or as the sender's host has routed it.
func routed(top Topology, from, to model.Endpoint, proto model.Protocol, v6 bool, sport, dport uint16) reference.Packet {
	return inTransit(top, between(top, from, to, proto, v6, sport, dport), from, to)
}

// routedAnswer makes the answer to a packet that routed made.
func routedAnswer(top Topology, p reference.Packet, from, to model.Endpoint) reference.Packet {
	return inTransit(top, answerTo(top, p, from, to), to, from)
}

// inTransit gives a packet the MACs and the network that it has where h1 sees it.
func inTransit(top Topology, p reference.Packet, from, to model.Endpoint) reference.Packet {
	if from.Key.Network == to.Key.Network {
		return p
	}
	if from.Host == "h1" {
		p.DstMAC = desired.RouterMAC
		return p
	}
	n := top.Network(to.Key.Network)
	p.VTEP, p.Network, p.Uplink, p.VLAN, p.TTL = top.vtep(from.Host), n.ID, false, 0, 63
	if n.Encap == model.EncapVLAN {
		p.VTEP, p.Network, p.Uplink, p.VLAN = netip.Addr{}, 0, true, n.Tag
	}
	return p
}

// crossNetworkPairs are the pairs of a tenant's endpoints on different networks of which at
// least one is on h1.
func crossNetworkPairs(top Topology, tenant model.TenantName, ids ...model.EndpointID) (out [][2]model.Endpoint) {
	for _, a := range ids {
		for _, b := range ids {
			from, to := ofTenant(top, tenant, a), ofTenant(top, tenant, b)
			if from.Key.Network != to.Key.Network && (from.Host == "h1" || to.Host == "h1") {
				out = append(out, [2]model.Endpoint{from, to})
			}
		}
	}
	return out
}

func ofTenant(top Topology, tenant model.TenantName, id model.EndpointID) model.Endpoint {
	for _, e := range top.Endpoints {
		if e.Key.Network.Tenant == tenant && e.Key.ID == id {
			return e
		}
	}
	return model.Endpoint{}
}

// bothHave reports whether two endpoints have addresses of a family.
func bothHave(a, b model.Endpoint, v6 bool) bool {
	if v6 {
		return a.IPv6.IsValid() && b.IPv6.IsValid()
	}
	return a.IPv4.IsValid() && b.IPv4.IsValid()
}

// addressOf is an endpoint's address of a family.
func addressOf(e model.Endpoint, v6 bool) netip.Addr {
	if v6 {
		return e.IPv6
	}
	return e.IPv4
}
