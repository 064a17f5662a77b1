package netctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netctl/installer"
)

// machine is what install does on the machine; installer.Machine is one.
type machine interface {
	Check(ctx context.Context, p *installer.Plan) []installer.Finding
	Steps(p installer.Plan) []string
	StartNetmaster(ctx context.Context, p installer.Plan) error
	StartNetplugin(ctx context.Context, p installer.Plan) error
}

type installOptions struct {
	common
	machine machine
	host    string
	address string
	token   string
	check   bool
}

// installation is what --json prints.
type installation struct {
	Host     string              `json:"host"`
	Address  string              `json:"address,omitempty"`
	Findings []installer.Finding `json:"findings"`
	Steps    []string            `json:"steps"` // what is done, or would be
	Done     bool                `json:"done"`
}

func newInstall(base common, m machine) *command {
	o := &installOptions{common: base, machine: m}
	c := &command{
		name:  "install",
		short: "Makes this machine, which has the packages, the first of a secure cluster, or with --token one more host: checks it, says what it will do, does it",
		examples: []string{
			"netctl install --check",
			"netctl install",
			"netctl install --token contiv-join-...",
		},
	}
	c.flags.Bool(&o.check, "check", fmt.Sprintf("check the machine and say what would be done, no more; the exit code is %d if it cannot be done", ExitUnhealthy))
	c.flags.String(&o.host, "host", "NAME", "name of the first machine's host in the cluster (default: the machine's); a token has its host's")
	c.flags.String(&o.address, "address", "ADDRESS", "this machine's address, by which other machines reach it (default: the one by which it reaches them)")
	c.flags.String(&o.token, "token", "TOKEN", "token of 'netctl cluster token --host', valid once: become a host of that cluster; prefer the variable, since other users of this machine can see flags").From("CONTIV_NETPLUGIN_TOKEN")
	c.flags.Bool(&o.json, "json, j", "print the findings and steps as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print nothing but errors")
	c.run = bindRun(o, runInstall, nil)
	return c
}

var installFindings = columns[installer.Finding]{
	header: []string{"Check", "Result", "What", "What to do"},
	row:    func(f installer.Finding) []string { return []string{f.Check, f.Severity, f.Text, f.Remedy} },
}

func runInstall(ctx context.Context, o *installOptions) error {
	p := installer.Plan{Host: o.host}
	if o.token != "" {
		var err error
		if p, err = installer.Joining(o.token); err != nil {
			return flags.Usagef("--token: %w", err)
		}
		if o.host != "" && o.host != p.Host {
			return flags.Usagef("--host %s: the token is for host %s", o.host, p.Host)
		}
	}
	if o.address != "" {
		var err error
		if p.Address, err = netip.ParseAddr(o.address); err != nil || p.Address.IsUnspecified() || p.Address.Zone() != "" {
			return flags.Usagef("--address %q: must be an IPv4 or IPv6 address", o.address)
		}
	}
	found := o.machine.Check(ctx, &p)
	refused := installer.Refused(found)
	done := installation{Host: p.Host, Findings: found, Steps: []string{}}
	if p.Address.IsValid() {
		done.Address, done.Steps = p.Address.String(), o.machine.Steps(p)
	}
	if err := o.showPlan(done); err != nil {
		return err
	}
	var err error
	switch {
	case refused && o.check:
		err = errUnhealthy
	case refused:
		err = errors.New("nothing was changed: the machine does not pass the checks")
	case !o.check:
		err = o.install(ctx, p)
		done.Done = err == nil
	}
	if o.json {
		return errors.Join(err, printJSON(o.out, done))
	}
	return err
}

// showPlan prints the findings, and what will be done.
func (o *installOptions) showPlan(i installation) error {
	if o.json || o.quiet {
		return nil
	}
	if err := o.printItems(installFindings.items(i.Findings...)); err != nil {
		return err
	}
	if installer.Refused(i.Findings) {
		return nil
	}
	what := "the first machine of a secure cluster"
	if o.token != "" {
		what = "a host"
	}
	fmt.Fprintf(o.out, "\nThis machine, %s, becomes %s by these steps:\n", i.Host, what)
	for _, s := range i.Steps {
		fmt.Fprintf(o.out, "  %s\n", s)
	}
	return nil
}

// say prints a line for people.
func (o *installOptions) say(format string, args ...any) {
	if !o.json && !o.quiet {
		fmt.Fprintf(o.out, format+"\n", args...)
	}
}

func (o *installOptions) install(ctx context.Context, p installer.Plan) error {
	if o.token != "" {
		if err := o.machine.StartNetplugin(ctx, p); err != nil {
			return err
		}
		o.say("\nThis machine is host %s of the cluster. It is ready for containers.", p.Host)
		return nil
	}
	if err := o.machine.StartNetmaster(ctx, p); err != nil {
		return err
	}
	o.say("\nnetmaster is ready.")
	client, err := o.loginOnFirst(ctx, p)
	if err != nil {
		return err
	}
	if h, err := client.Host(ctx, p.Host); err != nil || h.State != api.HostAlive { // a failure shows below
		t, err := client.NewJoinToken(ctx, api.JoinTokenRequest{Host: p.Host})
		if err != nil {
			return fmt.Errorf("make a token for this host: %w", err)
		}
		p.Token = t.Token
		if err := o.machine.StartNetplugin(ctx, p); err != nil {
			return err
		}
	}
	if err := o.awaitWell(ctx, client); err != nil {
		return err
	}
	o.say("All is well: host %s is ready for containers, and root is logged in.\nFor the next machine: netctl cluster token --host NAME", p.Host)
	return nil
}

// loginOnFirst saves the first administrator's token for the user, unless it was deleted.
func (o *installOptions) loginOnFirst(ctx context.Context, p installer.Plan) (*api.Client, error) {
	o.globals.netmaster = "https://" + net.JoinHostPort(p.Address.String(), installer.APIPort)
	token, err := os.ReadFile(filepath.Join(installer.DataDir, "admin-token"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return o.client()
	case err != nil:
		return nil, err
	}
	l := &loginOptions{common: o.common, token: true, caFile: filepath.Join(installer.DataDir, "join", "clients", "issued", "netmaster", "ca.crt")}
	l.stdin, l.out = bytes.NewReader(token), io.Discard
	if err := runLoginToken(ctx, l); err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	return o.client()
}

// wellWithin is how long a new host may take until the cluster's status has it.
const wellWithin = 30 * time.Second

func (o *installOptions) awaitWell(ctx context.Context, client *api.Client) error {
	ctx, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := client.Status(ctx)
		if err == nil && s.Well && len(s.Hosts) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("ask for the cluster's status: %w", err)
			}
			return errors.New("the cluster is not well yet: 'netctl status' says what is wrong")
		case <-tick.C:
		}
	}
}
