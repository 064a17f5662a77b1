package drivertest

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
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	t := Topology{
		Global: model.Global{
			Infra: model.InfraDefault, FwdMode: model.FwdBridge, ArpMode: model.ArpProxy,
			VLANs: model.TagRange{Lo: 1, Hi: 4094}, VXLANs: model.TagRange{Lo: 1, Hi: 10000},
			PvtSubnet: prefix("172.19.0.0/16"),
		},
		Hosts: []model.Host{
			{Name: "h1", Control: addr("192.168.7.1"), VTEP: addr("192.168.7.1")},
			{Name: "h2", Control: addr("192.168.7.2"), VTEP: addr("192.168.7.2")},
		},
	}
	network := func(tenant model.TenantName, name model.NetworkName, id model.NetworkID, encap model.Encap, tag uint32, net int) {
		t.Networks = append(t.Networks, model.Network{
			Key: model.NetworkKey{Tenant: tenant, Name: name}, Type: model.NetworkData, Encap: encap, Tag: tag, ID: id,
			Subnet: prefix(fmt.Sprintf("10.1.%d.0/24", net)), Subnet6: prefix(fmt.Sprintf("fd00:%d::/64", net)),
		})
	}
	network("blue", "vx", 1, model.EncapVXLAN, 100, 1)
	network("blue", "vl", 2, model.EncapVLAN, 200, 2)
	network("red", "vx", 3, model.EncapVXLAN, 101, 1)
	next := map[model.NetworkKey]int{}
	endpoint := func(n model.Network, group model.GroupName, id string, host int, identity model.Identity) {
		next[n.Key]++
		v4, v6 := n.Subnet.Addr().As4(), n.Subnet6.Addr().As16()
		v4[3], v6[15] = byte(next[n.Key]), byte(next[n.Key])
		e := model.Endpoint{
			Key: model.EndpointKey{Network: n.Key, ID: model.EndpointID(id)}, Group: group, Identity: identity,
			Host: t.Hosts[host-1].Name, IPv4: netip.AddrFrom4(v4), IPv6: netip.AddrFrom16(v6),
		}
		e.MAC = model.EndpointMAC(n.Key, e.IPv4, e.IPv6)
		t.Endpoints = append(t.Endpoints, e)
	}
	identity := model.IdentityFirst
	intern := func(n model.Network, group model.GroupName) model.Identity {
		identity++
		t.Identities = append(t.Identities, model.IdentityRecord{ID: identity, Network: n.Key, Group: group})
		return identity
	}
	for _, n := range t.Networks {
		groups := []model.GroupName{"web", "db"}
		if n.Key.Name == "vl" {
			groups = []model.GroupName{"lan"}
		}
		for _, g := range groups {
			id := intern(n, g)
			t.Groups = append(t.Groups, model.Group{Key: model.GroupKey{Tenant: n.Key.Tenant, Name: g}, Network: n.Key.Name, ID: id})
			for host := range t.Hosts {
				endpoint(n, g, fmt.Sprintf("%s%d", g, host+1), host+1, id)
			}
		}
		if n.Key.Tenant == "blue" {
			name := "solo1"
			if n.Key.Name == "vl" {
				name = "lonely1"
			}
			endpoint(n, "", name, 1, intern(n, ""))
		}
	}
	return t
}
