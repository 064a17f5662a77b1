package apiserver

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestToken: with tokens no route answers anybody else, but for the two that
// probes ask; refusals say what to do, and are counted.
func TestToken(t *testing.T) {
	const right = "0123456789abcdef"
	var routes []route
	f := serveWith(t, func(c *Config) { c.Accepts = func(token string) bool { return token == right } })
	{
		s := &server{mux: http.NewServeMux()}
		for _, k := range collections() {
			s.handleKind(k)
		}
		s.handlePlugin()
		s.handleHosts()
		s.handleAgents()
		s.handleStore()
		s.handleEndpoints()
		routes = slices.Concat(s.routes, []route{
			{"GET", "/metrics", nil},
			{"GET", "/version", nil},
			{"GET", "/openapi.json", nil},
			{"GET", "/info", nil},
			{"GET", "/api/v1/monitor", nil},
			{"POST", "/plugin/monitor/{id}", nil},
			{"POST", "/api/v1/apply", nil},
			{"GET", "/debug/ofnet", nil},
			{"POST", "/healthz", nil},
			{"GET", "/readyz/x", nil},
			{"GET", "/nothing", nil},
			{"GET", "/", nil},
		})
	}
	ask := func(method, path, authorization string) (int, string, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), resp.Header
	}
	refused := 0
	for _, r := range routes {
		for _, shown := range []string{"", "Bearer " + right + "0", "Basic " + right, "Token " + right, right} {
			code, body, header := ask(r.method, r.path, shown)
			refused++
			if code != http.StatusUnauthorized || !strings.Contains(body, "--token-file") || header.Get("WWW-Authenticate") == "" || strings.Contains(body, right) {
				t.Errorf("%s %s with %q: %d %s", r.method, r.path, shown, code, body)
			}
		}
	}
	if len(routes) < 50 {
		t.Errorf("only %d routes were tried", len(routes))
	}
	for path, want := range map[string]int{"/healthz": 200, "/healthz/": 200, "/readyz": 200} {
		if code, body, _ := ask("GET", path, ""); code != want {
			t.Errorf("GET %s without a token: %d %s", path, code, body)
		}
	}
	for _, scheme := range []string{"Bearer ", "bearer "} {
		if code, body, _ := ask("GET", "/api/v1/tenants", scheme+right); code != 200 {
			t.Errorf("with the token: %d %s", code, body)
		}
	}
	client, err := api.NewClient(f.url, api.WithToken(func() string { return right }))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Tenants().List(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := f.Tenants().List(t.Context()); api.KindOf(err) != api.KindUnauthorized {
		t.Errorf("our client without a token: %v", err)
	}
	_, metrics, _ := ask("GET", "/metrics", "Bearer "+right)
	if !strings.Contains(metrics, "contiv_netmaster_token_required 1\n") || !strings.Contains(metrics, `contiv_netmaster_http_requests_total{code="401",method="GET",route="none"}`) {
		t.Errorf("metrics tell nothing of %d refusals", refused)
	}
}
