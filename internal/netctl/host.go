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

func newHost(f *factory) *command {
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
			newHostInspect(f, nil), newHostList(f), newHostRemove(f, nil), newHostEvict(f, nil),
			newHostDrain(f, "drain", "Send the services' providers on a host no new connections; what lives goes on", true, "Drains host HOST"),
			newHostDrain(f, "undrain", "Send the services' providers on a host new connections again", false, "Serves host HOST again"),
			newHostAddress(f, "address-add", "Add an address to those that count as a host's for the rest of the cluster", true, "Added address ADDRESS to host HOST"),
			newHostAddress(f, "address-rm", "Take an address from those that count as a host's", false, "Removed address ADDRESS from host HOST"),
		},
	}
}

func newHostList(f *factory) *command {
	o := &getOptions{common: newCommon(f), stderr: f.stderr}
	c := &command{
		name:     "ls",
		aliases:  []string{"list"},
		short:    "List the hosts: alive or away, when they were heard of last, driver, ports",
		examples: []string{"netctl host ls", "netctl host ls -o yaml"},
	}
	o.listFlags(c, "names only")
	c.run = func(ctx context.Context, _ []string) error {
		k, err := findShown("host")
		if err != nil {
			return err
		}
		return o.run(ctx, k)
	}
	return c
}

func newHostInspect(f *factory, run func(context.Context, *hostOptions) error) *command {
	o := &hostOptions{common: newCommon(f)}
	c := &command{
		name:     "inspect",
		short:    "Show a host with its conditions, problems and tables, as JSON",
		examples: []string{"netctl host inspect host1"},
		args:     []string{"HOST"},
	}
	c.flags.boolVar(&o.json, "json, j", "accepted; the output is JSON anyway")
	c.flags.boolVar(&o.quiet, "quiet, q", quietUsage)
	c.run = bindRun(o, orDefault(run, runHostInspect), []*string{&o.name})
	return c
}

func runHostInspect(ctx context.Context, o *hostOptions) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	h, err := client.Host(ctx, o.name)
	if err != nil {
		return err
	}
	return o.showJSON(h)
}

func newHostRemove(f *factory, run func(context.Context, *hostOptions) error) *command {
	o := &hostOptions{common: newCommon(f)}
	c := &command{
		name:     "rm",
		aliases:  []string{"delete"},
		short:    "Forget a host that will not come back; one that is alive is refused",
		examples: []string{"netctl host rm host1", "netctl host rm --force host1"},
		args:     []string{"HOST"},
	}
	c.flags.boolVar(&o.force, "force, f", "release the endpoints that are there, too")
	o.changeFlags(&c.flags, "json, j", "print what was done as JSON")
	c.run = bindRun(o, orDefault(run, runHostRemove), []*string{&o.name})
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
var _ = register(&objectKind{
	order: 160, name: "host", aliases: []string{"hosts", "node", "nodes"}, placeholders: []string{"HOST"}, command: newHost,
	typ: reflect.TypeFor[api.Host](), seen: true,
	key:        func(o any) string { return of[api.Host](o).Name },
	shortName:  func(o any) string { return of[api.Host](o).Name },
	tenant:     func(any) string { return "" },
	header:     hostHeader,
	row:        func(o any) []string { return hostRow(of[api.Host](o)) },
	wideHeader: []string{"Control address", "VXLAN port", "Addresses", "Conditions", "Problems"},
	wideRow: func(o any) []string {
		h := of[api.Host](o)
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
	list: func(ctx context.Context, c *api.Client) ([]any, error) {
		list, err := c.Hosts(ctx)
		return untyped(list), err
	},
	get: func(ctx context.Context, c *api.Client, key string) (any, error) {
		h, err := c.Host(ctx, key)
		return h, err
	},
})
