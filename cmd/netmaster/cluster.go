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

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// openStore opens the cluster's store: the etcd or the Consul that is named, or an
// embedded etcd, which is server. With --secure server is also a member whose store is the
// etcd that is named.
func openStore(ctx context.Context, o options, log *slog.Logger) (st store.Store, closeAll func() error, server *membership.Member, err error) {
	if o.store.External() {
		client, err := o.store.Open(o.tls.StoreClient, false, log)
		if err != nil {
			return nil, nil, nil, err
		}
		named, isEtcd := client.(*etcd.Client)
		if !o.secure || !isEtcd {
			return client, client.Close, nil, nil
		}
		if server, err = startMember(ctx, o, named.Raw(), log); err != nil {
			return nil, nil, nil, errors.Join(err, client.Close())
		}
		return client, func() error { return errors.Join(server.Close(), client.Close()) }, server, nil
	}
	if server, err = startMember(ctx, o, nil, log); err != nil {
		return nil, nil, nil, err
	}
	log.Info("serving an embedded etcd", "endpoint", server.Endpoint(), "data", o.dataDir, "member", server.Name())
	if host, _, err := net.SplitHostPort(o.etcdListen); err == nil && isLoopback(host) {
		log.Info("agents on other hosts cannot reach this etcd; give --etcd-listen an address that they can reach")
	}
	client := server.Client()
	return client, func() error {
		if server.Broken() {
			return nil // it would wait for its own dead parts; the process ends
		}
		return errors.Join(client.Close(), server.Close())
	}, server, nil
}

// startMember starts the embedded store: alone, as a new member of another netmaster's
// cluster, or as the member that the data directory has. With an etcd that was named it is a
// member whose rows are there.
func startMember(ctx context.Context, o options, named *clientv3.Client, log *slog.Logger) (*membership.Member, error) {
	if named == nil && membership.IsEmpty(o.dataDir) && o.joining.token == "" && o.joining.pods.account == "" {
		log.Warn("the data directory has no store: a NEW CLUSTER begins in it; if there was a cluster, stop and give its --data-dir, or restore a backup with --restore; hosts keep their desired state meanwhile",
			"data", o.dataDir)
	}
	cfg := o.member()
	cfg.Logger, cfg.Store = log, named
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
