package daemon

import (
	"context"
	"errors"
	"fmt"
	stdlog "log" //nolint:depguard // http.Server takes no other one for its errors
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// ShutdownGrace is how long Serve lets requests finish.
const ShutdownGrace = 5 * time.Second

// Serve serves h on ln until ctx ends, then lets running requests finish for
// ShutdownGrace. It returns nil after a shutdown and closes ln. The requests' contexts
// carry ctx's values, and end only when the grace is over.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger) error {
	return ServeTracking(ctx, ln, h, log, nil)
}

// ServeTracking is Serve that notes the clients which do not trust it; nil = they are not
// noted.
func ServeTracking(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger, distrust *UntrustedClients) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := transport.NewServer(h)
	srv.BaseContext = func(net.Listener) context.Context { return base }
	srv.ErrorLog = stdlog.New(&tlsErrorLog{log: log, now: time.Now, distrust: distrust}, "", 0)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(base, ShutdownGrace)
	defer stop()
	err := srv.Shutdown(grace)
	if err != nil {
		cancel()
		err = srv.Close()
	}
	if cause := <-failed; err == nil && !errors.Is(cause, http.ErrServerClosed) {
		err = cause
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("shut down %s: %w", ln.Addr(), err)
	}
	return nil
}

// RegisterDebug adds profiling (/debug/pprof/) to mux. It is not for addresses
// that others can reach: a profile tells, and costs, a lot.
func RegisterDebug(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// ServeDebug serves the debug endpoints on addr until ctx ends, with TLS, for cluster
// administrators alone, where the daemon has a certificate.
func ServeDebug(ctx context.Context, addr string, with transport.Config, log *slog.Logger) error {
	ln, err := transport.Listen(ctx, addr, with.DebugServer, log)
	if err != nil {
		return fmt.Errorf("listen for debugging on %s: %w", addr, err)
	}
	mux := http.NewServeMux()
	RegisterDebug(mux)
	log.Info("serving debug endpoints", "address", ln.Addr().String())
	return Serve(ctx, ln, httpguard.NewLimiter(httpguard.Limits{Body: 1 << 20}).Handler(httpguard.CheckOrigin(httpguard.OriginConfig{}, mux)), log)
}

// CheckHostPort is a Flag.Check for ip:port, :port or host:port.
func CheckHostPort(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	if err != nil || port == "" {
		return errors.New("must be ip:port, such as 0.0.0.0:9999")
	}
	return nil
}
