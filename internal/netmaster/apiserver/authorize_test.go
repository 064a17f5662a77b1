package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// want is who may what, once more and by hand: v = viewer, t = tenant admin of what is
// its own, T = whatever it is about, h and H = a host likewise, n = netmaster. Cluster
// admins may all.
var want = map[string]string{
	"GET /version": "vTHn", "GET /openapi.json": "vTHn",
	"GET /metrics": "v", "GET /info": "v", "GET /debug/ofnet": "v", "GET /services": "vT", "GET /service/{id}": "vt",
	"GET /api/v1/status": "vT", "GET /api/v1/store": "vT", "POST /api/v1/store/adopt": "", "GET /api/v1/backup": "",
	"GET /api/v1/doctor": "v", "GET /api/v1/analysis/verification": "v", "POST /api/v1/doctor/repair": "",
	"GET /api/v1/cluster/members": "v", "POST /api/v1/cluster/tokens": "", "DELETE /api/v1/cluster/members/{name}": "", "POST /api/v1/cluster/relieve": "",
	"POST /api/v1/cluster/authorities/renew": "",
	"GET /api/v1/doctor/netmaster":           "vn", "GET /api/v1/bundle": "", "GET /api/v1/hosts/{name}/bundle": "", "POST /plugin/report/{id}": "h",
	"GET /api/v1/hosts": "vT", "GET /api/v1/hosts/{name}": "vT", "DELETE /api/v1/hosts/{name}": "",
	"POST /api/v1/hosts/{name}/evict": "", "POST /api/v1/hosts/{name}/drain": "", "DELETE /api/v1/hosts/{name}/drain": "",
	"POST /api/v1/hosts/{name}/addresses/{address}": "", "DELETE /api/v1/hosts/{name}/addresses/{address}": "",
	"GET /api/v1/tokens": "", "POST /api/v1/tokens": "", "DELETE /api/v1/tokens/{id}": "",
	"GET /api/v1/analysis/reachability": "vT", "GET /api/v1/analysis/exposure": "vT", "GET /api/v1/analysis/assertions": "vT", "GET /api/v1/analysis/endpoints/{key}": "vT", "GET /api/v1/monitor": "vT", "POST /api/v1/release": "", "POST /api/v1/apply": "t", "POST /api/v1/apply/plan": "t", "POST /api/v1/analysis/plan": "t", "POST /api/v1/analysis/trace": "T",
	"GET /api/v1/pending": "v", "POST /api/v1/pending": "", "POST /api/v1/pending/{id}/confirm": "", "DELETE /api/v1/pending/{id}": "",
	"GET /api/v1/endpoints": "vth", "GET /api/v1/inspect/endpoints/{key}": "vt",
	"POST /api/v1/endpoints/{key}/drain": "t", "DELETE /api/v1/endpoints/{key}/drain": "t",
	"GET /api/v1/networkPolicys/{key}/rules/{rule}": "vt", "PUT /api/v1/networkPolicys/{key}/rules/{rule}": "t", "DELETE /api/v1/networkPolicys/{key}/rules/{rule}": "t",
	"GET /api/v1/clusterServices": "v", "GET /api/v1/clusterServices/{namespace}/{name}": "v", "GET /api/v1/serviceLBs/{key}/counts": "vt",
	"DELETE /debug/epcleanup/tenant/{tenant}/{what}/{id}": "",
	"POST /plugin/pod": "H", "POST /plugin/network": "H", "POST /plugin/createEndpoint": "h", "POST /plugin/deleteEndpoint": "h", "POST /plugin/updateEndpoint": "h",
	"POST /plugin/allocAddress": "h", "POST /plugin/releaseAddress": "h", "POST /plugin/host": "h", "POST /plugin/hostStatus": "h", "POST /plugin/answer": "h",
	"POST /plugin/monitor/{id}": "h", "POST /plugin/hostsHeard": "n", "POST /plugin/mirror": "H",
}

// observations are frequent reports and questions, and are no changes by a user.
var observations = []string{"POST /api/v1/analysis/plan", "POST /plugin/pod", "POST /plugin/network", "POST /plugin/host", "POST /plugin/hostStatus", "POST /plugin/answer", "POST /plugin/monitor/{id}", "POST /plugin/report/{id}", "POST /plugin/hostsHeard", "POST /plugin/mirror"}

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
	case "networks", "endpointGroups", "policys", "networkPolicys", "rules", "netprofiles", "serviceLBs", "appProfiles", "assertions", "extContractsGroups", "volumes", "volumeProfiles":
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

// requestOf makes one for a route, about things of blue and h1, or of red and h2.
func requestOf(route string, own bool) (method, path, body string) {
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
		body = `{"within":"60s","objects":[{"kind":"policy","tenantName":"blue","policyName":"a"},{"kind":"netprofile","TENANTNAME":"` + tenant + `","profileName":"b","DSCP":1}]}`
		if route == "POST /api/v1/apply" {
			body = strings.Replace(body, `"within":"60s",`, "", 1)
		}
	case "POST /api/v1/analysis/plan", "POST /api/v1/apply/plan":
		body = `{"changes":[{"set":{"kind":"policy","tenantName":"blue","policyName":"a"}},{"delete":{"kind":"netprofile","key":"` + tenant + `:b"}}]}`
	case "POST /api/v1/analysis/trace":
		body = `{"from":"blue:net:e1","to":"` + address + `","port":"tcp/80"}`
	case "POST /plugin/monitor/{id}":
		path += "?host=" + host
	case "POST /plugin/createEndpoint":
		body = `{"TenantName":"` + tenant + `","NetworkName":"net","EndpointID":"new","ConfigEP":{"Host":"` + host + `"}}`
	case "POST /plugin/deleteEndpoint":
		body = `{"TenantName":"` + tenant + `","NetworkName":"net","EndpointID":"` + id + `"}`
	case "POST /plugin/updateEndpoint":
		body = `{"Tenant":"` + tenant + `","Network":"net","EndpointID":"` + id + `","Event":"start"}`
	case "POST /plugin/allocAddress":
		body = `{"NetworkID":"net.` + tenant + `","Host":"` + host + `"}`
	case "POST /plugin/releaseAddress":
		body = `{"NetworkID":"net.` + tenant + `","IPv4Address":"` + address + `"}`
	case "POST /api/v1/tokens", "POST /api/v1/release":
		body = "{}"
	case "POST /plugin/host", "POST /plugin/hostStatus", "POST /plugin/answer":
		body = `{"host":"` + host + `"}`
	}
	return method, strings.NewReplacer("{id}", id).Replace(path), body
}

// TestRolesReachTheirRoutesOnly: each role may ask for each route just what it should, with and without a
// trailing slash.
func TestRolesReachTheirRoutesOnly(t *testing.T) {
	f := startAsking(t, nil)
	f.town()
	f.onlyDecide()
	if len(f.s.router.routes) < 100 {
		t.Fatalf("only %d routes", len(f.s.router.routes))
	}
	for _, rt := range f.s.router.routes {
		route := rt.method + " " + rt.path
		if rt.need == access.Public {
			if route != "GET /healthz" && route != "GET /readyz" {
				t.Errorf("%s is open to all", route)
			}
			if in, w := f.letIn("", "GET", rt.path, ""); !in {
				t.Errorf("%s is not open: %s", route, w.Body)
			}
			continue
		}
		if recorded := rt.method != http.MethodGet && !slices.Contains(observations, route) || route == "GET /api/v1/backup" || rt.method == http.MethodGet && strings.HasSuffix(route, "/bundle"); recorded != (rt.verb == verbChange) {
			t.Errorf("%s: is it recorded?", route)
		}
		may := wanted(t, route)
		for _, own := range []bool{true, false} {
			method, path, body := requestOf(route, own)
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
					in, w := f.letIn(who, method, path, body)
					if in != yes {
						t.Errorf("%q %s %s (own: %v): let in %v, want %v: %d %s", who, method, path, own, in, yes, w.Code, w.Body)
					}
					if in && f.let.Name != who {
						t.Errorf("%q %s %s: the handler acts for %v", who, method, path, f.let)
					}
					if _, known := everybody[who]; !in && (w.Code != 403 || !strings.Contains(w.Body.String(), "has no right to")) == known {
						t.Errorf("%q %s %s: %d %s", who, method, path, w.Code, w.Body)
					}
				}
			}
		}
	}
}

// A route that declares no capability, or one that depends on what requests are about
// without saying it, does not get into a server.
func TestRouteWithoutCapabilityIsRefused(t *testing.T) {
	nothing := func(*request) (access.Resource, error) { return access.Resource{}, nil }
	for _, tc := range []struct {
		need access.Capability
		of   func(*request) (access.Resource, error)
		ok   bool
	}{
		{0, nil, false},
		{0, nothing, false},
		{access.OwnTenants, nil, false},
		{access.View | access.OwnHost, nil, false},
		{access.AdminOnly, nil, true},
		{access.OwnTenants, nothing, true},
		{access.View | access.WithinScope, nil, true},
	} {
		s := &router{serverContext: &serverContext{}, mux: http.NewServeMux()}
		rt := s.handle("GET", "/x", tc.need, tc.of, nil)
		if err := rt.check(); (err == nil) != tc.ok {
			t.Errorf("%v: %v", tc, err)
		}
	}
}

// A refusal says who asks, and which role is needed; whose something else is, it does not.
func TestRefusalsNameTheNeededRole(t *testing.T) {
	f := startAsking(t, nil)
	f.town()
	f.onlyDecide()
	for _, tc := range []struct{ who, method, path, body, want string }{
		{"", "GET", "/api/v1/networks", "", "who asks is not known: show a certificate"},
		{"viewer", "DELETE", "/api/v1/networks/blue:net", "", "viewer (people, viewer) has no right to this; it needs the role cluster-admin or tenant-admin of its tenant"},
		{"blue", "DELETE", "/api/v1/networks/red:net", "", "not found in tenant blue: blue (people, tenant-admin of blue) has no right to what others have; that needs the role cluster-admin or tenant-admin of its tenant"},
		{"blue", "GET", "/api/v1/endpoints", "", "choose one tenant's: netctl endpoint ls --tenant NAME; it needs"},
		{"blue", "GET", "/api/v1/endpoints?tenant=red", "", "not found in tenant blue: "},
		{"blue", "GET", "/api/v1/inspect/endpoints/e2", "", "not found in tenant blue: "},
		{"blue", "GET", "/api/v1/inspect/endpoints/none", "", "not found in tenant blue: "},         // as if it were another's
		{"both", "POST", "/api/v1/endpoints/shared/drain", "", "not found in tenant green, blue: "}, // it sees all: which one is meant?
		{"h1", "POST", "/plugin/host", `{"host":"h2"}`, `it is about host "h2", and an agent may change what its own host has; it needs the role cluster-admin or host that has it`},
		{"h1", "GET", "/api/v1/endpoints?tenant=blue", "", `it is about host "", and an agent may change what its own host has`},
		{"h1", "POST", "/plugin/releaseAddress", `{"NetworkID":"net.blue","IPv4Address":"10.0.0.3"}`, `it is about host ""`},
		{"h1", "POST", "/plugin/host", `rubbish`, "body: is not valid JSON"},
		{"h1", "POST", "/plugin/updateEndpoint", `rubbish`, "body: is not valid JSON"},
		{"nobody", "GET", "/version", "", "nobody (people, without a role) has no right to anything: there is no group"},
		{"viewer", "POST", "/plugin/allocAddress", "{}", "it needs the role cluster-admin\n"},
		{"h1", "POST", "/plugin/hostsHeard", "{}", "it needs the role cluster-admin or netmaster"},
		{"viewer", "GET", "/api/v2", "", "there is no such route for its role; it needs the role cluster-admin"},
		{"viewer", "GET", "/api/v1/networks/a/b", "", "there is no such route"},
		{"viewer", "PATCH", "/api/v1/networks/blue:a", "", "there is no such route"},
	} {
		in, w := f.letIn(tc.who, tc.method, tc.path, tc.body)
		if in || !strings.Contains(w.Body.String(), tc.want) || strings.Contains(w.Body.String(), "red,") {
			t.Errorf("%s %s %s: %d %s, want %q", tc.who, tc.method, tc.path, w.Code, w.Body, tc.want)
		}
	}
	for _, path := range []string{"/api/v2", "/api/v1/networks/a/b"} { // the server tells what there is
		if w := f.ask("root", "GET", path, ""); w.Code != http.StatusNotFound {
			t.Errorf("root %s: %d %s", path, w.Code, w.Body)
		}
	}
	// The server answers for objects without an endpoint, and for the end of a container
	// without a host.
	for _, body := range []string{`{"TenantName":"x"}`} {
		if in, w := f.letIn("h1", "POST", "/plugin/deleteEndpoint", body); !in {
			t.Error(w.Body)
		}
	}
	for container, yes := range map[string]bool{"e1": true, "e2": false, "shared": false} {
		if in, w := f.letIn("h1", "POST", "/plugin/updateEndpoint", `{"Event":"die","ContainerID":"`+container+`"}`); in != yes {
			t.Errorf("the end of container %s: %v %s", container, in, w.Body)
		}
		// The server goes by the container where the endpoint's tenant is missing.
		if in, w := f.letIn("h1", "POST", "/plugin/updateEndpoint", `{"Event":"die","EndpointID":"e1","Network":"net","ContainerID":"`+container+`"}`); in != yes {
			t.Errorf("the end of container %s, with an endpoint: %v %s", container, in, w.Body)
		}
	}
}

// A name means a tenant administrator's own endpoint, also if other tenants have it too.
func TestNameOfAnothersEndpointToo(t *testing.T) {
	f := startAsking(t, nil)
	f.town()
	f.onlyDecide()
	for _, ask := range []string{"GET /api/v1/inspect/endpoints/shared", "POST /api/v1/endpoints/shared/drain", "DELETE /api/v1/endpoints/shared/drain"} {
		method, path, _ := strings.Cut(ask, " ")
		if in, w := f.letIn("blue", method, path, "{}"); !in {
			t.Errorf("%s: %s", ask, w.Body)
		}
	}
}

// TestUnknownOwnersAreRefused: when the store cannot name an object's owner, access is refused.
func TestUnknownOwnersAreRefused(t *testing.T) {
	f := startAsking(t, func(c *Config) { c.Timeout = time.Second })
	f.town()
	f.onlyDecide()
	f.end()
	for _, route := range []string{"POST /plugin/deleteEndpoint", "POST /plugin/updateEndpoint", "POST /plugin/releaseAddress", "GET /api/v1/inspect/endpoints/{key}", "POST /api/v1/endpoints/{key}/drain"} {
		who := "h1"
		if strings.Contains(route, "/api/") {
			who = "blue"
		}
		method, path, body := requestOf(route, true)
		if in, w := f.letIn(who, method, path, body); in || w.Code != 503 {
			t.Errorf("%s: %d %s", route, w.Code, w.Body)
		}
	}
}

// TestListIsOfTheTenantAlone: of a list all is a tenant admin's, or nothing of it is applied.
func TestListIsOfTheTenantAlone(t *testing.T) {
	f := startAsking(t, nil)
	f.onlyDecide()
	const others = `{"kind":"global","name":"global","networkInfraType":"default","vlans":"1-4094","vxlans":"1-10000"}`
	for body, want := range map[string]int{
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue"}]}`:                                       200,
		`{"objects":[{"tenantName":"blue","policyName":"p","kind":"policy","key":"blue:p"}]}`:                        200,
		`{"objects":[{"kind":"policy","policyName":"p","tenant\u004eame":"blue"}]}`:                                  200,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue","links":{"tenant":{"key":"red"}}}]}`:      200,
		`{"objects":[{"kind":"policy","policyName":"p","tenantname":"red"}]}`:                                        403,
		`{"objects":[{"TenantName":"blue","NetworkName":"n","EndpointID":"e","kind":"endpoint","ConfigEP":{}}]}`:     403, // hosts write them
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"red"}]}`:                                        403,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue"},{"kind":"tenant","tenantName":"blue"}]}`: 403,
		`{"objects":[{"kind":"tenant","tenantName":"blue"}]}`:                                                        403,
		`{"objects":[` + others + `]}`: 403,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue"}],"objects":[` + others + `]}`: 403,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue"}],"OBJECTS":[` + others + `]}`: 403,
		`{"objects":[]}`: 403, `{}`: 403,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue","x":{"tenantName":"red"}}]}`:     400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue","key":"red:p"}]}`:                400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue","TenantName":"red"}]}`:           400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"red","tenantname":"blue"}]}`:           400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue","tenantName":"blue"}]}`:          400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue","tenant\u004eame":"red"}]}`:      400,
		`{"objects":[{"kind":"policy","kind":"global","tenantName":"blue","policyName":"p"}]}`:              400,
		`{"objects":[{"kind":"policy","Kind":"global","tenantName":"blue","policyName":"p"}]}`:              400,
		`{"objects":[{"kind":"global","kind":"policy","tenantName":"blue","policyName":"p"}]}`:              400,
		`{"objects":[{"Kind":"policy","tenantName":"blue","policyName":"p"}]}`:                              400,
		`{"objects":[{"kind":"policy","policyName":"p"}]}`:                                                  400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":null}]}`:                                400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":["blue"]}]}`:                            400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue:red"}]}`:                          400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue"},7]}`:                            400,
		`{"objects":[{"kind":"policy","policyName":"p","tenantName":"blue"}]} {"objects":[` + others + `]}`: 400,
		``: 400, `rubbish`: 400,
	} {
		if w := f.ask("blue", "POST", "/api/v1/apply", body); w.Code != want || f.in != (want == http.StatusOK) {
			t.Errorf("%s: %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}

// FuzzTenantListChangesItsTenantOnly: whatever objects a tenant admin's list has, however
// they are written, nothing changes but what its tenant has.
func FuzzTenantListChangesItsTenantOnly(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"policy","tenantName":"blue","policyName":"p"}`, `{"kind":"policy","tenantName":"blue","TENANTNAME":"red","policyName":"p"}`,
		`{"kind":7,"tenantName":"blue"}`, `{"kind":"policy","tenantName":7}`, `{"\u006bind":"rule","x":{"tenantName":1},"tenantname":"\ud800"}`,
		`{"kind":"tenant","tenantName":"red","sharedNetworks":["blue:net"]}`, `{"kind":"netprofile","tenantName":"red","profileName":"np","DSCP":3}`,
		`{"kind":"policy","tenantName":"blue","policyName":"p"}],"objects":[{"kind":"policy","tenantName":"red","policyName":"p"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, object string) {
		s := startAsking(t, nil)
		s.town()
		others := func() string {
			v, err := s.ctrl.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			g, _ := v.Settings.Global()
			return fmt.Sprint(g, v.Tenants.List(), v.Settings.Bgps(), v.Networks.List("red"), v.Groups.List("red"), v.Policies.ListContiv("red"), v.Policies.NetworkPolicies("red"), v.Policies.Rules("red"), control.NetProfiles(v, "red"), v.Services.List("red"),
				v.Tenants.AppProfiles("red"), control.ExtContracts(v, "red"), v.Endpoints.List(""))
		}
		before := others()
		w := s.ask("blue", "POST", "/api/v1/apply", `{"objects":[`+object+`]}`)
		if after := others(); after != before {
			t.Errorf("%q: %d %s, and %s becomes %s", object, w.Code, w.Body, before, after)
		}
	})
}

// TestActorHasTheClientsRights: use-cases act for clients with just the rights that these have.
func TestActorHasTheClientsRights(t *testing.T) {
	from := control.Origin{From: netip.MustParseAddr("192.0.2.1")} // httptest's client
	for who, want := range map[string]control.Actor{
		"root": control.Admin(), "viewer": control.Reader(), "master": control.Reader(), "both": control.Reader("green", "blue"),
		"blue": control.TenantAdmin("blue"), "two": control.TenantAdmin("green", "red"), "h1": control.Agent("h1").From(from),
	} {
		if got := actorOf(everybody[who], httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s acts as %+v, want %+v", who, got, want)
		}
	}
}
