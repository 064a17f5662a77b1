package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// reach asks, in a cluster in which rule 1 of policy blue:p lets group db in to group web by
// port 80, and everything else is denied there.
func (f *fixture) reach(from, to, port string) api.Reachability {
	f.t.Helper()
	q := url.Values{"from": {from}, "to": {to}, "tenant": {"blue"}}
	if port != "" {
		q.Set("port", port)
	}
	var out api.Reachability
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/analysis/reachability?"+q.Encode(), "")), &out); err != nil {
		f.t.Fatal(err)
	}
	return out
}

func serveReachable(t *testing.T) *fixture {
	t.Helper()
	return serveReachableWith(t, func(*Config) {})
}

// serveReachableWith is serveReachable with other settings.
func serveReachableWith(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	f := serveWith(t, change)
	f.populateReachable()
	return f
}

func (f *fixture) populateReachable() {
	f.t.Helper()
	f.populate()
	f.must("DELETE", "/api/v1/rules/blue:p:1/", "")
	f.must("POST", "/api/v1/rules/blue:p:1/", `{"tenantName":"blue","policyName":"p","ruleId":"1","direction":"in","action":"allow","fromEndpointGroup":"db","protocol":"tcp","port":80,"priority":2}`)
	f.must("POST", "/api/v1/rules/blue:p:rest/", `{"tenantName":"blue","policyName":"p","ruleId":"rest","direction":"in","action":"deny","priority":1}`)
	f.must("POST", "/plugin/createEndpoint", endpoint("n", "db", "d1", ""))
	f.must("POST", "/plugin/createEndpoint", endpoint("n", "db", "d2", ""))
}

func TestReachabilityNamesTheRulesThatDecide(t *testing.T) {
	f := serveReachable(t)
	for _, c := range []struct{ from, to, port, verdict string }{
		{"d1", "e1", "tcp/80", "yes"},
		{"d1", "e1", "tcp/81", "no"},
		{"d1", "e1", "", "partly"},
		{"name-d1", "c-e1", "tcp/80", "yes"},
		{"group:db", "group:web", "tcp/80", "yes"},
		{"group:blue/db", "network:n", "tcp/80", "yes"},
		{"e1", "d1", "", "yes"},
		{"t1", "e1", "", "no"},
		{"any", "e1", "tcp/80", "partly"},
		{"internet", "e1", "", "no"},
		{"e1", "internet", "", "yes"},
		{"e1", "127.0.0.1", "", "no"},
		{"10.1.1.0/24", "e1", "tcp/80", "yes"},
		{"10.1.1.10", "10.1.1.5", "tcp/80", "yes"},
		{"10.1.1.200", "e1", "", "no"},
		{"tenant:blue", "e1", "tcp/80", "partly"},
		{"host:host1", "e1", "udp", "no"},
	} {
		if got := f.reach(c.from, c.to, c.port); got.Verdict != c.verdict {
			t.Errorf("%s to %s by %q: %+v, want %s", c.from, c.to, c.port, got, c.verdict)
		}
	}
	got := f.reach("group:db", "e1", "tcp/80").Connections
	want := []api.ReachableParts{{
		From: []string{"blue:n:d1", "blue:n:d2"}, To: []string{"blue:n:e1"}, Families: []string{"IPv4"}, Route: "network",
		Parts: []api.ReachablePart{{Ports: []string{"tcp/80"}, Allowed: true, Decisions: []api.FlowRule{
			{Direction: "out"}, {Direction: "in", Rule: "1", Policy: "blue:p", Tier: "contiv"},
		}}},
	}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if most := f.reach("d1", "e1", "").Connections[0].Parts; fmt.Sprint(most[0].Ports, most[1].Ports) != "[all but tcp/80] [tcp/80]" && fmt.Sprint(most[0].Ports, most[1].Ports) != "[tcp/80] [all but tcp/80]" {
		t.Errorf("all ports are divided into %+v", most)
	}
	all := f.reach("d1", "e1", "tcp").Connections[0].Parts
	var ports []string
	for _, p := range all {
		ports = append(ports, p.Ports...)
	}
	if !slices.Equal(ports, []string{"tcp/0-79", "tcp/81-65535", "tcp/80"}) && !slices.Equal(ports, []string{"tcp/80", "tcp/0-79", "tcp/81-65535"}) {
		t.Errorf("tcp is divided into %v", ports)
	}
}

func TestReachabilityFollowsChanges(t *testing.T) {
	f := serveReachable(t)
	if got := f.reach("d1", "e1", "tcp/443"); got.Verdict != "no" {
		t.Fatalf("before: %+v", got)
	}
	f.must("POST", "/api/v1/rules/blue:p:2/", `{"tenantName":"blue","policyName":"p","ruleId":"2","direction":"in","action":"allow","protocol":"tcp","port":443,"priority":3}`)
	if got := f.reach("d1", "e1", "tcp/443"); got.Verdict != "yes" {
		t.Errorf("with a rule that allows it: %+v", got)
	}
	f.must("DELETE", "/api/v1/rules/blue:p:2/", "")
	if got := f.reach("d1", "e1", "tcp/443"); got.Verdict != "no" {
		t.Errorf("without the rule again: %+v", got)
	}
}

func TestReachabilityRefusesWhatItCannotAnswer(t *testing.T) {
	f := serveReachable(t)
	f.must("POST", "/plugin/createEndpoint", strings.ReplaceAll(endpoint("n", "", "x1", ""), "name-x1", "name-d1"))
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"to=e1":                                 {http.StatusBadRequest, "from"},
		"from=d1":                               {http.StatusBadRequest, "to"},
		"from=d1&to=e1&port=tcp/http":           {http.StatusBadRequest, "port"},
		"from=d1&to=e1&port=icmp/8":             {http.StatusBadRequest, "port"},
		"from=d1&to=e1&port=tcp/9-8":            {http.StatusBadRequest, "port"},
		"from=d1&to=e1&port=tpc":                {http.StatusBadRequest, "port"},
		"from=d1&to=e1&color=red":               {http.StatusBadRequest, "color"},
		"from=group:&to=e1":                     {http.StatusBadRequest, "from"},
		"from=10.1.1.7/24&to=e1":                {http.StatusBadRequest, "10.1.1.0/24"},
		"from=nobody&to=e1":                     {http.StatusNotFound, "nobody"},
		"from=group:none&to=e1&tenant=blue":     {http.StatusNotFound, "none"},
		"from=network:none&to=e1&tenant=blue":   {http.StatusNotFound, "none"},
		"from=service:none&to=e1&tenant=blue":   {http.StatusNotFound, "none"},
		"from=namespace:none&to=e1":             {http.StatusNotFound, "none"},
		"from=host:none&to=e1":                  {http.StatusNotFound, "none"},
		"from=pod:a/b&to=e1":                    {http.StatusNotFound, "a/b"},
		"from=app=none&to=e1&tenant=blue":       {http.StatusNotFound, "app=none"},
		"from=name-d1&to=e1":                    {http.StatusConflict, "ambiguous"},
		"from=internet&to=10.99.0.0/16":         {http.StatusBadRequest, "endpoints"},
		"from=group:red/web&to=e1&tenant=blue":  {http.StatusNotFound, "web"},
		"from=group:db&to=service:x&tenant=red": {http.StatusNotFound, "db"},
	} {
		status, text := f.do("GET", "/api/v1/analysis/reachability?"+query, "")
		if status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s; want %d and %q", query, status, text, want.status, want.text)
		}
	}
}

func TestReachabilityOfAServiceIsThatOfItsBackends(t *testing.T) {
	f := serveReachable(t)
	f.must("POST", "/api/v1/serviceLBs/blue:shop/", `{"tenantName":"blue","serviceName":"shop","networkName":"n","selectors":["app=shop"],"ports":["8080:80:tcp","8443:443:tcp"],"ipAddress":"10.1.1.99"}`)
	if got := f.reach("d1", "service:shop", ""); got.Verdict != "no" || len(got.Connections) != 2 || got.Connections[0].Missing != "no-backend" {
		t.Errorf("without backends: %+v", got)
	}
	for _, id := range []string{"b1", "b2"} {
		var e map[string]any
		if err := json.Unmarshal([]byte(endpoint("n", "web", id, "")), &e); err != nil {
			t.Fatal(err)
		}
		e["ConfigEP"].(map[string]any)["Labels"] = map[string]string{"app": "shop"}
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		f.must("POST", "/plugin/createEndpoint", string(body))
	}
	for port, want := range map[string]string{"tcp/8080": "yes", "tcp/8443": "no", "tcp": "partly", "tcp/80": "no"} {
		if got := f.reach("d1", "service:shop", port); got.Verdict != want {
			t.Errorf("by %s: %+v, want %s", port, got, want)
		}
	}
	got := f.reach("group:db", "service:shop", "tcp/8080").Connections
	if len(got) != 1 || fmt.Sprint(got[0].From, got[0].To) != "[blue:n:d1 blue:n:d2] [blue:n:b1 blue:n:b2]" || got[0].Service != "blue:shop" || got[0].Frontend != "10.1.1.99:8080" ||
		len(got[0].Parts) != 1 || fmt.Sprint(got[0].Parts[0].Ports) != "[tcp/80]" {
		t.Errorf("rows: %+v", got)
	}
	if got := f.reach("service:shop", "d1", ""); got.Verdict != "yes" {
		t.Errorf("from its backends: %+v", got)
	}
}

// Both tenants have an endpoint named shared, at the same address.
func TestTenantAdminIsAnsweredAboutItsOwnTenant(t *testing.T) {
	f := startAsking(t, nil)
	f.town()
	f.must(200, "root", "POST", "/plugin/createEndpoint", `{"TenantName":"blue","NetworkName":"net","EndpointID":"e3","ConfigEP":{"Host":"h1"}}`)
	const path = "/api/v1/analysis/reachability?"
	f.must(409, "root", "GET", path+"from=shared&to=e3", "")
	if text := f.must(200, "blue", "GET", path+"from=shared&to=e3", ""); !strings.Contains(text, `"verdict":"yes"`) {
		t.Errorf("its own: %s", text)
	}
	for _, query := range []string{"from=e2&to=e3", "from=e3&to=red:net:e2", "from=e3&to=tenant:red", "from=e3&to=network:red/net", "from=host:h2&to=e3"} {
		f.must(404, "blue", "GET", path+query, "")
		f.must(200, "root", "GET", path+query, "")
	}
	for _, query := range []string{"from=any&to=e3", "from=10.0.0.0/24&to=e3"} {
		if text := f.must(200, "blue", "GET", path+query, ""); strings.Contains(text, "red:") {
			t.Errorf("%s tells of another tenant: %s", query, text)
		}
	}
}
