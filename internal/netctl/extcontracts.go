package netctl

import (
	"context"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

var extContracts = register(kindOf((*api.Client).ExtContractsGroups, columns[api.ExtContractsGroup]{
	header: []string{"Tenant", "Name", "Type", "Contracts"},
	row: func(e api.ExtContractsGroup) []string {
		return []string{e.TenantName, e.ContractsGroupName, e.ContractsType, strings.Join(e.Contracts, ",")}
	},
	wideHeader: []string{"Groups"},
	wideRow: func(e api.ExtContractsGroup) []string {
		return []string{linked(e.LinkSets.EndpointGroups)}
	},
}, objectKind{
	order: 40, name: "extContractsGroup", aliases: []string{"external-contracts", "extContractsGroups"},
	keyFields: []string{"tenantName", "contractsGroupName"}, placeholders: []string{"CONTRACTS", "CONTRACT"},
	noun: "external-contracts", example: "--tenant blue outside", perTenant: true,
}))

type extContractsOptions struct {
	common
	consumed, provided bool
	group              api.ExtContractsGroup
}

func newExtContracts(base common) *command {
	return &command{
		name:  "external-contracts",
		short: "External contracts: contracts of an ACI fabric that groups provide or consume.",
		examples: []string{
			"netctl external-contracts create --tenant blue --provided --contract uni/tn-common/brc-web outside",
			"netctl group create --tenant blue --external-contract outside backend web",
			"netctl external-contracts ls --tenant blue",
		},
		subs: []*command{
			newExtContractsCreate(base),
			newInspect(base, extContracts, "Show external contracts and the groups that name them"),
			newList(base, extContracts, "List external contracts"),
			newRemove(base, extContracts, "Delete external contracts that no group names"),
		},
	}
}

func newExtContractsCreate(base common) *command {
	o := &extContractsOptions{common: base}
	c := &command{
		name:     "create",
		fills:    &o.group,
		short:    "Create external contracts, or replace them",
		examples: []string{"netctl external-contracts create --tenant blue --consumed --contract uni/tn-common/brc-dns --contract uni/tn-common/brc-ntp outside"},
		args:     []string{"CONTRACTS"},
	}
	o.tenantFlag(&c.flags)
	// -c means --consumed and -a --contract, as in 1.x.
	c.flags.Bool(&o.consumed, "consumed, c", "the groups consume the contracts")
	c.flags.Bool(&o.provided, "provided, p", "the groups provide the contracts")
	c.flags.List(&o.group.Contracts, "contract, a", "CONTRACT-DN", "distinguished name of a contract")
	writeFlags(&c.flags, &o.common, "json, j", "print the contracts as stored, as JSON")
	c.run = bindRun(o, runExtContractsCreate, []*string{&o.group.ContractsGroupName})
	return c
}

func runExtContractsCreate(ctx context.Context, o *extContractsOptions) error {
	switch {
	case o.consumed == o.provided:
		return flags.Usagef("give either --consumed or --provided")
	case len(o.group.Contracts) == 0:
		return flags.Usagef("--contract is missing")
	}
	o.group.ContractsType = "provided"
	if o.consumed {
		o.group.ContractsType = "consumed"
	}
	o.group.TenantName = o.tenant
	return put(ctx, &o.common, extContracts, o.group.ContractsGroupName, o.group)
}
