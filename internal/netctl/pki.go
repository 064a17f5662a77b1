package netctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

type pkiOptions struct {
	common
	role      string
	addresses []string
	days      int
	all       bool
	retire    bool
}

// pkiCertificate is a certificate, or an authority, as --json has it.
type pkiCertificate struct {
	Name      string   `json:"name"`
	Role      string   `json:"role"`
	Addresses []string `json:"addresses,omitempty"`
	Directory string   `json:"directory,omitempty"`
	Ends      string   `json:"ends"` // RFC 3339
	State     string   `json:"state"`
}

var certificates = columns[pkiCertificate]{
	header: []string{"Name", "Role", "Addresses", "Ends", "State"},
	row: func(c pkiCertificate) []string {
		return []string{c.Name, c.Role, strings.Join(c.Addresses, ","), c.Ends, c.State}
	},
	id: func(c pkiCertificate) string { return c.Name },
}

func newPKI(base common) *command {
	return &command{
		name:  "pki",
		short: "Certificates for a cluster without an authority of its own; they are local files, and no netmaster is involved.",
		examples: []string{
			"netctl pki init /root/contiv-pki",
			"netctl pki issue /root/contiv-pki master1 --role netmaster --addresses 10.0.0.1,netmaster",
			"netctl pki show /root/contiv-pki",
		},
		subs: []*command{newPKIAuthority(base), newPKIInit(base), newPKIIssue(base), newPKIRenew(base), newPKIShow(base)},
	}
}

// pkiCommand makes a command that works on the directory that it is given first.
func pkiCommand(base common, c *command, run func(o *pkiOptions, dir, name string) error) (*command, *pkiOptions) {
	o := &pkiOptions{common: base}
	if c.name == "show" {
		o.listFlags(c, "names only")
	} else {
		c.flags.Bool(&o.json, "json, j", "print what there is afterwards, as JSON")
		c.flags.Bool(&o.quiet, "quiet, q", "print nothing")
	}
	c.run = func(_ context.Context, args []string) error {
		return errors.Join(run(o, args[0], strings.Join(args[1:], "")), durable.GiveToOwner(args[0]))
	}
	return c, o
}

func newPKIInit(base common) *command {
	c, _ := pkiCommand(base, &command{
		name: "init", short: "Make an authority in a new directory", args: []string{"DIR"},
		examples: []string{"netctl pki init /root/contiv-pki"},
	}, func(o *pkiOptions, dir, _ string) error {
		a, err := pki.Init(dir)
		if err != nil {
			return err
		}
		return o.printDone(a, nil, "Made an authority in %s, valid for %d years. Anyone who can read authority.pem there controls the cluster: keep the directory off its hosts, and make a copy of it\n", dir, pki.Years)
	})
	return c
}

func newPKIIssue(base common) *command {
	c, o := pkiCommand(base, &command{
		name: "issue", short: "Make a certificate: a directory that --tls-dir takes, below the authority's", args: []string{"DIR", "NAME"},
		examples: []string{
			"netctl pki issue /root/contiv-pki master1 --role netmaster --addresses 10.0.0.1,netmaster",
			"netctl pki issue /root/contiv-pki host1 --role host --addresses 10.0.0.11",
			"netctl pki issue /root/contiv-pki anna --role cluster-admin --days 30",
		},
	}, func(o *pkiOptions, dir, name string) error {
		role, err := pki.ParseRole(o.role)
		if err != nil {
			return flags.Usagef("--role: %v", err)
		}
		if o.days < 1 {
			return flags.Usagef("--days %d: must be at least one", o.days)
		}
		a, err := pki.Open(dir)
		if err != nil {
			return err
		}
		made, err := a.Issue(pki.Request{Name: name, Role: role, Addresses: o.addresses, Days: o.days})
		if err != nil {
			return err
		}
		return o.printDone(a, []pki.Certificate{made}, "Made %s, good until %s\n", made.Dir, day(made.End))
	})
	c.flags.String(&o.role, "role, r", "ROLE", "what its owner is: cluster-admin (netctl), netmaster, host (netplugin) or client (other programs, as Prometheus)")
	c.flags.List(&o.addresses, "addresses, a", "ADDRESS,...", "names and IP addresses by which others connect to a netmaster or host; NAME, localhost, 127.0.0.1 and ::1 are among them anyway")
	o.days = pki.Days
	c.flags.Int(&o.days, "days", "N", "for how many days it is good")
	return c
}

func newPKIRenew(base common) *command {
	c, o := pkiCommand(base, &command{
		name: "renew", short: "Renew one certificate, or all that expire within 30 days or belong to a former authority", args: []string{"DIR"}, optional: []string{"NAME"},
		examples: []string{"netctl pki renew /root/contiv-pki", "netctl pki renew /root/contiv-pki host1"},
	}, func(o *pkiOptions, dir, name string) error {
		if o.all && name != "" {
			return flags.Usagef("--all and %s: give one of them", name)
		}
		if o.days < 0 {
			return flags.Usagef("--days %d: must be at least one", o.days)
		}
		a, err := pki.Open(dir)
		if err != nil {
			return err
		}
		names := []string{name}
		if name == "" {
			all, err := a.Issued()
			if err != nil {
				return err
			}
			names = nil
			for _, c := range all {
				if o.all || c.Due(time.Now()) {
					names = append(names, c.Name)
				}
			}
		}
		if err := a.DistributeBundle(); err != nil {
			return err
		}
		made := []pki.Certificate{}
		var text strings.Builder
		for _, n := range names {
			c, err := a.Renew(n, o.days)
			if err != nil {
				return err
			}
			made = append(made, c)
			fmt.Fprintf(&text, "Renewed %s, good until %s\n", c.Dir, day(c.End))
		}
		if len(made) == 0 {
			text.WriteString("None is due; name one, or give --all\n")
		}
		return o.printDone(a, made, "%s", &text)
	})
	c.flags.Bool(&o.all, "all", "renew all that the authority made")
	c.flags.Int(&o.days, "days", "N", "for how many days they are good")
	c.flags.Lookup("days").Default = "as long as before"
	return c
}

func newPKIShow(base common) *command {
	c, _ := pkiCommand(base, &command{
		name: "show", short: "Show the authority and its certificates", args: []string{"DIR"},
		examples: []string{"netctl pki show /root/contiv-pki", "netctl pki show /root/contiv-pki --json"},
	}, func(o *pkiOptions, dir, _ string) error {
		a, err := pki.Open(dir)
		if err != nil {
			return err
		}
		all, err := a.Issued()
		if err != nil {
			return err
		}
		return o.printItems(certificates.items(pkiRows(a, all, true)...))
	})
	return c
}

func newPKIAuthority(base common) *command {
	c, o := pkiCommand(base, &command{
		name: "authority", short: "Renew the authority: the new one signs, and both are trusted until --retire removes the former", args: []string{"DIR"},
		examples: []string{"netctl pki authority /root/contiv-pki", "netctl pki authority --retire /root/contiv-pki"},
	}, func(o *pkiOptions, dir, _ string) error {
		a, err := pki.Open(dir)
		if err != nil {
			return err
		}
		if o.retire {
			if err := a.Retire(); err != nil {
				return err
			}
			return o.printDone(a, nil, "The former authority is no longer trusted; copy the new ca.crt of each certificate to its host\n")
		}
		if err := a.RenewAuthority(); err != nil {
			return err
		}
		return o.printDone(a, nil, "Made a new authority beside the former one. Now renew the certificates ('netctl pki renew --all %s'), copy them to their hosts, and retire the former one with --retire\n", dir)
	})
	c.flags.Bool(&o.retire, "retire", "stop trusting the former authority; refused while there is a certificate signed by it")
	return c
}

// printDone tells what was done: as text, or the authority and certs as JSON.
func (o *pkiOptions) printDone(a *pki.Authority, certs []pki.Certificate, format string, args ...any) error {
	switch {
	case o.quiet:
		return nil
	case o.json:
		return printJSON(o.out, pkiRows(a, certs, certs == nil || format == ""))
	}
	_, err := fmt.Fprintf(o.out, format, args...)
	return err
}

func pkiRows(a *pki.Authority, certs []pki.Certificate, authorities bool) []pkiCertificate {
	rows := []pkiCertificate{}
	now := time.Now()
	if authorities {
		for i, root := range a.Bundle() {
			as := pki.Certificate{End: root.NotAfter}
			state := as.State(now)
			if i > 0 {
				state = "former: trusted until 'netctl pki authority --retire'"
			}
			rows = append(rows, pkiCertificate{Name: root.Subject.CommonName, Role: "authority", Ends: day(root.NotAfter), State: state})
		}
	}
	for _, c := range certs {
		rows = append(rows, pkiCertificate{c.Name, string(c.Role), c.Addresses, c.Dir, day(c.End), c.State(now)})
	}
	return rows
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
