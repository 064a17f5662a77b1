package netctl

import (
	"context"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

var tenants = kind[api.Tenant, api.TenantOper]{
	noun: "tenant", arg: "TENANT", example: "blue", collection: (*api.Client).Tenants,
}

var tenantList = listing[api.Tenant, api.TenantOper]{
	kind:   tenants,
	name:   func(t api.Tenant) string { return t.TenantName },
	header: []string{"Name"},
	row:    func(t api.Tenant) []string { return []string{t.TenantName} },
}

var _ = register(kindOf(tenantList, objectKind{
	order: 20, name: "tenant", aliases: []string{"tenants"},
	keyFields: []string{"tenantName"}, placeholders: []string{"TENANT"},
	command:    newTenant,
	wideHeader: []string{"Default network", "Networks", "Groups", "Policies", "Shared networks", "Owner"},
	wideRow: func(o any) []string {
		t := of[api.Tenant](o)
		return []string{t.DefaultNetwork, number(len(t.LinkSets.Networks)), number(len(t.LinkSets.EndpointGroups)), number(len(t.LinkSets.Policies)), strings.Join(t.SharedNetworks, ","), t.Owner}
	},
}))

type tenantOptions struct {
	common
	object api.Tenant
}

func newTenant(f *factory) *command {
	return &command{
		name:  "tenant",
		short: "Tenants: name spaces of networks, groups and policies.",
		examples: []string{
			"netctl tenant create blue",
			"netctl tenant ls",
			"netctl tenant rm blue",
		},
		subs: []*command{
			newTenantCreate(f, nil),
			newInspect(f, tenants, "Show a tenant and what it holds", nil),
			newList(f, tenantList, "List tenants"),
			newRemove(f, tenants, "Delete a tenant that holds nothing any more", nil),
		},
	}
}

func newTenantCreate(f *factory, run func(context.Context, *tenantOptions) error) *command {
	o := &tenantOptions{common: newCommon(f)}
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
	c.flags.listVar(&o.object.SharedNetworks, "shared-networks", "TENANT:NETWORK,...", "all networks of other tenants that its containers reach in forwarding mode routing, by rules there that allow it; none takes them away; not given: as it is")
	o.changeFlags(&c.flags, "json, j", "print the tenant as stored, as JSON")
	c.run = bindRun(o, orDefault(run, runTenantCreate), []*string{&o.object.TenantName})
	return c
}

func runTenantCreate(ctx context.Context, o *tenantOptions) error {
	if slices.Equal(o.object.SharedNetworks, []string{"none"}) {
		o.object.SharedNetworks = []string{}
	}
	return put(ctx, &o.common, tenants, o.object.TenantName, o.object)
}
