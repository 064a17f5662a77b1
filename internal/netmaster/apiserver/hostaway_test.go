package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestStatusShowsUnconfirmedHosts: status and metrics say what is unconfirmed, how long a host is listened to in
// vain and may be still, and that nothing is concluded where more than half are away.
func TestStatusShowsUnconfirmedHosts(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.EvictAfter = time.Hour })
	f.populate()
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		return errors.Join(tables.Hosts.Put(tx, model.Host{Name: "host1", Confirms: true}), tables.Hosts.Put(tx, model.Host{Name: "gone", Confirms: true}))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		if err := tables.HostStatuses.Put(tx, tables.HostStatus{Host: "gone", Ready: true}); err != nil {
			return err
		}
		if err := tables.AwayTimes.Put(tx, tables.AwayTime{Host: "gone", Seconds: 600}); err != nil {
			return err
		}
		return tables.HostStatuses.Put(tx, tables.HostStatus{
			Host: "host1", Ready: true, Updated: time.Now().UTC().Format(time.RFC3339),
			Conditions: []tables.HostCondition{{Name: "rolled-back", Severity: "warning", Message: "by itself"}},
		})
	}); err != nil {
		t.Fatal(err)
	}
	reg, err := cluster.Register(t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.0.0.1", Port: 4789, Hostname: "host1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := func(wrong bool, parts ...string) {
		t.Helper()
		var s api.ClusterStatus
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &s); err != nil {
			t.Fatal(err)
		}
		list := strings.Join(s.Notices, "\n")
		if wrong {
			list = strings.Join(s.Wrong, "\n")
		}
		for _, p := range parts {
			if !strings.Contains(list, p) {
				t.Errorf("nothing says %q: %q", p, list)
			}
		}
		if strings.Contains(list, "the cluster waits") != strings.Contains(strings.Join(parts, " "), "more than half") {
			t.Errorf("%q", list)
		}
	}
	told(true, "host gone is away")
	told(false, "host host1: rolled-back: by itself")
	var h api.Host
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/hosts/gone", "")), &h); err != nil || h.AwaySeconds != 600 || h.EvictSeconds != 3000 {
		t.Errorf("%v %+v", err, h)
	}
	if text := graceText(api.Host{Endpoints: 2, EvictSeconds: 3600}); text != ", to be released in 1h0m0s" {
		t.Errorf("before a minute is counted: %q", text)
	}
	if text := graceText(api.Host{Endpoints: 2, AwaySeconds: 600, EvictSeconds: 3000}); text != ", to be released in 50m0s (it has been away for 10m0s)" {
		t.Error(text)
	}
	if text := graceText(api.Host{Endpoints: 2, AwaySeconds: 600}) + graceText(api.Host{EvictSeconds: 1}); text != "" {
		t.Error(text)
	}
	f.must("POST", "/api/v1/pending", `{"within":"1h","objects":[{"kind":"global","name":"global","fwdMode":"routing"}]}`)
	told(false, "is unconfirmed: in ", "netctl confirm ")
	awaitMetrics := func(lines ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		lacks := func(text string) bool {
			return slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(text, "\n"+l+"\n") })
		}
		for text := ""; lacks(text); { // the registry's watch tells a moment later
			if _, text = f.do("GET", "/metrics", ""); ctx.Err() != nil {
				t.Fatal(text)
			}
		}
	}
	awaitMetrics("contiv_changes_pending 1", "contiv_hosts_many_away 0", "contiv_host_evict_after_seconds 3600")
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		return tables.ServiceRanges.Put(tx, model.ServiceRanges{Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.1.128/25"), netip.MustParsePrefix("10.96.0.0/12")}})
	}); err != nil {
		t.Fatal(err)
	}
	told(true, "10.1.1.0/24 overlaps 10.1.1.128/25, a range of services' addresses")
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	awaitMetrics("contiv_hosts_many_away 1")
	told(true, "2 of 2 hosts are away: more than half, so")
}
