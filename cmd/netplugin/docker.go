package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/docker"
)

func dockerFlags(fs *flags.Set, o *options) {
	fs.String(&o.pluginName, "plugin-name, name", "name", "name of the Docker plugin: docker network create -d NAME; with --mode docker or swarm-mode").Must(func(v string) error {
		if !docker.ValidName(v) {
			return errors.New("must be a name without spaces, or a managed plugin's name such as contiv/netplugin:2.0")
		}
		return nil
	})
	fs.String(&o.dockerDir, "docker-socket-dir", "directory", "where Docker looks for plugins' sockets").Must(checkPath)
	fs.String(&o.dockerEngine, "docker-endpoint", "unix:///path", "Docker engine whose networks are kept in sync with the cluster; none = leave them alone").Must(func(v string) error {
		if v == "none" {
			return nil
		}
		if _, err := docker.ParseEndpoint(v); err != nil {
			return errors.New("must be unix:///path of the engine's socket, or none")
		}
		return nil
	})
	fs.String(&o.dockerTokenFile, "docker-token-file", "file", "file with a tenant administrator's token, which 'docker network create' and 'rm' need on a secure cluster; reloaded when it changes; empty = only existing networks can be used")
	fs.Bool(&o.remountSysctls, "remount-proc-sys", "first make /proc/sys writable in netplugin's mount namespace: Docker mounts it read-only for managed plugins")
	fs.Enum(&o.dockerScope, "docker-scope", "scope", "scope of Docker's networks: local (each engine has its own), or global (the swarm's, created by netmaster)", scopeLocal, scopeGlobal).Else("global with --mode swarm-mode, otherwise local")
}

// docker reports whether containers of a Docker engine are served.
func (o options) docker() bool { return o.mode == modeDocker || o.mode == modeSwarm }

// remountProcSys makes a /proc/sys that is mounted read-only writable: interfaces need
// settings there.
func remountProcSys() error {
	const dir = "/proc/sys"
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("--remount-proc-sys: look at %s: %w", dir, err)
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("--remount-proc-sys: mount %s writable: %w; that needs CAP_SYS_ADMIN", dir, err)
	}
	return nil
}

// listenDocker takes the Docker plugin's socket where the mode asks for it, nil otherwise:
// first of all, since nothing of a plugin of the same name may be touched, and an engine
// that enables a managed plugin gives up, and ends it, after some 12 s without its socket,
// while a busy kernel may take longer to check the data plane's programs.
func listenDocker(ctx context.Context, o options, log *slog.Logger) (*docker.Listening, error) {
	if !o.docker() {
		return nil, nil
	}
	return docker.Listen(ctx, docker.ListenConfig{Name: o.pluginName, SocketDir: o.dockerDir, StateDir: o.stateDir, Global: o.globalScope(), Log: log})
}

// globalScope reports whether Docker's networks are a swarm's.
func (o options) globalScope() bool {
	return o.dockerScope == scopeGlobal || o.dockerScope == "" && o.mode == modeSwarm
}

// openDocker makes the Docker plugin where the mode asks for it; nil otherwise.
func openDocker(ctx context.Context, o options, a *agent.Agent, socket *docker.Listening, log *slog.Logger) (*docker.Plugin, error) {
	if !o.docker() {
		return nil, nil
	}
	endpoint := o.dockerEngine
	if endpoint == "none" {
		endpoint = ""
	}
	return docker.New(ctx, docker.Config{
		Name: o.pluginName, SocketDir: o.dockerDir, StateDir: o.stateDir, Global: o.globalScope(),
		Endpoint: endpoint, Backend: docker.Backend{Attachments: a.Attachments, Objects: a.Objects(), Conditions: a.Observer}, Log: log, Socket: socket,
		Routes: func(p netip.Prefix) ([]string, error) {
			all, _, err := vethpair.Overlaps(p, "")
			return all, err
		},
	})
}
