package netctl

import (
	"context"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

func newHostEvict(base common) *command {
	o := &hostOptions{common: base}
	c := &command{
		name:     "evict",
		short:    "Release the endpoints of a host that is away; the host stays known; refused for a host that is alive",
		examples: []string{"netctl host evict --force host1"},
		args:     []string{"HOST"},
	}
	c.flags.Bool(&o.force, "force, f", "if there are endpoints: without it they are only listed")
	o.changeFlags(&c.flags, "json, j", "print what was done as JSON")
	c.run = bindClient(o, runHostEvict, []*string{&o.name})
	return c
}

func runHostEvict(ctx context.Context, client *api.Client, o *hostOptions) error {
	done, err := client.EvictHost(ctx, o.name, o.force)
	if err != nil {
		return err
	}
	return o.result(done, o.name, "Evicted host %s and released its %s", o.name, condition.Count(done.EndpointsReleased, "endpoint"))
}

// newHostChange is a command that changes one thing of a host, and says what it did.
func newHostChange(base common, name, short, example string, args []string, change func(ctx context.Context, c *api.Client, host, arg string) (api.Host, error), done string) *command {
	o := &hostOptions{common: base}
	c := &command{name: name, short: short, examples: []string{"netctl host " + name + " " + example}, args: args}
	o.changeFlags(&c.flags, "json, j", "print the host as JSON")
	c.run = func(ctx context.Context, args []string) error {
		client, err := o.client()
		if err != nil {
			return err
		}
		args = append(args, "") // not every change has one more
		h, err := change(ctx, client, args[0], args[1])
		if err != nil {
			return err
		}
		return o.result(h, h.Name, "%s", strings.NewReplacer("HOST", h.Name, "ADDRESS", args[1]).Replace(done))
	}
	return c
}

func newHostDrain(base common, name, short string, drain bool, done string) *command {
	return newHostChange(base, name, short, "host1", []string{"HOST"}, func(ctx context.Context, c *api.Client, host, _ string) (api.Host, error) {
		return c.DrainHost(ctx, host, drain)
	}, done)
}

func newHostAddress(base common, name, short string, add bool, done string) *command {
	return newHostChange(base, name, short, "host1 10.0.0.7", []string{"HOST", "ADDRESS"}, func(ctx context.Context, c *api.Client, host, address string) (api.Host, error) {
		return c.SetHostAddress(ctx, host, address, add)
	}, done)
}
