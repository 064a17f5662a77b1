package access

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/access/audit"
)

// TestSecretsAreNotRecorded: whatever secret somebody sends to a route that changes
// something, as a token, a password or a key, in the right place or a wrong one, the
// record of what was done, failed or was refused does not have it.
func TestSecretsAreNotRecorded(t *testing.T) {
	const planted = "pLaNtEd53cr3t"
	var rec records
	h := New(Config{Next: server(t), Bearers: []Bearer{everybody}, Cluster: town{}, Audit: &rec, Log: discard()})
	ask := func(method, path, bearer, body string) {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+bearer)
		r.Header.Set("Cookie", "session="+planted)
		h.ServeHTTP(httptest.NewRecorder(), r)
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
	for _, route := range serverRoutes(t) {
		method, path, _ := strings.Cut(route, " ")
		path = hole.ReplaceAllString(path, "h1")
		ask(method, path, planted, "")
		if method == http.MethodGet {
			continue
		}
		for _, who := range []string{"is-root", "is-blue", "is-viewer", "is-h1"} {
			for _, body := range bodies {
				ask(method, path+"?password="+planted, who, body)
			}
		}
	}
	results := map[string]int{}
	for _, e := range rec.take() {
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
