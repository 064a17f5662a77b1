package apiconv

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Tenant parses a tenant.
func Tenant(o api.Tenant) (t model.Tenant, err error) {
	if err = checkOwner(o.Owner); err != nil {
		return t, err
	}
	if t.Name, err = model.ParseTenantName(o.TenantName); err != nil {
		return t, err
	}
	t.DefaultNetwork, err = Optional(o.DefaultNetwork, func(s string) (model.NetworkName, error) {
		n, err := model.ParseNetworkName(s)
		return n, Renamed(err, "defaultNetwork")
	})
	if err == nil && o.SharedNetworks != nil {
		t.Shared, err = model.ParseShared("sharedNetworks", o.SharedNetworks)
	}
	return t, err
}
