package netctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

var members = columns[api.Member]{
	header: []string{"Name", "Role", "Address", "ID", "In use, MiB", "State"},
	row: func(m api.Member) []string {
		role, state := m.Role, "answers"
		if m.Leads {
			role = "leader"
		}
		if m.Error != "" {
			state = m.Error
		} else if m.Full {
			state = "full"
		}
		return []string{m.Name, role, m.Address, m.ID, formatMebibytes(m.InUse) + " of " + formatMebibytes(m.Size), state}
	},
	id: func(m api.Member) string { return m.Name },
}

type clusterOptions struct {
	common
	member string
	force  bool
	life   time.Duration
	host   string
}

func newCluster(base common) *command {
	return &command{
		name:  "cluster",
		short: "The members of the embedded store.",
		examples: []string{
			"netctl cluster members",
			"netctl cluster token",
			"netctl cluster remove host3",
		},
		subs: []*command{newClusterMembers(base), newClusterToken(base), newClusterRemove(base), newClusterDefragment(base), newClusterRenew(base)},
	}
}

func newClusterMembers(base common) *command {
	o := &clusterOptions{common: base}
	c := &command{
		name:     "members",
		aliases:  []string{"ls", "list"},
		short:    "List the members, with what endangers the cluster",
		examples: []string{"netctl cluster members"},
	}
	o.listFlags(c, "names only")
	c.run = bindRun(o, func(ctx context.Context, o *clusterOptions) error {
		return o.members(ctx, func(c *api.Client) (api.Members, error) { return c.Members(ctx) })
	}, nil)
	return c
}

func newClusterToken(base common) *command {
	o := &clusterOptions{common: base}
	c := &command{
		name:     "token",
		short:    "Make a token by which one more netmaster, or a host's netplugin, may join, once",
		examples: []string{"netctl cluster token", "netctl cluster token --host host4", "netctl cluster token --expires 10m --quiet"},
	}
	c.flags.String(&o.host, "host", "NAME", "the host whose netplugin is to join, where netmasters run with --secure")
	c.flags.Duration(&o.life, "expires", "how long it is good, at most 168h (default 1h)")
	c.flags.Bool(&o.json, "json, j", "print the token and whom it leads to as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print the token only")
	c.run = bindRun(o, runClusterToken, nil)
	return c
}

// ownAddress explains the commands that join.
const ownAddress = "ADDRESS is that host's own, by which netmasters and hosts reach it."

func runClusterToken(ctx context.Context, o *clusterOptions) error {
	if o.life != 0 && o.life < time.Second || o.life > 7*24*time.Hour {
		return flags.Usagef("--expires %s: must be from 1s to 168h", o.life)
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	t, err := client.NewJoinToken(ctx, api.JoinTokenRequest{ExpiresInSeconds: int64(o.life / time.Second), Host: o.host})
	switch {
	case err != nil:
		return err
	case t.Host != o.host: // it knows of no hosts, and made a netmaster's
		return errors.New("this netmaster's version issues no certificates to hosts: upgrade it")
	case o.json:
		return o.showJSON(t)
	case o.quiet:
		return printLines(o.out, []string{t.Token})
	case o.host != "":
		_, err = fmt.Fprintf(o.out, "On host %[1]s, once, before %[2]s, with the packages\n\n  netctl install --token %[4]s\n\nor without them\n\n  netplugin --host %[1]s --ctrl-ip ADDRESS --join %[3]s --token %[4]s\n\n%[5]s\n", t.Host, t.Expires, strings.Join(t.Addresses, ","), t.Token, ownAddress)
		if h, failed := client.Host(ctx, t.Host); err == nil && failed == nil && h.State == api.HostAlive { // else nothing is said
			_, err = fmt.Fprintf(o.out, "\nA host of that name is alive, at %s. If another host joins with the token, the certificate of %s can no longer be renewed, and the other host is refused its name: give each host its own name.\n", h.Control, t.Host)
		}
		return err
	}
	how := "--etcd-listen ADDRESS:2379" // with --secure it is that by itself
	if t.Secure {
		how = "--secure"
	}
	_, err = fmt.Fprintf(o.out, "On the host that is to join, once, before %s:\n\n  netmaster --internal-address ADDRESS:9999 %s --join %s --token %s\n\n%s\n", t.Expires, how, strings.Join(t.Addresses, ","), t.Token, ownAddress)
	return err
}

func newClusterRemove(base common) *command {
	o := &clusterOptions{common: base}
	c := &command{
		name:     "remove",
		aliases:  []string{"rm"},
		short:    "Take a member out, by its name, id or address; refused where the others would not write without it",
		examples: []string{"netctl cluster remove host3", "netctl cluster remove --force host3"},
		args:     []string{"MEMBER"},
	}
	c.flags.Bool(&o.force, "force, f", "also a member that is alive, or if too few of the others answer")
	o.changeFlags(&c.flags, "json, j", "print the members that are left as JSON")
	c.run = bindClient(o, func(ctx context.Context, client *api.Client, o *clusterOptions) error {
		left, err := client.RemoveMember(ctx, o.member, o.force)
		if err != nil {
			return err
		}
		if err := o.result(left, o.member, "Removed member %s", o.member); err != nil || o.json || o.quiet {
			return err
		}
		return o.warn(left)
	}, []*string{&o.member})
	return c
}

func newClusterDefragment(base common) *command {
	o := &clusterOptions{common: base}
	c := &command{
		name:     "relieve",
		short:    "Have each member give space back that its database does not use, and a full store take writes again; each answers nothing meanwhile",
		examples: []string{"netctl cluster relieve"},
	}
	o.listFlags(c, "names only")
	c.run = bindRun(o, func(ctx context.Context, o *clusterOptions) error {
		return o.members(ctx, func(c *api.Client) (api.Members, error) { return c.DefragmentMembers(ctx) })
	}, nil)
	return c
}

// members prints members as they answer.
func (o *clusterOptions) members(_ context.Context, ask func(*api.Client) (api.Members, error)) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	all, err := ask(client)
	if err != nil {
		return err
	}
	l := members.items(all.Members...)
	l.whole = all
	if err := o.printItems(l); err != nil || !o.inTable() {
		return err
	}
	return o.warn(all)
}

// warn prints what endangers the cluster.
func (o *clusterOptions) warn(all api.Members) error {
	for _, w := range all.Warnings {
		if _, err := fmt.Fprintln(o.out, "Warning: "+visible(w)); err != nil {
			return err
		}
	}
	return nil
}

func formatMebibytes(n int64) string {
	mib := float64(n) / (1 << 20)
	if n > 0 && mib < 1 { // a store that is young has some kB
		return fmt.Sprintf("%.3f", max(mib, 0.001))
	}
	return fmt.Sprintf("%.1f", mib)
}
