package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*api.Client
	t    *testing.T
	url  string
	http *http.Client
	ctrl *control.Controller
	mem  *memory.Store // the server's connection to the store
	log  *bytes.Buffer
}

type testCluster struct{ ctrl *control.Controller }

func (testCluster) Info(context.Context) (api.Info, error) {
	return api.Info{CurrentState: "leader", NetmasterNodes: []string{}, NetpluginNodes: []string{}}, nil
}

func (testCluster) Masters(context.Context) ([]api.Master, error) {
	return []api.Master{{Address: "10.0.0.1:9999", Role: "leader"}}, nil
}

func (testCluster) Stores(context.Context) []api.StoreServer {
	return []api.StoreServer{{Address: "memory"}}
}

func (c testCluster) Health(ctx context.Context) api.Health {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	h := api.Health{Ready: true}
	_, err := c.ctrl.View(ctx)
	condition.MasterStore.Add(&h, err)
	return h
}

// patience bounds what tests wait for: far more than it takes, so that only what
// never comes fails on a machine with other work.
const patience = 3 * time.Minute

// serve runs the API over an in-memory store.
func serve(t *testing.T, timeout time.Duration) *fixture {
	t.Helper()
	return serveWith(t, func(c *Config) { c.Timeout = timeout })
}

// serveWith is serve with other settings.
func serveWith(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, mem: memory.New(), log: new(bytes.Buffer)}
	ctrl := control.New(f.mem, control.Options{})
	f.ctrl = ctrl
	ctx, cancel := context.WithCancel(t.Context())
	watch := ctrl.Hosts.NewHostWatch()
	done := make(chan error, 1)
	go func() {
		watched := make(chan error, 1)
		go func() { watched <- watch.Run(ctx) }()
		done <- errors.Join(ctrl.Run(ctx), <-watched)
	}()
	cfg := Config{
		Control: ctrl, Cluster: testCluster{ctrl}, Watch: watch, Mode: "test",
		Version: api.Version{Version: "2.0"}, Log: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	change(&cfg)
	if cfg.Timeout == 0 { // DefaultTimeout is short for large lists on a busy machine
		cfg.Timeout = patience
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	f.url, f.http = s.URL, s.Client()
	if f.Client, err = api.NewClient(s.URL, api.WithTimeout(patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		s.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("control: %v", err)
		}
	})
	return f
}

// do sends a request and returns status and body.
func (f *fixture) do(method, path, body string) (int, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return f.send(req)
}

// send is do of a request.
func (f *fixture) send(req *http.Request) (int, string) {
	f.t.Helper()
	resp, err := f.http.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode >= 400 && req.Method != http.MethodHead && ct != "text/plain; charset=utf-8" {
		f.t.Errorf("%s %s: error of type %s", req.Method, req.URL, ct)
	}
	return resp.StatusCode, string(b)
}

// must sends a request that has to succeed.
func (f *fixture) must(method, path, body string) string {
	f.t.Helper()
	status, answer := f.do(method, path, body)
	if status != http.StatusOK {
		f.t.Fatalf("%s %s %s: %d %s", method, path, body, status, answer)
	}
	return answer
}

// contents is all that the store holds.
func (f *fixture) contents() map[string]string {
	f.t.Helper()
	kvs, _, err := f.mem.Client().Range(f.t.Context(), "/")
	if err != nil {
		f.t.Fatal(err)
	}
	out := make(map[string]string)
	for _, kv := range kvs {
		out[kv.Key] = string(kv.Value)
	}
	return out
}

// populate makes one of everything.
func (f *fixture) populate() {
	f.t.Helper()
	f.must("POST", "/api/v1/tenants/blue/", `{"tenantName":"blue"}`)
	f.must("POST", "/api/v1/tenants/red/", `{"tenantName":"red"}`)
	f.must("POST", "/api/v1/networks/blue:n/", `{"tenantName":"blue","networkName":"n","encap":"vxlan","subnet":"10.1.1.0/24","gateway":"10.1.1.254"}`)
	f.must("POST", "/api/v1/networks/blue:tiny/", `{"tenantName":"blue","networkName":"tiny","encap":"vlan","pktTag":100,"subnet":"10.9.0.0/30"}`)
	f.must("POST", "/api/v1/policys/blue:p/", `{"tenantName":"blue","policyName":"p"}`)
	f.must("POST", "/api/v1/endpointGroups/blue:web/", `{"tenantName":"blue","groupName":"web","networkName":"n","policies":["p"]}`)
	f.must("POST", "/api/v1/endpointGroups/blue:db/", `{"tenantName":"blue","groupName":"db","networkName":"n","ipPool":"10.1.1.10-10.1.1.11"}`)
	f.must("POST", "/api/v1/rules/blue:p:1/", `{"tenantName":"blue","policyName":"p","ruleId":"1","direction":"in","action":"allow","fromEndpointGroup":"db"}`)
	f.must("POST", "/plugin/createEndpoint", endpoint("n", "web", "e1", "10.1.1.5"))
	f.must("POST", "/plugin/createEndpoint", endpoint("tiny", "", "t1", ""))
	f.must("POST", "/plugin/createEndpoint", endpoint("tiny", "", "t2", ""))
}

func endpoint(network, group, id, ip string) string {
	b, _ := json.Marshal(api.CreateEndpointRequest{
		TenantName: "blue", NetworkName: network, ServiceName: group, EndpointID: id, EPCommonName: "name-" + id,
		ConfigEP: api.ConfigEP{Container: "c-" + id, Host: "host1", IPAddress: ip},
	})
	return string(b)
}

// labelled is a request for an endpoint with labels as given.
func labelled(labels string) string {
	return `{"TenantName":"blue","NetworkName":"n","EndpointID":"e2","ConfigEP":{"Labels":` + labels + `}}`
}

// TestBadInputIsRefusedAndChangesNothing: every refusal has its status, names field and value, and leaves
// the store as it was.
func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	long := strings.Repeat("x", 300)
	tests := []struct {
		method, path, body string
		status             int
		want               []string // in the text
	}{
		{"POST", "/api/v1/tenants/t/", `{not json`, 400, []string{"body", "not valid JSON"}},
		{"POST", "/api/v1/tenants/t/", ``, 400, []string{"body", "empty"}},
		{"POST", "/api/v1/tenants/t/", `{"tenantName":5}`, 400, []string{"tenantName", "string"}},
		{"POST", "/api/v1/tenants/t/", `{"tenantName":"t"} x`, 400, []string{"body", `"x"`}},
		{"POST", "/api/v1/tenants/t/", `{"tenantName":"t","defaultNetwork":["n"]}`, 400, []string{"defaultNetwork", "string"}},
		{"POST", "/api/v1/tenants/t/", `{"tenantName":"u"}`, 400, []string{"key", `"t"`, `"u"`}},
		{"POST", "/api/v1/tenants/t/", `{"tenantName":"t","key":"u"}`, 400, []string{"key", `"t"`, `"u"`}},
		{"PUT", "/api/v1/tenants/t/", `{"tenantName":"t","KEY":"u"}`, 400, []string{"key", `"t"`, `"u"`}},
		{"POST", "/api/v1/networks/blue:m/", `{"key":"blue:other","tenantName":"blue","networkName":"m","encap":"vxlan","subnet":"10.2.0.0/24"}`, 400, []string{"key", "blue:m", "blue:other"}},
		{"POST", "/api/v1/networks/blue:m/", `{"tenantName":"","networkName":"m","encap":"vxlan","subnet":"10.2.0.0/24"}`, 400, []string{"tenantName"}},
		{"POST", "/api/v1/apply", `{"objects":[{"kind":"network","key":"blue:other","tenantName":"blue","networkName":"m","encap":"vxlan","subnet":"10.2.0.0/24"}]}`, 400, []string{"key", "blue:m", "blue:other"}},
		{"POST", "/api/v1/tenants/a%2Fb/", `{"tenantName":"a/b"}`, 400, []string{"tenantName", "a/b"}},
		{"POST", "/api/v1/tenants/" + long + "/", `{"tenantName":"` + long + `"}`, 400, []string{"tenantName", "64 characters"}},
		{"POST", "/api/v1/tenants/t/", `{"tenantName":"t","x":"` + strings.Repeat("y", MaxBody) + `"}`, 413, []string{"body", "1048576"}},
		{"PUT", "/api/v1/tenants/t/", `{"tenantName":"t","defaultNetwork":"nope"}`, 404, []string{"defaultNetwork", "nope"}},
		{"DELETE", "/api/v1/tenants/blue/", ``, 409, []string{"blue", "networks"}},
		{"DELETE", "/api/v1/tenants/default/", ``, 409, []string{"default"}},
		{"DELETE", "/api/v1/tenants/none/", ``, 404, []string{"none"}},
		{"GET", "/api/v1/tenants/none/", ``, 404, []string{"tenant", "none", "does not exist"}},
		{"GET", "/api/v1/networks/nokey/", ``, 404, []string{"network", "nokey"}},
		{"GET", "/api/v1/inspect/endpoints/1", ``, 404, []string{"endpoint", "does not exist"}},
		{"GET", "/api/v1/nothings/", ``, 404, []string{"nothings", "networks"}},
		{"GET", "/nothing", ``, 404, []string{"/nothing"}},
		{"POST", "/api/v1/tenants/", `{"tenantName":"t"}`, 405, []string{"POST", "GET"}},
		{"DELETE", "/api/v1/tenants/", ``, 405, []string{"DELETE"}},
		{"GET", "/plugin/createEndpoint", ``, 405, []string{"POST"}},

		{"POST", "/api/v1/networks/none:n/", `{"tenantName":"none","networkName":"n","encap":"vxlan","subnet":"10.2.0.0/24"}`, 404, []string{"tenant", "none"}},
		{"POST", "/api/v1/networks/blue:m/", `{"tenantName":"blue","networkName":"m","encap":"vxlan","subnet":"10.1.1.128/25"}`, 409, []string{"subnet", "10.1.1.128/25", "10.1.1.0/24"}},
		{"POST", "/api/v1/networks/blue:m/", `{"tenantName":"blue","networkName":"m","encap":"vxlan","subnet":"10.2.0.0/24","gateway":"10.3.0.1"}`, 400, []string{"gateway", "10.3.0.1", "10.2.0.0/24"}},
		{"POST", "/api/v1/networks/blue:m/", `{"tenantName":"blue","networkName":"m","encap":"vxlan","subnet":"10.2.0.50-10.2.0.10/24"}`, 400, []string{"subnet", "10.2.0.50-10.2.0.10/24"}},
		{"POST", "/api/v1/networks/blue:m/", `{"tenantName":"blue","networkName":"m","encap":"vlan","pktTag":100,"subnet":"10.2.0.0/24"}`, 409, []string{"pktTag", "100", "tiny"}},
		{"POST", "/api/v1/networks/blue:m/", `{"tenantName":"blue","networkName":"m","encap":"gre","subnet":"10.2.0.0/24"}`, 400, []string{"encap", "gre", "vlan, vxlan"}},
		{"POST", "/api/v1/networks/blue:web/", `{"tenantName":"blue","networkName":"web","encap":"vxlan","subnet":"10.2.0.0/24"}`, 409, []string{"web", "group"}},
		{"POST", "/api/v1/networks/blue:n/", `{"tenantName":"blue","networkName":"n","encap":"vxlan","subnet":"10.1.2.0/24"}`, 409, []string{"n", "subnet"}},
		{"DELETE", "/api/v1/networks/blue:n/", ``, 409, []string{"blue:n"}},
		{"DELETE", "/api/v1/networks/blue:tiny/", ``, 409, []string{"blue:tiny"}},

		{"POST", "/api/v1/endpointGroups/blue:g/", `{"tenantName":"blue","groupName":"g","networkName":"none"}`, 404, []string{"network", "none"}},
		{"POST", "/api/v1/endpointGroups/blue:g/", `{"tenantName":"blue","groupName":"g","networkName":"n","policies":["p","none"]}`, 404, []string{"polic", "none"}},
		{"POST", "/api/v1/endpointGroups/blue:g/", `{"tenantName":"blue","groupName":"g","networkName":"n","ipPool":"10.1.1.30"}`, 400, []string{"ipPool", "10.1.1.30"}},
		{"POST", "/api/v1/endpointGroups/blue:g/", `{"tenantName":"blue","groupName":"g","networkName":"n","ipPool":"10.5.1.30-10.5.1.40"}`, 400, []string{"ipPool", "10.5.1.30-10.5.1.40"}},
		{"POST", "/api/v1/endpointGroups/blue:g/", `{"tenantName":"blue","groupName":"g","networkName":"n","ipPool":"10.1.1.11-10.1.1.20"}`, 409, []string{"ipPool", "10.1.1.11-10.1.1.20", "db"}},
		{"PUT", "/api/v1/endpointGroups/blue:web/", `{"tenantName":"blue","groupName":"web","networkName":"tiny"}`, 409, []string{"network", "web"}},
		{"POST", "/api/v1/endpointGroups/blue:g/", `{"tenantName":"blue","groupName":"g","networkName":"n","policies":"p"}`, 400, []string{"policies", "array"}},
		{"DELETE", "/api/v1/endpointGroups/blue:web/", ``, 409, []string{"blue:web", "endpoint"}},
		{"DELETE", "/api/v1/endpointGroups/blue:db/", ``, 409, []string{"blue:db", "rule"}},

		{"DELETE", "/api/v1/policys/blue:p/", ``, 409, []string{"blue:p", "web"}},
		{"POST", "/api/v1/rules/blue:none:1/", `{"tenantName":"blue","policyName":"none","ruleId":"1","direction":"in","action":"allow"}`, 404, []string{"policy", "none"}},
		{"POST", "/api/v1/rules/blue:p:2/", `{"tenantName":"blue","policyName":"p","ruleId":"2","direction":"in","action":"allow","fromEndpointGroup":"none"}`, 404, []string{"group", "none"}},
		{"POST", "/api/v1/rules/blue:p:2/", `{"tenantName":"blue","policyName":"p","ruleId":"2","direction":"in","action":"allow","fromNetwork":"none"}`, 404, []string{"network", "none"}},
		{"POST", "/api/v1/rules/blue:p:2/", `{"tenantName":"blue","policyName":"p","ruleId":"2","direction":"in","action":"allow","port":80}`, 400, []string{"port", "80"}},
		{"POST", "/api/v1/rules/blue:p:2/", `{"tenantName":"blue","policyName":"p","ruleId":"2","direction":"in","action":"allow","port":"80","protocol":"tcp"}`, 400, []string{"port", "whole number"}},
		{"POST", "/api/v1/rules/blue:p:1/", `{"tenantName":"blue","policyName":"p","ruleId":"1","direction":"in","action":"deny"}`, 409, []string{"blue:p:1"}},
		{"DELETE", "/api/v1/rules/blue:p:9/", ``, 404, []string{"rule", "blue:p:9"}},

		{"POST", "/api/v1/globals/global/", `{"name":"global","vlans":"1-99"}`, 409, []string{"vlans", "1-99", "100"}},
		{"POST", "/api/v1/globals/global/", `{"name":"global","vlans":"20-10"}`, 400, []string{"vlans", "20-10"}},
		{"POST", "/api/v1/globals/global/", `{"name":"global","arpMode":"flood"}`, 409, []string{"arpMode", "flood"}},
		{"POST", "/api/v1/globals/global/", `{"name":"global","pvtSubnet":"10.2.0.0/24"}`, 400, []string{"pvtSubnet", "10.2.0.0/24"}},
		{"POST", "/api/v1/globals/other/", `{"name":"other"}`, 400, []string{"name", "other"}},
		{"DELETE", "/api/v1/globals/global/", ``, 409, []string{"network"}},

		{"POST", "/plugin/createEndpoint", endpoint("n", "web", "a/b", ""), 400, []string{"EndpointID", "a/b"}},
		{"POST", "/plugin/createEndpoint", endpoint("n", "web", "", ""), 400, []string{"EndpointID"}},
		{"POST", "/plugin/createEndpoint", labelled(`{"app":null}`), 400, []string{"Labels", `"app"`, "must have a text"}},
		{"POST", "/plugin/createEndpoint", labelled(`{"app":"a","App":"b","app":"c"}`), 400, []string{"Labels", `"app" twice`}},
		{"POST", "/plugin/createEndpoint", labelled(`{"app":"a"},"labels":{}`), 400, []string{`"Labels" twice`, "labels"}},
		{"POST", "/plugin/updateEndpoint", `{"Event":"start","Labels":{"app":null}}`, 400, []string{"Labels", `"app"`, "must have a text"}},
		{"POST", "/plugin/createEndpoint", endpoint("none", "", "e2", ""), 404, []string{"network", "none"}},
		{"POST", "/plugin/createEndpoint", endpoint("n", "none", "e2", ""), 404, []string{"group", "none"}},
		{"POST", "/plugin/createEndpoint", endpoint("tiny", "web", "e2", ""), 409, []string{"web", "tiny"}},
		{"POST", "/plugin/createEndpoint", endpoint("n", "", "e2", "10.1.1.5"), 409, []string{"10.1.1.5"}},
		{"POST", "/plugin/createEndpoint", endpoint("n", "", "e2", "10.7.7.7"), 400, []string{"10.7.7.7", "10.1.1.0/24"}},
		{"POST", "/plugin/createEndpoint", endpoint("n", "", "e2", "10.1.1.254"), 400, []string{"10.1.1.254", "gateway"}},
		{"POST", "/plugin/createEndpoint", endpoint("n", "", "e2", "abc"), 400, []string{"IPAddress", "abc"}},
		{"POST", "/plugin/createEndpoint", endpoint("tiny", "", "e2", ""), 409, []string{"tiny"}},
		{"POST", "/plugin/createEndpoint", `{`, 400, []string{"body"}},
		{"POST", "/plugin/deleteEndpoint", `{"TenantName":"blue","NetworkName":"n","EndpointID":"none"}`, 404, []string{"endpoint", "none"}},
		{"POST", "/plugin/updateEndpoint", `{"Event":"pause"}`, 400, []string{"Event", "pause"}},
		{"POST", "/plugin/updateEndpoint", `{"Event":"die","ContainerID":"zzz"}`, 404, []string{"zzz"}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"none.blue"}`, 404, []string{`network "none" of tenant "blue" does not exist`}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n.none"}`, 404, []string{`NetworkID "n.none": tenant "none" does not exist`}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n.blue:none"}`, 404, []string{`endpoint group "none" of tenant "blue" does not exist`}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n:web.none"}`, 404, []string{`tenant "none" does not exist`}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n"}`, 404, []string{`NetworkID "n" names no network; it must be network.tenant`}},
		{"POST", "/plugin/allocAddress", `{"AddressPool":"10.1.1.0/24:none"}`, 404, []string{`AddressPool "10.1.1.0/24:none": tenant "none" does not exist`}},
		{"POST", "/plugin/releaseAddress", `{"NetworkID":"n.none","IPv4Address":"10.1.1.5"}`, 404, []string{`tenant "none" does not exist`}},
		{"POST", "/plugin/updateEndpoint", `{"Event":"start","Tenant":"none","Network":"n","EndpointID":"e1"}`, 404, []string{`Tenant "none" does not exist`}},
		{"POST", "/plugin/createEndpoint", `{"TenantName":"none","NetworkName":"n","EndpointID":"e2","ConfigEP":{"Host":"host1"}}`, 404, []string{`tenant "none" does not exist`}},
		{"POST", "/plugin/allocAddress", `{}`, 400, []string{"NetworkID"}},
		{"POST", "/plugin/allocAddress", `{"AddressPool":"10.1.1.0"}`, 400, []string{"AddressPool", "10.1.1.0"}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n.blue","PreferredIPv4Address":"10.1.1.5"}`, 409, []string{"10.1.1.5"}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n.blue","PreferredIPv4Address":"10.1.1.255"}`, 400, []string{"10.1.1.255"}},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n.blue","PreferredIPv4Address":"abc"}`, 400, []string{"PreferredIPv4Address", "abc"}},
		{"POST", "/plugin/releaseAddress", `{"NetworkID":"n.blue","IPv4Address":"10.1.1.254"}`, 404, []string{"10.1.1.254"}},
		{"POST", "/plugin/releaseAddress", `{"NetworkID":"n.blue","IPv4Address":"10.1.1.5"}`, 409, []string{"10.1.1.5"}},
		{"POST", "/plugin/releaseAddress", `{"NetworkID":"n.blue","IPv4Address":"abc"}`, 400, []string{"IPv4Address", "abc"}},
	}
	before := f.contents()
	for _, tt := range tests {
		status, answer := f.do(tt.method, tt.path, tt.body)
		name := tt.method + " " + clip([]byte(tt.path)) + " " + tt.body[:min(len(tt.body), 150)]
		if status != tt.status {
			t.Errorf("%s: %d %s; want %d", name, status, answer, tt.status)
		}
		for _, w := range tt.want {
			if !strings.Contains(answer, w) {
				t.Errorf("%s: %q lacks %q", name, answer, w)
			}
		}
		if n := strings.Count(answer, "\n"); n != 1 || strings.Contains(answer, ".go:") || strings.Contains(answer, "key not found") {
			t.Errorf("%s: not one sentence: %q", name, answer)
		}
		if d := cmp.Diff(before, f.contents()); d != "" {
			t.Fatalf("%s: the store has changed:\n%s", name, d)
		}
	}
	if strings.Contains(f.log.String(), "request failed") {
		t.Errorf("faults of ours:\n%s", f.log)
	}
}

// TestRoutesTolerateTrailingSlashes: trailing slash or not, HEAD, unknown fields, content types, and
// the paths beside the objects.
func TestRoutesTolerateTrailingSlashes(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	for _, path := range []string{
		"/api/v1/tenants", "/api/v1/tenants/", "/api/v1/networks/blue:n", "/api/v1/networks/blue:n/", "/api/v1/inspect/networks/blue:n",
		"/api/v1/inspect/networks/blue:n/", "/api/v1/inspect/endpoints/e1", "/api/v1/inspect/endpoints/c-e1/", "/api/v1/inspect/endpoints/name-e1",
		"/api/v1/inspect/endpoints/blue:n:e1", "/version", "/info", "/services", "/healthz", "/readyz", "/metrics",
	} {
		f.must("GET", path, "")
		if status, body := f.do("HEAD", path, ""); status != 200 || body != "" {
			t.Errorf("HEAD %s: %d %q", path, status, body)
		}
	}
	if got := f.must("GET", "/services", ""); got != "[]\n" {
		t.Errorf("/services: %q", got)
	}
	if status, _ := f.do("HEAD", "/api/v1/tenants/none/", ""); status != 404 {
		t.Errorf("HEAD of nothing: %d", status)
	}
	if got := f.must("DELETE", "/api/v1/rules/blue:p:1", ""); got != "\"blue:p:1\"\n" {
		t.Errorf("DELETE: %q", got)
	}
	if got := f.must("GET", "/metrics", ""); !strings.Contains(got, `contiv_netmaster_http_requests_total{code="200",method="POST",route="/plugin/createEndpoint"} 3`) ||
		!strings.Contains(got, `contiv_netmaster_http_request_duration_seconds_count{method="POST",route="/plugin/createEndpoint"} 3`) {
		t.Errorf("metrics lack the endpoints' creation:\n%s", got)
	}
	for ct, want := range map[string]int{"application/json": 200, "application/json; charset=utf-8": 200, "application/json; charset=US-ASCII": 200, "": 200, "application/x-www-form-urlencoded": 200, "text/xml": 415, "application/json; charset=utf-16": 415} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/api/v1/tenants/green/", strings.NewReader(`{"tenantName":"green"}`))
		if ct != "" {
			req.Header.Set("Content-Type", ct)
		}
		resp, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Content-Type %q: %d, want %d", ct, resp.StatusCode, want)
		}
	}
}

// TestPagesOfOtherOriginsChangeNothing: a page of another origin cannot change anything.
func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	f := serve(t, 0)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/api/v1/tenants/evil/", strings.NewReader(`{"tenantName":"evil"}`))
	req.Header.Set("Content-Type", "text/plain")
	req.Header.Set("Origin", "http://evil.example")
	resp, err := f.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "http://evil.example") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if status, _ := f.do("GET", "/api/v1/tenants/evil/", ""); status != 404 {
		t.Errorf("it was created: %d", status)
	}
}

// TestEndpointCreationIsRepeatable: creation answers the same when repeated and carries the
// revision; inspections show the endpoint until it is gone.
func TestEndpointCreationIsRepeatable(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	ctx := t.Context()
	req := api.CreateEndpointRequest{
		TenantName: "blue", NetworkName: "n", ServiceName: "db", EndpointID: "e9", EPCommonName: "nine",
		ConfigEP: api.ConfigEP{Container: "c9", Host: "host1", Labels: map[string]string{"app": "db"}},
	}
	first, err := f.CreateEndpoint(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	e := first.EndpointConfig
	if e.IPAddress != "10.1.1.10" || e.MacAddress != "02:02:0a:01:01:0a" || e.EndpointGroupKey != "db:blue" || e.EndpointGroupID == 0 || first.Revision == 0 || e.ContainerID != "c9" {
		t.Errorf("created %+v at %d", e, first.Revision)
	}
	again, err := f.CreateEndpoint(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, again.EndpointConfig); d != "" || again.Revision < first.Revision {
		t.Errorf("repeated at %d: %s", again.Revision, d)
	}
	if o, err := f.InspectEndpoint(ctx, "c9"); err != nil || o.EndpointID != "e9" || o.Labels != "map[app:db]" || o.Key != "c9" || o.IPAddress[0] != "10.1.1.10" {
		t.Errorf("inspect: %+v, %v", o, err)
	}
	if i, err := f.EndpointGroups().Inspect(ctx, "blue:db"); err != nil || i.Oper.NumEndpoints != 1 || i.Oper.AllocatedIPAddresses != "10.1.1.10" || i.Oper.AvailableIPAddresses != "10.1.1.11" {
		t.Errorf("group: %+v, %v", i.Oper, err)
	}
	if i, err := f.Networks().Inspect(ctx, "blue:n"); err != nil || i.Oper.NumEndpoints != 2 || i.Oper.AllocatedAddressesCount != 2 {
		t.Errorf("network: %+v, %v", i.Oper, err)
	}
	gone, err := f.DeleteEndpoint(ctx, api.DeleteEndpointRequest{TenantName: "blue", NetworkName: "n", EndpointID: "e9"})
	if err != nil || gone.EndpointConfig.IPAddress != "10.1.1.10" || gone.Revision <= first.Revision {
		t.Errorf("deleted %+v, %v", gone, err)
	}
	if _, err := f.InspectEndpoint(ctx, "c9"); !api.IsNotFound(err) {
		t.Errorf("after deletion: %v", err)
	}
}

// TestRequestsFailWith503WithoutTheStore: with the store away reads and writes are 503 with a reason,
// and work again by themselves when it is back.
func TestRequestsFailWith503WithoutTheStore(t *testing.T) {
	f := serve(t, 300*time.Millisecond)
	f.populate()
	f.mem.Unavailable(true)
	for _, x := range []struct{ method, path, body string }{
		{"GET", "/api/v1/tenants/", ""},
		{"GET", "/api/v1/inspect/networks/blue:n/", ""},
		{"POST", "/api/v1/tenants/green/", `{"tenantName":"green"}`},
		{"DELETE", "/api/v1/rules/blue:p:1/", ""},
		{"POST", "/plugin/createEndpoint", endpoint("n", "", "e5", "")},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"n.blue"}`},
		{"GET", "/readyz", ""},
	} {
		if status, answer := f.do(x.method, x.path, x.body); status != 503 || !strings.Contains(answer, "store") {
			t.Errorf("%s %s: %d %q", x.method, x.path, status, answer)
		}
	}
	f.must("GET", "/healthz", "")
	f.mem.Unavailable(false)
	deadline := time.Now().Add(patience)
	for {
		if status, _ := f.do("GET", "/readyz", ""); status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not ready again")
		}
	}
	f.must("POST", "/api/v1/tenants/green/", `{"tenantName":"green"}`)
}

// TestUnknownErrorsAre500WithAnID: what has no kind is a 500 with an id that the log explains.
func TestUnknownErrorsAre500WithAnID(t *testing.T) {
	var log bytes.Buffer
	rec := httptest.NewRecorder()
	writeError(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil), slog.New(slog.NewTextHandler(&log, nil)), errors.New("disk on fire"), false)
	answer := rec.Body.String()
	if rec.Code != 500 || strings.Contains(answer, "fire") {
		t.Errorf("%d %q", rec.Code, answer)
	}
	id := strings.TrimSuffix(strings.Fields(answer)[2], ":")
	if !strings.Contains(log.String(), id) || !strings.Contains(log.String(), "disk on fire") {
		t.Errorf("the log lacks id %s or the cause: %s", id, log.String())
	}
	s := &router{serverContext: &serverContext{log: slog.New(slog.NewTextHandler(&log, nil))}}
	rec = httptest.NewRecorder()
	s.answer(rec, &request{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil)}, func() (any, error) { panic("oops") })
	if rec.Code != 500 || strings.Contains(rec.Body.String(), "oops") || !strings.Contains(log.String(), "oops") {
		t.Errorf("panic: %d %q", rec.Code, rec.Body)
	}
}
