package netctl

import (
	"context"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

var tenants = register(kindOf((*api.Client).Tenants, columns[api.Tenant]{
	header:     []string{"Name"},
	row:        func(t api.Tenant) []string { return []string{t.TenantName} },
	wideHeader: []string{"Default network", "Networks", "Groups", "Policies", "Shared networks", "Owner"},
	wideRow: func(t api.Tenant) []string {
		return []string{t.DefaultNetwork, number(len(t.LinkSets.Networks)), number(len(t.LinkSets.EndpointGroups)), number(len(t.LinkSets.Policies)), strings.Join(t.SharedNetworks, ","), t.Owner}
	},
}, objectKind{
	order: 20, name: "tenant", aliases: []string{"tenants"},
	keyFields: []string{"tenantName"}, placeholders: []string{"TENANT"},
	example: "blue",
}))

type tenantOptions struct {
	common
	object api.Tenant
}

func newTenant(base common) *command {
	return &command{
		name:  "tenant",
		short: "Tenants: name spaces of networks, groups and policies.",
		examples: []string{
			"netctl tenant create blue",
			"netctl tenant ls",
			"netctl tenant rm blue",
		},
		subs: []*command{
			newTenantCreate(base),
			newInspect(base, tenants, "Show a tenant and its objects"),
			newList(base, tenants, "List tenants"),
			newRemove(base, tenants, "Delete an empty tenant"),
		},
	}
}

func newTenantCreate(base common) *command {
	o := &tenantOptions{common: base}
	c := &command{
		name:  "create",
		fills: &o.object,
		short: "Create a tenant, or change what networks of others it reaches",
		examples: []string{
			"netctl tenant create blue",
			"netctl tenant create --shared-networks infra:dns,infra:time blue",
			"netctl tenant create --shared-networks none blue",
		},
		args: []string{"TENANT"},
	}
	c.flags.List(&o.object.SharedNetworks, "shared-networks", "TENANT:NETWORK,...", "none takes them away; not given: as it is")
	writeFlags(&c.flags, &o.common, "json, j", "print the tenant as stored, as JSON")
	c.run = bindRun(o, runTenantCreate, []*string{&o.object.TenantName})
	return c
}

func runTenantCreate(ctx context.Context, o *tenantOptions) error {
	if slices.Equal(o.object.SharedNetworks, []string{"none"}) {
		o.object.SharedNetworks = []string{}
	}
	return put(ctx, &o.common, tenants, o.object.TenantName, o.object)
}
