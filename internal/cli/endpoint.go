package cli

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

type endpointOptions struct {
	common
	key string
}

func newEndpoint(f *factory) *command {
	return &command{
		name:     "endpoint",
		aliases:  []string{"ep"},
		short:    "Endpoints: containers' interfaces on networks.",
		examples: []string{"netctl endpoint ls --host host1", "netctl endpoint inspect 3f0c9a7d1b52"},
		subs:     []*command{newEndpointInspect(f, nil), newEndpointList(f, nil)},
	}
}

func newEndpointInspect(f *factory, run func(context.Context, *endpointOptions) error) *command {
	o := &endpointOptions{common: newCommon(f)}
	c := &command{
		name:     "inspect",
		short:    "Show an endpoint, as JSON",
		examples: []string{"netctl endpoint inspect 3f0c9a7d1b52", "netctl ep inspect web1"},
		args:     []string{"ENDPOINT"},
	}
	c.flags.boolVar(&o.json, "json, j", "accepted; the output is JSON anyway")
	c.flags.boolVar(&o.quiet, "quiet, q", quietUsage)
	c.run = bindRun(o, orDefault(run, runEndpointInspect), []*string{&o.key})
	return c
}

// runEndpointInspect finds an endpoint by its id, its container's id or its
// exact name.
func runEndpointInspect(ctx context.Context, o *endpointOptions) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	oper, err := client.InspectEndpoint(ctx, o.key)
	if err != nil {
		return err
	}
	// The wire shape of an inspection whose kind has no configuration.
	return o.showJSON(struct {
		Oper api.EndpointOper `json:"Oper"`
	}{oper})
}
