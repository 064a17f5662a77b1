package netctl

import (
	"context"
	"reflect"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

type endpointListOptions struct {
	getOptions
	filter api.EndpointFilter
}

func newEndpointList(base common) *command {
	o := &endpointListOptions{getOptions: getOptions{common: base}}
	c := &command{
		name:     "ls",
		asks:     &o.filter,
		aliases:  []string{"list"},
		short:    "List the endpoints of all tenants, or those selected by flags",
		examples: []string{"netctl endpoint ls --host host1", "netctl endpoint ls -t blue --group web", "netctl endpoint ls --network blue:backend -q"},
	}
	c.flags.String(&o.filter.Tenant, "tenant, t", "TENANT", "those of a tenant")
	c.flags.String(&o.filter.Host, "host", "HOST", "those on a host")
	c.flags.String(&o.filter.Group, "group, g", "GROUP", "those of a group: NAME, or TENANT:NAME")
	c.flags.String(&o.filter.Network, "network, n", "NETWORK", "those on a network: NAME, or TENANT:NAME")
	o.listFlags(c, "keys only")
	c.run = bindClient(o, runEndpointList, nil)
	return c
}

func runEndpointList(ctx context.Context, client *api.Client, o *endpointListOptions) error {
	list, err := listEndpoints(ctx, client, o.filter)
	if err != nil {
		return err
	}
	return o.printItems(o.items(endpoints, untyped(list), "now"))
}

// listEndpoints lists the endpoints that a filter chooses: for who may not read those of all
// tenants, in its own ones.
func listEndpoints(ctx context.Context, c *api.Client, f api.EndpointFilter) ([]api.EndpointOper, error) {
	all, err := c.Endpoints(ctx, f)
	if f.Tenant != "" || !api.IsForbidden(err) {
		return all, err
	}
	tenants, err := c.Tenants().List(ctx)
	if err != nil {
		return nil, err
	}
	known := false // to one tenant: a network of its name, say
	for _, t := range tenants {
		f.Tenant = t.TenantName
		var own []api.EndpointOper
		if own, err = c.Endpoints(ctx, f); err != nil && !api.IsNotFound(err) {
			return nil, err
		}
		known = known || err == nil
		all = append(all, own...)
	}
	if !known {
		return nil, err
	}
	return all, nil
}

// cutKey takes tenant:network:id apart.
func cutKey(key string) (tenant, network, id string) {
	tenant, rest, _ := strings.Cut(key, ":")
	network, id, _ = strings.Cut(rest, ":")
	return tenant, network, id
}

// Endpoints are shown and listed; documents create them in another form.
var endpoints = register(objectKind{
	order: 150, name: endpointKind, aliases: []string{"endpoints", "ep", "eps"}, placeholders: []string{"ENDPOINT"},
	perTenant: true, typ: reflect.TypeFor[api.EndpointOper](), seen: true,
	key:       func(o any) string { return as[api.EndpointOper](o).Key },
	keyFields: endpointDocument.fields,
	columns: untypedColumns(columns[api.EndpointOper]{
		header: []string{"Tenant", "Network", "Group", "Address", "Host", "Name", "Endpoint"},
		row: func(e api.EndpointOper) []string {
			tenant, network, _ := cutKey(e.Key)
			name := e.ContainerName
			if name == e.ContainerID { // the id stands in for a name that is not known; no name server answers it
				name = ""
			}
			return []string{tenant, network, e.ServiceName, strings.TrimSpace(strings.Join(e.IPAddress, " ")), e.HomingHost, name, e.EndpointID}
		},
		wideHeader: []string{"MAC address", "Container", "Interface", "Health", "Drains", "Labels"},
		wideRow: func(e api.EndpointOper) []string {
			drains, labels := "", ""
			if e.Draining {
				drains = "yes"
			}
			if len(e.LabelMap) > 0 {
				labels = selectorText(api.Selector{MatchLabels: e.LabelMap})
			}
			return []string{e.MacAddress, e.ContainerID, e.IntfName, e.Health, drains, labels}
		},
		id: func(e api.EndpointOper) string { return e.EndpointID },
	}),
	collection: collection{
		list: func(ctx context.Context, c *api.Client) ([]any, error) {
			list, err := listEndpoints(ctx, c, api.EndpointFilter{})
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
			if err != nil || strings.Contains(e.Key, ":") {
				return e, err
			}
			list, err := listEndpoints(ctx, c, api.EndpointFilter{Host: e.HomingHost}) // with their keys
			for _, x := range list {
				if x.EndpointID == e.EndpointID && x.Network == e.Network {
					e = x
				}
			}
			return e, err
		},
		remove: func(ctx context.Context, c *api.Client, key string) error {
			tenant, network, id := cutKey(key)
			_, err := c.DeleteEndpoint(ctx, api.DeleteEndpointRequest{TenantName: tenant, NetworkName: network, EndpointID: id})
			return err
		},
	},
})
