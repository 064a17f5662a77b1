//go:build integration

package cluster

import (
	"context"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// openEtcd makes a client of an etcd.
func openEtcd(t *testing.T, address string, _ bool) store.Store {
	t.Helper()
	c, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + address}, Timeout: clientPatience, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// compactEtcd forgets all revisions but the present one.
func compactEtcd(t *testing.T, address string) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: clientPatience, Logger: nil})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	r, err := c.Get(ctx, tables.StatePrefix, clientv3.WithCountOnly(), clientv3.WithPrefix())
	if err == nil {
		_, err = c.Compact(ctx, r.Header.Revision)
	}
	if err != nil && !strings.Contains(err.Error(), "compacted") {
		t.Logf("not compacted: %v", err)
	}
}

// onEtcd is a cluster's store on an etcd.
func onEtcd(t *testing.T, s server) *onServer {
	t.Helper()
	return &onServer{server: s, t: t, client: openEtcd, compact: compactEtcd}
}

// newEtcdProcess is an installed etcd, not started yet.
func newEtcdProcess(t *testing.T, dir string) *process {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		skipUnlessCI(t, "etcd is not installed: apt-get install etcd-server")
	}
	client, peer := storetest.FreePort(t), storetest.FreePort(t)
	return newProcess(t, client, path, "--name", "s-test", "--data-dir", dir,
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "s-test=http://"+peer)
}

// embeddedEtcd is the one of netmaster, inside this process. It ends in order.
type embeddedEtcd struct {
	t      *testing.T
	dir    string
	mu     sync.Mutex
	listen string
	server *membership.Member
}

func (e *embeddedEtcd) address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listen
}

func (e *embeddedEtcd) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := membership.Start(ctx, membership.Config{Dir: e.dir, Client: e.listen, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		e.t.Errorf("the embedded etcd does not come back: %v", err)
		return
	}
	e.server, e.listen = s, strings.TrimPrefix(s.Endpoint(), "http://")
}

func (e *embeddedEtcd) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		_ = e.server.Close() // it waits for clients for some seconds, and then cuts them off
		e.server = nil
	}
}
