package apiconv

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// NetProfile parses a net profile.
func NetProfile(o api.NetProfile) (p model.NetProfile, err error) {
	if err = checkOwner(o.Owner); err != nil {
		return p, err
	}
	if p.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return p, err
	}
	if p.Bandwidth, err = model.ParseBandwidth(o.Bandwidth); err != nil {
		return p, err
	}
	if p.ReceiveBandwidth, err = model.ParseReceiveBandwidth(o.ReceiveBandwidth); err != nil {
		return p, err
	}
	p.Key.Name, p.DSCP, p.Burst, p.ReceiveBurst = o.ProfileName, o.DSCP, o.Burst, o.ReceiveBurst
	return p, nil
}
