package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.EndpointGroup, model.GroupKey, model.Group]{
	collection: "endpointGroups", name: "endpointGroup", access: ofTenantsForDocker,
	key: model.ParseGroupKey, list: listIn(viewGroups, (*control.GroupView).List), get: getIn(viewGroups, (*control.GroupView).Get),
	parse: apiconv.Group, render: groupToAPI, linked: groupView,
	change: changeGroup, delete: byKey(control.DeleteGroup),
	oper: api.EndpointGroupOper{}, inspect: func(_ *serverContext, v *control.View, g model.Group) any { return groupOper(v, g) },
})

func changeGroup(c *control.Controller, g model.Valid[model.Group], empty clearedFields) control.Change {
	return c.Tenants.ChangeGroup(g, empty("cfgdTag"))
}

func groupToAPI(g model.Group) api.EndpointGroup {
	o := api.EndpointGroup{
		Key:              g.Key.String(),
		CfgdTag:          g.CfgdTag,
		ExtContractsGrps: g.ExtContracts,
		GroupName:        string(g.Key.Name),
		IPPool:           g.Pool.String(),
		NetProfile:       g.NetProfile,
		NetworkName:      string(g.Network),
		Owner:            apiconv.Owner(g.Object),
		TenantName:       string(g.Key.Tenant),
	}
	for _, p := range g.Policies {
		o.Policies = append(o.Policies, string(p))
		addLink(&o.LinkSets.Policies, "policy", model.PolicyKey{Tenant: g.Key.Tenant, Name: p}.String())
	}
	for _, name := range g.ExtContracts {
		addLink(&o.LinkSets.ExtContractsGrps, "extContractsGroup", model.ExtContractsKey{Tenant: g.Key.Tenant, Name: name}.String())
	}
	if g.NetProfile != "" {
		o.Links.NetProfile = api.Link{Type: "netprofile", Key: model.NetProfileKey{Tenant: g.Key.Tenant, Name: g.NetProfile}.String()}
	}
	o.Links.Network = api.Link{Type: "network", Key: g.NetworkKey().String()}
	o.Links.Tenant = tenantLink(g.Key.Tenant)
	return o
}

func groupView(v *control.View, g model.Group) api.EndpointGroup {
	o := groupToAPI(g)
	if k, ok := v.Tenants.AppProfileOf(g.Key); ok {
		o.Links.AppProfile = api.Link{Type: "appProfile", Key: k.String()}
	}
	for _, r := range v.Policies.RulesOfGroup(g.Key) {
		addLink(&o.LinkSets.MatchRules, "rule", r.Key.String())
	}
	return o
}

// groupOper builds a group's operational state.
func groupOper(v *control.View, g model.Group) api.EndpointGroupOper {
	es := v.Endpoints.OfGroup(g.Key)
	o := api.EndpointGroupOper{
		Endpoints:    endpointOpers(v, es),
		GroupTag:     g.CfgdTag,
		NumEndpoints: len(es),
	}
	if o.GroupTag == "" {
		o.GroupTag = string(g.Key.Name) + "." + string(g.Key.Tenant)
	}
	n, ok := v.Networks.Get(g.NetworkKey())
	if !ok {
		return o
	}
	o.PktTag = int(n.Tag)
	if g.VLAN != 0 {
		o.PktTag = int(g.VLAN)
	}
	if n.Encap == model.EncapVXLAN {
		o.ExternalPktTag = int(n.Tag)
	}
	if g.Pool.IsValid() {
		var held []model.AddrRange
		for _, a := range v.Addresses.Addresses(n.Key) {
			held = append(held, model.AddrRange{First: a, Last: a})
		}
		o.AllocatedIPAddresses, o.AvailableIPAddresses = rangeTexts(g.Pool, held)
	}
	return o
}
