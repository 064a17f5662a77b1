package netctl

import (
	"context"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

var appProfiles = register(kindOf((*api.Client).AppProfiles, columns[api.AppProfile]{
	header: []string{"Tenant", "AppProfile", "Groups"},
	row: func(p api.AppProfile) []string {
		return []string{p.TenantName, p.AppProfileName, strings.Join(p.EndpointGroups, ",")}
	},
}, objectKind{
	order: 90, name: "appProfile", aliases: []string{"app-profile", "appProfiles"},
	keyFields: []string{"tenantName", "appProfileName"}, placeholders: []string{"APP-PROFILE"},
	noun: "app-profile", example: "--tenant blue shop", perTenant: true,
}))

type appProfileOptions struct {
	common
	profile api.AppProfile
	update  bool
	all     bool
}

func newAppProfile(base common) *command {
	return &command{
		name:  "app-profile",
		short: "Application profiles: the groups that make up an application.",
		examples: []string{
			"netctl app-profile create --tenant blue --group web,db shop",
			"netctl app-profile update --tenant blue --group web,app,db shop",
			"netctl app-profile group-ls --tenant blue shop",
		},
		subs: []*command{
			newAppProfilePut(base, "create", "Create an application profile, or replace the groups of one if --group is given", false),
			newAppProfilePut(base, "update", "Replace the groups of an application profile if --group is given", true),
			newList(base, appProfiles, "List application profiles"),
			newAppProfileGroups(base),
			newInspect(base, appProfiles, "Show an application profile"),
			newRemove(base, appProfiles, "Delete an application profile; its groups stay"),
		},
	}
}

func newAppProfilePut(base common, name, short string, update bool) *command {
	o := &appProfileOptions{common: base, update: update}
	p := &o.profile
	c := &command{
		name:     name,
		fills:    p,
		short:    short,
		examples: []string{"netctl app-profile " + name + " --tenant blue --group web,db shop"},
		args:     []string{"APP-PROFILE"},
	}
	o.tenantFlag(&c.flags)
	c.flags.List(&p.EndpointGroups, "group, g", "GROUP", "")
	o.keepRest(c)
	writeFlags(&c.flags, &o.common, "json, j", "print the profile as stored, as JSON")
	c.run = bindRun(o, runAppProfilePut, []*string{&p.AppProfileName})
	return c
}

func runAppProfilePut(ctx context.Context, o *appProfileOptions) error {
	o.profile.TenantName = o.tenant
	if o.update { // what is not there cannot be updated
		client, err := o.client()
		if err != nil {
			return err
		}
		if _, err := client.AppProfiles().Get(ctx, o.profile.ObjectKey()); err != nil {
			return err
		}
	}
	return put(ctx, &o.common, appProfiles, o.profile.AppProfileName, o.profile)
}

func newAppProfileGroups(base common) *command {
	o := &appProfileOptions{common: base}
	c := &command{
		name:     "group-ls",
		aliases:  []string{"group-list"},
		short:    "List the groups of an application profile",
		examples: []string{"netctl app-profile group-ls --tenant blue shop"},
		args:     []string{"APP-PROFILE"},
	}
	o.tenantFlag(&c.flags)
	c.flags.Bool(&o.all, "all, a", "accepted, as in 1.x; a profile's groups are of its tenant")
	o.listFlags(c, "names only")
	c.run = bindClient(o, runAppProfileGroups, []*string{&o.profile.AppProfileName})
	return c
}

func runAppProfileGroups(ctx context.Context, client *api.Client, o *appProfileOptions) error {
	p, err := client.AppProfiles().Get(ctx, o.tenant+":"+o.profile.AppProfileName)
	if err != nil {
		return err
	}
	all, err := client.EndpointGroups().List(ctx)
	if err != nil {
		return err
	}
	l := items{kind: groups.name, header: groups.header, wideHeader: groups.wideHeader}
	for _, name := range p.EndpointGroups {
		i := slices.IndexFunc(all, func(g api.EndpointGroup) bool { return g.TenantName == o.tenant && g.GroupName == name })
		if i >= 0 {
			l.all = append(l.all, groups.items(all[i]).all...)
		}
	}
	return o.printItems(l)
}
