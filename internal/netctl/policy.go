package netctl

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

var policies = register(kindOf((*api.Client).Policies, columns[api.Policy]{
	header:     []string{"Tenant", "Policy"},
	row:        func(p api.Policy) []string { return []string{p.TenantName, p.PolicyName} },
	wideHeader: []string{"Groups", "Rules", "Owner"},
	wideRow: func(p api.Policy) []string {
		return []string{linked(p.LinkSets.EndpointGroups), number(len(p.LinkSets.Rules)), p.Owner}
	},
}, objectKind{
	order: 60, name: "policy", aliases: []string{"policies", "policys"},
	keyFields: []string{"tenantName", "policyName"}, placeholders: []string{"POLICY"},
	example: "--tenant blue web-in", perTenant: true,
}))

type policyOptions struct {
	common
	name string
}

func newPolicy(base common) *command {
	return &command{
		name:  "policy",
		short: "Policies: lists of rules that groups apply to their endpoints.",
		examples: []string{
			"netctl policy create --tenant blue web-in",
			"netctl policy rule-add --tenant blue --direction in --protocol tcp --port 80 --action allow --priority 10 web-in http",
			"netctl policy rule-add --tenant blue --direction in --action deny web-in rest",
			"netctl policy rule-ls --tenant blue web-in",
		},
		subs: []*command{
			newPolicyCreate(base),
			newInspect(base, policies, "Show a policy and the endpoints under it"),
			newList(base, policies, "List policies"),
			newRemove(base, policies, "Delete a policy that no group applies, with its rules"),
			newRuleAdd(base),
			newRuleList(base),
			newRuleRemove(base),
		},
	}
}

func newPolicyCreate(base common) *command {
	o := &policyOptions{common: base}
	c := &command{
		name:     "create",
		short:    "Create a policy",
		examples: []string{"netctl policy create --tenant blue web-in"},
		args:     []string{"POLICY"},
	}
	o.tenantFlag(&c.flags)
	writeFlags(&c.flags, &o.common, "json, j", "print the policy as stored, as JSON")
	c.run = bindRun(o, runPolicyCreate, []*string{&o.name})
	return c
}

func runPolicyCreate(ctx context.Context, o *policyOptions) error {
	return put(ctx, &o.common, policies, o.name, api.Policy{TenantName: o.tenant, PolicyName: o.name})
}
