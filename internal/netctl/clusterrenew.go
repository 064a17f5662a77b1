package netctl

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

func newClusterRenew(base common) *command {
	o := &clusterOptions{common: base}
	c := &command{
		name:     "renew-authorities",
		short:    "Make new authorities for members, hosts and users: the former ones are trusted until they expire",
		examples: []string{"netctl cluster renew-authorities"},
	}
	c.flags.Bool(&o.json, "json, j", "print the members as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print names only")
	c.run = bindRun(o, func(ctx context.Context, o *clusterOptions) error {
		return o.members(ctx, func(c *api.Client) (api.Members, error) { return c.RenewAuthorities(ctx) })
	}, nil)
	return c
}
