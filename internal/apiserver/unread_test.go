package apiserver

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestWhatNobodyReadsIsRefused: query parameters, headers and fields that would have no
// effect change nothing.
func TestWhatNobodyReadsIsRefused(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	const endpoint = `"TenantName":"blue","NetworkName":"n","EndpointID":"new","ConfigEP":{"Container":"c","Host":"h1"}`
	for _, c := range []struct{ method, path, header, body, told string }{
		{"POST", "/api/v1/apply?dryRun=true", "", `{"objects":[{"kind":"tenant","tenantName":"green"}]}`, `"dryRun" is not known; this path has none`},
		{"DELETE", "/api/v1/networks/blue:tiny/?dryRun=true", "", "", `"dryRun"`},
		{"DELETE", "/api/v1/hosts/h9?Force=true", "", "", `possible are force`},
		{"PUT", "/api/v1/tenants/green/?force=true", "", `{"tenantName":"green"}`, `"force"`},
		{"GET", "/api/v1/networks/?tenant=blue", "", "", `"tenant"`},
		{"GET", "/api/v1/networks/?%zz", "", "", `cannot be read`},
		{"PUT", "/api/v1/tenants/green/", "If-Match: x", `{"tenantName":"green"}`, "must be the ETag"},
		{"PUT", "/api/v1/tenants/green/", "If-None-Match: *", `{"tenantName":"green"}`, "If-None-Match"},
		{"PUT", "/api/v1/networkPolicys/blue:np/", `If-Match: "7"`, `{"tenantName":"blue","policyName":"np"}`, "no network policy"},
		{"POST", "/api/v1/apply", `If-Match: "7"`, `{"objects":[]}`, "If-Match"},
		{"DELETE", "/api/v1/networks/blue:tiny/", "If-Match: 7", "", "If-Match"},
		{"POST", "/plugin/createEndpoint", "", `{"ServceName":"web",` + endpoint + `}`, `"ServceName": there is no such field`},
		{"POST", "/plugin/createEndpoint", "", `{` + endpoint + `} {}`, `follows`},
		{"POST", "/plugin/updateEndpoint", "", `{"Tenant":"blue","Event":"start","Label":{}}`, `"Label": there is no such field`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, f.url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			req.Header.Set(name, value)
		}
		if status, answer := f.send(req); status != http.StatusBadRequest || !strings.Contains(answer, c.told) {
			t.Errorf("%s %s %s %s: %d %s, want 400 and %q", c.method, c.path, c.header, c.body, status, answer, c.told)
		}
	}
	if status, _ := f.do("GET", "/api/v1/tenants/green/", ""); status != http.StatusNotFound {
		t.Errorf("tenant green: %d", status)
	}
	f.must("GET", "/api/v1/networks/blue:tiny/", "")
	f.must("GET", "/api/v1/endpoints?tenant=blue", "")
	f.must("GET", "/api/v1/endpoints/?tenant=blue", "")
}

// TestWriteUnderConditionNeedsItsRevision: of two who have read an object and change it, the
// second is told.
func TestWriteUnderConditionNeedsItsRevision(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	put := func(path, body, tag string) (int, string, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if tag != "" {
			req.Header.Set("If-Match", tag)
		}
		resp, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("ETag"), string(text)
	}
	const path = "/api/v1/endpointGroups/blue:x/"
	body := func(policies string) string {
		return `{"tenantName":"blue","groupName":"x","networkName":"n","policies":[` + policies + `]}`
	}
	if status, _, text := put(path, body(""), `"1"`); status != http.StatusPreconditionFailed {
		t.Errorf("a group that is not there: %d %s", status, text)
	}
	_, first, _ := put(path, body(""), "")
	resp, err := f.http.Get(f.url + path) //nolint:noctx // of the test's own server
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := resp.Header.Get("ETag"); got == "" || got != first {
		t.Fatalf("ETag %q of GET, %q of PUT", got, first)
	}
	status, second, text := put(path, body(`"p"`), first)
	if status != http.StatusOK || second == first {
		t.Errorf("the first change: %d %s, ETag %q", status, text, second)
	}
	if status, _, text := put(path, body(""), first); status != http.StatusPreconditionFailed || !strings.Contains(text, "read it and try again") {
		t.Errorf("the second change of what was read before: %d %s", status, text)
	}
	if text := f.must("GET", path, ""); !strings.Contains(text, `"policies":["p"]`) {
		t.Errorf("the group is %s", text)
	}
	if status, _, text := put(path, body(""), second); status != http.StatusOK {
		t.Errorf("the change of what is there: %d %s", status, text)
	}
}
