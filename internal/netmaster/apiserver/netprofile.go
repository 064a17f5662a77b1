package apiserver

import (
	"fmt"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.NetProfile, model.NetProfileKey, model.NetProfile]{
	collection: "netprofiles", name: "netprofile", access: ofTenants,
	key: model.ParseNetProfileKey, list: control.NetProfiles, get: control.NetProfile,
	parse: apiconv.NetProfile, render: netProfileToAPI, linked: netProfileView,
	change: changeByValue(control.ChangeNetProfile), delete: byKey(control.DeleteNetProfile),
})

func netProfileToAPI(p model.NetProfile) api.NetProfile {
	return api.NetProfile{
		Key: p.Key.String(), DSCP: p.DSCP, Bandwidth: p.Bandwidth.Text, Burst: p.Burst,
		ReceiveBandwidth: p.ReceiveBandwidth.Text, ReceiveBurst: p.ReceiveBurst,
		ProfileName: p.Key.Name, Owner: apiconv.Owner(p.Object), TenantName: string(p.Key.Tenant),
		Links: api.NetProfileLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
}

func netProfileView(v *control.View, p model.NetProfile) api.NetProfile {
	o := netProfileToAPI(p)
	for _, g := range v.Groups.OfNetProfile(p.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	return o
}

// burstWarnings names the bursts of a profile that are of no limit, which 1.x took too.
func burstWarnings(p model.NetProfile) (out []string) {
	for _, d := range []struct {
		field, limit string
		burst        int
		of           model.Bandwidth
	}{{"burst", "bandwidth", p.Burst, p.Bandwidth}, {"receiveBurst", "receiveBandwidth", p.ReceiveBurst, p.ReceiveBandwidth}} {
		if d.burst > 0 && d.of.Kbps == 0 {
			out = append(out, fmt.Sprintf("%s has no effect without %s: nothing is limited", d.field, d.limit))
		}
	}
	return out
}
