package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(rest[api.Network, model.NetworkKey, model.Network]{
	collection: "networks", name: "network", access: ofTenantsForDocker,
	key: model.ParseNetworkKey, list: listIn(ofNetworks, (*control.NetworkView).List), get: getIn(ofNetworks, (*control.NetworkView).Get),
	parse: apiconv.Network, render: networkToAPI, linked: networkView,
	change: plain(inNetworks, (*control.Networks).ChangeNetwork), delete: by(inNetworks, (*control.Networks).DeleteNetwork),
	oper: api.NetworkOper{}, inspect: func(_ *core, v *control.View, n model.Network) any { return networkOper(v, n) },
	fields: map[string]field{
		"owner":       ownerField(),
		"tenantName":  tenantField(),
		"networkName": {text: nameText + "; no group of the tenant has it", required: true},
		"nwType":      {text: "data (default), or infra: each host has an interface of the network's name, and an address, on it", enum: []string{"", "data", "infra"}},
		"encap":       {text: "vlan or vxlan", enum: []string{"vlan", "vxlan"}, required: true},
		"pktTag":      {text: "a free VLAN id (1-4094) or VNI (1-16777215) within the range that global sets; 0 = allocate one", min: 0, max: model.MaxVNI},
		"subnet":      {text: "an IPv4 subnet such as 10.1.1.0/24, or a range in one such as 10.1.1.10-10.1.1.50/24, that overlaps no other network of the tenant, no reserved block and not the private subnet; empty only with ipv6Subnet"},
		"gateway":     {text: "an address of the subnet other than its network and broadcast address; empty = none"},
		"ipv6Subnet":  {text: "an IPv6 subnet that overlaps no other network of the tenant, no reserved block and not fd6d:809b:d5b4::/96, in which hosts know containers; empty = none"},
		"ipv6Gateway": {text: "an address of the IPv6 subnet; on a VXLAN network containers get a default route by it; empty = none"},
		"cfgdTag":     {text: tagText},
		"native":      {text: "true: every host itself reaches each container of the network by the container's own address, as Kubernetes asks for nodes and pods, and they reach every host; only in tenant default, with encap vxlan, and where the subnets hold no host's address and overlap no range of service addresses"},
	},
})

func networkToAPI(n model.Network) api.Network {
	o := api.Network{
		Key:         n.Key.String(),
		CfgdTag:     n.CfgdTag,
		Encap:       string(n.Encap),
		Gateway:     addrText(n.Gateway),
		IPv6Gateway: addrText(n.Gateway6),
		IPv6Subnet:  n.RawSubnet6,
		Native:      n.Native,
		NetworkName: string(n.Key.Name),
		NwType:      string(n.Type),
		Owner:       apiconv.Owner(n.Object),
		PktTag:      int(n.ReqTag),
		Subnet:      n.RawSubnet,
		TenantName:  string(n.Key.Tenant),
	}
	if o.Subnet == "" {
		o.Subnet = model.FormatSubnet4(n.Subnet, n.Range)
	}
	if o.IPv6Subnet == "" && n.Subnet6.IsValid() {
		o.IPv6Subnet = n.Subnet6.String()
	}
	o.Links.Tenant = tenantLink(n.Key.Tenant)
	return o
}

func networkView(v *control.View, n model.Network) api.Network {
	o := networkToAPI(n)
	for _, g := range v.Groups.OfNetwork(n.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	for _, s := range v.Services.OfNetwork(n.Key) {
		addLink(&o.LinkSets.Servicelbs, "serviceLB", s.Key.String())
	}
	return o
}

// networkOper builds a network's operational state.
func networkOper(v *control.View, n model.Network) api.NetworkOper {
	es := v.Endpoints.OfNetwork(n.Key)
	o := api.NetworkOper{
		Endpoints:    endpointOpers(v, es),
		NetworkTag:   n.CfgdTag,
		NumEndpoints: len(es),
		PktTag:       int(n.Tag),
	}
	if o.NetworkTag == "" {
		o.NetworkTag = networkID(n.Key)
	}
	if n.Encap == model.EncapVXLAN {
		o.ExternalPktTag = int(n.Tag)
	}
	subnet, gateway, usable := n.Subnet, n.Gateway, n.Range
	if !subnet.IsValid() {
		subnet, gateway = n.Subnet6, n.Gateway6
	}
	if !usable.IsValid() {
		usable = model.HostRange(subnet)
	}
	var held []model.AddrRange
	for _, a := range v.Addresses.Addresses(n.Key) {
		if subnet.Contains(a) {
			o.AllocatedAddressesCount++
			held = append(held, model.AddrRange{First: a, Last: a})
		}
	}
	if gateway.IsValid() {
		held = append(held, model.AddrRange{First: gateway, Last: gateway})
	}
	for _, g := range v.Groups.OfNetwork(n.Key) {
		if g.Pool.IsValid() {
			held = append(held, g.Pool)
		}
	}
	o.AllocatedIPAddresses, o.AvailableIPAddresses = rangeTexts(usable, held)
	return o
}
