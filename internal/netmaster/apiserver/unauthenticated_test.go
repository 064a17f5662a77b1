package apiserver

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// TestUnauthenticatedRequestsReachNoRoute: requests without valid credentials reach no route, and they are counted.
func TestUnauthenticatedRequestsReachNoRoute(t *testing.T) {
	const right = "0123456789abcdef"
	var routes []*route
	f := serveWith(t, func(c *Config) {
		c.Authenticate = func(r *http.Request) (access.Identity, error) {
			if r.Header.Get("Authorization") != "Bearer "+right {
				return access.Identity{}, httpguard.Unauthorized("no")
			}
			return access.AuthenticationOff(), nil
		}
	})
	{
		s, err := newServer(Config{Log: slog.New(slog.DiscardHandler), Control: f.ctrl, Cluster: testCluster{f.ctrl}})
		if err != nil {
			t.Fatal(err)
		}
		routes = slices.DeleteFunc(s.router.routes, func(rt *route) bool { return rt.need == access.Public })
		for _, none := range []string{"POST /healthz", "GET /readyz/x", "GET /nothing", "GET /"} {
			method, path, _ := strings.Cut(none, " ")
			routes = append(routes, &route{method: method, path: path})
		}
	}
	ask := func(method, path, authorization string) (int, string) {
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
		return resp.StatusCode, string(body)
	}
	refused := 0
	for _, r := range routes {
		for _, shown := range []string{"", "Bearer " + right + "0", "Basic " + right, "Token " + right, right} {
			code, body := ask(r.method, r.path, shown)
			refused++
			if code != http.StatusUnauthorized || body != "no\n" {
				t.Errorf("%s %s with %q: %d %s", r.method, r.path, shown, code, body)
			}
		}
	}
	if len(routes) < 50 {
		t.Errorf("only %d routes were tried", len(routes))
	}
	if code, body := ask("GET", "/api/v1/tenants", "Bearer "+right); code != 200 {
		t.Errorf("with the token: %d %s", code, body)
	}
	client, err := api.NewClient(f.url, api.WithToken(func() string { return right }))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Tenants().List(t.Context()); err != nil {
		t.Error(err)
	}
	_, metrics := ask("GET", "/metrics", "Bearer "+right)
	if !strings.Contains(metrics, "contiv_netmaster_token_required 1\n") || !strings.Contains(metrics, `contiv_netmaster_http_requests_total{code="401",method="GET",route="none"}`) {
		t.Errorf("metrics tell nothing of %d refusals", refused)
	}
}
