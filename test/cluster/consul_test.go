//go:build integration

package cluster

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/consul"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/waiting"
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
		"-serf-wan-port", "-1", "-dns-port", "-1", "-disable-host-node-id", "-log-level", "warn",
		// It resets connections beyond 200 of one address: here all hosts have the same.
		"-hcl", "limits { http_max_conns_per_client = 10000 }",
		// Else it waits for five times as long before it takes itself for the leader.
		"-hcl", "performance { raft_multiplier = 1 }")
}

// consulServer is a Consul that has started when it leads: before, it refuses all.
type consulServer struct{ *process }

func (s consulServer) start() {
	s.process.start()
	c, err := api.NewClient(&api.Config{Address: s.address()})
	if err != nil {
		s.t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		leader, err := c.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
		if err == nil && leader != "" {
			return
		}
		if waiting.Pause(ctx, 20*time.Millisecond) != nil {
			s.t.Errorf("Consul does not lead %s after its start: %v\n%s", patience, err, s.said())
			return
		}
	}
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
