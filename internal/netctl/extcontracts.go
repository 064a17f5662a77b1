package netctl

import (
	"context"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

var extContracts = kind[api.ExtContractsGroup, struct{}]{
	noun: "external-contracts", arg: "CONTRACTS", example: "--tenant blue outside", perTenant: true,
	collection: (*api.Client).ExtContractsGroups,
}

var extContractsList = listing[api.ExtContractsGroup, struct{}]{
	kind:   extContracts,
	tenant: func(e api.ExtContractsGroup) string { return e.TenantName },
	name:   func(e api.ExtContractsGroup) string { return e.ContractsGroupName },
	header: []string{"Tenant", "Name", "Type", "Contracts"},
	row: func(e api.ExtContractsGroup) []string {
		return []string{e.TenantName, e.ContractsGroupName, e.ContractsType, strings.Join(e.Contracts, ",")}
	},
}

var _ = register(kindOf(extContractsList, objectKind{
	order: 40, name: "extContractsGroup", aliases: []string{"external-contracts", "extContractsGroups"},
	keyFields: []string{"tenantName", "contractsGroupName"}, placeholders: []string{"CONTRACTS", "CONTRACT"},
	command:    newExtContracts,
	wideHeader: []string{"Groups"},
	wideRow: func(o any) []string {
		return []string{linked(of[api.ExtContractsGroup](o).LinkSets.EndpointGroups)}
	},
}))

type extContractsOptions struct {
	common
	consumed, provided bool
	group              api.ExtContractsGroup
}

func newExtContracts(f *factory) *command {
	return &command{
		name:  "external-contracts",
		short: "External contracts: contracts of an ACI fabric that groups provide or consume.",
		examples: []string{
			"netctl external-contracts create --tenant blue --provided --contract uni/tn-common/brc-web outside",
			"netctl group create --tenant blue --external-contract outside backend web",
			"netctl external-contracts ls --tenant blue",
		},
		subs: []*command{
			newExtContractsCreate(f, nil),
			newInspect(f, extContracts, "Show external contracts and the groups that name them", nil),
			newList(f, extContractsList, "List external contracts"),
			newRemove(f, extContracts, "Delete external contracts that no group names", nil),
		},
	}
}

func newExtContractsCreate(f *factory, run func(context.Context, *extContractsOptions) error) *command {
	o := &extContractsOptions{common: newCommon(f)}
	c := &command{
		name:     "create",
		fills:    &o.group,
		short:    "Create external contracts, or replace them",
		examples: []string{"netctl external-contracts create --tenant blue --consumed --contract uni/tn-common/brc-dns --contract uni/tn-common/brc-ntp outside"},
		args:     []string{"CONTRACTS"},
	}
	o.tenantFlag(&c.flags)
	// -c means --consumed and -a --contract, as in 1.x.
	c.flags.boolVar(&o.consumed, "consumed, c", "the groups consume the contracts")
	c.flags.boolVar(&o.provided, "provided, p", "the groups provide the contracts")
	c.flags.listVar(&o.group.Contracts, "contract, a", "CONTRACT-DN", "distinguished name of a contract")
	o.changeFlags(&c.flags, "json, j", "print the contracts as stored, as JSON")
	c.run = bindRun(o, orDefault(run, runExtContractsCreate), []*string{&o.group.ContractsGroupName})
	return c
}

func runExtContractsCreate(ctx context.Context, o *extContractsOptions) error {
	switch {
	case o.consumed == o.provided:
		return usageErrorf("give either --consumed or --provided")
	case len(o.group.Contracts) == 0:
		return usageErrorf("--contract is missing")
	}
	o.group.ContractsType = "provided"
	if o.consumed {
		o.group.ContractsType = "consumed"
	}
	o.group.TenantName = o.tenant
	return put(ctx, &o.common, extContracts, o.group.ContractsGroupName, o.group)
}
