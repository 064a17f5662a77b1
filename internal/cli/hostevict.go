package cli

import (
	"context"
	"fmt"
)

func newHostEvict(f *factory, run func(context.Context, *hostOptions) error) *command {
	o := &hostOptions{common: newCommon(f)}
	c := &command{
		name:     "evict",
		short:    "Give up the endpoints of a host that is away, which stays known; one that is alive is refused",
		examples: []string{"netctl host evict --force host1"},
		args:     []string{"HOST"},
	}
	c.flags.boolVar(&o.force, "force, f", "where there are endpoints: without it they are only told")
	o.changeFlags(&c.flags, "json, j", "print what was done as JSON")
	c.run = bindRun(o, orDefault(run, runHostEvict), []*string{&o.name})
	return c
}

func runHostEvict(ctx context.Context, o *hostOptions) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	done, err := client.EvictHost(ctx, o.name, o.force)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return printJSON(o.out, done)
	case o.quiet:
		return printLines(o.out, []string{o.name})
	}
	_, err = fmt.Fprintf(o.out, "Evicted host %s and released its %d endpoints\n", o.name, done.EndpointsReleased)
	return err
}

func newHostDrain(f *factory, name, short string, drain bool, run func(context.Context, *hostOptions) error) *command {
	o := &hostOptions{common: newCommon(f)}
	c := &command{
		name:     name,
		short:    short,
		examples: []string{"netctl host " + name + " host1"},
		args:     []string{"HOST"},
	}
	o.changeFlags(&c.flags, "json, j", "print the host as JSON")
	c.run = bindRun(o, orDefault(run, func(ctx context.Context, o *hostOptions) error { return runHostDrain(ctx, o, drain) }), []*string{&o.name})
	return c
}

func runHostDrain(ctx context.Context, o *hostOptions, drain bool) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	h, err := client.DrainHost(ctx, o.name, drain)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return printJSON(o.out, h)
	case o.quiet:
		return printLines(o.out, []string{h.Name})
	case drain:
		_, err = fmt.Fprintf(o.out, "Drains host %s\n", h.Name)
	default:
		_, err = fmt.Fprintf(o.out, "Serves host %s again\n", h.Name)
	}
	return err
}
