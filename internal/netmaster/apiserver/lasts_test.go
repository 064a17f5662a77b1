package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/token"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// lookup is a Bearer whose tokens are good unless there is an error.
type lookup func() error

func (lookup) Takes(string) bool { return true }

func (l lookup) Identify(context.Context, string) (access.Identity, error) {
	return access.Identity{Name: "anna", Grants: []access.Grant{{Role: access.ClusterAdmin}}}, l()
}

// TestRevokedTokenStopsItsStreams: who watches by a token watches no more once that is revoked, and
// the stream can say why.
func TestRevokedTokenStopsItsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked, unknown atomic.Bool
		var why error
		bearer := lookup(func() error {
			switch {
			case unknown.Load():
				return httpguard.Unavailable(0, nil, "the store is away")
			case revoked.Load():
				return httpguard.Unauthorized("it was revoked")
			}
			return nil
		})
		s := &router{serverContext: &serverContext{}, mux: http.NewServeMux(), authenticate: func(r *http.Request) (access.Identity, error) {
			return access.Identify(r, []access.Bearer{bearer})
		}}
		s.handleStream("GET", "/api/v1/monitor", access.View, nil, func(_ http.ResponseWriter, r *request) {
			<-r.Context().Done()
			why = context.Cause(r.Context())
		}).lasts = true
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/monitor", nil)
		r.Header.Set("Authorization", "Bearer of-somebody")
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.mux.ServeHTTP(httptest.NewRecorder(), r)
		}()
		select {
		case <-done:
			t.Fatal("it ends with a token that is good")
		case <-time.After(time.Minute):
		}
		unknown.Store(true)
		select {
		case <-done:
			t.Fatal("it ends because the token cannot be looked up")
		case <-time.After(time.Minute):
		}
		unknown.Store(false)
		revoked.Store(true)
		select {
		case <-done:
		case <-time.After(recheckInterval + time.Second):
			t.Fatal("it goes on with a token that was revoked")
		}
		if no, ok := errors.AsType[*httpguard.Refusal](why); !ok || no.Status != http.StatusUnauthorized {
			t.Errorf("the stream ends because of %v", why)
		}
	})
}

// answersAtOnce are the routes that answer by themselves and whose answers end by
// themselves.
var answersAtOnce = []string{
	"GET /api/v1/backup", "GET /api/v1/bundle", "GET /api/v1/hosts/{name}/bundle", "POST /plugin/report/{id}",
	"GET /readyz", "GET /metrics", "GET /openapi.json",
}

// TestStreamsEndWithWhatLetThemIn: every route that answers for as long as the client likes
// ends when the client is no longer let in, or may see something else.
func TestStreamsEndWithWhatLetThemIn(t *testing.T) {
	f := startAsking(t, nil)
	streams := 0
	for _, rt := range f.s.router.routes {
		name := rt.method + " " + rt.path
		if rt.limit != 0 || slices.Contains(answersAtOnce, name) {
			continue
		}
		streams++
		for what, then := range map[string]access.Identity{"it is let in no more": {}, "it may see less": somebody("anna", access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue"}})} {
			synctest.Test(t, func(t *testing.T) {
				var changed atomic.Bool
				s := &router{serverContext: f.s.router.serverContext, requests: f.s.router.requests, durations: f.s.router.durations}
				s.authenticate = func(*http.Request) (access.Identity, error) {
					switch {
					case !changed.Load():
						return somebody("h1", access.Grant{Role: access.ClusterAdmin}), nil
					case then.How == "":
						return then, httpguard.Unauthorized("it was revoked")
					}
					return then, nil
				}
				began, done := make(chan struct{}), make(chan struct{})
				lasting := *rt
				lasting.prepare = func(_ http.ResponseWriter, r *request) (access.Resource, func() (any, error), error) {
					return access.Resource{Hosts: []string{"h1"}}, func() (any, error) {
						close(began)
						<-r.Context().Done()
						return nil, nil
					}, nil
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() {
					defer close(done)
					s.serve(&lasting, httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, rt.method, "/", nil))
				}()
				<-began
				changed.Store(true)
				select {
				case <-done:
				case <-time.After(2 * recheckInterval):
					t.Errorf("%s goes on though %s", name, what)
				}
			})
		}
	}
	if streams != 3 {
		t.Errorf("%d routes are streams", streams)
	}
}

// TestMonitorStopsWhenOneOfItsTenantsIsDeleted: the monitor of a token for two tenants ends as soon
// as one of them is deleted, so that it shows nothing of one that comes under that name.
func TestMonitorStopsWhenOneOfItsTenantsIsDeleted(t *testing.T) {
	mem := memory.New()
	tokens := token.NewStore(mem)
	f := startAskingOn(t, mem, func(c *Config) {
		c.Address = "127.0.0.1:1"
		c.Authenticate = func(r *http.Request) (access.Identity, error) {
			return access.Identify(r, []access.Bearer{everybody, tokens})
		}
	})
	for _, name := range []string{"red", "blue"} {
		if w := f.ask("root", http.MethodPost, "/api/v1/tenants/"+name, `{"tenantName":"`+name+`"}`); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
	}
	secret, _, err := tokens.Create(t.Context(), token.TokenRequest{Name: "anna", Life: time.Hour, Grant: access.Grant{Role: access.TenantAdmin, Tenants: []string{"red", "blue"}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(f.h)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), recheckInterval-time.Second) // it does not wait for the next look
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/monitor", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	lines := bufio.NewScanner(got.Body)
	if !lines.Scan() {
		t.Fatalf("the monitor does not begin: %s %v", got.Status, lines.Err())
	}
	if w := f.ask("root", http.MethodDelete, "/api/v1/tenants/red", ""); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if lines.Err() != nil || !strings.Contains(last, "has changed") {
		t.Errorf("it ends with %q, %v", last, lines.Err())
	}
}

// TestConnectionClosesBeforeItsCertificateExpires: answers in the last hour of a certificate
// close the connection, so that the client connects with a renewed one. Earlier answers do not.
func TestConnectionClosesBeforeItsCertificateExpires(t *testing.T) {
	f := startAsking(t, nil)
	for left, want := range map[time.Duration]string{-time.Minute: "close", time.Minute: "close", 2 * closeBefore: ""} {
		for _, path := range []string{"/version", "/api/v1/backup"} { // one that it may ask for, and one that it may not
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Header.Set("Authorization", "Bearer is-viewer")
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().Add(left)}}}
			w := httptest.NewRecorder()
			f.s.router.ServeHTTP(w, r)
			if got := w.Header().Get("Connection"); got != want {
				t.Errorf("%s, %v before the end: Connection %q, %d", path, left, got, w.Code)
			}
		}
	}
}

// TestShortRequestIsIdentifiedOnce: only streams have their clients identified again.
func TestShortRequestIsIdentifiedOnce(t *testing.T) {
	var asked atomic.Int64
	f := startAsking(t, func(c *Config) {
		known := c.Authenticate
		c.Authenticate = func(r *http.Request) (access.Identity, error) { asked.Add(1); return known(r) }
	})
	if w := f.ask("root", http.MethodGet, "/api/v1/tenants", ""); w.Code != http.StatusOK || asked.Load() != 1 {
		t.Errorf("%d %s, identified %d times", w.Code, w.Body, asked.Load())
	}
}
