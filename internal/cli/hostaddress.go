package cli

import (
	"context"
	"fmt"
)

func newHostAddress(f *factory, name, short string, add bool, run func(context.Context, *hostOptions) error) *command {
	o := &hostOptions{common: newCommon(f)}
	c := &command{
		name:     name,
		short:    short,
		examples: []string{"netctl host " + name + " host1 10.0.0.7"},
		args:     []string{"HOST", "ADDRESS"},
	}
	o.changeFlags(&c.flags, "json, j", "print the host as JSON")
	c.run = bindRun(o, orDefault(run, func(ctx context.Context, o *hostOptions) error { return runHostAddress(ctx, o, add) }), []*string{&o.name, &o.address})
	return c
}

func runHostAddress(ctx context.Context, o *hostOptions, add bool) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	h, err := client.SetHostAddress(ctx, o.name, o.address, add)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return printJSON(o.out, h)
	case o.quiet:
		return printLines(o.out, []string{h.Name})
	case add:
		_, err = fmt.Fprintf(o.out, "Added address %s to host %s\n", o.address, h.Name)
	default:
		_, err = fmt.Fprintf(o.out, "Removed address %s from host %s\n", o.address, h.Name)
	}
	return err
}
