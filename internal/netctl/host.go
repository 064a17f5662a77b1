package netctl

import (
	"context"
	"reflect"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

type hostOptions struct {
	common
	name  string
	force bool
}

func newHost(base common) *command {
	return &command{
		name:    "host",
		aliases: []string{"node"},
		short:   "Hosts: the machines where containers run, as their netplugins report them.",
		examples: []string{
			"netctl host ls",
			"netctl host inspect host1",
			"netctl host rm host1",
		},
		subs: []*command{
			newInspect(base, hosts, "Show a host with its conditions, problems and tables"),
			newList(base, hosts, "List the hosts: alive or away, last heartbeat, driver, ports"),
			newHostRemove(base), newHostEvict(base),
			newHostDrain(base, "drain", "Send the services' providers on a host no new connections; established connections go on", true, "Drains host HOST"),
			newHostDrain(base, "undrain", "Send the services' providers on a host new connections again", false, "Serves host HOST again"),
			newHostAddress(base, "address-add", "Add an address to a host's accepted addresses", true, "Added address ADDRESS to host HOST"),
			newHostAddress(base, "address-rm", "Remove an address from a host's accepted addresses", false, "Removed address ADDRESS from host HOST"),
		},
	}
}

func newHostRemove(base common) *command {
	o := &hostOptions{common: base}
	c := &command{
		name:     "rm",
		aliases:  []string{"delete"},
		short:    "Forget a host that will not come back; one that is alive is refused",
		examples: []string{"netctl host rm host1", "netctl host rm --force host1"},
		args:     []string{"HOST"},
	}
	c.flags.Bool(&o.force, "force, f", "release the endpoints that are there, too")
	o.changeFlags(&c.flags, "json, j", "print what was done as JSON")
	c.run = bindClient(o, runHostRemove, []*string{&o.name})
	return c
}

func runHostRemove(ctx context.Context, client *api.Client, o *hostOptions) error {
	done, err := client.RemoveHost(ctx, o.name, o.force)
	if err != nil {
		return err
	}
	released := ""
	if done.EndpointsReleased > 0 {
		released = " and released its " + condition.Count(done.EndpointsReleased, "endpoint")
	}
	return o.result(done, o.name, "Removed host %s%s", o.name, released)
}

// Hosts are shown: agents tell of them.
var hosts = register(objectKind{
	order: 160, name: "host", aliases: []string{"hosts", "node", "nodes"}, placeholders: []string{"HOST"}, example: "host1",
	typ: reflect.TypeFor[api.Host](), seen: true, columns: untypedColumns(hostColumns),
	key: func(o any) string { return as[api.Host](o).Name },
	collection: collection{
		list: func(ctx context.Context, c *api.Client) ([]any, error) {
			list, err := c.Hosts(ctx)
			return untyped(list), err
		},
		get:     func(ctx context.Context, c *api.Client, key string) (any, error) { return c.Host(ctx, key) },
		inspect: func(ctx context.Context, c *api.Client, key string) (any, error) { return c.Host(ctx, key) },
	},
})

var hostColumns = columns[api.Host]{
	header:     []string{"Host", "State", "Last word", "Driver", "Version", "Address", "Endpoints", "Ports", "Fullest table"},
	row:        hostRow,
	wideHeader: []string{"Control address", "VXLAN port", "Addresses", "Conditions", "Problems"},
	wideRow: func(h api.Host) []string {
		var conditions []string
		for _, c := range h.Conditions {
			conditions = append(conditions, c.Name)
		}
		port := ""
		if h.VXLANPort != 0 {
			port = number(h.VXLANPort)
		}
		return []string{h.Control, port, strings.Join(h.Addresses, ","), strings.Join(conditions, ","), number(len(h.Problems))}
	},
}
