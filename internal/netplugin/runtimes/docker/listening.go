package docker

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// ListenConfig is what an engine asks of a plugin before all else.
type ListenConfig struct {
	Name      string // of the plugin, its socket and Docker's driver
	SocketDir string // where Docker looks for plugins
	StateDir  string // where the scope that the engine was told is kept
	Global    bool   // scope: global (swarm mode) instead of local
	Log       *slog.Logger
}

// Listening serves the socket of a plugin that New may not have made yet. It tells at once
// what the plugin is, for which engines wait 30 s and then take it for none, while a kernel may
// check the data plane's programs for longer; all else waits for the plugin.
type Listening struct {
	ListenConfig
	path     string
	srv      *http.Server
	failed   chan error // once
	made     chan struct{}
	handler  http.Handler // of the plugin, from made on
	reported scopeFile
}

// Listen takes the socket and serves it, until Close. Errors are as Free's.
func Listen(ctx context.Context, cfg ListenConfig) (*Listening, error) {
	path := filepath.Join(cfg.SocketDir, socketName(cfg.Name))
	socket, err := listen(ctx, path)
	if err != nil {
		return nil, err
	}
	l := &Listening{ListenConfig: cfg, path: path, failed: make(chan error, 1), made: make(chan struct{}), reported: scopeFile(filepath.Join(cfg.StateDir, "docker", "scope"))}
	l.srv = transport.NewServer(l.router())
	go func() { l.failed <- l.srv.Serve(socket) }()
	return l, nil
}

// router answers what the plugin is, and has all else wait for the plugin.
func (l *Listening) router() http.Handler {
	mux := http.NewServeMux()
	fixed := func(v any) http.Handler {
		return verb(l.Log, func(context.Context, map[string]any) (any, error) { return v, nil })
	}
	mux.Handle("POST /Plugin.Activate", fixed(activateResponse{Implements: []string{"NetworkDriver", "IpamDriver"}}))
	mux.Handle("POST /NetworkDriver.GetCapabilities", verb(l.Log, l.capabilities))
	mux.Handle("POST /IpamDriver.GetCapabilities", fixed(ipamCapabilities{}))
	mux.Handle("POST /IpamDriver.GetDefaultAddressSpaces", fixed(addressSpaces{spaceLocal, spaceGlobal}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-l.made:
			l.handler.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	return mux
}

// serve has the plugin answer, until ctx ends; calls under way are finished first.
func (l *Listening) serve(ctx context.Context, h http.Handler) (err error) {
	l.handler = h
	close(l.made)
	select {
	case err = <-l.failed:
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		if l.srv.Shutdown(grace) != nil {
			err = l.srv.Close()
		}
		cancel()
		if ended := <-l.failed; err == nil && !errors.Is(ended, http.ErrServerClosed) {
			err = ended
		}
	}
	return err
}

// Close releases the socket, if no plugin has.
func (l *Listening) Close() error { return l.srv.Close() }

func (l *Listening) scope() string {
	if l.Global {
		return scopeGlobal
	}
	return scopeLocal
}
