package netctl

import (
	"context"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

var assertions = register(kindOf((*api.Client).Assertions, columns[api.Assertion]{
	header: []string{"Tenant", "Name", "Verdict", "From", "To", "Ports"},
	row: func(a api.Assertion) []string {
		return []string{a.TenantName, a.AssertionName, a.Verdict, a.From, a.To, strings.Join(a.Ports, ",")}
	},
	wideHeader: []string{"Owner", "Reason", "Overridden"},
	wideRow:    func(a api.Assertion) []string { return []string{a.Owner, a.Reason, a.Overridden} },
}, objectKind{
	order: 130, name: "assertion", aliases: []string{"assertions"},
	keyFields: []string{"tenantName", "assertionName"}, placeholders: []string{"ASSERTION"},
	example: "--tenant blue database", perTenant: true,
}))

type assertionOptions struct {
	common
	assertion api.Assertion
}

func newAssertion(base common) *command {
	return &command{
		name:    "assertion",
		aliases: []string{"assert"},
		short:   "Assertions: connections that no change may ever allow, or cut.",
		examples: []string{
			"netctl assertion create --tenant blue --never --from group:web --to group:db --port tcp/22 no-ssh",
			"netctl assertion ls --tenant blue",
		},
		subs: []*command{
			newAssertionCreate(base),
			newInspect(base, assertions, "Show an assertion"),
			newList(base, assertions, "List assertions"),
			newRemove(base, assertions, "Delete an assertion"),
			newAssertionTest(base),
		},
	}
}

func newAssertionCreate(base common) *command {
	o := &assertionOptions{common: base}
	a := &o.assertion
	var never, always bool
	c := &command{
		name:  "create",
		fills: a,
		short: "Create an assertion, or replace it. It is refused if the cluster breaks it now",
		examples: []string{
			"netctl assertion create --tenant blue --never --from any --to group:db --port tcp/22 --owner dba@example.com --reason 'audit 7.2' no-ssh",
			"netctl assertion create --tenant blue --always --from group:web --to group:db --port tcp/5432 database",
		},
		args: []string{"ASSERTION"},
	}
	o.tenantFlag(&c.flags)
	c.flags.Bool(&never, "never", "nothing of it may be allowed")
	c.flags.Bool(&always, "always", "all of it must be allowed")
	c.flags.String(&a.From, "from", "SUBJECT", "")
	c.flags.String(&a.To, "to", "SUBJECT", "")
	c.flags.List(&a.Ports, "port", "PROTOCOL[/PORT]", "")
	c.flags.Bool(&a.ClusterWide, "cluster-wide", "")
	c.flags.String(&a.Owner, "owner", "TEXT", "")
	c.flags.String(&a.Reason, "reason", "TEXT", "")
	writeFlags(&c.flags, &o.common, "json, j", "print the assertion as stored, as JSON")
	c.run = bindRun(o, func(ctx context.Context, o *assertionOptions) error {
		if never == always {
			return flags.Usagef("give either --never or --always")
		}
		a.Verdict = api.AssertAlways
		if never {
			a.Verdict = api.AssertNever
		}
		a.TenantName = o.tenant
		return put(ctx, &o.common, assertions, a.AssertionName, *a)
	}, []*string{&a.AssertionName})
	return c
}
