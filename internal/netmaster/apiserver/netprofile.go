package apiserver

import (
	"fmt"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(rest[api.NetProfile, model.NetProfileKey, model.NetProfile]{
	collection: "netprofiles", name: "netprofile", access: ofTenants,
	key: model.ParseNetProfileKey, list: listIn(ofGroups, (*control.GroupView).NetProfiles), get: getIn(ofGroups, (*control.GroupView).NetProfile),
	parse: apiconv.NetProfile, render: netProfileToAPI, linked: netProfileView,
	change: ofValue(control.ChangeNetProfile), delete: byAny(inTenants, (*control.Tenants).DeleteNetProfile),
	fields: map[string]field{
		"owner":       ownerField(),
		"tenantName":  tenantField(),
		"profileName": {text: nameText, required: true},
		"bandwidth":   {text: "of what each endpoint sends: a number and a unit (k, m or g, with b or bps behind it or not, in any case), such as 10 kbps, 100mbps, 5Mb or 2g, of at most 10000g; empty = no limit"},
		"DSCP":        {text: "0-63; 0 = packets are not marked", min: 0, max: model.MaxDSCP},
		"burst":       {text: "kilobytes, 2-10486; 0 = chosen from the bandwidth", min: 0, max: model.MaxBurst},

		"receiveBandwidth": {text: "of what each endpoint receives, as bandwidth; empty = no limit"},
		"receiveBurst":     {text: "kilobytes, 2-10486; 0 = chosen from the bandwidth", min: 0, max: model.MaxBurst},
	},
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
