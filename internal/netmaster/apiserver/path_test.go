package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

// TestDotsAreNoNames: a write of a path with dots in place of a name reaches no other object,
// nor is its client led to one.
func TestDotsAreNoNames(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	for _, x := range []struct{ method, path string }{
		{"DELETE", "/api/v1/networkPolicys/default:p/rules/.."},
		{"DELETE", "/api/v1/networkPolicys/default:p/rules/%2e%2e"},
		{"DELETE", "/api/v1/networkPolicys/default:p/rules/%2E./"},
		{"PUT", "/api/v1/tenants/./"},
		{"POST", "/api/v1/tenants/blue/../red/"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), x.method, f.url+"/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = x.path
		req.Header.Set("Content-Type", "application/json")
		resp, err := f.http.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s: %s %s", x.method, x.path, resp.Status, resp.Header.Get("Location"))
		}
	}
}
