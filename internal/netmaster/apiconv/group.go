package apiconv

import (
	"slices"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Group parses an endpoint group.
func Group(o api.EndpointGroup) (g model.Group, err error) {
	if err = checkOwner(o.Owner); err != nil {
		return g, err
	}
	if g.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return g, err
	}
	if g.Key.Name, err = model.ParseGroupName(o.GroupName); err != nil {
		return g, err
	}
	if g.Network, err = model.ParseNetworkName(o.NetworkName); err != nil {
		return g, err
	}
	for _, p := range o.Policies {
		name, err := model.ParsePolicyName(p)
		if err != nil {
			return g, Renamed(err, "policies")
		}
		if !slices.Contains(g.Policies, name) { // naming one twice is harmless
			g.Policies = append(g.Policies, name)
		}
	}
	if g.Pool, err = Optional(o.IPPool, func(s string) (model.AddrRange, error) {
		return model.ParseAddrRange("ipPool", s)
	}); err != nil {
		return g, err
	}
	for _, name := range o.ExtContractsGrps {
		if !slices.Contains(g.ExtContracts, name) {
			g.ExtContracts = append(g.ExtContracts, name)
		}
	}
	g.NetProfile, g.CfgdTag = o.NetProfile, o.CfgdTag
	return g, nil
}
