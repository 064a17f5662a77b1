//go:build integration

package cluster

import (
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/consul"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// newConsulProcess is one server of Consul whose data outlive it, not started yet.
func newConsulProcess(t *testing.T, dir string) *process {
	t.Helper()
	path := os.Getenv("CONTIV_CONSUL")
	if path == "" {
		lacking(t, "CONTIV_CONSUL names no Consul: make test-cluster STORE=consul builds one")
	}
	ports := make([]string, 3)
	for i := range ports {
		var err error
		if _, ports[i], err = net.SplitHostPort(storetest.FreePort(t)); err != nil {
			t.Fatal(err)
		}
	}
	return newProcess(t, "127.0.0.1:"+ports[0], path, "agent", "-server", "-bootstrap", "-node", "test", "-data-dir", dir,
		"-bind", "127.0.0.1", "-client", "127.0.0.1", "-http-port", ports[0], "-server-port", ports[1], "-serf-lan-port", ports[2],
		"-serf-wan-port", "-1", "-dns-port", "-1", "-disable-host-node-id", "-log-level", "warn")
}

// onConsul is a cluster's store on a Consul, of which netmasters end leases.
func onConsul(t *testing.T, s server) *onServer {
	t.Helper()
	return &onServer{server: s, t: t, client: openConsul, compact: forgetJournal}
}

func openConsul(t *testing.T, address string, netmaster bool) store.Store {
	t.Helper()
	c, err := consul.New(consul.Config{Endpoints: []string{address}, Timeout: clientPatience, Logger: slog.New(slog.DiscardHandler), Reap: netmaster})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// forgetJournal is to mirrors on Consul what a compaction is on etcd: they have to list again.
func forgetJournal(t *testing.T, address string) {
	t.Helper()
	c, err := api.NewClient(&api.Config{Address: address})
	if err == nil {
		_, err = c.KV().DeleteTree("contiv.io.consul/journal/", nil)
	}
	if err != nil {
		t.Logf("not forgotten: %v", err) // it may have no leader now
	}
}
