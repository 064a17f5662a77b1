package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/access/audit"
	"github.com/contiv/netplugin/v2/internal/apiserver"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what tests wait for on a machine with other work.
const patience = 3 * time.Minute

// alone is the apiserver.Cluster of a netmaster without others.
type alone struct{}

func (alone) Info(context.Context) (api.Info, error)        { return api.Info{}, nil }
func (alone) Masters(context.Context) ([]api.Master, error) { return nil, nil }
func (alone) Stores(context.Context) []api.StoreServer      { return nil }
func (alone) Health(context.Context) api.Health             { return api.Health{Ready: true} }
func discard() *slog.Logger                                 { return slog.New(slog.DiscardHandler) }
func (r *records) Record(e audit.Entry)                     { *r = append(*r, e) }
func (r *records) take() (all []audit.Entry)                { all, *r = *r, nil; return all }

type records []audit.Entry

// server runs the real REST interface over a store in memory.
func server(t *testing.T) http.Handler {
	t.Helper()
	mem := memory.New()
	ctrl := control.New(mem, control.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ctrl.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, mem.Close()); err != nil {
			t.Error(err)
		}
	})
	h, err := apiserver.New(apiserver.Config{Control: ctrl, Cluster: alone{}, Log: discard(), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// serverRoutes are the routes that the server says it has.
func serverRoutes(t *testing.T) []string {
	t.Helper()
	w := httptest.NewRecorder()
	server(t).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/openapi.json", http.NoBody))
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var routes []string
	for path, methods := range doc.Paths {
		for method := range methods {
			routes = append(routes, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routes)
	if len(routes) < 100 {
		t.Fatalf("only %d routes: is it described otherwise now?", len(routes))
	}
	return routes
}

// TestServer: before the real server everybody sees and changes what is theirs, and
// the record says what became of it.
func TestServer(t *testing.T) {
	next := server(t)
	var rec records
	revisions := map[string]int64{}
	h := New(Config{Next: next, Bearers: []Bearer{everybody}, Cluster: town{}, Audit: &rec, Log: discard(), Revision: func(kind, key string) int64 { return revisions[kind+" "+key] }})
	ask := func(who, method, path, body string) (int, string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer is-"+who)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	must := func(status int, who, method, path, body string) (answer string) {
		t.Helper()
		code, answer := ask(who, method, path, body)
		if code != status {
			t.Fatalf("%s %s %s: %d %s, want %d", who, method, path, code, answer, status)
		}
		return answer
	}
	network := func(tenant, subnet string) string {
		return `{"tenantName":"` + tenant + `","networkName":"net","encap":"vxlan","subnet":"` + subnet + `"}`
	}
	must(200, "root", "POST", "/api/v1/globals/global", `{"name":"global","networkInfraType":"default","vlans":"1-4094","vxlans":"1-10000"}`)
	for _, tenant := range []string{"blue", "red"} {
		must(200, "root", "POST", "/api/v1/tenants/"+tenant, `{"tenantName":"`+tenant+`"}`)
	}
	must(403, "blue", "POST", "/api/v1/tenants/blue", `{"tenantName":"blue","sharedNetworks":["red:net"]}`)
	must(200, "root", "POST", "/api/v1/networks/red:net", network("red", "10.1.2.0/24"))
	rec.take()

	// A change, another, one that fails and one that is refused.
	must(200, "blue", "POST", "/api/v1/networks/blue:net", network("blue", "10.1.1.0/24"))
	rec.take()
	profile := func(tenant, dscp string) string {
		return `{"tenantName":"` + tenant + `","profileName":"np","DSCP":` + dscp + `}`
	}
	must(200, "blue", "POST", "/api/v1/netprofiles/blue:np", profile("blue", "10"))
	first := rec.take()
	if len(first) != 1 || first[0].After == 0 || first[0].Before != 0 || first[0].Result != audit.Done || first[0].Who != "blue" || first[0].How != "people" || first[0].Role != "tenant-admin" ||
		first[0].Route != "POST /api/v1/netprofiles/{key}" || len(first[0].Objects) != 1 || first[0].Objects[0] != (audit.Object{Kind: "netprofile", Key: "blue:np"}) || first[0].Status != 200 {
		t.Fatalf("recorded %+v", first)
	}
	revisions["netprofile blue:np"] = first[0].After
	must(200, "blue", "PUT", "/api/v1/netprofiles/blue:np", profile("blue", "20"))
	must(400, "blue", "PUT", "/api/v1/netprofiles/blue:np", profile("red", "20")) // the path lets in, the body does not fit
	must(403, "blue", "DELETE", "/api/v1/networks/red:net", "")
	got := rec.take()
	if len(got) != 3 || got[0].Before != first[0].After || got[0].After <= got[0].Before || got[1].Result != audit.Failed || got[1].After != 0 || got[1].Status != 400 ||
		got[2].Result != audit.Refused || got[2].Why == "" || got[2].Status != 403 {
		t.Errorf("recorded %+v", got)
	}

	// Lists: all, one's own, and nothing.
	keys := func(who, path string) (keys []string) {
		t.Helper()
		var list []struct{ Key string }
		if err := json.Unmarshal([]byte(must(200, who, "GET", path, "")), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			keys = append(keys, o.Key)
		}
		return keys
	}
	for who, want := range map[string]string{"root": "blue:net red:net", "viewer": "blue:net red:net", "blue": "blue:net", "both": "blue:net red:net", "two": "red:net"} {
		if got := strings.Join(keys(who, "/api/v1/networks"), " "); got != want {
			t.Errorf("%s sees %q, want %q", who, got, want)
		}
	}
	if got := strings.Join(keys("blue", "/api/v1/tenants/"), " "); got != "blue" {
		t.Errorf("blue sees tenants %q", got)
	}
	if got := keys("blue", "/api/v1/policys"); got != nil {
		t.Errorf("blue sees policies %q", got)
	}
	if got := must(200, "blue", "GET", "/services", ""); strings.TrimSpace(got) != "[]" {
		t.Errorf("blue sees services %q", got)
	}
	must(200, "blue", "GET", "/api/v1/networks/blue:net", "")
	must(403, "blue", "GET", "/api/v1/networks/red:net", "")
	must(404, "blue", "GET", "/api/v1/networks/blue:none", "")
	must(200, "blue", "GET", "/api/v1/inspect/networks/blue:net", "")

	// Lists to be applied.
	rec.take()
	policy := func(tenant string) string { return `{"kind":"policy","tenantName":"` + tenant + `","policyName":"p"}` }
	must(200, "blue", "POST", "/api/v1/apply", `{"objects":[`+policy("blue")+`,{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"1","direction":"in","action":"deny"}]}`)
	must(403, "blue", "POST", "/api/v1/apply", `{"objects":[`+policy("blue")+`,`+policy("red")+`]}`)
	must(200, "root", "POST", "/api/v1/apply", `{"objects":[`+policy("blue")+`,`+policy("red")+`]}`)
	got = rec.take()
	if len(got) != 3 || got[0].Result != audit.Done || got[0].After == 0 || len(got[0].Objects) != 2 || got[0].Objects[1] != (audit.Object{Kind: "rule", Key: "blue:p:1"}) || got[1].Result != audit.Refused || len(got[2].Objects) != 2 {
		t.Errorf("recorded %+v", got)
	}
	if got := strings.Join(keys("blue", "/api/v1/policys"), " "); got != "blue:p" {
		t.Errorf("blue sees policies %q", got)
	}
	must(404, "root", "GET", "/api/v1/nothing", "") // the server's own sentence
	if got := rec.take(); len(got) != 0 {
		t.Errorf("reading is recorded: %+v", got)
	}
}

// TestNoSecrets: nothing of what a request carries but its object gets into the record.
func TestNoSecrets(t *testing.T) {
	const secret = "a-secret-that-nobody-must-see"
	var out bytes.Buffer
	d := newDoor(t, func(c *Config) {
		c.Audit = audit.New(&out, discard())
		c.Bearers = []Bearer{Shared(func(token string) bool { return token == secret })}
	})
	send := func(method, path, body, authorization string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Authorization", authorization)
		r.Header.Set("X-Auth-Token", secret)
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w.Code
	}
	for _, authorization := range []string{"Bearer " + secret, "bearer " + secret} {
		if got := send("PUT", "/api/v1/networks/blue:net?token="+secret, `{"x":"`+secret+`"}`, authorization); got != http.StatusAccepted {
			t.Errorf("the right token: %d", got)
		}
	}
	for _, authorization := range []string{"Bearer " + secret + "x", "Basic " + secret, secret, "Bearer", "Bearer  " + secret, ""} {
		if got := send("PUT", "/api/v1/networks/blue:net?token="+secret, secret, authorization); got != http.StatusUnauthorized {
			t.Errorf("%q: %d", authorization, got)
		}
	}
	if strings.Count(out.String(), "\n") != 8 || strings.Contains(out.String(), secret[5:20]) {
		t.Error(out.String())
	}
}

// TestRecorded: what changes something, or gives out what lets people in, is recorded with what
// it is about, also where there is no such route; what reads is not.
func TestRecorded(t *testing.T) {
	var rec records
	d := newDoor(t, func(c *Config) { c.Audit = &rec })
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/api/v1/networks", "", ""},
		{"GET", "/api/v2", "", ""},
		{"HEAD", "/api/v2", "", ""},
		{"POST", "/plugin/host", `{"host":"h1"}`, ""},
		{"GET", "/api/v1/backup", "", "GET /api/v1/backup []"},
		{"PUT", "/api/v2", "", " []"},
		{"DELETE", "/api/v1/networks/blue:net/x", "", " []"},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"net.blue","PreferredIPv4Address":"10.0.0.1"}`, "POST /plugin/allocAddress [{address net.blue 10.0.0.1}]"},
		{"POST", "/plugin/allocAddress", `{"AddressPool":"net.red"}`, "POST /plugin/allocAddress [{address net.red }]"},
	} {
		if through, w := d.ask("root", tc.method, tc.path, tc.body); !through {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, w.Code, w.Body)
		}
		var got []string
		for _, e := range rec.take() {
			got = append(got, fmt.Sprintf("%s %v", e.Route, e.Objects))
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s %s %s is recorded as %q, want %q", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
}
