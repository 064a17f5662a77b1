package main

import (
	"context"
	"net/netip"
	"path/filepath"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
)

// docker is two namespaces on the bridge of a Docker engine of its own, with
// the engine's iptables rules: what its containers' packets meet.
func (r testbed) docker(ctx context.Context) (path, error) {
	h, err := r.Namespace()
	if err == nil {
		err = r.engine(ctx, h)
	}
	if err != nil {
		return path{}, err
	}
	return r.plugged(ctx, "Docker's bridge (20.10)", h, "docker0", [2]netip.Addr{netip.MustParseAddr("10.8.4.1"), netip.MustParseAddr("10.8.4.2")})
}

// engine starts a Docker engine on a host.
func (r testbed) engine(ctx context.Context, h *testcluster.Namespace) error {
	host := &testcluster.Host{Node: &testcluster.Node{Name: h.Name, NS: h, Dir: filepath.Join(r.Lab.Config().Dir, h.Name)}}
	e, err := docker.New(host, "--bip", "10.8.4.254/24", "--mtu", rig.MTU)
	if err != nil {
		return err
	}
	r.OnClose(func() error { return e.Close(ctx) })
	return e.Start(ctx)
}
