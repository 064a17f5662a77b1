package apiserver

import (
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
		{"POST", "/api/v1/apply", `If-Match: "7"`, `{"objects":[]}`, "If-Match"},
		{"DELETE", "/api/v1/networks/blue:tiny/", "If-Match: x", "", "must be the ETag"},
		{"DELETE", "/api/v1/networks/blue:tiny/", "If-Match: ", "", "must be the ETag"},
		{"DELETE", "/api/v1/networks/blue:tiny/", "If-Match: 7", "", "must be the ETag"},
		{"DELETE", "/api/v1/networks/blue:tiny/", `If-Match: "7`, "", "must be the ETag"},
		{"DELETE", "/api/v1/hosts/h9", "If-Match: 7", "", "If-Match is for"},
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
