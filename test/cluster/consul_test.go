//go:build integration

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/consul"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// newConsulProcess is one server of Consul whose data outlive it, not started yet.
func newConsulProcess(t *testing.T) consulServer {
	t.Helper()
	return newConsuls(t, 1)[0]
}

// newConsuls are the servers of one Consul whose data outlive them, not started yet.
func newConsuls(t *testing.T, servers int) (all []consulServer) {
	t.Helper()
	path := os.Getenv("CONTIV_CONSUL")
	if path == "" {
		skipUnlessCI(t, "CONTIV_CONSUL names no Consul: make test-cluster STORE=consul builds one")
	}
	ports := make([][3]string, servers)
	together := []string{"-bootstrap-expect", strconv.Itoa(servers), "-retry-interval", "1s"}
	for n := range ports {
		for i := range ports[n] {
			var err error
			if _, ports[n][i], err = net.SplitHostPort(storetest.FreePort(t)); err != nil {
				t.Fatal(err)
			}
		}
		together = append(together, "-retry-join", "127.0.0.1:"+ports[n][2])
	}
	if servers == 1 {
		together = []string{"-bootstrap"}
	}
	for n, port := range ports {
		args := append([]string{
			"agent", "-server", "-node", fmt.Sprint("test", n), "-data-dir", t.TempDir(),
			"-bind", "127.0.0.1", "-client", "127.0.0.1", "-http-port", port[0], "-server-port", port[1], "-serf-lan-port", port[2],
			"-serf-wan-port", "-1", "-dns-port", "-1", "-disable-host-node-id", "-log-level", "warn",
			// It resets connections beyond 200 of one address: here all hosts have the same.
			"-hcl", "limits { http_max_conns_per_client = 10000 }",
			// Else it waits for five times as long before it takes itself for the leader.
			"-hcl", "performance { raft_multiplier = 1 }",
		}, together...)
		all = append(all, consulServer{newProcess(t, "127.0.0.1:"+port[0], path, args...), "127.0.0.1:" + port[1]})
	}
	return all
}

// consulServer is a Consul that has started when it leads: before, it refuses all.
type consulServer struct {
	*process
	raft string // host:port by which others know it
}

func (s consulServer) start() {
	s.process.start()
	s.until("it has a leader", func(leader string) bool { return leader != "" })
}

// until waits until who leads, as a server knows, is as wanted.
func (s consulServer) until(what string, wanted func(leader string) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		leader, err := s.leader(ctx)
		if err == nil && wanted(leader) {
			return
		}
		if waiting.Pause(ctx, 20*time.Millisecond) != nil {
			s.t.Errorf("Consul: %s: still not after %s: leader %q, %v\n%s", what, patience, leader, err, s.said())
			return
		}
	}
}

// leader is who leads, as a server knows.
func (s consulServer) leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	c, err := api.NewClient(&api.Config{Address: s.address()})
	if err != nil {
		return "", err
	}
	return c.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
}

// onConsul is a cluster's store on a Consul, of which netmasters end leases.
func onConsul(t *testing.T, s server) *onServer {
	t.Helper()
	return &onServer{server: s, t: t, client: openConsul, compact: forgetJournal}
}

func openConsul(t *testing.T, address string, netmaster bool) store.Store {
	t.Helper()
	return openConsuls(t, []string{address}, netmaster)
}

func openConsuls(t *testing.T, addresses []string, netmaster bool) store.Store {
	t.Helper()
	c, err := consul.New(consul.Config{Endpoints: addresses, Timeout: clientPatience, Logger: slog.New(slog.DiscardHandler), Reap: netmaster})
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
