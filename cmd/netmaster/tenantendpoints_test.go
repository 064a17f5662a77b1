package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// TestTenantAdminWritesNoEndpoints: a tenant admin creates, changes and deletes no endpoint,
// so that it sees no host that runs none of its containers, and invents none.
func TestTenantAdminWritesNoEndpoints(t *testing.T) {
	s := startSecured(t, "--tokens")
	admin, nobody := s.as("root", pki.ClusterAdmin), s.as("", "")
	s.things(admin)
	s.must(200, admin, "POST", "/plugin/host", report("h3", "10.0.0.3"), "")
	blue := s.tokenOf(admin, "blue")
	before := s.dump()
	for _, host := range []string{"ghost1", "h1", "h3"} {
		create := `"TenantName":"blue","NetworkName":"net","EndpointID":"x","ConfigEP":{"Host":"` + host + `"}}`
		for _, dry := range []string{"", `,"dryRun":true`, `,"set":"x"`} {
			got := s.must(403, nobody, "POST", "/api/v1/apply", `{"objects":[{"kind":"endpoint",`+create+`]`+dry+`}`, blue)
			if !strings.Contains(got, "objects[0]") || strings.Contains(got, "(appProfile, endpoint,") {
				t.Errorf("refused with %s", got)
			}
		}
		s.must(403, nobody, "POST", "/api/v1/pending", `{"objects":[{"kind":"endpoint",`+create+`]}`, blue)
		s.must(403, nobody, "POST", "/plugin/createEndpoint", "{"+create, blue)
	}
	for _, path := range []string{"/api/v1/endpoints/blue:net:x", "/api/v1/endpoints", "/api/v1/endpoints/blue:net:e1"} {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			if code, answer, err := s.ask(nobody, method, path, `{"TenantName":"blue","NetworkName":"net","EndpointID":"x","ConfigEP":{"Host":"h3"}}`, blue); err != nil || code < 400 {
				t.Errorf("%s %s: %d %s %v", method, path, code, answer, err)
			}
		}
	}
	s.must(403, nobody, "POST", "/plugin/updateEndpoint", `{"Tenant":"blue","Network":"net","EndpointID":"e1","Event":"start","Labels":{"a":"b"}}`, blue)
	s.must(403, nobody, "POST", "/plugin/deleteEndpoint", `{"TenantName":"blue","NetworkName":"net","EndpointID":"e1"}`, blue)
	s.must(403, nobody, "DELETE", "/debug/epcleanup/tenant/blue/ep/e1", "", blue)
	if d := cmp.Diff(before, s.dump()); d != "" {
		t.Errorf("the store is changed:\n%s", d)
	}
	// What rebuilds a cluster of its export has endpoints of hosts that are not there yet.
	s.must(200, admin, "POST", "/api/v1/apply", `{"objects":[{"kind":"endpoint","TenantName":"blue","NetworkName":"net","EndpointID":"later","ConfigEP":{"Host":"h9"}}]}`, "")
	// It is not told to delete what a cluster admin's set of the same name has.
	policy := `{"kind":"policy","tenantName":"blue","policyName":"`
	s.must(200, admin, "POST", "/api/v1/apply", `{"set":"s","objects":[`+policy+`old"},{"kind":"endpoint","TenantName":"blue","NetworkName":"net","EndpointID":"member","ConfigEP":{"Host":"h1"}}]}`, "")
	if got := s.must(200, nobody, "POST", "/api/v1/apply", `{"set":"s","objects":[`+policy+`new"}]}`, blue); strings.Contains(got, "blue:old") || strings.Contains(got, "member") {
		t.Errorf("a set: %s", got)
	}
}

// TestNameIsOfOwnTenant: a name, or a container, that another tenant's endpoint has too is
// for a tenant admin its own one's.
func TestNameIsOfOwnTenant(t *testing.T) {
	s := startSecured(t, "--tokens")
	admin, nobody := s.as("root", pki.ClusterAdmin), s.as("", "")
	s.things(admin)
	s.must(200, admin, "POST", "/api/v1/tenants/red", `{"tenantName":"red"}`, "")
	s.must(200, admin, "POST", "/api/v1/networks/red:vault", `{"tenantName":"red","networkName":"vault","encap":"vxlan","subnet":"10.1.2.0/24"}`, "")
	for id, names := range map[string]string{"e1": `"Container":"r1"`, "r2": `"Container":"c1"`, "r3": `"Container":"blue:net:e1"`} {
		s.must(200, admin, "POST", "/plugin/createEndpoint", `{"TenantName":"red","NetworkName":"vault","EndpointID":"`+id+`","ConfigEP":{"Host":"h2",`+names+`}}`, "")
	}
	blue, red := s.tokenOf(admin, "blue"), s.tokenOf(admin, "red")
	for name, hosts := range map[string][2]string{"e1": {"h1", "h2"}, "c1": {"h1", "h2"}, "blue:net:e1": {"h1", "h2"}, "e2": {"h2", ""}, "red:vault:r2": {"", "h2"}, "none": {}} {
		for i, token := range []string{blue, red} {
			for _, ask := range []struct{ method, path string }{{"GET", "/api/v1/inspect/endpoints/" + name}, {"POST", "/api/v1/endpoints/" + name + "/drain"}, {"DELETE", "/api/v1/endpoints/" + name + "/drain"}} {
				want := 403
				if hosts[i] != "" {
					want = 200
				}
				if got := s.must(want, nobody, ask.method, ask.path, "{}", token); want == 200 && !strings.Contains(got, `"homingHost":"`+hosts[i]+`"`) {
					t.Errorf("%s %s of %s: %s", ask.method, ask.path, []string{"blue", "red"}[i], got)
				}
			}
		}
	}
	s.must(409, admin, "GET", "/api/v1/inspect/endpoints/e1", "", "")
}

// TestTenantAdminIsShownNoAddressOfHosts: endpoints name their hosts to a tenant
// administrator; a viewer sees the hosts' addresses too.
func TestTenantAdminIsShownNoAddressOfHosts(t *testing.T) {
	s := startSecured(t, "--tokens")
	admin, nobody, viewer := s.as("root", pki.ClusterAdmin), s.as("", ""), s.as("watcher", pki.Client)
	s.things(admin)
	s.must(200, admin, "POST", "/api/v1/apply", `{"objects":[
		{"kind":"policy","tenantName":"blue","policyName":"in"},
		{"kind":"networkPolicy","tenantName":"blue","networkPolicyName":"np","defaultIn":"allow"},
		{"kind":"endpointGroup","tenantName":"blue","networkName":"net","groupName":"web","policies":["in"]},
		{"kind":"serviceLB","tenantName":"blue","networkName":"net","serviceName":"shop","selectors":["app=web"],"ports":["80:8080:TCP"]},
		{"kind":"endpoint","TenantName":"blue","NetworkName":"net","ServiceName":"web","EndpointID":"w1","ConfigEP":{"Host":"h1","Labels":{"app":"web"}}}]}`, "")
	blue := s.tokenOf(admin, "blue")
	for path, body := range map[string]string{
		"GET /api/v1/inspect/tenants/blue": "", "GET /api/v1/inspect/networks/blue:net": "", "GET /api/v1/inspect/endpointGroups/blue:web": "",
		"GET /api/v1/inspect/policys/blue:in": "", "GET /api/v1/inspect/networkPolicys/blue:np": "", "GET /api/v1/inspect/serviceLBs/blue:shop": "",
		"GET /api/v1/inspect/endpoints/w1": "", "GET /api/v1/endpoints?tenant=blue": "",
		"POST /api/v1/endpoints/w1/drain": "{}", "DELETE /api/v1/endpoints/w1/drain": "",
	} {
		method, path, _ := strings.Cut(path, " ")
		if got := s.must(200, nobody, method, path, body, blue); !strings.Contains(got, `"homingHost":"h1"`) || strings.Contains(got, "vtepIP") || strings.Contains(got, "10.0.0.") {
			t.Errorf("%s %s shows blue %s", method, path, got)
		}
		if method != "GET" {
			continue
		}
		if got := s.must(200, viewer, method, path, body, ""); !strings.Contains(got, `"vtepIP":"10.0.0.1"`) {
			t.Errorf("%s %s shows a viewer %s", method, path, got)
		}
	}
}
