package netctl

import (
	"context"
	"fmt"
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
		short:   "Hosts: the machines where containers run, as their netplugins tell of them.",
		examples: []string{
			"netctl host ls",
			"netctl host inspect host1",
			"netctl host rm host1",
		},
		subs: []*command{
			newInspect(base, hosts, "Show a host with its conditions, problems and tables"),
			newList(base, hosts, "List the hosts: alive or away, when they were heard of last, driver, ports"),
			newHostRemove(base), newHostEvict(base),
			newHostDrain(base, "drain", "Send the services' providers on a host no new connections; what lives goes on", true, "Drains host HOST"),
			newHostDrain(base, "undrain", "Send the services' providers on a host new connections again", false, "Serves host HOST again"),
			newHostAddress(base, "address-add", "Add an address to those that count as a host's for the rest of the cluster", true, "Added address ADDRESS to host HOST"),
			newHostAddress(base, "address-rm", "Take an address from those that count as a host's", false, "Removed address ADDRESS from host HOST"),
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
	c.run = bindRun(o, runHostRemove, []*string{&o.name})
	return c
}

func runHostRemove(ctx context.Context, o *hostOptions) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	done, err := client.RemoveHost(ctx, o.name, o.force)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return printJSON(o.out, done)
	case o.quiet:
		return printLines(o.out, []string{o.name})
	case done.EndpointsReleased > 0:
		_, err = fmt.Fprintf(o.out, "Removed host %s and released its %s\n", o.name, condition.Count(done.EndpointsReleased, "endpoint"))
	default:
		_, err = fmt.Fprintf(o.out, "Removed host %s\n", o.name)
	}
	return err
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
