package apiserver

import (
	"context"
	"encoding/json"
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

// TestStatusCountsProblemsAndNotices: problems of hosts are shown by name, and counted as problems or as notices.
func TestStatusCountsProblemsAndNotices(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.addHosts("host1", "gone")
	now := time.Now().UTC()
	tell := func(s tables.HostStatus) {
		t.Helper()
		if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error { return tables.HostStatuses.Put(tx, s) }); err != nil {
			t.Fatal(err)
		}
	}
	reg, err := cluster.Register(t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.0.0.1", Port: 4789, Hostname: "host1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	reg2, err := cluster.Register(t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.0.0.2", Port: 8472, Hostname: "elsewhere"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fine := tables.HostStatus{Host: "host1", Driver: "ebpf", Ready: true, Updated: now.Format(time.RFC3339), Ports: 3}
	tell(fine)
	tell(tables.HostStatus{Host: "gone", Driver: "ovs", Ready: true, Updated: now.Add(-90 * time.Second).Format(time.RFC3339)})
	status := func() (s api.ClusterStatus) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	has := func(list []string, parts ...string) {
		t.Helper()
		if !slices.ContainsFunc(list, func(s string) bool {
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
		}) {
			t.Errorf("nothing says %q: %q", parts, list)
		}
	}
	has(status().Wrong, "different UDP ports for VXLAN (elsewhere 8472, others 4789)", "--vxlan-port")
	if err := reg2.Close(); err != nil {
		t.Fatal(err)
	}
	s := status()
	if s.Well || len(s.Wrong) != 1 || len(s.Hosts) != 2 || s.Hosts[0].State != api.HostAway || s.Hosts[0].Age < 90 || s.Hosts[1].State != api.HostAlive {
		t.Errorf("%+v", s)
	}
	has(s.Wrong, "host gone is away", "last word was 1m3", "not being restarted")
	if text := f.must("GET", "/debug/ofnet?host=gone", ""); !strings.Contains(text, "away: its agent sends no heartbeat") || !strings.Contains(text, "(1m3") {
		t.Errorf("ofnet of a host that is away: %s", text)
	}
	if text := f.must("GET", "/debug/ofnet?host=host1", ""); strings.Contains(text, "away") {
		t.Errorf("ofnet of a host that is alive: %s", text)
	}
	for path, want := range map[string]int{
		"/api/v1/hosts/host1": 409, "/api/v1/hosts/host1?force=true": 409, "/api/v1/hosts/nosuch": 404, "/api/v1/hosts/gone?force=perhaps": 400, "/api/v1/hosts/gone": 200,
	} {
		if got, answer := f.do("DELETE", path, ""); got != want {
			t.Errorf("DELETE %s: %d %s, want %d", path, got, answer, want)
		}
	}
	if s = status(); !s.Well || len(s.Hosts) != 1 || len(s.Wrong) != 0 {
		t.Errorf("after the removal: %+v", s)
	}
	sick := fine
	sick.Ready, sick.Conditions = false, []tables.HostCondition{{Name: "disk", Message: "it is full"}, {Name: "remarks", Severity: "notice", Message: "no BGP neighbour"}, {Name: "objects", Message: "ip_forward is 0"}}
	sick.Tables = map[string]tables.TableFill{"conns": {Entries: 95, Capacity: 100}, "hits": {Entries: 5}}
	sick.Attachments = 4
	tell(sick)
	s = status()
	has(s.Wrong, "host host1: disk: it is full")
	has(s.Notices, "host host1: remarks: no BGP neighbour")
	has(s.Wrong, "host host1: objects: ip_forward is 0")
	has(s.Notices, "host host1: table conns has 95 of 100")
	behind := fine
	behind.Updated = now.Add(-time.Hour).Format(time.RFC3339)
	tell(behind)
	for end := time.Now().Add(patience); !s.Well && time.Now().Before(end); s = status() { // until netmaster has heard of it
	}
	if s = status(); !s.Well {
		t.Errorf("a clock behind: %q", s.Wrong)
	}
	has(s.Notices, "host host1: its clock is 1h0m", "behind the answering netmaster's")
	ahead := fine
	ahead.Updated = now.Add(time.Hour).Format(time.RFC3339)
	tell(ahead)
	if s = status(); !s.Well || s.Hosts[0].Age != 0 {
		t.Errorf("a clock ahead: %+v", s)
	}
	has(s.Notices, "host host1: its clock is ")
	orphans := fine
	orphans.Attachments = 4 // the cluster has 3 endpoints there
	tell(orphans)
	if s = status(); !s.Well {
		t.Errorf("a container that has just ended is an alarm: %q", s.Wrong)
	}
	has(s.Notices, "host1 had 4 containers", "has 3 endpoints")
}

// TestStatusNamesLostServices: a service whose row somebody deletes in the store is an error
// until its address is free; one that is deleted through netmaster is none.
func TestStatusNamesLostServices(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	for _, name := range []string{"shop", "web"} {
		f.must("POST", "/api/v1/serviceLBs/blue:"+name+"/", `{"tenantName":"blue","networkName":"n","serviceName":"`+name+`","selectors":["a=b"],"ports":["1:1:tcp"]}`)
	}
	lost := func() (out []string) {
		t.Helper()
		var s api.ClusterStatus
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &s); err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Findings {
			if x.Name == "object-missing" {
				out = append(out, x.Where+" "+x.Severity)
			}
		}
		return out
	}
	f.must("DELETE", "/api/v1/serviceLBs/blue:web/", "")
	if got := lost(); len(got) > 0 {
		t.Errorf("after a service was deleted: %q", got)
	}
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		tables.LoadBalancers.Delete(tx, model.ServiceKey{Tenant: "blue", Name: "shop"})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := lost(); !slices.Equal(got, []string{"service blue:shop error"}) {
		t.Errorf("after its row was deleted: %q", got)
	}
	f.must("POST", "/api/v1/doctor/repair", "{}")
	if got := lost(); len(got) > 0 {
		t.Errorf("after the repair: %q", got)
	}
}

// TestStatusShowsProblemsBeyondHosts: what is wrong beyond the hosts.
func TestStatusShowsProblemsBeyondHosts(t *testing.T) {
	for name, tt := range map[string]struct {
		status        api.ClusterStatus
		wrong, notice string
	}{
		"no leader":     {api.ClusterStatus{Masters: []api.Master{{Role: "follower"}}}, "no netmaster leads", ""},
		"store away":    {api.ClusterStatus{Stores: []api.StoreServer{{Address: "e1", Error: "refused"}}}, "store e1 does not answer: refused", ""},
		"store alarm":   {api.ClusterStatus{Stores: []api.StoreServer{{Address: "e1", Alarms: []string{"NOSPACE"}}}}, "NOSPACE", ""},
		"store filling": {api.ClusterStatus{Stores: []api.StoreServer{{Address: "e1", Size: 90 << 20, Quota: 100 << 20}}}, "90 of 100 MiB", ""},
		"formats":       {api.ClusterStatus{Hosts: []api.Host{{Name: "a", Format: 2, State: api.HostAlive}, {Name: "b", Format: 1, State: api.HostAlive}, {Name: "c", State: api.HostAlive}}}, "different formats (b 1, others 2)", ""},
		"one format":    {api.ClusterStatus{Hosts: []api.Host{{Name: "a", Format: 2, State: api.HostAlive}, {Name: "b", Format: 2, State: api.HostAlive}}}, "", ""},
		"tunnel ports":  {api.ClusterStatus{Hosts: []api.Host{{Name: "a", VXLANPort: 8472, State: api.HostAlive}, {Name: "b", VXLANPort: 4789, State: api.HostAlive}, {Name: "c", State: api.HostAlive}}}, "different UDP ports for VXLAN (a 8472, others 4789)", ""},
		"most ports":    {api.ClusterStatus{Hosts: []api.Host{{Name: "a", VXLANPort: 8472, State: api.HostAlive}, {Name: "b", VXLANPort: 8472, State: api.HostAlive}, {Name: "c", VXLANPort: 4789, State: api.HostAlive}}}, "(c 4789, others 8472)", ""},
		"one port":      {api.ClusterStatus{Hosts: []api.Host{{Name: "a", VXLANPort: 8472, State: api.HostAlive}, {Name: "b", VXLANPort: 8472, State: api.HostAlive}}}, "", ""},
		"pool full":     {api.ClusterStatus{Pools: []api.Pool{{Name: "vlans", Used: 8, Size: 10}}}, "", "vlans: 8 of 10"},
	} {
		s := tt.status
		if s.Masters == nil {
			s.Masters = []api.Master{{Role: "leader"}}
		}
		addFindings(&s, facts{now: time.Now(), masters: s.Masters, stores: s.Stores, hosts: s.Hosts, pools: s.Pools}.judgeCluster())
		if s.Well != (tt.wrong == "") || !strings.Contains(strings.Join(s.Wrong, "\n"), tt.wrong) || !strings.Contains(strings.Join(s.Notices, "\n"), tt.notice) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestEndpointFiltersCombine: the list's filters, alone and together.
func TestEndpointFiltersCombine(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.addHosts("idle")
	for query, want := range map[string]int{
		"": 3, "?host=host1": 3, "?host=idle": 0, "?tenant=blue": 3, "?tenant=blue&network=n": 1, "?network=:n": 1, "?tenant=blue&network=:n": 1, "?tenant=blue&group=web": 1, "?host=host1&network=tiny": 2, "?network=n": 1, "?network=blue:n": 1, "?network=tiny": 2, "?group=web": 1, "?group=blue:web&network=tiny": 0,
		"?host=nosuch": -404, "?tenant=nosuch": -404, "?network=nosuch": -404, "?group=blue:nosuch": -404, "?network=red:n": -404, "?tenant=default&network=blue:n": -404, "?network=blue:": -404, "?hosts=host1": -400,
	} {
		var status int
		var answer string
		var list []api.EndpointOper
		n := 0
		for range 3 { // netmaster's own tasks may read meanwhile
			status, answer = f.do("GET", "/api/v1/endpoints"+query, "")
			if n = f.mem.KeysRead(); n <= 10 {
				break
			}
		}
		err := json.Unmarshal([]byte(answer), &list)
		if n > 10 {
			t.Errorf("%q: %d keys were read from the store", query, n)
		}
		switch {
		case want < 0 && status != -want:
			t.Errorf("%q: %d %s, want %d", query, status, answer, -want)
		case want >= 0 && (status != 200 || err != nil || len(list) != want):
			t.Errorf("%q: %d %s", query, status, answer)
		}
		for _, e := range list {
			if _, err := model.ParseEndpointKey(e.Key); err != nil {
				t.Errorf("%q: key %q", query, e.Key)
			}
		}
	}
}

// storeless is a cluster whose store has no server that answers.
type storeless struct{ Cluster }

func (storeless) Stores(context.Context) []api.StoreServer {
	return []api.StoreServer{{Address: "http://10.0.0.2:2379", Error: "it is away"}}
}

// TestUnreachableStoreIsShown: an unreachable store is shown with its address, without waiting
// for data from it.
func TestUnreachableStoreIsShown(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Cluster = storeless{c.Cluster} })
	f.mem.Unavailable(true)
	status, answer := f.do("GET", "/api/v1/status", "")
	if status != 503 || !strings.Contains(answer, "store answers: http://10.0.0.2:2379: it is away") {
		t.Errorf("status: %d %s", status, answer)
	}
}

// TestRestartingHostIsNotToBeForgotten: to forget a host is advised once it has been away for
// longer than a restart takes.
func TestRestartingHostIsNotToBeForgotten(t *testing.T) {
	for age, forget := range map[int64]bool{20: false, 299: false, 300: true, 86400: true, -1: true} {
		if got := awayRemedy(api.Host{Name: "h1", Age: age}); strings.Contains(got, "netctl host rm h1") != forget || !strings.Contains(got, "start netplugin there") {
			t.Errorf("after %d s: %s", age, got)
		}
	}
}
