package netctl

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/api"
)

// aciGwKey is the key of the one ACI gateway.
const aciGwKey = "aciGw"

var aciGateway = register(kindOf((*api.Client).AciGws, columns[api.AciGw]{
	header: []string{"Physical domain", "Node bindings", "Path bindings", "Enforce policies", "Include Common-Tenant"},
	row: func(g api.AciGw) []string {
		return []string{g.PhysicalDomain, g.NodeBindings, g.PathBindings, g.EnforcePolicies, g.IncludeCommonTenant}
	},
}, objectKind{
	order: 120, name: "aciGw", aliases: []string{"aci-gw", "aciGws"},
	keyFields: []string{"name"},
	single:    aciGwKey,
	noun:      "aci-gw",
}))

type aciGwOptions struct {
	common
	all     bool
	gateway api.AciGw
	given   func(flag string) bool
}

func newAciGw(base common) *command {
	return &command{
		name:  "aci-gw",
		short: "The gateway to an ACI fabric.",
		examples: []string{
			"netctl aci-gw set --phys-dom containerDom --node-bindings topology/pod-1/node-101",
			"netctl aci-gw info",
		},
		subs: []*command{
			newAciGwInfo(base),
			newInspect(base, aciGateway, "Show the settings and how many app profiles there are"),
			newAciGwSet(base),
		},
	}
}

func newAciGwInfo(base common) *command {
	o := &aciGwOptions{common: base}
	c := &command{name: "info", short: "Show the settings", examples: []string{"netctl aci-gw info", "netctl aci-gw info --json"}}
	c.flags.String(&o.tenant, "tenant, t", "TENANT", "accepted, as in 1.x; all tenants share the gateway")
	c.flags.Bool(&o.all, "all, a", "accepted, as in 1.x; there is one gateway")
	c.flags.Bool(&o.json, "json, j", "print a JSON array")
	c.flags.Bool(&o.quiet, "quiet, q", quietUsage)
	c.run = bindClient(o, runAciGwInfo, nil)
	return c
}

func runAciGwInfo(ctx context.Context, client *api.Client, o *aciGwOptions) error {
	list, err := client.AciGws().List(ctx)
	if err == nil && len(list) == 0 {
		_, err = client.AciGws().Get(ctx, aciGwKey) // says that there is none, as of every other object
	}
	if err != nil {
		return err
	}
	if o.json || o.quiet {
		return o.showJSON(append([]api.AciGw{}, list...))
	}
	for _, g := range list {
		if _, err := fmt.Fprintf(o.out, "Path bindings: %s\nNode bindings: %s\nPhysical domain: %s\nEnforce policies: %s\nInclude Common-Tenant: %s\n",
			g.PathBindings, g.NodeBindings, g.PhysicalDomain, g.EnforcePolicies, g.IncludeCommonTenant); err != nil {
			return err
		}
	}
	return nil
}

func newAciGwSet(base common) *command {
	o := &aciGwOptions{common: base, gateway: api.AciGw{Name: aciGwKey, EnforcePolicies: "yes", IncludeCommonTenant: "no"}}
	g := &o.gateway
	c := &command{
		name:  "set",
		fills: g,
		short: "Change settings; what is not given stays as it is",
		examples: []string{
			"netctl aci-gw set --phys-dom containerDom --path-bindings topology/pod-1/paths-101/pathep-[eth1/14]",
			"netctl aci-gw set --enforce-policies no",
		},
	}
	c.flags.String(&g.PathBindings, "path-bindings, p", "PATHS", "")
	c.flags.String(&g.NodeBindings, "node-bindings, n", "NODES", "")
	c.flags.String(&g.PhysicalDomain, "phys-dom, d", "DOMAIN", "")
	c.flags.String(&g.EnforcePolicies, "enforce-policies, e", "yes|no", "")
	c.flags.String(&g.IncludeCommonTenant, "include-common-tenant, i", "yes|no", "")
	writeFlags(&c.flags, &o.common, "json, j", "print the settings as stored, as JSON")
	for _, name := range []string{"path-bindings", "node-bindings", "phys-dom"} {
		c.flags.Lookup(name).Empties = true
	}
	o.given = func(flag string) bool { return c.flags.Given(flag) != "" }
	c.run = bindClient(o, runAciGwSet, nil)
	return c
}

// runAciGwSet keeps the settings that no flag names: 1.x set them to its defaults.
func runAciGwSet(ctx context.Context, client *api.Client, o *aciGwOptions) error {
	old, err := client.AciGws().Get(ctx, aciGwKey)
	if err != nil && !api.IsNotFound(err) {
		return err
	}
	if err == nil {
		for _, f := range []struct {
			name     string
			set      *string
			existing string
		}{
			{"path-bindings", &o.gateway.PathBindings, old.PathBindings},
			{"node-bindings", &o.gateway.NodeBindings, old.NodeBindings},
			{"phys-dom", &o.gateway.PhysicalDomain, old.PhysicalDomain},
			{"enforce-policies", &o.gateway.EnforcePolicies, old.EnforcePolicies},
			{"include-common-tenant", &o.gateway.IncludeCommonTenant, old.IncludeCommonTenant},
		} {
			if !o.given(f.name) {
				*f.set = f.existing
			}
		}
	}
	return put(ctx, &o.common, aciGateway, aciGwKey, o.gateway)
}
