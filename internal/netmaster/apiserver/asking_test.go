package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// people is a Bearer whose tokens are names.
type people map[string]access.Identity

func (p people) Takes(token string) bool { return strings.HasPrefix(token, "is-") }

func (p people) Identify(r context.Context, token string) (access.Identity, error) {
	id, ok := p[strings.TrimPrefix(token, "is-")]
	if !ok {
		return access.Identity{How: "people"}, httpguard.Unauthorized("nobody has that name")
	}
	return id, r.Err()
}

func somebody(name string, grants ...access.Grant) access.Identity {
	return access.Identity{Name: name, How: "people", Grants: grants}
}

var everybody = people{
	"root":   somebody("root", access.Grant{Role: access.ClusterAdmin}),
	"viewer": somebody("viewer", access.Grant{Role: access.Viewer}),
	"blue":   somebody("blue", access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue"}}),
	"h1":     somebody("h1", access.Grant{Role: access.Host}),
	"master": somebody("master", access.Grant{Role: access.Netmaster}),
	"both":   somebody("both", access.Grant{Role: access.TenantAdmin, Tenants: []string{"green"}}, access.Grant{Role: access.Viewer}, access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue"}}),
	"two":    somebody("two", access.Grant{Role: access.TenantAdmin, Tenants: []string{"green"}}, access.Grant{Role: access.TenantAdmin, Tenants: []string{"red"}}),
	"nobody": {Name: "nobody", How: "people", Note: "there is no group"},
	"odd":    somebody("odd", access.Grant{Role: "root"}),
}

// alone is the Cluster of a netmaster without others.
type alone struct{}

func (alone) Info(context.Context) (api.Info, error)        { return api.Info{}, nil }
func (alone) Masters(context.Context) ([]api.Master, error) { return nil, nil }
func (alone) Stores(context.Context) []api.StoreServer      { return nil }
func (alone) Health(context.Context) api.Health             { return api.Health{Ready: true} }

// records is an audit log in memory.
type records struct {
	mu  sync.Mutex
	all []audit.Entry
}

func (r *records) Record(e audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *records) take() []audit.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// asking is a server that asks who its clients are.
type asking struct {
	t    *testing.T
	s    *server
	h    http.Handler
	ctrl *control.Controller
	rec  records
	end  func()          // ends control, and waits for that
	let  access.Identity // who was let in last, if letIn was called
	in   bool
}

func startAsking(t *testing.T, change func(*Config)) *asking {
	t.Helper()
	return startAskingOn(t, memory.New(), change)
}

func startAskingOn(t *testing.T, mem *memory.Store, change func(*Config)) *asking {
	t.Helper()
	a := &asking{t: t, ctrl: control.New(mem, control.Options{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.ctrl.Run(ctx) }()
	a.end = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, mem.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(a.end)
	cfg := Config{
		Control: a.ctrl, Cluster: alone{}, Log: slog.New(slog.DiscardHandler), Timeout: patience, Audit: &a.rec,
		Authenticate: func(r *http.Request) (access.Identity, error) { return access.Identify(r, []access.Bearer{everybody}) },
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if a.s, err = newServer(cfg); err != nil {
		t.Fatal(err)
	}
	a.h = a.s.guarded()
	return a
}

// routeOf returns a route, such as "GET /version".
func (s *server) routeOf(t *testing.T, name string) *route {
	t.Helper()
	for _, rt := range s.router.routes {
		if rt.method+" "+rt.path == name {
			return rt
		}
	}
	t.Fatalf("there is no route %s", name)
	return nil
}

// onlyDecide has the server note who is let in, and do nothing then.
func (a *asking) onlyDecide() {
	for _, rt := range a.s.router.routes {
		prepare := rt.prepare
		rt.prepare = func(w http.ResponseWriter, r *request) (access.Resource, func() (any, error), error) {
			res, _, err := prepare(w, r)
			return res, func() (any, error) {
				if r.Header.Get("Authorization") != "" {
					a.t.Error("the handler is shown the token")
				}
				a.let, a.in = r.client, true
				return nil, nil
			}, err
		}
	}
}

// cancelOnWrite ends a request once its answer begins: a stream that is let in would last.
type cancelOnWrite struct {
	*httptest.ResponseRecorder
	end func()
}

func (w cancelOnWrite) Write(b []byte) (int, error) {
	w.end()
	return w.ResponseRecorder.Write(b)
}

func (a *asking) ask(who, method, path, body string) *httptest.ResponseRecorder {
	a.t.Helper()
	ctx, end := context.WithCancel(a.t.Context())
	defer end()
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	if who != "" {
		r.Header.Set("Authorization", "Bearer is-"+who)
	}
	w := httptest.NewRecorder()
	a.let, a.in = access.Identity{}, false
	a.h.ServeHTTP(cancelOnWrite{w, end}, r)
	if who != "" && r.Header.Get("Authorization") == "" {
		a.t.Error("the caller's own request was changed")
	}
	return w
}

// letIn reports whether a request is let in, and returns the answer.
func (a *asking) letIn(who, method, path, body string) (bool, *httptest.ResponseRecorder) {
	a.t.Helper()
	w := a.ask(who, method, path, body)
	if a.in != (w.Code == http.StatusOK) {
		a.t.Fatalf("%s %s %s: let in %v, status %d", who, method, path, a.in, w.Code)
	}
	return a.in, w
}

func (a *asking) must(status int, who, method, path, body string) (answer string) {
	a.t.Helper()
	w := a.ask(who, method, path, body)
	if w.Code != status {
		a.t.Fatalf("%s %s %s: %d %s, want %d", who, method, path, w.Code, w.Body, status)
	}
	return w.Body.String()
}

// town has blue's e1 on h1 and red's e2 on h2, both named shared, and addresses reserved
// for h1, h2 and no host.
func (a *asking) town() {
	a.t.Helper()
	for _, of := range [][3]string{{"blue", "h1", "e1"}, {"red", "h2", "e2"}} {
		tenant, host, id := of[0], of[1], of[2]
		a.must(200, "root", "POST", "/api/v1/tenants/"+tenant, `{"tenantName":"`+tenant+`"}`)
		a.must(200, "root", "POST", "/api/v1/networks/"+tenant+":net", `{"tenantName":"`+tenant+`","networkName":"net","encap":"vxlan","subnet":"10.0.0.0/24"}`)
		a.must(200, "root", "POST", "/plugin/createEndpoint", `{"TenantName":"`+tenant+`","NetworkName":"net","EndpointID":"`+id+`","EPCommonName":"shared","ConfigEP":{"Host":"`+host+`","IPAddress":"10.0.0.9"}}`)
	}
	for _, x := range [][3]string{{"blue", "10.0.0.1", "h1"}, {"red", "10.0.0.2", "h2"}, {"blue", "10.0.0.3", ""}} {
		a.must(200, "root", "POST", "/plugin/allocAddress", `{"NetworkID":"net.`+x[0]+`","PreferredIPv4Address":"`+x[1]+`","Host":"`+x[2]+`"}`)
	}
	a.rec.take()
}
