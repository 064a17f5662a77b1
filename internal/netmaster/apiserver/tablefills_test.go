package apiserver

import (
	"encoding/json"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// TestFullTableOfAHostIsACondition: the status names a host's table that is 80 % full, and
// none that is less so or that has no bound.
func TestFullTableOfAHostIsACondition(t *testing.T) {
	f := serve(t, 0)
	send := func(path string, v any) {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		f.must("POST", path, string(b))
	}
	send("/plugin/host", api.HostReport{
		Version: api.HostReportVersion, Host: "h1", Installation: "i1", Boot: "b1", Since: "2026-11-22T00:00:00Z", Control: "10.0.0.1", VTEP: "10.0.0.1", VXLANPort: 4789, Driver: "ebpf", Format: 1,
	})
	send("/plugin/hostStatus", api.HostStatusReport{
		Version: api.HostReportVersion, Host: "h1", Installation: "i1", Driver: "ebpf", Updated: "2026-11-22T00:00:01Z", Ready: true,
		Tables: map[string]api.TableFill{"affines": {Entries: 1639, Capacity: 2048}, "conns": {Entries: 1600, Capacity: 2048}, "free": {Entries: 9999}},
	})
	var status api.ClusterStatus
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &status); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range status.Findings {
		if x.Name == condition.TableFills.Name() {
			got = append(got, x.Text)
		}
	}
	if len(got) != 1 || got[0] != "table affines has 1639 of 2048 entries" {
		t.Errorf("findings of tables: %q", got)
	}
}
