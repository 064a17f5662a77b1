package api

import (
	"encoding/json"
	"testing"
)

// What a tenant-admin is not shown is left out, where zeros would say that there is none.
func TestHiddenFieldsAreLeftOut(t *testing.T) {
	host := Host{Name: "h1", State: HostAlive, Age: 3, Endpoints: 2}
	status := ClusterStatus{Well: true, Wrong: []string{}, Notices: []string{}, Masters: []Master{}, Stores: []StoreServer{}, Hosts: []Host{}, Pools: []Pool{}}
	fields := func(v any) map[string]any {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	check := func(all, seen map[string]any, hidden ...string) {
		t.Helper()
		for _, name := range hidden {
			if _, is := all[name]; !is {
				t.Errorf("a cluster-admin is not told %s: %v", name, all)
			}
			if v, is := seen[name]; is {
				t.Errorf("a tenant-admin is told that %s is %v", name, v)
			}
		}
		if want := len(all) - len(hidden) + 1; len(seen) != want { // tenants
			t.Errorf("%d fields are left of %v: %v", len(seen), all, seen)
		}
	}
	all := fields(host)
	host.Tenants = []string{"blue"}
	check(all, fields(host), "attachments", "ports", "pending", "revision", "verifiedAgeSeconds")
	all = fields(status)
	status.Tenants = []string{"blue"}
	check(all, fields(status), "revision", "masters", "stores")
}
