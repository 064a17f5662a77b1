package apiserver

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// TestOlderStoreIsReported: after the store returned to an older state there are problems, and the
// doctor says why.
func TestOlderStoreIsReported(t *testing.T) {
	f := serve(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// It waits: a backup from before the cluster has written its identity is another store's.
	if _, _, err := f.ctrl.Store.Identity(ctx); err != nil {
		t.Fatal(err)
	}
	backup := f.mem.Data()
	f.populate()
	f.must("GET", "/api/v1/status", "")
	f.mem.Replace(backup, 0)
	deadline := time.Now().Add(time.Minute)
	for {
		var s api.ClusterStatus
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &s); err != nil {
			t.Fatal(err)
		}
		if wrong := strings.Join(s.Wrong, "\n"); strings.Contains(wrong, "older state") {
			if s.Well {
				t.Error("all is well")
			}
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("not told: %q", wrong)
		}
	}
	var d api.Diagnosis
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/doctor", "")), &d); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, x := range d.Findings {
		found = found || x.Check == api.CheckStore && x.Severity == api.SeverityError && strings.Contains(x.Text, "older state")
	}
	if !found {
		t.Errorf("the doctor finds %+v", d.Findings)
	}
}
