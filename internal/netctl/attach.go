package netctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// Variables that stand in for flags, as for contivk8s.
const (
	envSocket   = "CONTIV_CNI_SOCKET"
	envStateDir = "CONTIV_CNI_STATE_DIR"
)

type processOptions struct {
	common
	netns    string
	pid      int
	ifName   string
	socket   string
	stateDir string

	network string
	group   string
	name    string
	labels  []string
	ips     []string
}

func newProcessOptions(base common, getenv func(string) string) *processOptions {
	o := &processOptions{common: base, ifName: "eth0"}
	o.socket, o.stateDir = cmp.Or(getenv(envSocket), attach.SocketPath), cmp.Or(getenv(envStateDir), attach.StateDir)
	return o
}

// which are the flags that say which process is meant.
func (o *processOptions) which(fs *flags.Set) {
	fs.String(&o.netns, "netns", "PATH", "the process's network namespace, such as /run/netns/web")
	fs.Int(&o.pid, "pid", "PID", "a process in it, as this host counts").Default = ""
	fs.String(&o.ifName, "ifname", "NAME", "name of the interface inside")
	fs.String(&o.socket, "socket", "PATH", "netplugin's socket [$"+envSocket+"]")
}

func newAttach(base common, getenv func(string) string) *command {
	o := newProcessOptions(base, getenv)
	c := &command{
		name:  "attach",
		short: "Attaches a process of this host to a network: by its network namespace, through netplugin, as a container",
		examples: []string{
			"netctl attach --netns /run/netns/web --tenant blue --group web --name web1",
			"netctl attach --pid 4711 -t blue -n backend --label app=shop --json",
		},
	}
	o.which(&c.flags)
	o.tenantFlag(&c.flags)
	c.flags.String(&o.network, "network, n", "NETWORK", "network; else the group's, else the tenant's default network, else default-net")
	c.flags.String(&o.group, "group, g", "GROUP", "endpoint group; else none")
	c.flags.String(&o.name, "name", "NAME", "the endpoint's name; default: the namespace's name, or pid-PID")
	c.flags.Texts(&o.labels, "label, l", "KEY=VALUE", "label of the endpoint, by which policies and services select")
	c.flags.List(&o.ips, "ip", "ADDRESS", "address to ask for, one IPv4 and one IPv6 at most")
	o.changeFlags(&c.flags, "json, j", "print what it got as JSON")
	c.flags.Lookup("quiet").Usage = "print its addresses only"
	c.run = bindRun(o, runAttach, nil)
	return c
}

func newDetach(base common, getenv func(string) string) *command {
	o := newProcessOptions(base, getenv)
	c := &command{
		name:     "detach",
		short:    "Takes a process that was attached with 'netctl attach' off its network",
		examples: []string{"netctl detach --netns /run/netns/web", "netctl detach --pid 4711"},
	}
	o.which(&c.flags)
	c.flags.String(&o.stateDir, "state-dir", "DIR", "netplugin's state directory, where the wish waits while netplugin is down [$"+envStateDir+"]")
	o.changeFlags(&c.flags, "json, j", "print what was detached as JSON")
	c.run = bindRun(o, runDetach, nil)
	return c
}

// key is the attachment that the command line means, and name what people call it.
func (o *processOptions) key() (k attach.Key, name string, err error) {
	switch {
	case o.netns != "" && o.pid != 0:
		return k, "", flags.Usagef("--netns and --pid are both given; one says which process is meant")
	case o.netns == "" && o.pid == 0:
		return k, "", flags.Usagef("which process? give --netns PATH, its network namespace, or --pid PID")
	case o.pid < 0:
		return k, "", flags.Usagef("flag --pid \"%d\": must be the number of a process", o.pid)
	case o.pid != 0:
		k = attach.PIDKey(o.pid, o.ifName)
		return k, k.Container, nil
	}
	return attach.NetnsKey(o.netns, o.ifName), filepath.Base(o.netns), nil
}

func (o *processOptions) request() (attach.Request, error) {
	k, name, err := o.key()
	r := attach.Request{
		Key: k, Netns: o.netns, Tenant: o.tenant, Network: o.network, Group: o.group,
		Name: cmp.Or(o.name, name), Source: attach.SourceProcess,
	}
	if err != nil {
		return r, err
	}
	if o.pid != 0 {
		r.Netns = attach.PIDNetns(o.pid)
		if _, err := os.Stat(r.Netns); errors.Is(err, os.ErrNotExist) {
			return r, flags.Usagef("flag --pid \"%d\": there is no such process", o.pid)
		}
	} else if r.Netns, err = filepath.Abs(o.netns); err != nil { // netplugin has another directory
		return r, err
	}
	for _, l := range o.labels {
		key, value, ok := strings.Cut(l, "=")
		if _, twice := r.Labels[key]; !ok || key == "" || twice {
			return r, flags.Usagef("flag --label %q: must be KEY=VALUE, each key once", l)
		}
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		r.Labels[key] = value
	}
	for _, s := range o.ips {
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.Zone() != "" {
			return r, flags.Usagef("flag --ip %q: must be an IPv4 or IPv6 address", s)
		}
		r.Addresses = append(r.Addresses, ip.Unmap())
	}
	return r, nil
}

// bound limits a request to netplugin, whose own limit is shorter than the default, so
// that its sentence arrives.
func (o *processOptions) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(o.globals.timeout, api.DefaultTimeout))
}

func runAttach(ctx context.Context, o *processOptions) error {
	r, err := o.request()
	if err != nil {
		return err
	}
	ctx, cancel := o.bound(ctx)
	defer cancel()
	res, err := attach.Client{Socket: o.socket}.Attach(ctx, r)
	if err != nil {
		return &agentError{err}
	}
	if o.json {
		return printJSON(o.out, res)
	}
	var addresses []string
	for _, a := range res.Addresses {
		addresses = append(addresses, a.Prefix.String())
	}
	if o.quiet {
		return printLines(o.out, addresses)
	}
	_, err = fmt.Fprintf(o.out, "Attached %s: endpoint %s, %s with %s\n", visible(r.Name), res.Endpoint, res.IfName, strings.Join(addresses, " and "))
	if err == nil && res.NameServer.IsValid() {
		_, err = fmt.Fprintf(o.out, "Names are known at %s, search domain %s: for its resolv.conf\n", res.NameServer, res.Search)
	}
	return err
}

func runDetach(ctx context.Context, o *processOptions) error {
	k, name, err := o.key()
	if err != nil {
		return err
	}
	ctx, cancel := o.bound(ctx)
	defer cancel()
	r := attach.DetachRequest{Key: k, Netns: o.netns, Known: true}
	err = attach.Client{Socket: o.socket}.Detach(ctx, r)
	r.Known = false
	if errors.Is(err, attach.ErrUnreachable) {
		if spooled := (attach.Spool{Dir: filepath.Join(o.stateDir, attach.SpoolDir)}).Put(r); spooled != nil {
			return &agentError{fmt.Errorf("%w; nor can it be left to netplugin's next start: %w", err, spooled)}
		}
		fmt.Fprintf(o.stderr, "warning: %v; netplugin will do it when it runs\n", err)
	} else if err != nil {
		return &agentError{err}
	}
	return o.printResult("Detached", name, name, map[string]string{"container": k.Container, "ifname": k.IfName})
}

// agentError is what netplugin answered, or that it does not.
type agentError struct{ error }

func (e *agentError) Unwrap() error { return e.error }

// exitCode tells apart what 'netctl' tells apart of netmaster's answers.
func (e *agentError) exitCode() int {
	switch f, status := attach.NewFailure(e.error); {
	case f.Kind == "notFound":
		return ExitNotFound
	case status == 409:
		return ExitConflict
	case status == 503:
		return ExitUnavailable
	}
	return ExitFailure
}

func (e *agentError) Error() string {
	if errors.Is(e.error, os.ErrPermission) {
		return e.error.Error() + "; netplugin's socket is root's"
	}
	if errors.Is(e.error, attach.ErrUnreachable) {
		return e.error.Error() + "; start netplugin on this host, or name its socket with --socket"
	}
	return e.error.Error()
}
