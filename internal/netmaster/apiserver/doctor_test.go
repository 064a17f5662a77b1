package apiserver

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestDoctorFindsAllocationsWithoutAnOwner: a cluster in order has no finding about its contents; allocations without an
// owner are found, and repaired.
func TestDoctorFindsAllocationsWithoutAnOwner(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.addHosts("host1")
	reg, err := cluster.Register(t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.0.0.1", Port: 4789, Hostname: "host1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	ask := func(method, path, body string) (d api.Diagnosis) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.must(method, path, body)), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	owners := func(d api.Diagnosis) (out []api.Finding) {
		for _, x := range d.Findings {
			if x.Check == api.CheckOwners {
				out = append(out, x)
			}
		}
		return out
	}
	d := ask("GET", "/api/v1/doctor", "")
	if len(owners(d)) != 0 || d.Hosts != 1 || d.Version == "" {
		t.Fatalf("a cluster in order: %+v", d)
	}
	stray := tables.Address{AddressKey: tables.AddressKey{Network: model.NetworkKey{Tenant: "gone", Name: "n"}, Addr: netip.MustParseAddr("10.9.9.9")}, Endpoint: "e"}
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error { return tables.Addresses.Put(tx, stray) }); err != nil {
		t.Fatal(err)
	}
	d = ask("GET", "/api/v1/doctor", "")
	if o := owners(d); len(o) != 1 || o[0].Severity != api.SeverityWarning || o[0].Repair != api.RepairPossible || !strings.Contains(o[0].Text, "10.9.9.9") || !strings.Contains(o[0].Remedy, "--repair") || d.IsHealthy() {
		t.Fatalf("a stray address: %+v", d)
	}
	if o := owners(ask("POST", "/api/v1/doctor/repair", "{}")); len(o) != 1 || o[0].Repair != api.RepairDone {
		t.Fatalf("after the repair: %+v", o)
	}
	if o := owners(ask("GET", "/api/v1/doctor", "")); len(o) != 0 {
		t.Fatalf("it is still there: %+v", o)
	}
	if status, _ := f.do("POST", "/api/v1/doctor/repair", `[]`); status != 400 {
		t.Errorf("a body that is no object: %d", status)
	}
}

// troubled is a cluster without a leader, whose netmaster has a full disk.
type troubled struct{ fullDisk }

func (troubled) Masters(context.Context) ([]api.Master, error) {
	return []api.Master{{Address: "10.0.0.9:9999", Role: "follower", Version: "2.0"}}, nil
}

// TestDoctorFindsWhatStatusShows: each condition that the status shows of the cluster, of
// hosts and of netmasters is a finding of the doctor, as bad and about the same object.
func TestDoctorFindsWhatStatusShows(t *testing.T) {
	var watch *liveness.Watch
	f := serveWith(t, func(c *Config) {
		c.Cluster, c.Members = troubled{fullDisk{c.Cluster.(testCluster)}}, &testMembers{}
		watch = c.Watch
	})
	f.populate()
	f.alive("h1")
	f.addHosts("gone", "gone2")
	st := tables.HostStatus{
		Host: "h1", Driver: "ebpf", Version: "1.9", Updated: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), Attachments: 4, Ready: true,
		Conditions: []tables.HostCondition{{Name: "ports", Message: "not programmed"}}, Tables: map[string]tables.TableFill{"conns": {Entries: 95, Capacity: 100}},
	}
	written := time.Now()
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error { return tables.HostStatuses.Put(tx, st) }); err != nil {
		t.Fatal(err)
	}
	for !watch.StatusArrivals()["h1"].At.After(written) { // by which both judge
		if time.Since(written) > patience {
			t.Fatal("the host's report is not heard")
		}
		<-time.After(time.Millisecond)
	}
	s, err := f.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, x := range s.Findings {
		shown[x.Object+" "+x.Name] = true
		if !slices.ContainsFunc(d.Findings, func(y api.Finding) bool {
			return y.Object == x.Object && y.Name == x.Name && y.Where == x.Where && y.Severity == x.Severity
		}) {
			t.Errorf("the doctor does not find what the status shows: %+v", x)
		}
	}
	for _, c := range []*condition.Condition{
		condition.NoLeader, condition.StoreServer, condition.StoreAlarm, condition.StoreMembers, condition.MasterDisk,
		condition.HostAway, condition.HostsAway, condition.HostPorts, condition.HostEndpoints, condition.TableFills, condition.PoolFills,
	} {
		if !shown[string(c.Object())+" "+c.Name()] {
			t.Errorf("the status does not show %s %s: %+v", c.Object(), c.Name(), s.Findings)
		}
	}
}

// TestDoctorOfFullStore: a store that takes no writes does not keep the doctor from looking:
// it says that hosts were not asked, and judges them by their last reports.
func TestDoctorOfFullStore(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	f.alive("h1")
	st := tables.HostStatus{Host: "h1", Driver: "ebpf", Updated: time.Now().UTC().Format(time.RFC3339), Conditions: []tables.HostCondition{{Name: "ports", Message: "not programmed"}}}
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error { return tables.HostStatuses.Put(tx, st) }); err != nil {
		t.Fatal(err)
	}
	f.mem.Full(true)
	d, err := f.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cluster host-no-answer warning hosts were not asked", "host h1 ports error ports: not programmed"} {
		if !slices.ContainsFunc(d.Findings, func(x api.Finding) bool {
			return strings.HasPrefix(strings.Join([]string{x.Where, x.Name, x.Severity, x.Text}, " "), want)
		}) {
			t.Errorf("the doctor does not find %q: %+v", want, d.Findings)
		}
	}
	if d.Hosts != 1 || d.Answered != 0 {
		t.Errorf("%d of %d hosts answered", d.Answered, d.Hosts)
	}
}

// TestEachBadFactIsAFinding: each fact that is not as it should be is a finding, about the right thing
// and as bad as it is, and facts in order are none.
func TestEachBadFactIsAFinding(t *testing.T) {
	now := time.Now()
	host := func(change func(*api.Host)) api.Host {
		h := api.Host{Name: "h1", State: api.HostAlive, Ready: true, LastWord: now.UTC().Format(time.RFC3339), Version: "2.0"}
		change(&h)
		return h
	}
	leader := []api.Master{{Address: "m1", Role: roleLeader, Version: "2.0"}}
	fine := func() facts {
		return facts{now: now, masters: leader, hosts: []api.Host{host(func(*api.Host) {})}, stores: []api.StoreServer{{Address: "s1", Version: "3.6", Size: 1, Quota: 100}}}
	}
	if found := fine().judge(); len(found) != 0 {
		t.Fatalf("all is in order: %+v", found)
	}
	given := map[string]HostKey{"h1": {Key: []byte{1}, Was: []byte{2}, By: "token x", At: time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)}}
	tell := func(key byte) *hostInspections { // h1, with a certificate of this key; 0 = none
		x := &hostInspections{of: map[string]api.HostInspection{"h1": {}}, keys: map[string][][]byte{}, ahead: map[string]time.Duration{}}
		if key > 0 {
			x.keys["h1"] = [][]byte{{1}, {key}}
		}
		return x
	}
	for _, key := range []byte{0, 1, 2} { // none, the newest one, the one before
		f := fine()
		f.inspections, f.asksHosts, f.keys = tell(key), true, given
		if found := f.judge(); len(found) != 0 {
			t.Errorf("it shows certificate %d: %+v", key, found)
		}
	}
	f := fine() // a netmaster that has just begun, and has a clock that is ahead
	f.hosts[0].Age, f.hosts[0].LastWord = 3600, now.Add(-time.Hour).UTC().Format(time.RFC3339)
	f.heard = map[string]liveness.StatusArrival{"h1": {At: now, Listed: true}}
	if found := f.judge(); len(found) != 0 {
		t.Errorf("nothing was heard yet: %+v", found)
	}
	for name, tt := range map[string]struct {
		change                 func(*facts)
		check, severity, where string
		text                   string
	}{
		"no leader": {func(f *facts) { f.masters = []api.Master{{Role: "follower", Version: "2.0"}} }, api.CheckNetmasters, api.SeverityError, "cluster", "no netmaster leads"},
		"netmasters differ": {func(f *facts) {
			f.masters = append(slices.Clone(leader), api.Master{Address: "m2", Version: "2.1"})
		}, api.CheckVersions, api.SeverityWarning, "cluster", "2.0 (m1); 2.1 (m2)"},
		"netplugins differ": {func(f *facts) {
			f.hosts = append(f.hosts, host(func(h *api.Host) { h.Name, h.Version = "h2", "1.9" }))
		}, api.CheckVersions, api.SeverityWarning, "cluster", "1.9 (h2); 2.0 (h1)"},
		"both differ": {func(f *facts) { f.hosts[0].Version = "1.9" }, api.CheckVersions, api.SeverityWarning, "cluster", "netmaster is of version 2.0, and netplugin of 1.9"},
		"formats differ": {func(f *facts) {
			f.hosts[0].Format = 2
			f.hosts = append(f.hosts, host(func(h *api.Host) { h.Name, h.Format = "h2", 3 }))
		}, api.CheckVersions, api.SeverityError, "cluster", "different formats (h1 2"},
		"stores differ": {func(f *facts) {
			f.stores = append(f.stores, api.StoreServer{Address: "s2", Version: "3.5"})
		}, api.CheckVersions, api.SeverityWarning, "store", "3.5 (s2); 3.6 (s1)"},
		"store away":   {func(f *facts) { f.stores[0].Error = "refused" }, api.CheckStore, api.SeverityError, "store s1", "refused"},
		"store alarm":  {func(f *facts) { f.stores[0].Alarms = []string{"NOSPACE"} }, api.CheckStore, api.SeverityError, "store s1", "NOSPACE"},
		"store fills":  {func(f *facts) { f.stores[0].Size = 90 }, api.CheckStore, api.SeverityError, "store s1", "when they are used up"},
		"host away":    {func(f *facts) { f.hosts[0].State = api.HostAway }, api.CheckHosts, api.SeverityError, "host h1", "it is away"},
		"host silent":  {func(f *facts) { f.hosts[0].Age = 3600 }, api.CheckHosts, api.SeverityError, "host h1", "its last word was 1h0m0s ago"},
		"host new":     {func(f *facts) { f.hosts[0].LastWord = "" }, api.CheckHosts, api.SeverityNotice, "host h1", "not reported its status"},
		"host's clock": {func(f *facts) { f.hosts[0].LastWord = now.Add(time.Hour).Format(time.RFC3339) }, api.CheckHosts, api.SeverityNotice, "host h1", "ahead"},
		"host fails":   {func(f *facts) { f.hosts[0].Conditions = []api.Condition{{Name: "data-plane", Message: "no switch"}} }, api.CheckDataPlane, api.SeverityError, "host h1", "no switch"},
		"host's disk": {func(f *facts) {
			f.hosts[0].Conditions = []api.Condition{{Name: "disk", Message: "full"}}
		}, api.CheckDisks, api.SeverityError, "host h1", "full"},
		"host's ports": {func(f *facts) {
			f.hosts[0].Conditions = []api.Condition{{Name: "ports", Message: "2 ports are not programmed"}}
		}, api.CheckDataPlane, api.SeverityError, "host h1", "2 ports"},
		"host's table": {func(f *facts) {
			f.hosts[0].Tables = map[string]api.TableFill{"conns": {Entries: 9, Capacity: 10}}
		}, api.CheckCapacity, api.SeverityNotice, "host h1", "conns has 9 of 10"},
		"host's own clock": { // which is why its last word is old
			func(f *facts) {
				f.inspections, f.hosts[0].Age, f.hosts[0].LastWord = tell(0), 86400, now.Add(-24*time.Hour).UTC().Format(time.RFC3339)
				f.inspections.ahead["h1"] = -24 * time.Hour
			}, api.CheckHosts, api.SeverityWarning, "host h1", "its clock is 24h0m0s behind the answering",
		},
		"host's clock that is a little ahead": {func(f *facts) {
			f.inspections, f.hosts[0].LastWord = tell(0), now.Add(time.Minute).UTC().Format(time.RFC3339)
			f.inspections.ahead["h1"] = time.Minute
		}, api.CheckHosts, api.SeverityNotice, "host h1", "its clock is 1m0s ahead of the answering"},
		"host's own clock that is ahead": { // whose last word is of tomorrow
			func(f *facts) {
				f.inspections, f.hosts[0].Age, f.hosts[0].LastWord = tell(0), 0, now.Add(24*time.Hour).UTC().Format(time.RFC3339)
				f.inspections.ahead["h1"] = 24 * time.Hour
			}, api.CheckHosts, api.SeverityWarning, "host h1", "its clock is 24h0m0s ahead of the answering",
		},
		"host's clock that is behind, of a host that was not asked": {func(f *facts) {
			f.hosts[0].Age, f.hosts[0].LastWord = 3600, now.Add(-time.Hour).UTC().Format(time.RFC3339)
			f.heard = map[string]liveness.StatusArrival{"h1": {At: now}}
		}, api.CheckHosts, api.SeverityWarning, "host h1", "behind the answering"},
		"host that was heard of an hour ago": {func(f *facts) {
			f.hosts[0].LastWord = now.Add(-time.Hour).UTC().Format(time.RFC3339)
			f.heard = map[string]liveness.StatusArrival{"h1": {At: now.Add(-time.Hour)}}
		}, api.CheckHosts, api.SeverityError, "host h1", "its last word was 1h0m"},
		"netmaster's clock": {func(f *facts) {
			f.machines, f.masterClockOffsets = map[string]api.Machine{"m2": {}}, map[string]time.Duration{"m2": 6 * time.Minute}
		}, api.CheckNetmasters, api.SeverityWarning, "netmaster m2", "its clock is 6m0s ahead of the answering"},
		"host's certificate": {func(f *facts) { f.inspections, f.asksHosts, f.keys = tell(3), true, given }, api.CheckCertificates, api.SeverityError, "host h1", "another machine has got a certificate for its name, on 2026-11-27T00:00:00Z by token x"},
		"assertion": {func(f *facts) {
			f.broken = []analysis.Verdict{{Assertion: model.Assertion{Key: model.AssertionKey{Tenant: "blue", Name: "x"}, Overridden: "incident"}, Why: "e1 may"}}
		}, api.CheckOwners, api.SeverityWarning, "assertion blue:x", "e1 may; it was overridden: incident"},
		"pool": {func(f *facts) { f.pools = []api.Pool{{Name: "vlans", Used: 9, Size: 10}} }, api.CheckCapacity, api.SeverityNotice, "vlans", "9 of 10"},
	} {
		f := fine()
		tt.change(&f)
		found := f.judge()
		if len(found) != 1 || found[0].Check != tt.check || found[0].Severity != tt.severity || found[0].Where != tt.where || !strings.Contains(found[0].Text, tt.text) || found[0].Remedy == "" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestOwnerFindingsHaveRemedies: each kind of what does not fit in the store has a remedy, and what
// a repair did not manage says why.
func TestOwnerFindingsHaveRemedies(t *testing.T) {
	for _, kind := range []string{control.NoOwner, control.Leftover, control.NotAllocated, control.MissingObject, control.Unreadable, control.NewerRecord, control.UnknownRecord} {
		if f := ownerFinding(control.OwnerFinding{Kind: kind, Text: "x"}); f.Remedy == "" || f.Severity == "" || f.Check == "" || f.Repair != "" {
			t.Errorf("%s: %+v", kind, f)
		}
	}
	left := control.OwnerFinding{Kind: control.NoOwner, Text: "x", Repair: true}
	if got := ownerFindings([]control.OwnerFinding{left}, []control.Repaired{{OwnerFinding: left, Err: model.ErrConflict}}); len(got) != 1 || !strings.HasPrefix(got[0].Repair, api.RepairFailed+": ") {
		t.Errorf("%+v", got)
	}
}
