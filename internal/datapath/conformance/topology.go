package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Topology is a cluster without policies: what cases are tried on. A test on a
// real cluster fills it with the objects as netmaster made them.
type Topology struct {
	Global     model.Global
	Hosts      []model.Host
	Tenants    []model.Tenant // that have a router
	Networks   []model.Network
	Groups     []model.Group // Policies are ignored; a Case says them
	Endpoints  []model.Endpoint
	Identities []model.IdentityRecord
}

// Network returns the network of that key.
func (t Topology) Network(k model.NetworkKey) model.Network {
	i := slices.IndexFunc(t.Networks, func(n model.Network) bool { return n.Key == k })
	if i < 0 {
		return model.Network{}
	}
	return t.Networks[i]
}

// Endpoint returns the endpoint of that key.
func (t Topology) Endpoint(k model.EndpointKey) model.Endpoint {
	i := slices.IndexFunc(t.Endpoints, func(e model.Endpoint) bool { return e.Key == k })
	if i < 0 {
		return model.Endpoint{}
	}
	return t.Endpoints[i]
}

// Members returns the endpoints of a group, in order.
func (t Topology) Members(k model.GroupKey) []model.Endpoint {
	var out []model.Endpoint
	for _, e := range t.Endpoints {
		if e.Key.Network.Tenant == k.Tenant && e.Group == k.Name {
			out = append(out, e)
		}
	}
	return out
}

// StandardTopology is two hosts, the tenants blue and red with equal addresses,
// a VXLAN network "vx" in each, a VLAN network "vl" in blue; groups web and db
// on vx and lan on vl, each with one endpoint per host named group and host
// number ("web1"), and one endpoint "solo1" of blue without a group.
func StandardTopology() Topology {
	addr := netip.MustParseAddr
	t := Topology{
		Global: model.Global{
			Infra: model.InfraDefault, FwdMode: model.FwdBridge, ArpMode: model.ArpProxy,
			VLANs: model.TagRange{Lo: 1, Hi: 4094}, VXLANs: model.TagRange{Lo: 1, Hi: 10000},
			PvtSubnet: netip.MustParsePrefix("172.19.0.0/16"),
		},
		Hosts: []model.Host{
			{Name: "h1", Control: addr("192.168.7.1"), VTEP: addr("192.168.7.1")},
			{Name: "h2", Control: addr("192.168.7.2"), VTEP: addr("192.168.7.2")},
		},
	}
	vx := t.addNetwork("blue", "vx", model.EncapVXLAN, 100, 1)
	vl := t.addNetwork("blue", "vl", model.EncapVLAN, 200, 2)
	red := t.addNetwork("red", "vx", model.EncapVXLAN, 101, 1)
	t.addGroup(vx, "web", 1, 2)
	t.addGroup(vx, "db", 1, 2)
	t.addEndpoint(vx, "", "solo1", 1, t.intern(vx, ""))
	t.addGroup(vl, "lan", 1, 2)
	t.addEndpoint(vl, "", "lonely1", 1, t.intern(vl, ""))
	t.addGroup(red, "web", 1, 2)
	t.addGroup(red, "db", 1, 2)
	return t
}

// addNetwork adds a network with the next number and the subnets of a number.
func (t *Topology) addNetwork(tenant model.TenantName, name model.NetworkName, encap model.Encap, tag uint32, net int) model.Network {
	n := model.Network{
		Key: model.NetworkKey{Tenant: tenant, Name: name}, Type: model.NetworkData, Encap: encap, Tag: tag, ID: model.NetworkID(len(t.Networks) + 1),
		Subnet: netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", net)), Subnet6: netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", net)),
	}
	t.Networks = append(t.Networks, n)
	return n
}

// addGroup adds a group with an endpoint on each of some hosts, by their numbers.
func (t *Topology) addGroup(n model.Network, name model.GroupName, hosts ...int) {
	id := t.intern(n, name)
	t.Groups = append(t.Groups, model.Group{Key: model.GroupKey{Tenant: n.Key.Tenant, Name: name}, Network: n.Key.Name, ID: id})
	for _, host := range hosts {
		t.addEndpoint(n, name, fmt.Sprintf("%s%d", name, host), host, id)
	}
}

// addEndpoint adds an endpoint with the next addresses of its network.
func (t *Topology) addEndpoint(n model.Network, group model.GroupName, id string, host int, identity model.Identity) {
	e := model.Endpoint{
		Key: model.EndpointKey{Network: n.Key, ID: model.EndpointID(id)}, Group: group, Identity: identity, Host: t.Hosts[host-1].Name,
	}
	last := byte(1)
	for _, o := range t.Endpoints {
		if o.Key.Network == n.Key {
			last++
		}
	}
	if e.IPv4 = host4(n, last); n.Subnet6.IsValid() {
		e.IPv6 = host6(n, last)
	}
	e.MAC = model.EndpointMAC(n.Key, e.IPv4, e.IPv6)
	t.Endpoints = append(t.Endpoints, e)
}

// intern gives out the next identity.
func (t *Topology) intern(n model.Network, group model.GroupName) model.Identity {
	id := model.IdentityFirst + model.Identity(len(t.Identities)) + 1
	t.Identities = append(t.Identities, model.IdentityRecord{ID: id, Network: n.Key, Group: group})
	return id
}

// host4 and host6 are addresses of a network's subnets by their last byte.
func host4(n model.Network, last byte) netip.Addr {
	a := n.Subnet.Addr().As4()
	a[3] = last
	return netip.AddrFrom4(a)
}

func host6(n model.Network, last byte) netip.Addr {
	a := n.Subnet6.Addr().As16()
	a[15] = last
	return netip.AddrFrom16(a)
}
