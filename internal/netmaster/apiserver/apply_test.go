package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
)

// oneOfEach is an object of every kind, in an order that does not work one by one.
var oneOfEach = []string{
	`{"kind":"endpoint","TenantName":"blue","NetworkName":"n","ServiceName":"g","EndpointID":"e1","ConfigEP":{"Container":"c1","Host":"h1","IPAddress":"10.1.0.9"}}`,
	`{"kind":"assertion","tenantName":"blue","assertionName":"a","verdict":"never","from":"host:h9","to":"group:g","ports":["tcp/22"]}`,
	`{"kind":"tenant","tenantName":"blue","defaultNetwork":"n"}`,
	`{"kind":"appProfile","tenantName":"blue","appProfileName":"shop","endpointGroups":["g"]}`,
	`{"kind":"serviceLB","tenantName":"blue","serviceName":"web","networkName":"n","ipAddress":"10.1.0.100","selectors":["app=web"],"ports":["80:8080:TCP"]}`,
	`{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"g","priority":1}`,
	`{"kind":"endpointGroup","tenantName":"blue","groupName":"g","networkName":"n","policies":["p"],"netProfile":"gold","extContractsGrps":["x"]}`,
	`{"kind":"network","tenantName":"blue","networkName":"n","encap":"vxlan","pktTag":5000,"subnet":"10.1.0.0/24"}`,
	`{"kind":"policy","tenantName":"blue","policyName":"p"}`,
	`{"kind":"netprofile","tenantName":"blue","profileName":"gold","bandwidth":"10mbps","DSCP":4}`,
	`{"kind":"extContractsGroup","tenantName":"blue","contractsGroupName":"x","contractsType":"provided","contracts":["uni/tn-common/brc-web"]}`,
	`{"kind":"aciGw","name":"aciGw","enforcePolicies":"yes"}`,
	`{"kind":"global","name":"global","vlans":"100-200"}`,
}

func objects(texts ...string) (out []json.RawMessage) {
	for _, s := range texts {
		out = append(out, json.RawMessage(s))
	}
	return out
}

// Every kind can be applied; a dry run says the same, with the objects before
// and after, and changes nothing; applying again changes nothing.
func TestApplyingAgainChangesNothing(t *testing.T) {
	f := serve(t, 0)
	actions := func(dryRun bool) (out []string, results []api.ApplyResult) {
		t.Helper()
		got, err := f.Apply(t.Context(), api.ApplyRequest{Objects: objects(oneOfEach...), DryRun: dryRun})
		if err != nil || got.Done != len(oneOfEach) {
			t.Fatalf("done %d, error %v", got.Done, err)
		}
		for _, r := range got.Results {
			out = append(out, r.Kind+" "+r.Key+" "+r.Action)
		}
		return out, got.Results
	}
	want := []string{
		"endpoint blue:n:e1 created", "assertion blue:a created", "tenant blue created", "appProfile blue:shop created", "serviceLB blue:web created",
		"rule blue:p:1 created", "endpointGroup blue:g created", "network blue:n created", "policy blue:p created",
		"netprofile blue:gold created", "extContractsGroup blue:x created", "aciGw aciGw created", "global global updated",
	}
	got, results := actions(true)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dry run (-want +got):\n%s", diff)
	}
	for _, r := range results {
		if len(r.After) == 0 || string(r.After) == "null" || (r.Before != nil) != (r.Kind == "global") {
			t.Errorf("%s %s: before %s, after %s", r.Kind, r.Key, r.Before, r.After)
		}
	}
	if _, err := f.Tenants().Get(t.Context(), "blue"); !api.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	got, _ = actions(false)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, _ = actions(false)
	for i := range want {
		want[i] = strings.TrimSuffix(strings.TrimSuffix(want[i], "created"), "updated") + "unchanged"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	e, err := f.InspectEndpoint(t.Context(), "e1")
	if err != nil || e.IPAddress[0] != "10.1.0.9" {
		t.Errorf("endpoint %+v, error %v", e, err)
	}
}

// A refused object is named by its place and its field, with the status that
// its own request would get.
func TestRefusedObjectIsNamedByPlaceAndField(t *testing.T) {
	f := serve(t, 0)
	for bad, want := range map[string]api.Error{
		`{"kind":"tenant","tenantName":"a_b"}`:  {Status: http.StatusBadRequest, Message: `tenantName "a_b"`},
		`{"kind":"tenant","tenantNam":"red"}`:   {Status: http.StatusBadRequest, Message: `field "tenantNam": there is no such field`},
		`{"kind":"tenant","tenantName":7}`:      {Status: http.StatusBadRequest, Message: "tenantName"},
		`{"kind":"tenants","tenantName":"red"}`: {Status: http.StatusBadRequest, Message: `kind "tenants": must be one of Bgp`},
		`{"tenantName":"red"}`:                  {Status: http.StatusBadRequest, Message: `kind "": must be one of`},
		`[]`:                                    {Status: http.StatusBadRequest, Message: "must be a JSON object"},
		// Of a repeated field one would count, and it is unclear which.
		`{"kind":"rule","tenantName":"default","policyName":"p","ruleId":"1","direction":"in","action":"deny","Action":"allow"}`: {Status: http.StatusBadRequest, Message: `field "action" twice in one object, as "Action" too`},
		`{"kind":"tenant","tenantName":"red","tenantName":"green"}`:                                                              {Status: http.StatusBadRequest, Message: `field "tenantName" twice`},
		`{"kind":"tenant","Kind":"policy","tenantName":"red"}`:                                                                   {Status: http.StatusBadRequest, Message: `field "kind" twice`},
		`{"kind":"policy","tenantName":"red","policyName":"p1"}`:                                                                 {Status: http.StatusNotFound, Message: `tenant "red" does not exist`},
		`{"kind":"global","name":"global","vlans":"9-1"}`:                                                                        {Status: http.StatusBadRequest, Message: "vlans"},
	} {
		_, err := f.Apply(t.Context(), api.ApplyRequest{Objects: objects(`{"kind":"tenant","tenantName":"blue"}`, bad)})
		e, ok := errors.AsType[*api.ApplyError](err)
		if !ok || e.Index != 1 || e.Err.Status != want.Status || !strings.Contains(e.Err.Message, want.Message) {
			t.Errorf("%s: %v", bad, err)
		}
		if _, err := f.Tenants().Get(t.Context(), "blue"); !api.IsNotFound(err) {
			t.Errorf("%s: something was applied: %v", bad, err)
		}
	}
	if _, err := f.Apply(t.Context(), api.ApplyRequest{}); err != nil {
		t.Errorf("nothing to apply: %v", err)
	}
}

// For a list that is wrong throughout the first faults are reported, and a list that is too
// long is not read.
func TestFirstFaultsOfAListAreReported(t *testing.T) {
	f := serve(t, 0)
	many := make([]json.RawMessage, maxListed+1)
	for i := range many {
		many[i] = json.RawMessage(`{"kind":"x"}`)
	}
	_, err := f.Apply(t.Context(), api.ApplyRequest{Objects: many[:maxListed], DryRun: true})
	e, ok := errors.AsType[*api.ApplyError](err)
	if !ok || len(e.More) != maxFaults-1 || !strings.Contains(e.More[maxFaults-2].Err.Message, "more objects of the list are wrong") || strings.Contains(e.Err.Message, "more objects") {
		t.Errorf("%.300v", err)
	}
	_, err = f.Apply(t.Context(), api.ApplyRequest{Objects: many[:maxFaults]})
	if e, ok = errors.AsType[*api.ApplyError](err); !ok || len(e.More) != maxFaults-1 || strings.Contains(err.Error(), "more objects of") {
		t.Errorf("%d wrong ones: %.300v", maxFaults, err)
	}
	_, err = f.Apply(t.Context(), api.ApplyRequest{Objects: many})
	if _, ok = errors.AsType[*api.ApplyError](err); ok || err == nil || !strings.Contains(err.Error(), "must be at most 100000 in one list") {
		t.Errorf("too many: %.300v", err)
	}
}
