package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Config is what a Plugin needs.
type Config struct {
	Name      string // of the plugin, its socket and Docker's driver
	SocketDir string // where Docker looks for plugins
	StateDir  string // where the map of network ids is kept
	Global    bool   // scope: global (swarm mode) instead of local
	Endpoint  string // of the engine, unix:///path; empty = its networks are left alone
	Backend   Backend
	Routes    func(netip.Prefix) ([]string, error) // this host's that overlap a subnet; nil = there are none
	Log       *slog.Logger
	Socket    *Listening // by Listen, of the same name, directories and scope; nil = New listens
}

// SocketDir is where Docker engines look for plugins.
const SocketDir = "/run/docker/plugins"

// Plugin serves one Docker engine.
type Plugin struct {
	name        string
	global      bool
	backend     Backend
	log         *slog.Logger
	networks    *networks
	ipam        *ipam
	reserved    *reservations // of ipam
	preStart    preStart
	multihoming multihoming
	routers     routers
	engine      *engine // nil = none
	socket      *Listening
	wake        waiting.Bell         // a network waits for its name
	stale       map[string]time.Time // since when the engine does not list an id; for reconcile only
}

var nameRE = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*/)*[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9._-]+)?$`)

// ValidName reports whether a plugin may have the name: one word, or repository
// and tag of a managed plugin.
func ValidName(name string) bool { return nameRE.MatchString(name) }

// socketName is the last word of a plugin's name, without the tag.
func socketName(name string) string {
	name, _, _ = strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	return name + ".sock"
}

// New reads the map of network ids and listens on the plugin's socket, unless it is given
// one. The engine need not be there. Run or Close release the socket.
func New(ctx context.Context, cfg Config) (*Plugin, error) {
	p := &Plugin{
		name: cfg.Name, global: cfg.Global,
		backend: cfg.Backend, reserved: &reservations{}, log: cfg.Log, stale: map[string]time.Time{}, wake: waiting.NewBell(),
	}
	var err error
	if p.networks, err = openNetworks(filepath.Join(cfg.StateDir, "docker", "networks.json")); err != nil {
		return nil, err
	}
	if cfg.Endpoint != "" {
		if p.engine, err = newEngine(cfg.Endpoint); err != nil {
			return nil, err
		}
	}
	p.ipam = &ipam{backend: p.backend, engine: p.engine, global: p.global, networks: p.networks, reserved: p.reserved, offered: offers{routes: cfg.Routes}}
	if p.socket = cfg.Socket; p.socket == nil {
		p.socket, err = Listen(ctx, ListenConfig{Name: cfg.Name, SocketDir: cfg.SocketDir, StateDir: cfg.StateDir, Global: cfg.Global, Log: cfg.Log})
	}
	return p, err
}

// Socket is where a plugin of that name listens.
func Socket(socketDir, name string) string { return filepath.Join(socketDir, socketName(name)) }

// Free fails with model.ErrConflict when another plugin of that name answers. Callers
// ask before they change anything of the host, for the sake of the other's containers.
func Free(ctx context.Context, socketDir, name string) error {
	return free(ctx, filepath.Join(socketDir, socketName(name)))
}

func free(ctx context.Context, path string) error {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil //nolint:nilerr // nobody is there
	}
	_ = c.Close()
	return model.Errorf(model.ErrConflict, "another plugin answers at %s; stop it, or give this one its own --plugin-name", path)
}

// listen takes the socket over from a dead process, and refuses to take it from
// a living one.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make Docker's plugin directory: %w", err)
	}
	if err := free(ctx, path); err != nil {
		return nil, err
	}
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look at Docker's plugin socket: %w", err)
	case st.Mode()&os.ModeSocket == 0:
		return nil, model.Errorf(model.ErrConflict, "Docker's plugin socket %s: a file that is not a socket is there", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale plugin socket: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for Docker: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict Docker's plugin socket: %w", err), l.Close())
	}
	return l, nil
}

// Close releases the socket of a Plugin that does not Run.
func (p *Plugin) Close() error { return p.socket.Close() }

// Run serves the engine until ctx ends, and keeps its networks; calls under way
// are finished first.
func (p *Plugin) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	if p.engine != nil {
		all.Go(func() { p.reconcile(ctx) })
	}
	if p.engine != nil {
		all.Go(func() { p.followNames(ctx) })
	}
	p.log.Info("serving Docker", "socket", p.socket.path, "scope", p.socket.scope(), "networks", len(p.networks.ids()))
	err := p.socket.serve(ctx, p.handler())
	stop()
	all.Wait()
	if err != nil {
		return fmt.Errorf("serve Docker: %w", err)
	}
	return nil
}

// maxRequest bounds a request's body.
const maxRequest = 1 << 20

// handler answers all but what Listening does.
func (p *Plugin) handler() http.Handler {
	mux := http.NewServeMux()
	add := func(name string, h http.Handler) { mux.Handle("POST /"+name, h) }
	fixed := func(v any) http.Handler {
		return verb(p.log, func(context.Context, map[string]any) (any, error) { return v, nil })
	}
	add("NetworkDriver.CreateNetwork", verb(p.log, p.createNetwork))
	add("NetworkDriver.DeleteNetwork", verb(p.log, p.deleteNetwork))
	add("NetworkDriver.AllocateNetwork", verb(p.log, p.allocateNetwork))
	add("NetworkDriver.FreeNetwork", fixed(empty{}))
	add("NetworkDriver.CreateEndpoint", verb(p.log, p.createEndpoint))
	add("NetworkDriver.DeleteEndpoint", verb(p.log, p.deleteEndpoint))
	add("NetworkDriver.EndpointOperInfo", verb(p.log, p.operInfo))
	add("NetworkDriver.Join", verb(p.log, p.join))
	add("NetworkDriver.Leave", verb(p.log, p.leave))
	add("NetworkDriver.ProgramExternalConnectivity", verb(p.log, p.publish))
	add("NetworkDriver.RevokeExternalConnectivity", verb(p.log, p.unpublish))
	// Hosts find each other through the cluster's store.
	add("NetworkDriver.DiscoverNew", fixed(empty{}))
	add("NetworkDriver.DiscoverDelete", fixed(empty{}))

	add("IpamDriver.RequestPool", verb(p.log, p.ipam.requestPool))
	add("IpamDriver.ReleasePool", verb(p.log, p.ipam.releasePool))
	add("IpamDriver.RequestAddress", verb(p.log, p.ipam.requestAddress))
	add("IpamDriver.ReleaseAddress", verb(p.log, p.ipam.releaseAddress))

	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.log.Warn("Docker makes an unknown call", "call", r.URL.Path)
		answer(w, http.StatusNotFound, failure(fmt.Sprintf("call %s %q is not known to this plugin", r.Method, r.URL.Path)))
	})
	return mux
}

// verb serves one call. As the protocol wants it, a malformed request is answered
// with an error status, any other failure by an error in an answer of status 200.
func verb[In, Out any](log *slog.Logger, f func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		var in In
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&in)
		if err != nil && r.ContentLength != 0 { // calls without arguments have no body
			answer(w, http.StatusBadRequest, failure(fmt.Sprintf("decode the request of %s: %v", r.URL.Path, err)))
			return
		}
		out, err := f(r.Context(), in)
		if err != nil {
			log.Warn("Docker's call failed", "call", r.URL.Path[1:], "error", err)
			answer(w, http.StatusOK, failure(err.Error()))
			return
		}
		log.Debug("Docker's call", "call", r.URL.Path[1:], "took", time.Since(start))
		answer(w, http.StatusOK, out)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"Err":"the answer cannot be encoded","Error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/vnd.docker.plugins.v1.2+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // an engine that has ended needs no answer
}
