package netctl

import (
	"context"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

var groups = register(kindOf((*api.Client).EndpointGroups, columns[api.EndpointGroup]{
	header: []string{"Tenant", "Group", "Network", "IP Pool", "CfgdTag", "Policies", "Network profile"},
	row: func(g api.EndpointGroup) []string {
		return []string{
			g.TenantName, g.GroupName, g.NetworkName, g.IPPool, g.CfgdTag,
			strings.Join(g.Policies, ","), g.NetProfile,
		}
	},
	wideHeader: []string{"External contracts", "App profile", "Owner"},
	wideRow: func(g api.EndpointGroup) []string {
		return []string{strings.Join(g.ExtContractsGrps, ","), lastPart(g.Links.AppProfile.Key), g.Owner}
	},
}, objectKind{
	order: 70, name: "endpointGroup", aliases: []string{"group", "groups", "endpointGroups"},
	keyFields: []string{"tenantName", "groupName"}, placeholders: []string{"GROUP"},
	noun: "group", example: "--tenant blue web", perTenant: true,
}))

// noteGroupTag is model.NoEffect's, copied since netctl does not link internal/model;
// TestHelpSaysWhatHasNoEffect compares them.
const noteGroupTag = "a group's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name"

type groupCreateOptions struct {
	common
	group  api.EndpointGroup
	within time.Duration
}

func newGroup(base common) *command {
	return &command{
		name:  "group",
		short: "Endpoint groups: containers of one network that share policies.",
		examples: []string{
			"netctl group create --tenant blue --policy web-in backend web",
			"netctl group ls --tenant blue",
			"netctl group rm --tenant blue web",
		},
		subs: []*command{
			newGroupCreate(base),
			newInspect(base, groups, "Show a group and its endpoints"),
			newList(base, groups, "List endpoint groups"),
			newRemove(base, groups, "Delete a group without endpoints that no rule names"),
		},
	}
}

func newGroupCreate(base common) *command {
	o := &groupCreateOptions{common: base}
	g := &o.group
	c := &command{
		name:  "create",
		fills: g,
		short: "Create an endpoint group, or change one: what no flag gives stays",
		note:  noteGroupTag,
		examples: []string{
			"netctl group create --tenant blue --policy web-in backend web",
			"netctl group create --tenant blue --policy web-in --policy audit backend web   # replaces the policies, keeps a profile",
			"netctl group create --tenant blue --replace --networkprofile gold backend web   # removes the policies",
			"netctl group create --tenant blue --ip-pool 10.1.1.10-10.1.1.19 backend db",
		},
		args: []string{"NETWORK", "GROUP"},
	}
	o.tenantFlag(&c.flags)
	c.flags.List(&g.Policies, "policy, p", "POLICY", "")
	c.flags.String(&g.NetProfile, "networkprofile, n", "PROFILE", "")
	c.flags.List(&g.ExtContractsGrps, "external-contract, e", "CONTRACT", "")
	c.flags.String(&g.IPPool, "ip-pool, r", "RANGE", "")
	c.flags.String(&g.CfgdTag, "epg-tag, tag", "NAME", "has no effect yet")
	o.keepRest(c)
	confirmFlag(&c.flags, &o.within)
	writeFlags(&c.flags, &o.common, "json, j", "print the group as stored, as JSON")
	c.run = bindRun(o, runGroupCreate, []*string{&g.NetworkName, &g.GroupName})
	return c
}

func runGroupCreate(ctx context.Context, o *groupCreateOptions) error {
	o.group.TenantName = o.tenant
	return putOrPend(ctx, &o.common, o.within, groups, o.group.GroupName, o.group)
}
