package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.Network, model.NetworkKey, model.Network]{
	collection: "networks", name: "network", access: ofTenantsForDocker,
	key: model.ParseNetworkKey, list: listIn(viewNetworks, (*control.NetworkView).List), get: getIn(viewNetworks, (*control.NetworkView).Get),
	parse: apiconv.Network, render: networkToAPI, linked: networkView,
	change: changeAsIs(networkUseCases, (*control.Networks).ChangeNetwork), delete: deleteFor(networkUseCases, (*control.Networks).DeleteNetwork),
	oper: api.NetworkOper{}, inspect: func(_ *serverContext, v *control.View, n model.Network) any { return networkOper(v, n) },
})

func networkToAPI(n model.Network) api.Network {
	o := api.Network{
		Key:         n.Key.String(),
		CfgdTag:     n.CfgdTag,
		Encap:       string(n.Encap),
		Gateway:     addrText(n.Gateway),
		IPv6Gateway: addrText(n.Gateway6),
		IPv6Subnet:  n.RawSubnet6,
		Native:      n.Routed,
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
