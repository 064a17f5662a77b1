package netctl

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

type endpointOptions struct {
	common
	key string
}

func newEndpoint(base common) *command {
	return &command{
		name:     "endpoint",
		aliases:  []string{"ep"},
		short:    "Endpoints: containers' interfaces on networks.",
		examples: []string{"netctl endpoint ls --host host1", "netctl endpoint inspect 3f0c9a7d1b52", "netctl endpoint drain web1"},
		subs: []*command{
			newEndpointInspect(base), newEndpointList(base),
			newEndpointDrain(base, "drain", "Send an endpoint no new connections of services, until its container ends; established connections go on", true),
			newEndpointDrain(base, "undrain", "Send an endpoint that drains connections of services again", false),
		},
	}
}

func newEndpointInspect(base common) *command {
	o := &endpointOptions{common: base}
	c := &command{
		name:     "inspect",
		short:    "Show an endpoint, as JSON",
		examples: []string{"netctl endpoint inspect 3f0c9a7d1b52", "netctl ep inspect web1"},
		args:     []string{"ENDPOINT"},
	}
	c.flags.Bool(&o.json, "json, j", "accepted; the output is JSON anyway")
	c.flags.Bool(&o.quiet, "quiet, q", quietUsage)
	c.run = bindClient(o, runEndpointInspect, []*string{&o.key})
	return c
}

// runEndpointInspect finds an endpoint by its id, its container's id or its
// exact name.
func runEndpointInspect(ctx context.Context, client *api.Client, o *endpointOptions) error {
	oper, err := client.InspectEndpoint(ctx, o.key)
	if err != nil {
		return err
	}
	// The wire shape of an inspection whose kind has no configuration.
	return o.showJSON(struct {
		Oper api.EndpointOper `json:"Oper"`
	}{oper})
}

func newEndpointDrain(base common, name, short string, drain bool) *command {
	o := &endpointOptions{common: base}
	c := &command{
		name:     name,
		short:    short,
		examples: []string{"netctl endpoint " + name + " 3f0c9a7d1b52", "netctl ep " + name + " web1"},
		args:     []string{"ENDPOINT"},
	}
	o.changeFlags(&c.flags, "json, j", "print the endpoint as JSON")
	c.run = bindRun(o, func(ctx context.Context, o *endpointOptions) error { return runEndpointDrain(ctx, o, drain) }, []*string{&o.key})
	return c
}

func runEndpointDrain(ctx context.Context, o *endpointOptions, drain bool) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	got, err := client.DrainEndpoint(ctx, o.key, drain)
	if err != nil {
		return err
	}
	done := "Drains endpoint %s"
	if !drain {
		done = "Serves endpoint %s again"
	}
	return o.result(got, got.Key, done, got.Key)
}
