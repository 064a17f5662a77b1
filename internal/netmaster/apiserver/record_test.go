package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// TestAuditRecordsContainNoSecrets: nothing of what a request carries but its object gets into the record.
func TestAuditRecordsContainNoSecrets(t *testing.T) {
	const secret = "a-secret-that-nobody-must-see"
	var out bytes.Buffer
	f := startAsking(t, func(c *Config) {
		c.Audit = audit.New(&out, slog.New(slog.DiscardHandler))
		c.Authenticate = func(r *http.Request) (access.Identity, error) {
			return access.Identify(r, []access.Bearer{access.SharedTokens(func(token string) bool { return token == secret })})
		}
	})
	send := func(method, path, body, authorization string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Authorization", authorization)
		r.Header.Set("X-Auth-Token", secret)
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		return w.Code
	}
	for _, authorization := range []string{"Bearer " + secret, "bearer " + secret} {
		if got := send("PUT", "/api/v1/networks/blue:net?token="+secret, `{"x":"`+secret+`"}`, authorization); got != http.StatusBadRequest {
			t.Errorf("the right token: %d", got)
		}
	}
	for _, authorization := range []string{"Bearer " + secret + "x", "Basic " + secret, secret, "Bearer", "Bearer  " + secret, ""} {
		if got := send("PUT", "/api/v1/networks/blue:net?token="+secret, secret, authorization); got != http.StatusUnauthorized {
			t.Errorf("%q: %d", authorization, got)
		}
	}
	if strings.Count(out.String(), "\n") != 8 || strings.Contains(out.String(), secret[5:20]) {
		t.Error(out.String())
	}
}

// TestChangesAreRecorded: what changes something, or gives out what lets people in, is recorded with what
// it is about, also where there is no such route; what reads is not.
func TestChangesAreRecorded(t *testing.T) {
	f := startAsking(t, nil)
	f.onlyDecide()
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/api/v1/networks", "", ""},
		{"GET", "/api/v2", "", ""},
		{"HEAD", "/api/v2", "", ""},
		{"POST", "/plugin/host", `{"host":"h1"}`, ""},
		{"GET", "/api/v1/backup", "", "GET /api/v1/backup []"},
		{"PUT", "/api/v2", "", " []"},
		{"DELETE", "/api/v1/networks/blue:net/x", "", " []"},
		{"POST", "/plugin/allocAddress", `{"NetworkID":"net.blue","PreferredIPv4Address":"10.0.0.1"}`, "POST /plugin/allocAddress [{address net.blue 10.0.0.1}]"},
		{"POST", "/plugin/allocAddress", `{"AddressPool":"net.red"}`, "POST /plugin/allocAddress [{address net.red }]"},
	} {
		f.ask("root", tc.method, tc.path, tc.body)
		var got []string
		for _, e := range f.rec.take() {
			got = append(got, fmt.Sprintf("%s %v", e.Route, e.Objects))
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s %s %s is recorded as %q, want %q", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
}

// TestSecretsAreNotRecorded: whatever secret somebody sends to a route that changes
// something, as a token, a password or a key, in the right place or a wrong one, the
// record of what was done, failed or was refused does not have it.
func TestSecretsAreNotRecorded(t *testing.T) {
	const planted = "pLaNtEd53cr3t"
	f := startAsking(t, nil)
	ask := func(method, path, bearer, body string) {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+bearer)
		r.Header.Set("Cookie", "session="+planted)
		f.h.ServeHTTP(httptest.NewRecorder(), r)
	}
	fields := `"password":"` + planted + `","token":"` + planted + `","secret":"` + planted + `","privateKey":"` + planted + `"`
	bgp := `{"hostname":"h1","as":"65001","routerIp":"50.1.1.2/24","neighborAs":"65002","neighbor":"50.1.1.1","password":"` + planted + `"}`
	bodies := []string{
		"{" + fields + "}", bgp, strings.Replace(bgp, `"65001"`, `"x"`, 1), `{"objects":[{"kind":"Bgp","spec":` + bgp + `}]}`,
		`[{"kind":"Bgp","object":` + bgp + `}]`, planted, `{"password":` + planted + `}`, `{"name":"n","role":"viewer",` + fields + `}`,
	}
	hole := regexp.MustCompile(`\{[^}]*\}`)
	ask("POST", "/api/v1/globals/global", "is-root", `{"name":"global","networkInfraType":"default","vlans":"1-4094","vxlans":"1-10000"}`)
	ask("POST", "/api/v1/tenants/blue", "is-root", `{"tenantName":"blue"}`)
	ask("PUT", "/api/v1/Bgps/h1", "is-root", bgp)
	for _, rt := range f.s.router.routes {
		method, path := rt.method, rt.path
		path = hole.ReplaceAllString(path, "h1")
		ask(method, path, planted, "")
		if method == http.MethodGet {
			continue
		}
		for _, who := range []string{"is-root", "is-blue", "is-viewer", "is-h1"} {
			for _, body := range bodies {
				ask(method, path+"?password="+planted, who, body)
				ask(method, path, who, body)
			}
		}
	}
	results := map[string]int{}
	for _, e := range f.rec.take() {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), planted) {
			t.Errorf("recorded: %s", text)
		}
		results[e.Result]++
	}
	for _, r := range []string{audit.Done, audit.Failed, audit.Refused} {
		if results[r] == 0 {
			t.Errorf("nothing was recorded as %s: %v", r, results)
		}
	}
}

// TestPanicIsRecordedAsFailed: a change whose handler breaks down is recorded as failed.
func TestPanicIsRecordedAsFailed(t *testing.T) {
	f := startAsking(t, nil)
	f.s.routeOf(t, "DELETE /api/v1/networks/{key}").prepare = func(http.ResponseWriter, *request) (access.Resource, func() (any, error), error) {
		return access.Resource{}, func() (any, error) { panic("broken") }, nil
	}
	f.must(500, "root", "DELETE", "/api/v1/networks/blue:a", "")
	f.s.routeOf(t, "GET /api/v1/backup").prepare = func(http.ResponseWriter, *request) (access.Resource, func() (any, error), error) {
		return access.Resource{}, func() (any, error) { panic(http.ErrAbortHandler) }, nil
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of a stream does not reach net/http")
			}
		}()
		f.ask("root", "GET", "/api/v1/backup", "")
	}()
	if got := f.rec.take(); len(got) != 2 || got[0].Result != audit.Failed || got[1].Result != audit.Failed {
		t.Errorf("recorded %+v", got)
	}
}

// TestBodyIsReadAfterTheRole: a body that says what a request is about is bounded, and is not
// read of clients that may not ask at all.
func TestBodyIsReadAfterTheRole(t *testing.T) {
	f := startAsking(t, nil)
	large := `{"host":"h1","x":"` + strings.Repeat("x", MaxBody) + `"}`
	if w := f.ask("h1", "POST", "/plugin/host", large); w.Code != 413 || !strings.Contains(w.Body.String(), "at most 1048576 bytes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	send := func(who string, body io.Reader) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/plugin/host", body)
		r.Header.Set("Authorization", "Bearer is-"+who)
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		return w.Code
	}
	if code := send("h1", io.MultiReader(strings.NewReader("{"), broken{})); code != 400 {
		t.Errorf("a body that breaks off: %d", code)
	}
	if got := f.rec.take(); len(got) != 2 || got[0].Result != audit.Refused || got[0].Status != 413 || got[1].Status != 400 {
		t.Errorf("recorded %+v", got)
	}
	if code := send("viewer", untouched{t}); code != 403 {
		t.Errorf("%d", code)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("a body is read before it is known that its sender may ask")
	return 0, io.EOF
}
