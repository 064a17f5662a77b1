package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
)

// startMember starts the embedded store: alone, as a new member of another netmaster's
// cluster, or as the member that the data directory has.
func startMember(ctx context.Context, o options, log *slog.Logger) (*membership.Member, error) {
	if membership.IsEmpty(o.dataDir) && o.joining.token == "" && o.joining.pods.account == "" {
		log.Warn("the data directory has no store: a NEW CLUSTER begins in it; if there was a cluster, stop and give its --data-dir, or restore a backup with --restore; hosts keep their desired state meanwhile",
			"data", o.dataDir)
	}
	cfg := o.member()
	cfg.Logger = log
	var err error
	if cfg.TokenReviewer, err = o.tokenReviewer(); err != nil {
		return nil, err
	}
	if cfg.Forming, err = o.forming(log); err != nil {
		return nil, err
	}
	return membership.Start(ctx, cfg)
}

// recoverCluster makes a cluster of one member of the data directory.
func recoverCluster(ctx context.Context, o options, log *slog.Logger) error {
	cfg := o.member()
	cfg.Logger = log
	r, err := membership.Recover(ctx, cfg)
	if err != nil {
		return err
	}
	log.Info("this is now the cluster's only member; start netmaster on it, and let others join with empty directories; the last writes may be missing, and hosts restore their own endpoints",
		"data", o.dataDir, "store", r.String(), "lost", strings.Join(r.Lost, ", "))
	return nil
}

// waitAfter is how long the store may take to start before clients get an answer that says
// so.
const waitAfter = time.Second

// whileWaiting serves listeners while the store starts, which may take until others are
// there: the process lives and is not ready. end closes the listeners, and reports whether
// they were served; before waitAfter they are not.
func whileWaiting(ctx context.Context, listeners []net.Listener, log *slog.Logger) (end func() (served bool)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan bool, 1)
	go func() {
		select {
		case <-time.After(waitAfter):
		case <-ctx.Done():
			done <- false
			return
		}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if r.URL.Path == "/healthz" {
				_, _ = io.WriteString(w, "ok\n") // who has gone reads no answer
				return
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "store: this netmaster waits for the members of its store; its log says for whom\n")
		})
		ended := make(chan error, len(listeners))
		for _, ln := range listeners {
			go func() { ended <- daemon.Serve(ctx, ln, handler, log) }()
		}
		var err error
		for range listeners {
			err = errors.Join(err, <-ended)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("serving while the store starts", "error", err)
		}
		done <- true
	}()
	return func() bool {
		cancel()
		return <-done
	}
}
