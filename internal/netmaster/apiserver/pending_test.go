package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestChangesWaitForConfirmation: objects wait until they are confirmed or taken back, are refused by field
// and by time, and while a host does not know how to go back.
func TestChangesWaitForConfirmation(t *testing.T) {
	f := serve(t, 0)
	agent := func(confirms string) {
		t.Helper()
		f.must("POST", "/plugin/host", `{"version":1,"host":"h1","installation":"i1","since":"2026-11-22T00:00:00Z","control":"10.0.0.1","vtep":"10.0.0.1",
			"vxlanPort":8472,"format":1,"agentVersion":"2.0","look":true`+confirms+`}`)
	}
	request := api.PendingRequest{Objects: objects(`{"kind":"global","name":"global","fwdMode":"routing"}`), Within: "1m"}
	agent("")
	if _, err := f.ApplyPending(t.Context(), request); !api.IsConflict(err) || !strings.Contains(err.Error(), "h1") {
		t.Errorf("with a host that does not go back: %v", err)
	}
	agent(`,"confirms":true`)
	p, err := f.ApplyPending(t.Context(), request)
	if err != nil || p.Within != 60 || p.Left < 1 || len(p.Objects) != 1 || p.Objects[0] != (api.PendingObject{Kind: "global", Key: "global"}) {
		t.Fatalf("%+v, %v", p, err)
	}
	mode := func() string {
		t.Helper()
		g, err := f.Globals().Get(t.Context(), "global")
		if err != nil {
			t.Fatal(err)
		}
		return g.FwdMode
	}
	if all, err := f.Pending(t.Context()); err != nil || len(all) != 1 || all[0].ID != p.ID || mode() != "bridge" {
		t.Errorf("%+v waits, %v, mode %q", all, err, mode())
	}
	if err := f.Confirm(t.Context(), p.ID); err != nil || mode() != "routing" {
		t.Errorf("confirmed: %v, mode %q", err, mode())
	}
	if err := f.Revert(t.Context(), p.ID); !api.IsNotFound(err) {
		t.Errorf("taken back afterwards: %v", err)
	}
	for body, words := range map[string]string{
		`{"objects":[],"within":"soon"}`:                                              "such as 60s",
		`{"objects":[],"within":"1s"}`:                                                "between 10s",
		`{"objects":[{"kind":"global","name":"global","fwdMode":"x"}],"within":"1m"}`: "fwdMode",
	} {
		if code, text := f.do("POST", "/api/v1/pending", body); code != http.StatusBadRequest || !strings.Contains(text, words) {
			t.Errorf("%s: %d %q", body, code, text)
		}
	}
}
