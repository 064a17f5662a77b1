package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni/server"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/docker"
	"github.com/contiv/netplugin/v2/internal/security/enrollment"
)

// uninstall takes everything of netplugin's off the host and says what it
// removed. It refuses while a netplugin runs, and while containers are attached
// unless --force is given. It goes on behind what it cannot remove; the state,
// by which another try knows the host, goes only if all else has gone.
func uninstall(ctx context.Context, o options, stdout io.Writer) (err error) {
	name := o.host
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("find the host's name: %w; give --host", err)
		}
	}
	host, err := agent.TakeIdle(ctx, agent.Config{Host: model.HostName(name), StateDir: o.stateDir, Socket: o.cniSocket})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	// One with other sockets and another state directory: its containers are not
	// to be cut off because somebody has forgotten its flags.
	for _, p := range dataPlanes {
		if p.busy == nil {
			continue
		}
		if err := p.busy(o); err != nil {
			return err
		}
	}
	if err := docker.Free(ctx, o.dockerDir, o.pluginName); err != nil {
		return err
	}
	attached, err := host.Attached()
	if err != nil {
		return err
	}
	if n := len(attached); n > 0 && !o.force {
		return model.Errorf(model.ErrInUse, "%d containers are attached on this host, such as %s (interface %s): end or move them first, or give --force, which cuts them off",
			n, strings.TrimPrefix(attached[0].Alias, "contiv:"), attached[0].Name)
	}
	removed := 0
	say := func(format string, args ...any) {
		removed++
		_, err := fmt.Fprintf(stdout, "removed "+format+"\n", args...)
		_ = err // who does not read it has it done all the same
	}
	if o.cniConfDir != "" {
		was, err := server.RemoveConf(o.cniConfDir)
		if err != nil {
			return err
		}
		if was {
			say("%s", filepath.Join(o.cniConfDir, server.ConfFile))
		}
	}
	n, err := host.Detach(attached)
	errs := []error{err}
	if n > 0 {
		say("the interfaces of %d containers", n)
	}
	n, err = host.LeaveInfra()
	errs = append(errs, err)
	if n > 0 {
		say("the host's %d interfaces on infra networks", n)
	}
	all, err := leftovers(ctx, o, "", slog.New(slog.DiscardHandler))
	if err != nil {
		errs = append(errs, err)
	}
	for _, left := range all {
		if err := left.Remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", left, err))
			continue
		}
		say("%s", left)
	}
	if was, err := host.Unroute(ctx, slog.New(slog.DiscardHandler)); err != nil {
		errs = append(errs, fmt.Errorf("remove addresses and routes made for BGP: %w", err))
	} else if was {
		say("the router's address, routes and nftables tables of BGP")
	}
	for _, x := range []struct {
		pins   string
		remove func(string) error
		what   string
	}{
		{o.socketPins(), hostservices.Remove, "the programs that lead sockets of this host's processes to services"},
		{o.clientPins(), hostservices.RemoveClients, "the programs that lead clients outside to services"},
	} {
		if _, err := os.Stat(x.pins); err != nil {
			continue
		}
		if err := x.remove(x.pins); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", x.what, err))
		} else {
			say("%s", x.what)
		}
	}
	had := hoststack.Present()
	problems := hoststack.New(slog.New(slog.DiscardHandler), false, nil, hoststack.NoRepairs).Apply(ctx, hoststack.Config{}, true)
	if err := hoststack.NewFrontends(slog.New(slog.DiscardHandler), hoststack.NoRepairs).Apply(ctx, hoststack.InterfaceConfig{}, true); err != nil {
		problems["services of Kubernetes from this host"] = err
	}
	for _, object := range slices.Sorted(maps.Keys(problems)) {
		errs = append(errs, fmt.Errorf("remove %s: %w", object, problems[object]))
	}
	if had && len(problems) == 0 {
		say("the nftables tables and firewall exceptions of egress")
	}
	if socket := docker.Socket(o.dockerDir, o.pluginName); os.Remove(socket) == nil {
		say("%s", socket)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w; these and the state in %s were not removed: try again", err, o.stateDir)
	}
	certificate := filepath.Join(o.stateDir, joinedDir)
	switch was, err := enrollment.Forget(certificate); {
	case err != nil:
		return err
	case was:
		say("%s", certificate)
	}
	files, err := host.Forget()
	for _, f := range files {
		say("%s", f)
	}
	if err != nil {
		return err
	}
	if o.cniBinDir != "" { // until now runtimes needed it to let their containers go
		was, err := server.RemovePlugin(o.cniBinDir)
		if err != nil {
			return err
		}
		if was {
			say("%s", filepath.Join(o.cniBinDir, server.Plugin))
		}
	}
	if removed == 0 {
		_, err = fmt.Fprintln(stdout, "nothing of netplugin's was on this host")
		return err
	}
	_, err = fmt.Fprintf(stdout, "the host is still in the cluster: 'netctl host rm %s' removes it, with the endpoints that it left\n", name)
	return err
}
