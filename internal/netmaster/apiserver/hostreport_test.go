package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// TestAgentReportsAreShown: what agents tell of their hosts is shown, by who has the host's
// name only; what cannot be read is refused by field.
func TestAgentReportsAreShown(t *testing.T) {
	f := serve(t, 0)
	report := api.HostReport{
		Version: api.HostReportVersion, Host: "h1", Installation: "i1", Boot: "b1", Since: "2026-11-22T00:00:00Z",
		Control: "10.0.0.1", VTEP: "10.1.0.1", IPv6: "2001:db8:9::1", VXLANPort: 8472, Driver: "ovs", Store: "s/1", Format: 1, AgentVersion: "2.0",
		Listening: []string{"10.0.0.1:9090"}, Look: true, AnswersProbes: true,
	}
	tell := func(path string, v any, out any) {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if text := f.must("POST", path, string(b)); out != nil {
			if err := json.Unmarshal([]byte(text), out); err != nil {
				t.Fatal(err)
			}
		}
	}
	fails := func(path, body string, status int, words string) {
		t.Helper()
		if code, text := f.do("POST", path, body); code != status || !strings.Contains(text, words) {
			t.Errorf("POST %s %s: %d %q, want %d and %q", path, body, code, text, status, words)
		}
	}
	host := func() (h api.Host) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/hosts/h1", "")), &h); err != nil {
			t.Fatal(err)
		}
		return h
	}
	var kept api.HostReportResponse
	tell("/plugin/host", report, &kept)
	if kept.Taken != "" || !strings.Contains(kept.Wrote, "host record") {
		t.Errorf("the first word: %+v", kept)
	}
	h := host()
	if h.State != api.HostAlive || h.Control != "10.0.0.1" || h.VTEP != "10.1.0.1" || h.VXLANPort != 8472 || h.Driver != "ovs" || h.Format != 1 {
		t.Errorf("shown: %+v", h)
	}
	// What a host reports it has, no native network may hold.
	for _, subnet := range []string{`"subnet":"10.0.0.0/24"`, `"subnet":"10.1.0.0/24"`, `"ipv6Subnet":"2001:db8:9::/64"`} {
		body := `{"tenantName":"default","networkName":"over","encap":"vxlan","native":true,` + subnet + `}`
		if code, text := f.do("POST", "/api/v1/networks/default:over/", body); code != http.StatusConflict || !strings.Contains(text, "of host \"h1\"") {
			t.Errorf("%s: %d %q", body, code, text)
		}
	}
	other := report
	other.Installation, other.TakeHost = "i2", true
	kept = api.HostReportResponse{}
	tell("/plugin/host", other, &kept)
	if !strings.Contains(kept.Taken, "is in use") || !strings.Contains(kept.Taken, report.Since) || kept.Former {
		t.Errorf("another installation: %+v", kept)
	}
	copied := report
	copied.Boot = "b2"
	kept = api.HostReportResponse{}
	tell("/plugin/host", copied, &kept)
	if kept.Taken == "" || !kept.Former {
		t.Errorf("a copy: %+v", kept)
	}
	status := api.HostStatusReport{
		Version: api.HostReportVersion, Host: "h1", Installation: "i1", Driver: "ovs", DriverWhy: "asked for", AgentVersion: "2.0",
		Updated: "2026-11-22T00:00:11Z", Verified: "2026-11-22T00:00:01Z", Revision: 7, Ports: 2, Pending: 1, Error: "e", Problems: map[string]string{"port a": "p", "BGP session 50.1.1.2": "none"}, Attachments: 3, Ready: true,
		Conditions: []api.Condition{{Name: "ports", Message: "m", Severity: "warning"}}, Kinds: map[string]int{"port": 1},
		Tables: map[string]api.TableFill{"conns": {Entries: 4, Capacity: 5}},
		BGP:    &api.BgpStatus{Admin: "enabled", Neighbors: "50.1.1.1 established", Routes: 7, First: []string{"10.50.0.0/16"}, Announced: 3},
	}
	status.Surroundings = &api.UnderlayNetworks{Addresses: []string{"10.0.0.1"}, VLANs: []int{10}}
	tell("/plugin/hostStatus", status, nil)
	seen, err := f.ctrl.Hosts.HostStatuses(t.Context())
	if want := (control.UnderlayNetworks{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, VLANs: []uint16{10}}); err != nil || len(seen) != 1 || !reflect.DeepEqual(seen[0].Surroundings, &want) {
		t.Errorf("surroundings: %+v, %v", seen, err)
	}
	for _, bad := range []api.UnderlayNetworks{{Addresses: []string{"x"}}, {VLANs: []int{4095}}, {VLANs: make([]int, 65)}} {
		wrong := status
		wrong.Surroundings = &bad
		if _, err := HostStatus(wrong); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("surroundings %+v: %v", bad, err)
		}
	}
	h = host()
	want := api.Host{
		LastWord: status.Updated, DriverWhy: "asked for", Version: "2.0", Attachments: 3, Ports: 2, Pending: 1, Revision: 7, VerifiedAge: 10,
		Problems: status.Problems, Error: "e", Tables: status.Tables, Ready: true, Conditions: status.Conditions,
	}
	got := api.Host{
		LastWord: h.LastWord, DriverWhy: h.DriverWhy, Version: h.Version, Attachments: h.Attachments, Ports: h.Ports, Pending: h.Pending, Revision: h.Revision, VerifiedAge: h.VerifiedAge - h.Age,
		Problems: h.Problems, Error: h.Error, Tables: h.Tables, Ready: h.Ready, Conditions: h.Conditions,
	}
	want.Conditions[0].Remedy, want.Conditions[0].Page, want.Conditions[0].Severity = condition.HostPorts.Remedy(), condition.HostPorts.Page(), condition.HostPorts.Severity()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	f.must("POST", "/api/v1/Bgps/h1/", `{"hostname":"h1","routerip":"50.1.1.2/24","as":"1","neighbor-as":"2"}`)
	const oper = `"Oper":{"adminStatus":"enabled","neighborStatus":"50.1.1.1 established","numRoutes":7,"routes":["10.50.0.0/16"],"announced":3,"problems":["BGP session 50.1.1.2: none"]}`
	if said := f.must("GET", "/api/v1/inspect/Bgps/h1/", ""); !strings.Contains(said, oper) {
		t.Errorf("BGP: %s", said)
	}
	status.Installation = "i2"
	b, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	fails("/plugin/hostStatus", string(b), http.StatusConflict, "not leased to installation")
	for field, body := range map[string]string{
		"version":      `{"version":2,"host":"h1","installation":"i"}`,
		"installation": `{"version":1,"host":"h1"}`,
		"host":         `{"version":1,"host":"h 1","installation":"i"}`,
		"control":      `{"version":1,"host":"h1","installation":"i","control":"x"}`,
		"vtep":         `{"version":1,"host":"h1","installation":"i","control":"10.0.0.1"}`,
		"ipv6":         `{"version":1,"host":"h1","installation":"i","control":"10.0.0.1","vtep":"10.0.0.1","ipv6":"10.0.0.2"}`,
		"vxlanPort":    `{"version":1,"host":"h1","installation":"i","control":"10.0.0.1","vtep":"10.0.0.1"}`,
		"listening":    `{"version":1,"host":"h1","installation":"i","control":"10.0.0.1","vtep":"10.0.0.1","vxlanPort":4789,"listening":["x"]}`,
	} {
		fails("/plugin/host", body, http.StatusBadRequest, field)
	}
	tell("/plugin/hostsHeard", api.HostHeartbeats{Hosts: []string{"h7"}}, nil)
	report.Leaving = true
	tell("/plugin/host", report, nil)
	if h := host(); h.State != api.HostAway {
		t.Errorf("after it has left: %+v", h)
	}
}

// TestHostGetsTheAddressesItAnnounces: a host gets the addresses for which it answers, and a malformed
// report is refused.
func TestHostGetsTheAddressesItAnnounces(t *testing.T) {
	f := serve(t, 5*time.Second)
	for field, body := range map[string]string{
		"version":      `{"version":2,"host":"h1","installation":"i"}`,
		"installation": `{"version":1,"host":"h1"}`,
		"host":         `{"version":1,"host":"h 1","installation":"i"}`,
		"able":         `{"version":1,"host":"h1","installation":"i","able":["::ffff:10.0.0.1"]}`,
	} {
		if code, text := f.do("POST", "/plugin/answer", body); code != http.StatusBadRequest || !strings.Contains(text, field) {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	if text := f.must("POST", "/plugin/answer", `{"version":1,"host":"h1","installation":"i","able":["203.0.113.7"]}`); strings.TrimSpace(text) != `{"held":[]}` {
		t.Errorf("an address that is no service's: %s", text)
	}
}
