package main

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// scraped returns what Prometheus would have of netmasters.
func scraped(t *testing.T, masters ...*process) testenv.Scrape {
	t.Helper()
	out := testenv.Scrape{}
	for _, p := range masters {
		if err := out.Add("netmaster", p.api, answer(t, p, "/metrics")); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestAlertsFireOnDyingNetmastersAndFullStores: an alert fires when a netmaster has died, when the store fills,
// when leadership is lost again and again, and when the store does not answer.
func TestAlertsFireOnDyingNetmastersAndFullStores(t *testing.T) {
	t.Parallel()
	const quota = 16 << 20
	etcdAt := storetest.FreePort(t)
	server, err := membership.Start(t.Context(), membership.Config{Dir: t.TempDir(), Client: etcdAt, Quota: quota, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{etcdAt}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }() // it was read and filled
	a := start(t, nil, "--cluster-store", "etcd://"+etcdAt)
	a.ready()
	b := start(t, nil, "--cluster-store", "etcd://"+etcdAt)
	b.ready()
	value := func(series string) float64 {
		for k, v := range scraped(t, a) {
			if strings.HasPrefix(k, series+"{") {
				return v
			}
		}
		return -1
	}
	well := scraped(t, a, b)

	b.kill()
	testenv.AlertsFire(t, well, scraped(t, a), "ContivNetmasterSilent")

	for i := 0; value("contiv_store_size_bytes") < 0.85*quota; i++ {
		if _, err := etcd.Put(t.Context(), "fill/"+strconv.Itoa(i), strings.Repeat("x", 64<<10)); err != nil {
			t.Fatal(err)
		}
		server.Etcd().Backend().ForceCommit() // the size is of what was committed
	}
	testenv.AlertsFire(t, well, scraped(t, a), "ContivStoreFills")

	for range 4 {
		had := value("contiv_netmaster_leader_changes_total")
		r, err := etcd.Get(t.Context(), cluster.LeaderKey)
		if err == nil && len(r.Kvs) != 1 {
			err = errors.New("nothing leads")
		}
		if err == nil {
			_, err = etcd.Revoke(t.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
		}
		if err != nil {
			t.Fatal(err)
		}
		a.until("leads again", func() bool {
			return value("contiv_netmaster_leader_changes_total") >= had+2 && value("contiv_netmaster_leader") == 1
		})
	}
	testenv.AlertsFire(t, well, scraped(t, a, b), "ContivLeaderFlaps")

	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	a.until("finds that the store does not answer", func() bool { return value("contiv_store_up") == 0 })
	testenv.AlertsFire(t, well, scraped(t, a), "ContivStoreDown")
	a.kill()
}
