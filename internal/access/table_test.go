package access

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/access/refusal"
)

// people is a Bearer whose tokens are names.
type people map[string]Identity

func (p people) Takes(token string) bool { return strings.HasPrefix(token, "is-") }

func (p people) Identify(r context.Context, token string) (Identity, error) {
	id, ok := p[strings.TrimPrefix(token, "is-")]
	if !ok {
		return Identity{How: "people"}, refusal.Unauthorized("nobody has that name")
	}
	return id, r.Err()
}

func one(name string, grants ...Grant) Identity {
	return Identity{Name: name, How: "people", Grants: grants}
}

var everybody = people{
	"root":   one("root", Grant{Role: ClusterAdmin}),
	"viewer": one("viewer", Grant{Role: Viewer}),
	"blue":   one("blue", Grant{Role: TenantAdmin, Tenants: []string{"blue"}}),
	"h1":     one("h1", Grant{Role: Host}),
	"master": one("master", Grant{Role: Netmaster}),
	"both":   one("both", Grant{Role: TenantAdmin, Tenants: []string{"green"}}, Grant{Role: Viewer}, Grant{Role: TenantAdmin, Tenants: []string{"blue"}}),
	"two":    one("two", Grant{Role: TenantAdmin, Tenants: []string{"green"}}, Grant{Role: TenantAdmin, Tenants: []string{"red"}}),
	"nobody": {Name: "nobody", How: "people", Note: "there is no group"},
	"odd":    one("odd", Grant{Role: "root"}),
}

// town is a Cluster in which blue has e1 on h1, and red has e2 on h2.
type town struct{ err error }

func (c town) FindEndpoints(_ context.Context, text string) ([]Endpoint, error) {
	switch text {
	case "blue:net:e1", "e1":
		return []Endpoint{{"blue", "h1"}}, c.err
	case "red:net:e2", "e2":
		return []Endpoint{{"red", "h2"}}, c.err
	case "shared":
		return []Endpoint{{"blue", "h1"}, {"red", "h2"}}, c.err
	}
	return nil, c.err
}

func (c town) NamedEndpoint(r context.Context, tenant, network, id string) ([]Endpoint, error) {
	return c.FindEndpoints(r, tenant+":"+network+":"+id)
}

func (c town) AddressHosts(_ context.Context, _, address string) ([]string, error) {
	return map[string][]string{"10.0.0.1": {"h1"}, "10.0.0.2": {"h2"}, "10.0.0.3": {""}}[address], c.err
}

// want is who may what, once more and by hand: v = viewer, t = tenant admin of what is
// its own, T = whatever it is about, h and H = a host likewise, n = netmaster. Cluster
// admins may all.
var want = map[string]string{
	"GET /version": "vTHn", "GET /openapi.json": "vTHn",
	"GET /metrics": "v", "GET /info": "v", "GET /debug/ofnet": "v", "GET /services": "vT", "GET /service/{id}": "vt",
	"GET /api/v1/status": "vT", "GET /api/v1/store": "vT", "POST /api/v1/store/adopt": "", "GET /api/v1/backup": "",
	"GET /api/v1/doctor": "v", "POST /api/v1/doctor/repair": "",
	"GET /api/v1/cluster/members": "v", "POST /api/v1/cluster/tokens": "", "DELETE /api/v1/cluster/members/{name}": "", "POST /api/v1/cluster/relieve": "",
	"POST /api/v1/cluster/authorities/renew": "",
	"GET /api/v1/doctor/netmaster":           "vn", "GET /api/v1/bundle": "", "GET /api/v1/hosts/{name}/bundle": "", "POST /plugin/report/{id}": "h",
	"GET /api/v1/hosts": "vT", "GET /api/v1/hosts/{name}": "vT", "DELETE /api/v1/hosts/{name}": "",
	"POST /api/v1/hosts/{name}/evict": "", "POST /api/v1/hosts/{name}/drain": "", "DELETE /api/v1/hosts/{name}/drain": "",
	"POST /api/v1/hosts/{name}/addresses/{address}": "", "DELETE /api/v1/hosts/{name}/addresses/{address}": "",
	"GET /api/v1/tokens": "", "POST /api/v1/tokens": "", "DELETE /api/v1/tokens/{id}": "",
	"GET /api/v1/monitor": "vT", "POST /api/v1/release": "", "POST /api/v1/apply": "t",
	"GET /api/v1/pending": "v", "POST /api/v1/pending": "", "POST /api/v1/pending/{id}/confirm": "", "DELETE /api/v1/pending/{id}": "",
	"GET /api/v1/endpoints": "vth", "GET /api/v1/inspect/endpoints/{key}": "vt",
	"POST /api/v1/endpoints/{key}/drain": "t", "DELETE /api/v1/endpoints/{key}/drain": "t",
	"GET /api/v1/networkPolicys/{key}/rules/{rule}": "vt", "PUT /api/v1/networkPolicys/{key}/rules/{rule}": "t", "DELETE /api/v1/networkPolicys/{key}/rules/{rule}": "t",
	"GET /api/v1/clusterServices": "v", "GET /api/v1/clusterServices/{namespace}/{name}": "v", "GET /api/v1/serviceLBs/{key}/counts": "vt",
	"DELETE /debug/epcleanup/tenant/{tenant}/{what}/{id}": "",
	"POST /plugin/pod": "H", "POST /plugin/createEndpoint": "h", "POST /plugin/deleteEndpoint": "h", "POST /plugin/updateEndpoint": "h",
	"POST /plugin/allocAddress": "h", "POST /plugin/releaseAddress": "h", "POST /plugin/host": "h", "POST /plugin/hostStatus": "h", "POST /plugin/answer": "h",
	"POST /plugin/monitor/{id}": "h", "POST /plugin/hostsHeard": "n", "POST /plugin/mirror": "H",
}

// observations are told often, and are no changes of what somebody wants.
var observations = []string{"POST /plugin/pod", "POST /plugin/host", "POST /plugin/hostStatus", "POST /plugin/answer", "POST /plugin/monitor/{id}", "POST /plugin/report/{id}", "POST /plugin/hostsHeard", "POST /plugin/mirror"}

// wanted is want, and the same for collections.
func wanted(t *testing.T, route string) string {
	t.Helper()
	if w, ok := want[route]; ok {
		return w
	}
	method, path, _ := strings.Cut(route, " ")
	path, ok := strings.CutPrefix(path, "/api/v1/")
	if !ok {
		t.Errorf("%s is not in the table of this test", route)
		return ""
	}
	path, inspect := strings.CutPrefix(path, "inspect/")
	collection, key, one := strings.Cut(path, "/")
	if one && key != "{key}" || inspect && !one || !one && method != http.MethodGet {
		t.Errorf("%s is not in the table of this test, and not of a collection", route)
	}
	switch collection {
	case "globals", "aciGws", "Bgps":
		return map[bool]string{true: "v"}[method == http.MethodGet]
	case "tenants":
		if method != http.MethodGet {
			return ""
		}
	case "networks", "endpointGroups", "policys", "networkPolicys", "rules", "netprofiles", "serviceLBs", "appProfiles", "extContractsGroups", "volumes", "volumeProfiles":
		if method != http.MethodGet {
			return "t"
		}
	default:
		t.Errorf("%s: a collection that this test does not know", route)
	}
	hosts := ""
	if !inspect && (collection == "networks" || collection == "endpointGroups" || collection == "tenants" && one) {
		hosts = "H" // what a host shows to its Docker engine
	}
	if one {
		return "vt" + hosts
	}
	return "vT" + hosts // the list shows a tenant's own
}

// request makes one for a route, about things of blue and h1, or of red and h2.
func request(route string, own bool) (method, path, body string) {
	tenant, host, id, address := "blue", "h1", "e1", "10.0.0.1"
	if !own {
		tenant, host, id, address = "red", "h2", "e2", "10.0.0.2"
	}
	method, path, _ = strings.Cut(route, " ")
	key := tenant + ":net"
	if strings.Contains(path, "endpoints/") {
		key += ":" + id
	}
	if strings.Contains(path, "/tenants/") {
		key = tenant
	}
	path = strings.NewReplacer("{key}", key, "{name}", host, "{tenant}", tenant, "{what}", "net", "{namespace}", "ns", "{address}", "10.0.0.7").Replace(path)
	switch route {
	case "GET /service/{id}":
		path = "/service/web:" + tenant
	case "POST /plugin/report/{id}":
		path += "?host=" + host
	case "GET /api/v1/endpoints":
		path += "?tenant=" + tenant + "&host=" + host
	case "POST /api/v1/apply", "POST /api/v1/pending":
		body = `{"objects":[{"kind":"network","tenantName":"blue","networkName":"a"},{"kind":"rule","TENANTNAME":"` + tenant + `"}]}`
	case "POST /plugin/monitor/{id}":
		path += "?host=" + host
	case "POST /plugin/createEndpoint":
		body = `{"TenantName":"` + tenant + `","ConfigEP":{"Host":"` + host + `"}}`
	case "POST /plugin/deleteEndpoint":
		body = `{"TenantName":"` + tenant + `","NetworkName":"net","EndpointID":"` + id + `"}`
	case "POST /plugin/updateEndpoint":
		body = `{"Tenant":"` + tenant + `","Network":"net","EndpointID":"` + id + `","Event":"start"}`
	case "POST /plugin/allocAddress":
		body = `{"NetworkID":"net.` + tenant + `","Host":"` + host + `"}`
	case "POST /plugin/releaseAddress":
		body = `{"NetworkID":"net.` + tenant + `","IPv4Address":"` + address + `"}`
	case "POST /plugin/host", "POST /plugin/hostStatus", "POST /plugin/answer":
		body = `{"host":"` + host + `"}`
	}
	return method, strings.NewReplacer("{id}", id).Replace(path), body
}

// door is a Handler before a server that notes what gets through.
type door struct {
	http.Handler
	t    *testing.T
	body string // of the last request that got through
	asks Identity
}

func newDoor(t *testing.T, change func(*Config)) *door {
	t.Helper()
	d := &door{t: t}
	cfg := Config{Bearers: []Bearer{everybody}, Cluster: town{}, Log: slog.New(slog.DiscardHandler), Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		d.body, d.asks = string(b), From(r.Context())
		if r.Header.Get("Authorization") != "" {
			t.Error("the server is shown the token")
		}
		w.WriteHeader(http.StatusAccepted)
	})}
	if change != nil {
		change(&cfg)
	}
	d.Handler = New(cfg)
	return d
}

// ask returns whether a request gets through, and the answer.
func (d *door) ask(who, method, path, body string) (through bool, w *httptest.ResponseRecorder) {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if who != "" {
		r.Header.Set("Authorization", "Bearer is-"+who)
	}
	w = httptest.NewRecorder()
	d.body, d.asks = "not asked", Identity{}
	d.ServeHTTP(w, r)
	if who != "" && r.Header.Get("Authorization") == "" {
		d.t.Error("the caller's own request was changed")
	}
	through = d.body != "not asked"
	if through != (w.Code == http.StatusAccepted) {
		d.t.Fatalf("%s %s %s: through %v, status %d", who, method, path, through, w.Code)
	}
	return through, w
}

// TestEveryRoute: the table has just the routes that the server has, and each role may
// ask just what it should, with and without a trailing slash.
func TestEveryRoute(t *testing.T) {
	routes := serverRoutes(t)
	for route := range table {
		if !slices.Contains(routes, route) {
			t.Errorf("the table has %s, which the server has not", route)
		}
	}
	d := newDoor(t, nil)
	for _, route := range routes {
		ru, ok := table[route]
		if !ok {
			t.Errorf("the table has no row for %s", route)
			continue
		}
		if ru.open {
			if route != "GET /healthz" && route != "GET /readyz" {
				t.Errorf("%s is open to all", route)
			}
			if through, _ := d.ask("", "GET", strings.TrimPrefix(route, "GET "), ""); !through {
				t.Errorf("%s is not open", route)
			}
			continue
		}
		if recorded := !strings.HasPrefix(route, "GET ") && !slices.Contains(observations, route) || route == "GET /api/v1/backup" || strings.HasPrefix(route, "GET ") && strings.HasSuffix(route, "/bundle"); recorded != (ru.does == changes) {
			t.Errorf("%s: is it recorded?", route)
		}
		may := wanted(t, route)
		for _, own := range []bool{true, false} {
			method, path, body := request(route, own)
			for _, slash := range []bool{false, true} {
				if slash {
					before, query, has := strings.Cut(path, "?")
					if path = before + "/"; has {
						path += "?" + query
					}
				}
				for who, yes := range map[string]bool{
					"root": true, "viewer": strings.Contains(may, "v"), "master": strings.Contains(may, "n"),
					"blue": strings.Contains(may, "T") || own && strings.Contains(may, "t"),
					"h1":   strings.Contains(may, "H") || own && strings.Contains(may, "h"),
					"both": strings.ContainsAny(may, "vT") || own && strings.Contains(may, "t"),
					"":     false, "nobody": false, "odd": false, "unheard of": false,
				} {
					through, w := d.ask(who, method, path, body)
					if through != yes {
						t.Errorf("%q %s %s (own: %v): let through %v, want %v: %s", who, method, path, own, through, yes, w.Body)
					}
					if through && (d.body != body || d.asks.Name != who) {
						t.Errorf("%q %s %s: the server gets %q of %v", who, method, path, d.body, d.asks)
					}
					if _, known := everybody[who]; !through && (w.Code != 403 || !strings.Contains(w.Body.String(), "has no right to")) == known {
						t.Errorf("%q %s %s: %d %s", who, method, path, w.Code, w.Body)
					}
				}
			}
		}
	}
}

// A refusal says who asks, and which role is needed; whose something else is, it does not.
func TestSentences(t *testing.T) {
	d := newDoor(t, nil)
	for _, tc := range []struct{ who, method, path, body, want string }{
		{"", "GET", "/api/v1/networks", "", "who asks is not known: show a certificate"},
		{"viewer", "DELETE", "/api/v1/networks/blue:net", "", "viewer (people, viewer) has no right to this; it needs the role cluster-admin or tenant-admin of its tenant"},
		{"blue", "DELETE", "/api/v1/networks/red:net", "", "blue (people, tenant-admin of blue) has no right to this: it is not about blue alone; it needs the role cluster-admin or tenant-admin of its tenant"},
		{"blue", "GET", "/api/v1/endpoints", "", "choose one tenant's: netctl endpoint ls --tenant NAME; it needs"},
		{"blue", "GET", "/api/v1/endpoints?tenant=red", "", "it is not about blue alone"},
		{"blue", "GET", "/api/v1/inspect/endpoints/e2", "", "it is not about blue alone"},
		{"blue", "GET", "/api/v1/inspect/endpoints/none", "", "it is not about blue alone"},         // as if it were another's
		{"both", "POST", "/api/v1/endpoints/shared/drain", "", "it is not about green, blue alone"}, // it sees all: which one is meant?
		{"h1", "POST", "/plugin/host", `{"host":"h2"}`, `it is about host "h2", and an agent may change what its own host has; it needs the role cluster-admin or host that has it`},
		{"h1", "GET", "/api/v1/endpoints?tenant=blue", "", `it is about host "", and an agent may change what its own host has`},
		{"h1", "POST", "/plugin/releaseAddress", `{"IPv4Address":"10.0.0.3"}`, `it is about host ""`},
		{"h1", "POST", "/plugin/host", `rubbish`, "it cannot be found out whose it is"},
		{"h1", "POST", "/plugin/updateEndpoint", `rubbish`, "it cannot be found out whose it is"},
		{"nobody", "GET", "/version", "", "nobody (people, without a role) has no right to anything: there is no group"},
		{"viewer", "POST", "/plugin/allocAddress", "{}", "it needs the role cluster-admin\n"},
		{"h1", "POST", "/plugin/hostsHeard", "{}", "it needs the role cluster-admin or netmaster"},
		{"viewer", "GET", "/api/v2", "", "there is no such route for its role; it needs the role cluster-admin"},
		{"viewer", "GET", "/api/v1/networks/a/b", "", "there is no such route"},
		{"viewer", "PATCH", "/api/v1/networks/blue:a", "", "there is no such route"},
	} {
		through, w := d.ask(tc.who, tc.method, tc.path, tc.body)
		if through || !strings.Contains(w.Body.String(), tc.want) || strings.Contains(w.Body.String(), "red,") {
			t.Errorf("%s %s %s: %d %s, want %q", tc.who, tc.method, tc.path, w.Code, w.Body, tc.want)
		}
	}
	for _, path := range []string{"/api/v2", "/api/v1/networks/a/b"} { // the server tells what there is
		if through, w := d.ask("root", "GET", path, ""); !through {
			t.Errorf("root %s: %s", path, w.Body)
		}
	}
	// What is of no endpoint, and the end of a container of nobody, the server answers.
	for _, body := range []string{`{"TenantName":"x"}`} {
		if through, w := d.ask("h1", "POST", "/plugin/deleteEndpoint", body); !through {
			t.Error(w.Body)
		}
	}
	for container, yes := range map[string]bool{"e1": true, "e2": false, "shared": false} {
		if through, w := d.ask("h1", "POST", "/plugin/updateEndpoint", `{"Event":"die","ContainerID":"`+container+`"}`); through != yes {
			t.Errorf("the end of container %s: %v %s", container, through, w.Body)
		}
		// The server goes by the container where the endpoint's tenant is missing.
		if through, w := d.ask("h1", "POST", "/plugin/updateEndpoint", `{"Event":"die","EndpointID":"e1","Network":"net","ContainerID":"`+container+`"}`); through != yes {
			t.Errorf("the end of container %s, with an endpoint: %v %s", container, through, w.Body)
		}
	}
}

// Who is also a viewer, or a cluster admin, reads of all tenants; a tenant admin of its own.
func TestScopeOfIdentities(t *testing.T) {
	for who, want := range map[string][]string{"root": nil, "viewer": nil, "both": nil, "h1": nil, "blue": {"blue"}, "two": {"green", "red"}} {
		if got := everybody[who].Scope(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", who, got, want)
		}
	}
}

// A name is of a tenant admin's own endpoint, whoever else has one of that name.
func TestNameOfAnothersEndpointToo(t *testing.T) {
	d := newDoor(t, nil)
	for _, ask := range []string{"GET /api/v1/inspect/endpoints/shared", "POST /api/v1/endpoints/shared/drain", "DELETE /api/v1/endpoints/shared/drain"} {
		method, path, _ := strings.Cut(ask, " ")
		if through, w := d.ask("blue", method, path, ""); !through {
			t.Errorf("%s: %s", ask, w.Body)
		}
	}
}

// TestUnknowable: a cluster that cannot say whose something is opens no door.
func TestUnknowable(t *testing.T) {
	away := newDoor(t, func(c *Config) { c.Cluster = town{io.ErrUnexpectedEOF} })
	none := newDoor(t, func(c *Config) { c.Cluster = nil })
	for _, route := range []string{"POST /plugin/deleteEndpoint", "POST /plugin/updateEndpoint", "POST /plugin/releaseAddress", "GET /api/v1/inspect/endpoints/{key}", "POST /api/v1/endpoints/{key}/drain"} {
		who := "h1"
		if strings.Contains(route, "/api/") {
			who = "blue"
		}
		method, path, body := request(route, true)
		if through, w := away.ask(who, method, path, body); through || w.Code != 503 || strings.Contains(w.Body.String(), "EOF") {
			t.Errorf("%s: %d %s", route, w.Code, w.Body)
		}
		if through, w := none.ask(who, method, path, body); through || w.Code != 403 {
			t.Errorf("%s without a cluster: %d %s", route, w.Code, w.Body)
		}
	}
}

// TestApply: a list in which it is not plain that all is the tenant's is refused.
func TestApply(t *testing.T) {
	d := newDoor(t, nil)
	for body, yes := range map[string]bool{
		`{"objects":[{"kind":"network","tenantName":"blue"}]}`:                                 true,
		`{"objects":[{"tenantName":"blue","kind":"network","x":{"tenantName":"red"}}]}`:        true,
		`{"objects":[{"tenantName":"blue","kind":"endpoint","ConfigEP":{"Host":"h1"}}]}`:       false, // hosts write them
		`{"objects":[{"kind":"network","tenantName":"red"}]}`:                                  false,
		`{"objects":[{"kind":"network","tenantName":"blue","TenantName":"red"}]}`:              false,
		`{"objects":[{"kind":"network","tenantName":"red","tenantname":"blue"}]}`:              false,
		`{"objects":[{"kind":"network","tenantName":"blue","tenantName":"blue"}]}`:             false,
		`{"objects":[{"kind":"network","kind":"global","tenantName":"blue"}]}`:                 false,
		`{"objects":[{"kind":"network","Kind":"global","tenantName":"blue"}]}`:                 false,
		`{"objects":[{"kind":"global","kind":"network","tenantName":"blue"}]}`:                 false,
		`{"objects":[{"Kind":"network","tenantName":"blue"}]}`:                                 false,
		`{"objects":[{"kind":"tenant","tenantName":"blue"}]}`:                                  false,
		`{"objects":[{"kind":"global","tenantName":"blue"}]}`:                                  false,
		`{"objects":[{"kind":"network"}]}`:                                                     false,
		`{"objects":[{"kind":"network","tenantName":null}]}`:                                   false,
		`{"objects":[{"kind":"network","tenantName":["blue"]}]}`:                               false,
		`{"objects":[{"kind":"network","tenantName":"blue"},7]}`:                               false,
		`{"objects":[{"kind":"network","tenantName":"blue"}],"objects":[{"kind":"global"}]}`:   false,
		`{"objects":[{"kind":"network","tenantName":"blue"}],"OBJECTS":[{"kind":"global"}]}`:   false,
		`{"objects":[{"kind":"network","tenantName":"blue"}]} {"objects":[{"kind":"global"}]}`: true, // the server refuses what follows
		`{"objects":[{"kind":"network","tenant\u004eame":"blue"}]}`:                            true,
		`{"objects":[{"kind":"network","tenantName":"blue","tenant\u004eame":"red"}]}`:         false,
		`{"objects":[]}`: false, `{}`: false, ``: false, `rubbish`: false,
	} {
		if through, w := d.ask("blue", "POST", "/api/v1/apply", body); through != yes {
			t.Errorf("%s: let through %v: %s", body, through, w.Body)
		}
	}
}

// FuzzApplied: where an object's tenant and kind are plain, the server reads the same,
// whatever it takes of names that are there twice or in another case.
func FuzzApplied(f *testing.F) {
	f.Add([]byte(`{"kind":"network","tenantName":"blue"}`))
	f.Add([]byte(`{"kind":"network","tenantName":"blue","TENANTNAME":"red"}`))
	f.Add([]byte(`{"kind":7,"tenantName":"blue"}`))
	f.Add([]byte(`{"kind":"network","tenantName":7}`))
	f.Add([]byte(`{"\u006bind":"rule","x":{"tenantName":1},"tenantname":"\ud800"}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		o, tenant, plain := applied(object)
		var fields map[string]json.RawMessage
		if !plain || json.Unmarshal(object, &fields) != nil {
			return
		}
		var kind string
		if err := json.Unmarshal(fields["kind"], &kind); err != nil || kind != o.Kind {
			t.Errorf("%s: kind %q, the server reads %q (%v)", object, o.Kind, kind, err)
		}
		delete(fields, "kind")
		rest, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			TenantName string `json:"tenantName,omitempty"`
		}
		if err := json.Unmarshal(rest, &read); err != nil || read.TenantName != tenant {
			t.Errorf("%s: tenant %q, the server reads %q (%v)", object, tenant, read.TenantName, err)
		}
	})
}
