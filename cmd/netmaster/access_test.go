package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// secured is netmaster's REST interface as its flags have it, over TLS and a store in
// memory.
type secured struct {
	t     *testing.T
	url   string
	ca    *authority
	store *memory.Store
	ctrl  *control.Controller
	audit string // the record's file
	gate  apiAccess
}

func startSecured(t *testing.T, args ...string) *secured {
	t.Helper()
	s := &secured{t: t, ca: newAuthority(t), store: memory.New()}
	dir := t.TempDir()
	s.audit = filepath.Join(dir, "audit", "audit.log")
	o, err := parse(t, nil, append(args, "--tls-dir", s.ca.directory("master", pki.Netmaster), "--internal-address", "127.0.0.1:9999", "--audit-dir", filepath.Dir(s.audit))...)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s.ctrl = control.New(s.store, control.Options{})
	if s.gate, err = o.newAPIAccess(s.store, log); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.ctrl.Run(ctx) }()
	h, err := apiserver.New(apiserver.Config{
		Control: s.ctrl, Cluster: clusterAPI{&member{store: s.store, log: log}, s.ctrl, nil, o.token, s.gate.audit, nil}, Log: log, Authenticate: s.gate.authenticate, Audit: s.gate.recorder(), Tokens: s.gate.tokensOf(), Timeout: patience, Address: "127.0.0.1:9999",
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s.gate.limit.Handler(h))
	_ = server.Listener.Close()
	if server.Listener, err = transport.Listen(t.Context(), "127.0.0.1:0", o.tls.APIServer, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	s.url = "https://" + server.Listener.Addr().String()
	t.Cleanup(func() {
		server.Close()
		cancel()
		if err := errors.Join(<-done, s.gate.close(), s.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// as is a client with a certificate of a role; an empty role has none.
func (s *secured) as(name string, role pki.Role) *http.Client {
	s.t.Helper()
	var c transport.Config
	if role == "" {
		c = s.ca.of("reader", pki.Client)
		c.APIClient.GetClientCertificate = nil
	} else {
		c = s.ca.of(name, role)
	}
	client := transport.OwnClient(c.APIClient, "127.0.0.1", time.Minute)
	s.t.Cleanup(client.CloseIdleConnections)
	return client
}

func (s *secured) ask(c *http.Client, method, path, body, bearer string) (int, string, error) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func (s *secured) must(want int, c *http.Client, method, path, body, bearer string) string {
	s.t.Helper()
	code, answer, err := s.ask(c, method, path, body, bearer)
	if err != nil || code != want {
		s.t.Fatalf("%s %s: %d %s %v, want %d", method, path, code, answer, err, want)
	}
	return answer
}

// tokenOf makes a token of a tenant's admin.
func (s *secured) tokenOf(admin *http.Client, tenant string) string {
	s.t.Helper()
	var made api.NewToken
	if err := json.Unmarshal([]byte(s.must(200, admin, "POST", "/api/v1/tokens", `{"name":"`+tenant+`","role":"tenant-admin","tenants":["`+tenant+`"],"life":3600}`, "")), &made); err != nil {
		s.t.Fatal(err)
	}
	return made.Secret
}

// report is what an agent tells of its host at its start.
func report(host, at string) string {
	return `{"version":1,"host":"` + host + `","installation":"0a0b0c0d-0000-4000-8000-000000000001","since":"2026-01-01T00:00:00Z","control":"` + at + `","vtep":"` + at +
		`","vxlanPort":8472,"driver":"fake","format":1,"agentVersion":"2","look":true,"takeHost":true}`
}

// things are a tenant, a network and an endpoint on each of two hosts.
func (s *secured) things(admin *http.Client) {
	s.t.Helper()
	s.must(200, admin, "POST", "/api/v1/tenants/blue", `{"tenantName":"blue"}`, "")
	s.must(200, admin, "POST", "/api/v1/networks/blue:net", `{"tenantName":"blue","networkName":"net","encap":"vxlan","subnet":"10.1.1.0/24"}`, "")
	for _, h := range []string{"1", "2"} {
		s.must(200, admin, "POST", "/plugin/createEndpoint", `{"TenantName":"blue","NetworkName":"net","EndpointID":"e`+h+`","ConfigEP":{"Host":"h`+h+`","Container":"c`+h+`"}}`, "")
		s.must(200, admin, "POST", "/plugin/allocAddress", `{"NetworkID":"net.blue","PreferredIPv4Address":"10.1.1.20`+h+`","Host":"h`+h+`"}`, "")
		s.must(200, admin, "POST", "/plugin/host", report("h"+h, "10.0.0."+h), "")
	}
}

// dump is all that the store has, without what netmasters count.
func (s *secured) dump() map[string]string {
	s.t.Helper()
	kvs, _, err := s.store.Range(s.t.Context(), store.Root)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range kvs {
		out[kv.Key] = string(kv.Value)
	}
	return out
}

// TestStolenHostCertificateChangesNothingOfOthers: with the certificate of one host's agent no route changes
// what another host has, nor what users have; its own things it may change.
func TestStolenHostCertificateChangesNothingOfOthers(t *testing.T) {
	s := startSecured(t)
	admin, thief := s.as("root", pki.ClusterAdmin), s.as("h1", pki.Host)
	s.things(admin)
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(s.must(200, admin, "GET", "/openapi.json", "", "")), &doc); err != nil {
		t.Fatal(err)
	}
	bodies := map[string][]string{
		"POST /plugin/createEndpoint": {
			`{"TenantName":"blue","NetworkName":"net","EndpointID":"e3","ConfigEP":{"Host":"h2"}}`, `{"TenantName":"blue","NetworkName":"net","EndpointID":"e3","ConfigEP":{}}`,
			`{"TenantName":"blue","NetworkName":"net","EndpointID":"e2","ConfigEP":{"Host":"h1"}}`,
			`{"TenantName":"blue","NetworkName":"net","EndpointID":"e3","ConfigEP":{"Host":"h1","IPAddress":"10.1.1.202"}}`,
			`{"TenantName":"blue","NetworkName":"net","EndpointID":"e3","ConfigEP":{"Host":"h1","host":"h2"}}`,
		},
		"POST /plugin/deleteEndpoint": {`{"TenantName":"blue","NetworkName":"net","EndpointID":"e2"}`},
		"POST /plugin/updateEndpoint": {
			`{"Tenant":"blue","Network":"net","EndpointID":"e2","Event":"start","Labels":{"a":"b"}}`, `{"Event":"die","ContainerID":"c2"}`,
			`{"Tenant":"blue","Network":"net","EndpointID":"e2","Event":"die","ContainerID":"c1"}`,
		},
		"POST /plugin/allocAddress":   {`{"NetworkID":"net.blue","Host":"h2"}`, `{"NetworkID":"net.blue"}`, `{"NetworkID":"net.blue","Host":"h1","PreferredIPv4Address":"10.1.1.202"}`},
		"POST /plugin/releaseAddress": {`{"NetworkID":"net.blue","IPv4Address":"10.1.1.202"}`, `{"NetworkID":"net.blue","IPv4Address":"10.1.1.202/24"}`},
		"POST /plugin/host":           {report("h2", "10.0.0.9")},
		"POST /plugin/hostStatus":     {`{"host":"h2"}`},
		"POST /plugin/answer":         {`{"host":"h2"}`},
		"POST /plugin/mirror":         {`{"id":1,"prefixes":["/contiv.io/access/"]}`, `{"id":1,"prefixes":["/contiv.io/state/"]}`, `{"id":1,"prefixes":["/"]}`},
	}
	before, tried := s.dump(), 0
	for path, methods := range doc.Paths {
		for method := range methods {
			route := strings.ToUpper(method) + " " + path
			if strings.HasPrefix(route, "GET ") {
				continue
			}
			list := bodies[route]
			if list == nil {
				list = []string{"{}", `{"tenantName":"blue","networkName":"net","encap":"vxlan","subnet":"10.1.1.0/24","gateway":"10.1.1.254"}`, ""}
			}
			at := strings.NewReplacer("{key}", "blue:net", "{name}", "h2", "{tenant}", "blue", "{what}", "net", "{address}", "10.0.0.7", "{id}", "net").Replace(path)
			if strings.Contains(path, "/endpoints/") {
				at = strings.Replace(path, "{key}", "blue:net:e2", 1)
			}
			for _, body := range list {
				tried++
				code, answer, err := s.ask(thief, strings.ToUpper(method), at, body, "")
				told := code < 400 && route != "POST /plugin/pod" && route != "POST /plugin/network" // a question
				if route == "POST /plugin/mirror" {                                                  // another one, whose refusal comes on the stream
					told = !strings.Contains(answer, "are not relayed") || strings.Contains(answer, `"rows"`)
				}
				if err != nil || told {
					t.Errorf("%s %s: %d %s %v", route, body, code, answer, err)
				}
			}
		}
	}
	if tried < 80 {
		t.Errorf("only %d requests were made", tried)
	}
	if d := cmp.Diff(before, s.dump()); d != "" {
		t.Errorf("the store is changed:\n%s", d)
	}
	s.must(200, thief, "POST", "/plugin/createEndpoint", `{"TenantName":"blue","NetworkName":"net","EndpointID":"own","ConfigEP":{"Host":"h1"}}`, "")
	s.must(200, thief, "POST", "/plugin/updateEndpoint", `{"Event":"die","ContainerID":"c1"}`, "")
	s.must(200, thief, "POST", "/plugin/deleteEndpoint", `{"TenantName":"blue","NetworkName":"net","EndpointID":"e1"}`, "")
	s.must(200, thief, "POST", "/plugin/releaseAddress", `{"NetworkID":"net.blue","IPv4Address":"10.1.1.201"}`, "")
}

// TestWhoIsLetIn: with tokens a client needs no certificate, but one that it shows must be
// valid. Clients without credentials are refused. The record names the user, the request,
// and the revisions before and after.
func TestWhoIsLetIn(t *testing.T) {
	s := startSecured(t, "--tokens")
	admin, nobody := s.as("root", pki.ClusterAdmin), s.as("", "")
	s.things(admin)
	var made api.NewToken
	const wish = `{"name":"anna","role":"tenant-admin","tenants":["blue"],"life":3600}`
	if err := json.Unmarshal([]byte(s.must(200, admin, "POST", "/api/v1/tokens", wish, "")), &made); err != nil {
		t.Fatal(err)
	}
	text := made.Secret
	s.must(403, nobody, "POST", "/api/v1/tokens", wish, text)
	s.must(403, nobody, "GET", "/api/v1/tokens", "", text)
	s.must(400, admin, "POST", "/api/v1/tokens", `{"name":"x","role":"host","life":3600}`, "")
	s.must(400, admin, "POST", "/api/v1/tokens", `{"name":"x","role":"viewer","life":9223372036854775807}`, "")
	s.must(400, admin, "POST", "/api/v1/tokens", `{"name":"x","role":"viewer","life":3600,"tenant":["blue"]}`, "")
	if list := s.must(200, admin, "GET", "/api/v1/tokens", "", ""); !strings.Contains(list, made.Token.ID) || !strings.Contains(list, `"by":"root"`) || strings.Contains(list, text[20:]) || strings.Contains(list, "hash") {
		t.Errorf("tokens %s", list)
	}
	s.must(401, nobody, "GET", "/api/v1/tenants", "", "")
	other := "A"
	if strings.HasSuffix(text, other) {
		other = "B"
	}
	s.must(401, nobody, "GET", "/api/v1/tenants", "", text[:len(text)-1]+other)
	s.must(200, nobody, "GET", "/healthz", "", "")
	const profile = `{"tenantName":"blue","profileName":"np","DSCP":`
	s.must(200, nobody, "POST", "/api/v1/netprofiles/blue:np", profile+"10}", text)
	s.must(200, nobody, "PUT", "/api/v1/netprofiles/blue:np", profile+"20}", text)
	s.must(403, nobody, "DELETE", "/api/v1/tenants/blue", "", text)
	if _, _, err := s.ask((&secured{t: t, ca: newAuthority(t)}).as("root", pki.ClusterAdmin), "GET", "/healthz", "", ""); err == nil {
		t.Error("a certificate of another authority is let in")
	}
	s.must(200, admin, "DELETE", "/api/v1/tokens/"+made.Token.ID, "", "")
	s.must(404, admin, "DELETE", "/api/v1/tokens/"+made.Token.ID, "", "")
	s.must(401, nobody, "GET", "/api/v1/tenants", "", text)
	lines, err := os.ReadFile(s.audit)
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Who, How, ID, Result string
		Before, After        int64
	}
	var got []entry
	for line := range strings.Lines(string(lines)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	annas := slices.DeleteFunc(slices.Clone(got), func(e entry) bool { return e.Who != "anna" })
	if len(annas) != 5 || annas[0].Result != "refused" || annas[2].Before != 0 || annas[2].After == 0 || annas[3].Before != annas[2].After || annas[3].After <= annas[3].Before || annas[4].Result != "refused" || annas[2].ID != made.Token.ID {
		t.Errorf("recorded %+v", annas)
	}
	if strings.Contains(string(lines), text) || got[0].Who != "root" || got[0].How != "certificate" {
		t.Errorf("recorded %s", lines)
	}
}

// A tenant admin reads the hosts, the status and the events of its own containers: hosts
// by name and state, and nothing that another tenant has.
func TestTenantAdminSeesOnlyItsTenant(t *testing.T) {
	s := startSecured(t, "--tokens")
	admin, nobody := s.as("root", pki.ClusterAdmin), s.as("", "")
	s.things(admin)
	s.must(200, admin, "POST", "/api/v1/tenants/red", `{"tenantName":"red"}`, "")
	s.must(200, admin, "POST", "/api/v1/networks/red:vault", `{"tenantName":"red","networkName":"vault","encap":"vxlan","subnet":"10.1.2.0/30"}`, "")
	s.must(200, admin, "POST", "/api/v1/endpointGroups/red:crypt", `{"tenantName":"red","networkName":"vault","groupName":"crypt"}`, "")
	s.must(200, admin, "POST", "/plugin/createEndpoint", `{"TenantName":"red","NetworkName":"vault","EndpointID":"r1","ConfigEP":{"Host":"h1","Container":"r1"}}`, "")
	s.must(200, admin, "POST", "/plugin/createEndpoint", `{"TenantName":"red","NetworkName":"vault","EndpointID":"r3","ConfigEP":{"Host":"h3","Container":"r3"}}`, "")
	s.must(200, admin, "POST", "/plugin/host", report("h3", "10.0.0.3"), "")
	blue, red := s.tokenOf(admin, "blue"), s.tokenOf(admin, "red")
	for _, path := range []string{"/api/v1/hosts", "/api/v1/hosts/h1", "/api/v1/status"} {
		got := s.must(200, nobody, "GET", path, "", blue)
		for _, secret := range []string{"red", "vault", "10.0.0.", "h3", "8472", "fake"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s shows %q: %s", path, secret, got)
			}
		}
	}
	var hosts []api.Host
	if err := json.Unmarshal([]byte(s.must(200, nobody, "GET", "/api/v1/hosts", "", red)), &hosts); err != nil {
		t.Fatal(err)
	}
	want := []api.Host{{Name: "h1", State: api.HostAlive, Age: -1, Endpoints: 1, Tenants: []string{"red"}}, {Name: "h3", State: api.HostAlive, Age: -1, Endpoints: 1, Tenants: []string{"red"}}}
	if diff := cmp.Diff(want, hosts); diff != "" {
		t.Errorf("red's hosts (-want +got):\n%s", diff)
	}
	if got := s.must(200, nobody, "GET", "/api/v1/status", "", red); !strings.Contains(got, "addresses of red:vault") || !strings.Contains(got, "host h3 is alive and has not reported its status yet") || !strings.Contains(got, `"endpoints":2`) {
		t.Errorf("red's status: %s", got)
	}
	s.must(404, nobody, "GET", "/api/v1/hosts/h2", "", red)
	s.must(404, nobody, "GET", "/api/v1/hosts/h3", "", blue)
	for _, query := range []string{"from=red:crypt", "from=crypt", "to=red:none", "host=h3", "host=none"} {
		s.must(404, nobody, "GET", "/api/v1/monitor?"+query, "", blue)
	}
	for _, path := range []string{"/api/v1/globals", "/api/v1/doctor", "/info", "/metrics"} {
		if got := s.must(403, nobody, "GET", path, "", blue); !strings.Contains(got, "blue (token, tenant-admin of blue) has no right to this; it needs the role cluster-admin or viewer") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// TestIssuerIsAsked: the issuer of --oidc-file judges ID tokens; while it is away, they are
// refused.
func TestIssuerIsAsked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "oidc")
	if err := os.WriteFile(file, []byte(`{"issuer":"https://127.0.0.1:1","clientId":"contiv","groups":{"ops":{"role":"cluster-admin"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startSecured(t, "--oidc-file", file)
	if answer := s.must(503, s.as("", ""), "GET", "/version", "", "e30.e30.e30"); !strings.Contains(answer, "https://127.0.0.1:1") {
		t.Errorf("the answer does not name the issuer: %s", answer)
	}
}

// TestCertificateIsRequired: without tokens, the TLS handshake refuses clients without a
// certificate, and one with a certificate is answered.
func TestCertificateIsRequired(t *testing.T) {
	s := startSecured(t)
	s.must(200, s.as("root", pki.ClusterAdmin), "GET", "/healthz", "", "")
	code, answer, err := s.ask(s.as("", ""), "GET", "/healthz", "", "")
	if err == nil || !strings.Contains(err.Error(), "remote error: tls: certificate required") {
		t.Errorf("without a certificate: %d %s, %v", code, answer, err)
	}
}

// TestContradictingAccessFlagsAreRefused: what cannot be is refused at start.
func TestContradictingAccessFlagsAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, fmt.Sprintf("f%d", len(text)))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	master := newAuthority(t).directory("master", pki.Netmaster)
	with := []string{"--internal-address", "127.0.0.1:9999", "--tls-dir", master}
	const issuer = `{"issuer":"https://login.example.com","clientId":"contiv","groups":{"ops":{"role":"cluster-admin"}}}`
	for _, tc := range []struct {
		args []string
		part string
	}{
		{[]string{"--tokens"}, "--tls-dir"},
		{[]string{"--oidc-file", file(issuer)}, "--tls-dir"},
		{append(with, "--oidc-file", file(issuer)), ""},
		{append(with, "--oidc-file", file(`{"issuer":"https://login.example.com"}`)), "client id"},
		{append(with, "--oidc-file", file(`{"isuer":"https://login.example.com"}`)), "unknown field"},
		{append(with, "--oidc-file", file(strings.Replace(issuer, `"groups"`, `"caFile":"`+file("none")+`","groups"`, 1))), "no certificate of an authority"},
		{append(with, "--oidc-file", filepath.Join(dir, "missing")), "no such file"},
		{append(with, "--audit-dir", "audit"), "absolute"},
		{append(with, "--client-rate", "0"), "--client-rate"},
	} {
		o, err := parse(t, nil, tc.args...)
		if tc.part == "" && (err != nil || o.access.issuer == nil) || tc.part != "" && (err == nil || !strings.Contains(err.Error(), tc.part)) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.part)
		}
	}
}

// TestClientsBeyondTheirRateGetAKnownError: a client with too many requests gets an error of a kind that it knows.
func TestClientsBeyondTheirRateGetAKnownError(t *testing.T) {
	o, err := parse(t, nil, "--internal-address", "127.0.0.1:9999", "--client-rate", "1")
	if err != nil {
		t.Fatal(err)
	}
	g, err := o.newAPIAccess(nil, nil)
	if err != nil || g.authenticate != nil {
		t.Fatalf("clients are asked who they are where nobody is: %v", err)
	}
	server := httptest.NewServer(g.limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })))
	defer server.Close()
	client, err := api.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	deadline := time.Now().Add(patience)
	for err == nil && time.Now().Before(deadline) {
		err = client.Do(t.Context(), http.MethodGet, "/version", nil, nil)
	}
	if api.KindOf(err) != api.KindTooMany {
		t.Errorf("too many requests: %v", err)
	}
}

// TestAgentActsForItsHostOnly: what has become another host's since a request was judged stays.
func TestAgentActsForItsHostOnly(t *testing.T) {
	s := startSecured(t)
	s.things(s.as("root", pki.ClusterAdmin))
	ctx, h1 := t.Context(), control.Agent("h1")
	net := model.NetworkKey{Tenant: "blue", Name: "net"}
	e2 := model.EndpointKey{Network: net, ID: "e2"}
	if _, _, err := s.ctrl.Endpoints.DeleteEndpoint(ctx, h1, e2); !errors.Is(err, model.ErrConflict) {
		t.Errorf("delete: %v", err)
	}
	if _, err := s.ctrl.Endpoints.UpdateEndpoint(ctx, h1, control.EndpointUpdate{Key: e2, Stopped: true, Name: "x"}); !errors.Is(err, model.ErrConflict) {
		t.Errorf("update: %v", err)
	}
	reserved, err := model.ParseAddr4("a", "10.1.1.202")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ctrl.Addresses.ReleaseAddress(ctx, h1, net, reserved); !errors.Is(err, model.ErrConflict) {
		t.Errorf("release: %v", err)
	}
	if _, _, err := s.ctrl.Endpoints.DeleteEndpoint(ctx, h1, model.EndpointKey{Network: net, ID: "e1"}); err != nil {
		t.Errorf("its own: %v", err)
	}
}
