package netctl

import (
	"context"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

var appProfiles = kind[api.AppProfile, api.AppProfileOper]{
	noun: "app-profile", arg: "APP-PROFILE", example: "--tenant blue shop", perTenant: true,
	collection: (*api.Client).AppProfiles,
}

var appProfileList = listing[api.AppProfile, api.AppProfileOper]{
	kind:   appProfiles,
	tenant: func(p api.AppProfile) string { return p.TenantName },
	name:   func(p api.AppProfile) string { return p.AppProfileName },
	header: []string{"Tenant", "AppProfile", "Groups"},
	row: func(p api.AppProfile) []string {
		return []string{p.TenantName, p.AppProfileName, strings.Join(p.EndpointGroups, ",")}
	},
}

var _ = register(kindOf(appProfileList, objectKind{
	order: 90, name: "appProfile", aliases: []string{"app-profile", "appProfiles"},
	keyFields: []string{"tenantName", "appProfileName"}, placeholders: []string{"APP-PROFILE"},
	command: newAppProfile,
}))

type appProfileOptions struct {
	common
	profile api.AppProfile
	update  bool
	all     bool
}

func newAppProfile(f *factory) *command {
	return &command{
		name:  "app-profile",
		short: "Application profiles: the groups that make up an application.",
		examples: []string{
			"netctl app-profile create --tenant blue --group web,db shop",
			"netctl app-profile update --tenant blue --group web,app,db shop",
			"netctl app-profile group-ls --tenant blue shop",
		},
		subs: []*command{
			newAppProfilePut(f, "create", "Create an application profile, or replace the groups of one", false, nil),
			newAppProfilePut(f, "update", "Replace the groups of an application profile", true, nil),
			newList(f, appProfileList, "List application profiles"),
			newAppProfileGroups(f, nil),
			newInspect(f, appProfiles, "Show an application profile", nil),
			newRemove(f, appProfiles, "Delete an application profile; its groups stay", nil),
		},
	}
}

func newAppProfilePut(f *factory, name, short string, update bool, run func(context.Context, *appProfileOptions) error) *command {
	o := &appProfileOptions{common: newCommon(f), update: update}
	p := &o.profile
	c := &command{
		name:     name,
		fills:    p,
		short:    short,
		examples: []string{"netctl app-profile " + name + " --tenant blue --group web,db shop"},
		args:     []string{"APP-PROFILE"},
	}
	o.tenantFlag(&c.flags)
	c.flags.listVar(&p.EndpointGroups, "group, g", "GROUP", "groups of the application, separated by commas")
	o.changeFlags(&c.flags, "json, j", "print the profile as stored, as JSON")
	c.run = bindRun(o, orDefault(run, runAppProfilePut), []*string{&p.AppProfileName})
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

func newAppProfileGroups(f *factory, run func(context.Context, *appProfileOptions) error) *command {
	o := &appProfileOptions{common: newCommon(f)}
	c := &command{
		name:     "group-ls",
		aliases:  []string{"group-list"},
		short:    "List the groups of an application profile",
		examples: []string{"netctl app-profile group-ls --tenant blue shop"},
		args:     []string{"APP-PROFILE"},
	}
	o.tenantFlag(&c.flags)
	c.flags.boolVar(&o.all, "all, a", "accepted, as in 1.x; a profile's groups are of its tenant")
	o.listFlags(c, "names only")
	c.run = bindRun(o, orDefault(run, runAppProfileGroups), []*string{&o.profile.AppProfileName})
	return c
}

func runAppProfileGroups(ctx context.Context, o *appProfileOptions) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	p, err := client.AppProfiles().Get(ctx, o.tenant+":"+o.profile.AppProfileName)
	if err != nil {
		return err
	}
	all, err := client.EndpointGroups().List(ctx)
	if err != nil {
		return err
	}
	l := items{kind: "endpointGroup", header: groupList.header}
	for _, name := range p.EndpointGroups {
		i := slices.IndexFunc(all, func(g api.EndpointGroup) bool { return g.TenantName == o.tenant && g.GroupName == name })
		if i >= 0 {
			l.all = append(l.all, item{object: all[i], name: name, row: groupList.row(all[i])})
		}
	}
	return o.printItems(l)
}
