package netctl

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

var services = register(kindOf((*api.Client).ServiceLBs, columns[api.ServiceLB]{
	header: []string{"ServiceName", "Tenant", "Network", "Selectors", "Owner"},
	row: func(s api.ServiceLB) []string {
		return []string{s.ServiceName, s.TenantName, s.NetworkName, strings.Join(s.Selectors, ","), ""}
	},
	wideHeader: []string{"Ports", "Preferred address", "Affinity"},
	wideRow: func(s api.ServiceLB) []string {
		addrs := slices.DeleteFunc([]string{s.IPAddress, s.IPv6Address}, func(a string) bool { return a == "" })
		return []string{strings.Join(s.Ports, ","), strings.Join(addrs, ","), cmp.Or(s.Affinity, "3h")}
	},
}, objectKind{
	order: 100, name: "serviceLB", aliases: []string{"service", "services", "serviceLBs"},
	keyFields: []string{"tenantName", "serviceName"}, placeholders: []string{"SERVICE"},
	pin:  pinService,
	noun: "service", example: "--tenant blue web", perTenant: true, others: clusterServices, collection: collection{inspect: inspectService, remove: removeService},
}))

// The sentence is model.NoEffect's, copied since netctl does not link internal/model;
// TestHelpSaysWhatHasNoEffect compares the two.
const noteServices = "hosts on Open vSwitch serve a service's TCP and UDP ports, and no SCTP: connections to such a port fail there"

type serviceCreateOptions struct {
	common
	service api.ServiceLB
}

func newService(base common) *command {
	return &command{
		name:  "service",
		short: "Services: addresses and names for endpoints chosen by label.",
		note:  noteServices,
		examples: []string{
			"netctl service create --tenant blue --network backend --selector app=web --port 80:8080:TCP web",
			"netctl service ls --tenant blue",
			"netctl service inspect --tenant blue web",
		},
		subs: []*command{
			newServiceCreate(base),
			newInspect(base, services, "Show a service, its address, its providers and their shares of connections; of Kubernetes' NAMESPACE/NAME its backends"),
			newList(base, services, "List services; of tenant default, or of all, those of Kubernetes too (NAMESPACE/NAME)"),
			newRemove(base, services, "Delete a service"),
		},
	}
}

// inspectService shows what hosts count beside the service's state. A netmaster that is
// older has no counts.
func inspectService(ctx context.Context, client *api.Client, key string) (any, error) {
	_, service, _ := strings.Cut(key, ":")
	if namespace, name, ok := strings.Cut(service, "/"); ok {
		return client.ClusterService(ctx, namespace, name)
	}
	got, err := client.ServiceLBs().Inspect(ctx, key)
	if err != nil {
		return nil, err
	}
	out := struct {
		api.Inspection[api.ServiceLB, api.ServiceLBOper]

		Counts        *api.ServiceCounts `json:",omitempty"`
		CountsProblem string             `json:",omitempty"` // why there are none
	}{Inspection: got}
	switch counts, err := client.ServiceCounts(ctx, key); {
	case err == nil:
		out.Counts = &counts
	case ctx.Err() != nil:
		return nil, err
	case !api.IsNotFound(err):
		out.CountsProblem = err.Error()
	}
	return out, nil
}

func newServiceCreate(base common) *command {
	o := &serviceCreateOptions{common: base}
	s := &o.service
	c := &command{
		name:  "create",
		fills: s,
		short: "Create a service, or change one: what no flag gives stays",
		note:  noteServices,
		examples: []string{
			"netctl service create --tenant blue --network backend --selector app=web --selector tier=front --port 80:8080:TCP web",
			"netctl service create --network backend --selector app=dns --port 53:53:UDP --preferred-ip 10.1.1.53 --affinity off dns",
		},
		args: []string{"SERVICE"},
	}
	o.tenantFlag(&c.flags)
	c.flags.String(&s.NetworkName, "network, s", "NETWORK", "")
	c.flags.List(&s.Selectors, "selector, l", "KEY=VALUE", "")
	c.flags.List(&s.Ports, "port, p", "PORTS", "")
	c.flags.String(&s.IPAddress, "preferred-ip, ip", "ADDRESS", "")
	c.flags.String(&s.IPv6Address, "preferred-ipv6, ip6", "ADDRESS", "")
	c.flags.String(&s.Affinity, "affinity, a", "TIME", "")
	o.keepRest(c)
	writeFlags(&c.flags, &o.common, "json, j", "print the service as stored, as JSON")
	c.run = bindRun(o, func(ctx context.Context, o *serviceCreateOptions) error {
		o.service.TenantName = o.tenant
		return put(ctx, &o.common, services, o.service.ServiceName, o.service)
	}, []*string{&s.ServiceName})
	return c
}

// pinService writes the address in use into a service. For a service that
// --skip-broken leaves out it returns no documents and no error.
func pinService(ctx context.Context, o *exportOptions, c *api.Client, d exported) ([]exported, error) {
	x := as[api.ServiceLB](d.object)
	got, err := c.ServiceLBs().Inspect(ctx, d.key)
	if err != nil {
		return nil, o.unreadable(d.kind+" "+d.key, err)
	}
	if got.Oper.ServiceVip != "" {
		x.IPAddress, x.IPv6Address = got.Oper.ServiceVip, got.Oper.ServiceVip6
	}
	return []exported{{d.kind, d.key, x}}, nil
}
