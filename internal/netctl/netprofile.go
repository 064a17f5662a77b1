package netctl

import (
	"context"
	"strconv"

	"github.com/contiv/netplugin/v2/api"
)

var netProfiles = register(kindOf((*api.Client).NetProfiles, columns[api.NetProfile]{
	header: []string{"Name", "Tenant", "Bandwidth", "DSCP", "burst size"},
	row: func(p api.NetProfile) []string {
		return []string{p.ProfileName, p.TenantName, p.Bandwidth, strconv.Itoa(p.DSCP), strconv.Itoa(p.Burst)}
	},
	wideHeader: []string{"Receives", "Receive burst", "Groups", "Owner"},
	wideRow: func(p api.NetProfile) []string {
		return []string{p.ReceiveBandwidth, strconv.Itoa(p.ReceiveBurst), linked(p.LinkSets.EndpointGroups), p.Owner}
	},
}, objectKind{
	order: 30, name: "netprofile", aliases: []string{"netprofiles"},
	keyFields: []string{"tenantName", "profileName"}, placeholders: []string{"NETPROFILE", "PROFILE"},
	example: "--tenant blue gold", perTenant: true,
}))

type netProfileOptions struct {
	common
	profile api.NetProfile
}

func newNetProfile(base common) *command {
	return &command{
		name:  "netprofile",
		short: "Network profiles: bandwidth and marking of groups' traffic.",
		examples: []string{
			"netctl netprofile create --tenant blue --bandwidth 100mbps --dscp 10 gold",
			"netctl group create --tenant blue --networkprofile gold backend web",
			"netctl netprofile ls --tenant blue",
		},
		subs: []*command{
			newNetProfileCreate(base),
			newInspect(base, netProfiles, "Show a network profile and the groups that name it"),
			newList(base, netProfiles, "List network profiles"),
			newRemove(base, netProfiles, "Delete a network profile that no group names"),
		},
	}
}

func newNetProfileCreate(base common) *command {
	o := &netProfileOptions{common: base}
	p := &o.profile
	c := &command{
		name:  "create",
		fills: p,
		short: "Create a network profile, or change one: what no flag gives stays",
		examples: []string{
			"netctl netprofile create --tenant blue --bandwidth 100mbps --burst 200 gold",
			"netctl netprofile create --tenant blue --bandwidth 10mbps --receive-bandwidth 50mbps silver",
			"netctl netprofile create --dscp 46 voice",
		},
		args: []string{"NETPROFILE"},
	}
	o.tenantFlag(&c.flags)
	c.flags.String(&p.Bandwidth, "bandwidth, b", "RATE", "")
	c.flags.Int(&p.DSCP, "dscp, d", "0-63", "")
	c.flags.Int(&p.Burst, "burst, s", "KILOBYTES", "")
	c.flags.String(&p.ReceiveBandwidth, "receive-bandwidth", "RATE", "")
	c.flags.Int(&p.ReceiveBurst, "receive-burst", "KILOBYTES", "")
	o.keepRest(c)
	writeFlags(&c.flags, &o.common, "json, j", "print the profile as stored, as JSON")
	c.run = bindRun(o, func(ctx context.Context, o *netProfileOptions) error {
		o.profile.TenantName = o.tenant
		return put(ctx, &o.common, netProfiles, o.profile.ProfileName, o.profile)
	}, []*string{&p.ProfileName})
	return c
}
