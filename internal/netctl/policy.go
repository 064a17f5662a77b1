package netctl

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

var policies = kind[api.Policy, api.PolicyOper]{
	noun: "policy", arg: "POLICY", example: "--tenant blue web-in", perTenant: true,
	collection: (*api.Client).Policies,
}

var policyList = listing[api.Policy, api.PolicyOper]{
	kind:   policies,
	tenant: func(p api.Policy) string { return p.TenantName },
	name:   func(p api.Policy) string { return p.PolicyName },
	header: []string{"Tenant", "Policy"},
	row:    func(p api.Policy) []string { return []string{p.TenantName, p.PolicyName} },
}

var _ = register(kindOf(policyList, objectKind{
	order: 60, name: "policy", aliases: []string{"policies", "policys"},
	keyFields: []string{"tenantName", "policyName"}, placeholders: []string{"POLICY"},
	command:    newPolicy,
	wideHeader: []string{"Groups", "Rules", "Owner"},
	wideRow: func(o any) []string {
		p := of[api.Policy](o)
		return []string{linked(p.LinkSets.EndpointGroups), number(len(p.LinkSets.Rules)), p.Owner}
	},
}))

type policyOptions struct {
	common
	name string
}

func newPolicy(f *factory) *command {
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
			newPolicyCreate(f, nil),
			newInspect(f, policies, "Show a policy and the endpoints under it", nil),
			newList(f, policyList, "List policies"),
			newRemove(f, policies, "Delete a policy that no group applies, with its rules", nil),
			newRuleAdd(f, nil),
			newRuleList(f, nil),
			newRuleRemove(f, nil),
		},
	}
}

func newPolicyCreate(f *factory, run func(context.Context, *policyOptions) error) *command {
	o := &policyOptions{common: newCommon(f)}
	c := &command{
		name:     "create",
		short:    "Create a policy",
		examples: []string{"netctl policy create --tenant blue web-in"},
		args:     []string{"POLICY"},
	}
	o.tenantFlag(&c.flags)
	o.changeFlags(&c.flags, "json, j", "print the policy as stored, as JSON")
	c.run = bindRun(o, orDefault(run, runPolicyCreate), []*string{&o.name})
	return c
}

func runPolicyCreate(ctx context.Context, o *policyOptions) error {
	return put(ctx, &o.common, policies, o.name, api.Policy{TenantName: o.tenant, PolicyName: o.name})
}
