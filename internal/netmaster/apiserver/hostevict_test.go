package apiserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// TestConfirmedEvictionReleasesEndpoints: what a host has is given up when that is confirmed, and not of one
// that is alive; one that drains says so in lists, in its endpoints and as a notice.
func TestConfirmedEvictionReleasesEndpoints(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.addHosts("host1")
	host := func() (h api.Host) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/hosts/host1", "")), &h); err != nil {
			t.Fatal(err)
		}
		return h
	}
	answers := func(method, path, body string, code int, says string) {
		t.Helper()
		if got, answer := f.do(method, path, body); got != code || !strings.Contains(answer, says) {
			t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, got, answer, code, says)
		}
	}
	if host().Endpoints == 0 {
		t.Fatal("the host has no endpoints")
	}
	reg, err := cluster.Register(t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.0.0.1", Port: 4789, Hostname: "host1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	answers("POST", "/api/v1/hosts/host1/drain", `{"drain":false}`, 400, "drain")
	if host().Draining {
		t.Error("it drains, though that was refused")
	}
	answers("POST", "/api/v1/hosts/nosuch/drain", `{}`, 404, "nosuch")
	answers("POST", "/api/v1/hosts/host1/drain", `{}`, 200, `"draining":true`)
	if !host().Draining {
		t.Error("it does not drain")
	}
	if all := f.must("GET", "/api/v1/endpoints?host=host1", ""); strings.Count(all, `"draining":true`) != host().Endpoints {
		t.Errorf("not all endpoints drain: %s", all)
	}
	answers("GET", "/api/v1/status", "", 200, "host host1 drains")
	answers("DELETE", "/api/v1/hosts/host1/drain", "", 200, "host1")
	if host().Draining {
		t.Error("it drains still")
	}
	answers("POST", "/api/v1/hosts/host1/evict?force=true", `{}`, 409, "is alive")
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	answers("POST", "/api/v1/hosts/host1/evict", `{}`, 409, "netctl host evict --force")
	answers("POST", "/api/v1/hosts/host1/evict?force=perhaps", `{}`, 400, "force")
	answers("POST", "/api/v1/hosts/host1/evict", `{"force":true}`, 400, "force")
	if host().Endpoints == 0 {
		t.Error("a refusal released endpoints")
	}
	answers("POST", "/api/v1/hosts/host1/evict?force=true", `{}`, 200, "endpointsReleased")
	if h := host(); h.Endpoints != 0 || h.State != api.HostAway {
		t.Errorf("after all: %+v", h)
	}
	for _, told := range []string{
		`msg="a host drains on request: services send its providers no new connections" host=host1`,
		`msg="a host was uncordoned on request" host=host1`, `msg="a host was evicted on request" host=host1`,
	} {
		if n := strings.Count(f.log.String(), told); n != 1 {
			t.Errorf("the log has %d times %s", n, told)
		}
	}
}
