package cli

import (
	"context"
	"reflect"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

type endpointListOptions struct {
	common
	filter api.EndpointFilter
}

func newEndpointList(f *factory, run func(context.Context, *endpointListOptions) error) *command {
	o := &endpointListOptions{common: newCommon(f)}
	c := &command{
		name:     "ls",
		aliases:  []string{"list"},
		short:    "List the endpoints of all tenants, or those that flags choose",
		examples: []string{"netctl endpoint ls --host host1", "netctl endpoint ls -t blue --group web", "netctl endpoint ls --network blue:backend -q"},
	}
	c.flags.stringVar(&o.filter.Tenant, "tenant, t", "TENANT", "those of a tenant")
	c.flags.stringVar(&o.filter.Host, "host", "HOST", "those on a host")
	c.flags.stringVar(&o.filter.Group, "group, g", "GROUP", "those of a group: NAME, or TENANT:NAME")
	c.flags.stringVar(&o.filter.Network, "network, n", "NETWORK", "those on a network: NAME, or TENANT:NAME")
	o.listFlags(c, "keys only")
	c.run = bindRun(o, orDefault(run, runEndpointList), nil)
	return c
}

func runEndpointList(ctx context.Context, o *endpointListOptions) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	list, err := client.Endpoints(ctx, o.filter)
	if err != nil {
		return err
	}
	l := items{header: endpointHeader}
	for _, e := range list {
		l.all = append(l.all, item{object: e, name: e.Key, row: endpointRow(e)})
	}
	return o.printItems(l)
}

var endpointHeader = []string{"Tenant", "Network", "Group", "Address", "Host", "Name", "Endpoint"}

func endpointRow(e api.EndpointOper) []string {
	tenant, network, _ := cutKey(e.Key)
	return []string{tenant, network, e.ServiceName, strings.TrimSpace(strings.Join(e.IPAddress, " ")), e.HomingHost, e.ContainerName, e.EndpointID}
}

// cutKey takes tenant:network:id apart.
func cutKey(key string) (tenant, network, id string) {
	tenant, rest, _ := strings.Cut(key, ":")
	network, id, _ = strings.Cut(rest, ":")
	return tenant, network, id
}

// Endpoints are shown and listed; documents create them in another form.
var _ = register(&objectKind{
	order: 150, name: endpointKind, aliases: []string{"endpoints", "ep", "eps"}, placeholders: []string{"ENDPOINT"}, command: newEndpoint,
	perTenant: true, typ: reflect.TypeFor[api.EndpointOper](), seen: true,
	key:       func(o any) string { return of[api.EndpointOper](o).Key },
	shortName: func(o any) string { return of[api.EndpointOper](o).EndpointID },
	tenant:    func(o any) string { t, _, _ := cutKey(of[api.EndpointOper](o).Key); return t },
	header:    endpointHeader,
	row:       func(o any) []string { return endpointRow(of[api.EndpointOper](o)) },
	list: func(ctx context.Context, c *api.Client) ([]any, error) {
		list, err := c.Endpoints(ctx, api.EndpointFilter{})
		return untyped(list), err
	},
	listTenant: func(ctx context.Context, c *api.Client, tenant string) ([]any, error) {
		list, err := c.Endpoints(ctx, api.EndpointFilter{Tenant: tenant})
		return untyped(list), err
	},
	get: func(ctx context.Context, c *api.Client, key string) (any, error) {
		_, id, _ := strings.Cut(key, ":") // the tenant is found by the server
		if strings.Contains(id, ":") {
			id = key
		}
		e, err := c.InspectEndpoint(ctx, id)
		return e, err
	},
	remove: func(ctx context.Context, c *api.Client, key string) error {
		tenant, network, id := cutKey(key)
		_, err := c.DeleteEndpoint(ctx, api.DeleteEndpointRequest{TenantName: tenant, NetworkName: network, EndpointID: id})
		return err
	},
})
