package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/archtest"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

var _ = tested("assertions", kindCases{
	object: `{"tenantName":"blue","assertionName":"x","verdict":"never","from":"host:h1","to":"app=none"}`, key: []string{"tenantName", "assertionName"},
	fields: map[string]cases{
		"tenantName":    tenantCases(),
		"assertionName": nameCases("assertionName"),
		"verdict":       {[]string{`{"verdict":"never"}`, `{"verdict":"always"}`}, []string{`{"verdict":""}`, `{"verdict":"maybe"}`}},
		"from":          {[]string{`{"from":"any"}`, `{"from":"app=web"}`, `{"from":"10.0.0.0/8"}`}, []string{`{"from":""}`, `{"from":"10.0.0.1/8"}`, `{"from":"group:other/web"}`, `{"from":"tenant:other"}`}},
		"to":            {[]string{`{"to":"any"}`, `{"to":"app=web"}`, `{"to":"10.0.0.0/8"}`}, []string{`{"to":""}`, `{"to":"10.0.0.1/8"}`, `{"to":"group:other/web"}`}},
		"ports":         {[]string{`{"ports":[]}`, `{"ports":["tcp/22","udp/1-9","icmp"]}`}, []string{`{"ports":[""]}`, `{"ports":["tcp/0-70000"]}`, `{"ports":["ssh"]}`}},
		"clusterWide":   {[]string{`{"clusterWide":true}`, `{"clusterWide":false}`, `{"clusterWide":true,"from":"tenant:other"}`}, []string{`{"clusterWide":"yes"}`}},
		"owner":         {[]string{`{"owner":""}`, `{"owner":"dba@example.com"}`}, []string{`{"owner":"` + strings.Repeat("x", 257) + `"}`}},
		"reason":        {[]string{`{"reason":""}`, `{"reason":"audit 7.2"}`}, []string{`{"reason":"` + strings.Repeat("x", 257) + `"}`}},
		"overridden":    {[]string{`{"overridden":""}`, `{"overridden":"incident 7"}`}, []string{`{"overridden":"` + strings.Repeat("x", 257) + `"}`}},
	},
	effects: map[string]archtest.Effect{
		"tenantName":     archtest.By("TestAssertionsAreServed"),
		"assertionName":  archtest.By("TestAssertionsAreServed"),
		"verdict=never":  archtest.By("TestAssertionsAreServed"),
		"verdict=always": archtest.By("TestAssertionThatTheClusterBreaksIsRefused"),
		"from":           archtest.By("TestAssertionsAreServed"),
		"to":             archtest.By("TestAssertionsAreServed"),
		"ports":          archtest.By("TestAssertionsAreServed"),
		"owner":          archtest.By("TestAssertionsAreServed"),
		"reason":         archtest.By("TestAssertionsAreServed"),
		"overridden":     archtest.By("TestOverrideCommitsAndIsRecorded"),
		"clusterWide":    archtest.By("TestClusterWideAssertionIsForClusterAdministrators"),
	},
})

const noHTTPS = `{"tenantName":"blue","assertionName":"no-https","verdict":"never","from":"any","to":"endpoint:e1","ports":["tcp/443"],"owner":"ops","reason":"audit"}`

func TestAssertionsAreServed(t *testing.T) {
	f := serveReachable(t)
	f.must("POST", "/api/v1/assertions/blue:no-https/", noHTTPS)
	a, err := f.Assertions().Get(t.Context(), "blue:no-https")
	if err != nil || a.Verdict != api.AssertNever || a.From != "any" || len(a.Ports) != 1 || a.Links.Tenant.Key != "blue" {
		t.Fatalf("got %+v, %v", a, err)
	}
	rule := `{"tenantName":"blue","policyName":"p","ruleId":"2","direction":"in","action":"allow","protocol":"tcp","port":443,"priority":3}`
	code, text := f.do("POST", "/api/v1/rules/blue:p:2/", rule)
	if code != http.StatusConflict || !strings.Contains(text, `it breaks assertion "blue:no-https" (never any -> endpoint:e1 tcp/443; owner ops; reason audit)`) || !strings.Contains(text, "by rule blue:p:2") {
		t.Errorf("got %d %s", code, text)
	}
	verdicts := func() (out []api.AssertionVerdict) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/analysis/assertions", "")), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := verdicts(); len(got) != 1 || got[0].State != api.AssertionHolds || got[0].Assertion.Key != "blue:no-https" || got[0].Why != "" {
		t.Errorf("got %+v", got)
	}
	f.must("DELETE", "/api/v1/assertions/blue:no-https/", "")
	f.must("POST", "/api/v1/rules/blue:p:2/", rule)
}

// An assertion about nothing is created with a warning, and holds.
func TestAssertionThatSelectsNothingIsWarnedOf(t *testing.T) {
	f := serveReachable(t)
	const object = `{"tenantName":"blue","assertionName":"x","verdict":"never","from":"app=none","to":"group:db"}`
	c, said := f.warned(t)
	if _, err := c.Assertions().Create(t.Context(), api.Assertion{TenantName: "blue", AssertionName: "x", Verdict: "never", From: "app=none", To: "group:db"}); err != nil || len(*said) != 1 || !strings.Contains((*said)[0], "from app=none selects no endpoint now") {
		t.Errorf("got %v, warnings %q", err, *said)
	}
	if text := f.must("POST", "/api/v1/apply", `{"objects":[`+strings.Replace(object, `{`, `{"kind":"assertion",`, 1)+`]}`); !strings.Contains(text, "selects no endpoint now") {
		t.Errorf("got %s", text)
	}
	if text := f.must("GET", "/api/v1/analysis/assertions", ""); !strings.Contains(text, `"selectNothing":["from app=none"]`) {
		t.Errorf("got %s", text)
	}
}

// A new endpoint is not refused, and the alert says that it breaks an assertion.
func TestEndpointThatBreaksAnAssertionFiresItsAlert(t *testing.T) {
	f := serveReachable(t)
	f.must("POST", "/api/v1/assertions/blue:x/", `{"tenantName":"blue","assertionName":"x","verdict":"never","from":"any","to":"app=later"}`)
	holds := f.scrape()
	text, err := json.Marshal(api.CreateEndpointRequest{
		TenantName: "blue", NetworkName: "n", EndpointID: "late", ConfigEP: api.ConfigEP{Host: "host1", Labels: map[string]string{"app": "later"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.must("POST", "/plugin/createEndpoint", string(text))
	testenv.AlertsFire(t, holds, f.scrape(), "ContivAssertionBroken")
}

func TestOverrideIsForClusterAdministrators(t *testing.T) {
	f := startAsking(t, nil)
	f.must(200, "root", "POST", "/api/v1/tenants/blue", `{"tenantName":"blue"}`)
	f.rec.take()
	as := func(who string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/policys/blue:q", strings.NewReader(`{"tenantName":"blue","policyName":"q"}`))
		r.Header.Set("Authorization", "Bearer is-"+who)
		r.Header.Set(api.OverrideHeader, "incident 7")
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		return w
	}
	if w := as("blue"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "only a cluster-admin") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if got := f.rec.take(); len(got) != 1 || got[0].Result != audit.Refused {
		t.Errorf("recorded %+v", got)
	}
	if w := as("root"); w.Code != http.StatusOK {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if got := f.rec.take(); len(got) != 1 || got[0].What != "override: incident 7" {
		t.Errorf("recorded %+v", got)
	}
}
