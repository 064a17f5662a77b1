package netctl

import (
	"context"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

var tokens = columns[api.Token]{
	header: []string{"ID", "Name", "Role", "Made by", "Made", "Ends"},
	row:    func(t api.Token) []string { return []string{t.ID, t.Name, grantText(t), t.By, t.Created, t.Expires} },
	id:     func(t api.Token) string { return t.ID },
}

type tokenOptions struct {
	common
	ask  api.TokenRequest
	days int
	id   string
}

func newToken(base common) *command {
	return &command{
		name:  "token",
		short: "Tokens that let people and programs in, with a role and an end; for netmasters with --tokens.",
		examples: []string{
			"netctl token create anna --role tenant-admin --tenants blue",
			"netctl token ls",
			"netctl token rm QW3RTYU2OP",
		},
		subs: []*command{newTokenCreate(base), newTokenList(base), newTokenRemove(base)},
	}
}

func newTokenCreate(base common) *command {
	o := &tokenOptions{common: base, days: 90}
	c := &command{
		name: "create", short: "Make a token for NAME; it is shown this once", args: []string{"NAME"}, asks: &o.ask,
		examples: []string{
			"netctl token create anna --role tenant-admin --tenants blue,red --days 30",
			"netctl token create -q prometheus --role viewer >token",
		},
	}
	c.flags.String(&o.ask.Role, "role, r", "ROLE", "what its bearer may: cluster-admin (all), viewer (read) or tenant-admin (the objects of --tenants)")
	c.flags.List(&o.ask.Tenants, "tenants, t", "TENANT,...", "of a tenant-admin")
	c.flags.Int(&o.days, "days", "N", "for how many days it is good, 366 at most")
	c.flags.Bool(&o.json, "json, j", "print the token with its secret as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print the secret only")
	c.run = bindRun(o, runTokenCreate, []*string{&o.ask.Name})
	return c
}

func runTokenCreate(ctx context.Context, o *tokenOptions) error {
	if o.days < 1 || o.days > 366 {
		return flags.Usagef("--days %d: must be 1 to 366", o.days)
	}
	if o.ask.Role == "" {
		return flags.Usagef("--role: must be cluster-admin, tenant-admin or viewer")
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	o.ask.Life = int64(o.days) * 24 * 3600
	made, err := client.CreateToken(ctx, o.ask)
	if err != nil {
		return err
	}
	return o.result(made, made.Secret, "Made token %s for %s, %s, good until %s. It is shown this once; 'netctl login --token' takes it:\n%s",
		made.Token.ID, made.Token.Name, grantText(made.Token), made.Token.Expires, made.Secret)
}

func grantText(t api.Token) string {
	if len(t.Tenants) == 0 {
		return t.Role
	}
	var tenants []string
	for _, name := range t.Tenants {
		if slices.Contains(t.TenantsGone, name) {
			name += " (deleted)"
		}
		tenants = append(tenants, name)
	}
	return t.Role + " of " + strings.Join(tenants, ",")
}

func newTokenList(base common) *command {
	o := &tokenOptions{common: base}
	c := &command{name: "ls", aliases: []string{"list"}, short: "List the tokens, including those that expired less than 30 days ago", examples: []string{"netctl token ls"}}
	o.listFlags(c, "ids only")
	c.run = bindClient(o, runTokenList, nil)
	return c
}

func runTokenList(ctx context.Context, client *api.Client, o *tokenOptions) error {
	all, err := client.Tokens(ctx)
	if err != nil {
		return err
	}
	return o.printItems(tokens.items(all...))
}

func newTokenRemove(base common) *command {
	o := &tokenOptions{common: base}
	c := &command{
		name: "rm", aliases: []string{"delete"}, short: "Revoke a token: it is refused from now on, by all netmasters",
		examples: []string{"netctl token rm QW3RTYU2OP"}, args: []string{"ID"},
	}
	o.changeFlags(&c.flags, "json, j", "print the id as JSON")
	c.run = bindClient(o, runTokenRemove, []*string{&o.id})
	return c
}

func runTokenRemove(ctx context.Context, client *api.Client, o *tokenOptions) error {
	if err := client.RevokeToken(ctx, o.id); err != nil {
		return err
	}
	return o.printResult("Revoked token", o.id, o.id, map[string]string{"id": o.id})
}
