package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

const planRoute = "/api/v1/analysis/plan"

// plan asks what changes would do in the cluster of serveReachable.
func (f *fixture) plan(changes ...string) (p api.Plan) {
	f.t.Helper()
	if err := json.Unmarshal([]byte(f.must("POST", planRoute, `{"changes":[`+strings.Join(changes, ",")+`]}`)), &p); err != nil {
		f.t.Fatal(err)
	}
	return p
}

const (
	allowHTTPS  = `{"set":{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"2","direction":"in","action":"allow","protocol":"tcp","port":443,"priority":3}}`
	removeFirst = `{"delete":{"kind":"rule","key":"blue:p:1"}}`
)

func TestPlanShowsWhatOpensAndCloses(t *testing.T) {
	f := serveReachable(t)
	before := f.must("GET", "/api/v1/rules", "")
	got := f.plan(removeFirst, allowHTTPS)
	if !got.Changes || got.ID == "" || got.Revision == 0 || len(got.Objects) != 2 || got.Objects[0].Action != api.ApplyDeleted || got.Objects[1].Action != api.ApplyCreated {
		t.Fatalf("got %+v", got)
	}
	var flows []string
	for _, x := range got.Flows {
		flows = append(flows, fmt.Sprintf("%s %v %v %v: %s, %s", x.Effect, x.From, x.To, x.Ports, decisionOf(x.Before), decisionOf(x.After)))
	}
	for _, want := range []string{
		"closes [group:blue/db] [blue:n:e1] [tcp/80]: 1, rest",
		"opens [group:blue/db] [blue:n:e1] [tcp/443]: rest, 2",
		"opens [0.0.0.0/0] [blue:n:e1] [tcp/443]: rest, 2",
	} {
		if !slices.Contains(flows, want) {
			t.Errorf("%q is not among\n%s", want, strings.Join(flows, "\n"))
		}
	}
	if again := f.plan(removeFirst, allowHTTPS); again.ID != got.ID {
		t.Errorf("the same plan has ids %s and %s", got.ID, again.ID)
	}
	if other := f.plan(removeFirst); other.ID == got.ID {
		t.Error("another plan has the same id")
	}
	if after := f.must("GET", "/api/v1/rules", ""); after != before {
		t.Errorf("a plan has changed the rules: %s", after)
	}
	if got := f.reach("d1", "e1", "tcp/80"); got.Verdict != "yes" {
		t.Errorf("after a plan: %+v", got)
	}
}

// decisionOf is the rule at the destination.
func decisionOf(d api.PlannedDecision) string {
	for _, x := range d.Decisions {
		if x.Direction == "in" {
			return x.Rule
		}
	}
	return d.Missing
}

// TestPlanThatTakesTooLongIsUnavailable: a plan that its request does not wait for is refused as
// others are for which there is no time.
func TestPlanThatTakesTooLongIsUnavailable(t *testing.T) {
	f := serve(t, time.Nanosecond)
	if status, said := f.do("POST", planRoute, `{"changes":[{"set":{"kind":"tenant","tenantName":"x"}}]}`); status != http.StatusServiceUnavailable || !strings.Contains(said, "planning 1 changes takes more than") {
		t.Errorf("%d %s", status, said)
	}
}

func TestPlanOfWhatIsThereChangesNothing(t *testing.T) {
	f := serveReachable(t)
	got := f.plan(`{"set":{"kind":"tenant","tenantName":"blue"}}`)
	if got.Changes || len(got.Flows)+len(got.Services) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestPlanSaysWhichServicesLoseTheirLastBackend(t *testing.T) {
	f := serveReachable(t)
	f.must("POST", "/api/v1/serviceLBs/blue:shop/", `{"tenantName":"blue","serviceName":"shop","networkName":"n","selectors":["app=shop"],"ports":["8080:80:tcp"],"ipAddress":"10.1.1.99"}`)
	f.must("POST", "/plugin/createEndpoint", strings.Replace(endpoint("n", "web", "b1", ""), `"ConfigEP":{`, `"ConfigEP":{"Labels":{"app":"shop"},`, 1))
	got := f.plan(`{"set":{"kind":"serviceLB","tenantName":"blue","serviceName":"shop","networkName":"n","selectors":["app=shopp"],"ports":["8080:80:tcp"],"ipAddress":"10.1.1.99"}}`)
	if len(got.Services) == 1 {
		c := got.Services[0].Clients
		if len(c) != 1 || c[0].Effect != api.FlowCloses || !slices.Contains(c[0].From, "group:blue/db") || !slices.Equal(c[0].At, []string{"10.1.1.99 tcp/8080"}) {
			t.Errorf("clients %+v", c)
		}
		got.Services[0].Clients = nil
	}
	if len(got.Services) != 1 || !reflect.DeepEqual(got.Services[0], api.PlannedService{Service: "blue:shop", Before: 1, Effect: "updated", LosesLast: true, Changes: []string{"backends"}}) {
		t.Errorf("got %+v", got.Services)
	}
	got = f.plan(`{"delete":{"kind":"serviceLB","key":"blue:shop"}}`)
	if len(got.Services) != 1 || got.Services[0].Effect != "deleted" || !got.Services[0].LosesLast {
		t.Errorf("got %+v", got.Services)
	}
}

// A change that is refused is refused as a plan in the same words.
func TestPlanRefusesWhatTheChangeWouldBeRefused(t *testing.T) {
	f := serveReachable(t)
	for _, c := range []struct{ change, method, path, body string }{
		{`{"delete":{"kind":"policy","key":"blue:p"}}`, "DELETE", "/api/v1/policys/blue:p/", ""},
		{`{"delete":{"kind":"policy","key":"blue:none"}}`, "DELETE", "/api/v1/policys/blue:none/", ""},
		{`{"delete":{"kind":"tenant","key":"blue"}}`, "DELETE", "/api/v1/tenants/blue/", ""},
		{`{"delete":{"kind":"network","key":"blue:n"}}`, "DELETE", "/api/v1/networks/blue:n/", ""},
		{`{"deleteRule":{"policy":"blue:none","ruleId":"x"}}`, "DELETE", "/api/v1/networkPolicys/blue:none/rules/x/", ""},
		{
			`{"set":{"kind":"endpointGroup","tenantName":"blue","groupName":"web","networkName":"n","policies":["none"]}}`, "POST", "/api/v1/endpointGroups/blue:web/",
			`{"tenantName":"blue","groupName":"web","networkName":"n","policies":["none"]}`,
		},
		{
			`{"set":{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"1","direction":"out","action":"allow"}}`, "POST", "/api/v1/rules/blue:p:1/",
			`{"tenantName":"blue","policyName":"p","ruleId":"1","direction":"out","action":"allow"}`,
		},
		{
			`{"set":{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"9","direction":"up","action":"allow"}}`, "POST", "/api/v1/rules/blue:p:9/",
			`{"tenantName":"blue","policyName":"p","ruleId":"9","direction":"up","action":"allow"}`,
		},
	} {
		want, text := f.do(c.method, c.path, c.body)
		got, said := f.do("POST", planRoute, `{"changes":[`+c.change+`]}`)
		if got < 400 || got != want || said != text {
			t.Errorf("%s: planned: %d %s; really: %d %s", c.change, got, said, want, text)
		}
	}
}

func TestPlanRefusesWhatIsNoPlan(t *testing.T) {
	f := serveReachable(t)
	for body, text := range map[string]string{
		`{}`:               "changes",
		`{"changes":[]}`:   "changes",
		`{"changes":[{}]}`: "one of set, delete, setRule, deleteRule and manifest",
		`{"changes":[{"set":{"kind":"tenant","tenantName":"x"},"delete":{"kind":"tenant","key":"x"}}]}`: "one of set",
		`{"changes":[{"set":{"kind":"tenant","tenantName":"x","colour":"red"}}]}`:                       "colour",
		`{"changes":[{"set":{"kind":"NetworkPolicy","apiVersion":"networking.k8s.io/v1"}}]}`:            "kind",
		`{"changes":[{"set":{"tenantName":"x"}}]}`:                                                      "kind",
		`{"changes":[{"delete":{"kind":"endpoint","key":"blue:n:e1"}}]}`:                                "kind",
		`{"changes":[{"set":{"kind":"tenant","tenantName":"x"}}],"apply":true}`:                         "apply",
		`{"changes":[`: "JSON",
	} {
		status, said := f.do("POST", planRoute, body)
		if status != http.StatusBadRequest || !strings.Contains(said, text) {
			t.Errorf("%s: %d %s; want %q", body, status, said, text)
		}
	}
	status, said := f.do("POST", planRoute, `{"changes":[{"set":{"kind":"tenant","tenantName":"`+strings.Repeat("x", MaxApplyBody)+`"}}]}`)
	if status != http.StatusRequestEntityTooLarge {
		t.Errorf("too much: %d %s", status, said)
	}
}

// A plan is applied as long as it would be made again, whatever else changes.
func TestPlanIsAppliedUnlessItIsAnotherByNow(t *testing.T) {
	f := serveReachable(t)
	p := f.plan(removeFirst, allowHTTPS)
	body := fmt.Sprintf(`{"changes":[%s,%s],"revision":%d,"id":%q}`, removeFirst, allowHTTPS, p.Revision, p.ID)
	f.must("POST", "/api/v1/rules/blue:p:other/", `{"tenantName":"blue","policyName":"p","ruleId":"other","direction":"in","action":"deny","protocol":"tcp","port":443,"priority":9}`)
	status, said := f.do("POST", "/api/v1/apply/plan", body)
	if status != http.StatusConflict || !strings.Contains(said, fmt.Sprint("revision ", p.Revision)) {
		t.Errorf("of another state: %d %s", status, said)
	}
	if got := f.reach("d1", "e1", "tcp/80"); got.Verdict != "yes" {
		t.Errorf("a refused plan has changed something: %+v", got)
	}
	f.must("DELETE", "/api/v1/rules/blue:p:other/", "")
	f.must("POST", "/api/v1/tenants/green/", `{"tenantName":"green"}`)
	if text := f.must("POST", "/api/v1/apply/plan", body); !strings.Contains(text, "blue:p:2") {
		t.Errorf("the answer is %s", text)
	}
	if got, other := f.reach("d1", "e1", "tcp/80"), f.reach("d1", "e1", "tcp/443"); got.Verdict != "no" || other.Verdict != "yes" {
		t.Errorf("afterwards: %+v, %+v", got, other)
	}
}

func TestTenantAdminPlansWithinItsTenant(t *testing.T) {
	f := startAsking(t, nil)
	f.town()
	own := `{"changes":[{"set":{"kind":"policy","tenantName":"blue","policyName":"mine"}}]}`
	f.must(200, "blue", "POST", planRoute, own)
	f.must(403, "blue", "POST", planRoute, strings.ReplaceAll(own, `"blue"`, `"red"`))
	f.must(403, "blue", "POST", planRoute, `{"changes":[{"delete":{"kind":"network","key":"red:net"}}]}`)
	f.must(403, "blue", "POST", planRoute, `{"changes":[{"set":{"kind":"global","name":"global","fwdMode":"routing"}}]}`)
	if text := f.must(200, "root", "POST", planRoute, `{"changes":[{"set":{"kind":"global","name":"global","fwdMode":"routing"}}]}`); !strings.Contains(text, `"revision"`) {
		t.Error(text)
	}
}
