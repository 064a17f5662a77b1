package apiserver

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/effecttest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// requestEffects are the fields of requests beside the collections. The sentence
// about one without effect stands beside it in package api.
var requestEffects = map[string]effecttest.Effect{
	"Release.kind": effecttest.By("TestOwner"),
	"MirrorAsk.id": effecttest.By("TestMirror"), "MirrorAsk.prefixes": effecttest.By("TestMirror"), "MirrorAsk.commits": effecttest.By("TestConformance"), "MirrorAsk.end": effecttest.By("TestMirror"), "MirrorAsk.since": effecttest.By("TestConformance"),
	"TokenRequest.name": effecttest.By("TestWhoIsLetIn"), "TokenRequest.role": effecttest.By("TestWhoIsLetIn"), "TokenRequest.tenants": effecttest.By("TestWhoIsLetIn"), "TokenRequest.life": effecttest.By("TestLife"),

	"CreateEndpointRequest.TenantName":   effecttest.By("TestEndpointLife"),
	"CreateEndpointRequest.NetworkName":  effecttest.By("TestEndpointLife"),
	"CreateEndpointRequest.ServiceName":  effecttest.By("TestEndpointLife"),
	"CreateEndpointRequest.EndpointID":   effecttest.By("TestEndpointLife"),
	"CreateEndpointRequest.EPCommonName": effecttest.By("TestEndpointLife"),
	"CreateEndpointRequest.ConfigEP":     effecttest.By("TestEndpointLife"),

	"ConfigEP.Container":   effecttest.By("TestEndpointLife"),
	"ConfigEP.Host":        effecttest.By("TestEndpointLife"),
	"ConfigEP.IPAddress":   effecttest.By("TestEndpointLife"),
	"ConfigEP.IPv6Address": effecttest.By("TestPreferredAddress"),
	"ConfigEP.MacAddress":  effecttest.By("TestChosenMAC"),
	"ConfigEP.ServiceName": effecttest.By("TestEndpointLife"),
	"ConfigEP.Labels":      effecttest.By("TestProviders"),
	"ConfigEP.LabelsLater": effecttest.By("TestLabelsLater"),
	"ConfigEP.Health":      effecttest.By("TestHealth"),
	"ConfigEP.Pod":         effecttest.By("TestPods"),
	"ConfigEP.Rates":       effecttest.By("TestRates"),

	"NetworkPolicyRule.ruleId":    effecttest.By("TestOneRuleOfNetworkPolicyIsWritten"),
	"NetworkPolicyRule.direction": effecttest.By("TestNetworkPolicy"),
	"NetworkPolicyRule.priority":  effecttest.By("TestNetworkPolicy"),
	"NetworkPolicyRule.action":    effecttest.By("TestNetworkPolicy"),
	"NetworkPolicyRule.log":       effecttest.By("TestNetworkPolicy"),
	"NetworkPolicyRule.peers":     effecttest.By("TestNetworkPolicy"),
	"NetworkPolicyRule.ports":     effecttest.By("TestNetworkPolicy"),

	"Pod.Namespace": effecttest.By("TestPods"),
	"Pod.Name":      effecttest.By("TestPods"),
	"Pod.UID":       effecttest.By("TestPods"),

	"DeleteEndpointRequest.TenantName":  effecttest.By("TestEndpointLife"),
	"DeleteEndpointRequest.NetworkName": effecttest.By("TestEndpointLife"),
	"DeleteEndpointRequest.EndpointID":  effecttest.By("TestEndpointLife"),
	"DeleteEndpointRequest.ServiceName": effecttest.None("not looked at, as in 1.x: the other three name the endpoint"),
	"DeleteEndpointRequest.IPv4Address": effecttest.None("not looked at, as in 1.x: the other three name the endpoint"),

	"UpdateEndpointRequest.IPAddress":     effecttest.By("TestEndpointLife"),
	"UpdateEndpointRequest.ContainerID":   effecttest.By("TestEndpointLife"),
	"UpdateEndpointRequest.Labels":        effecttest.By("TestProviders"),
	"UpdateEndpointRequest.Tenant":        effecttest.By("TestEndpointLife"),
	"UpdateEndpointRequest.Network":       effecttest.By("TestEndpointLife"),
	"UpdateEndpointRequest.Event":         effecttest.By("TestEndpointLife"),
	"UpdateEndpointRequest.EndpointID":    effecttest.By("TestEndpointLife"),
	"UpdateEndpointRequest.EPCommonName":  effecttest.By("TestEndpointLife"),
	"UpdateEndpointRequest.RemovedLabels": effecttest.By("TestRemovedLabels"),
	"UpdateEndpointRequest.Health":        effecttest.By("TestHealth"),

	"AllocAddressRequest.NetworkID":            effecttest.By("TestReservations"),
	"AllocAddressRequest.AddressPool":          effecttest.By("TestEndpointLife"),
	"AllocAddressRequest.PreferredIPv4Address": effecttest.By("TestReservations"),
	"AllocAddressRequest.Host":                 effecttest.By("TestReservations"),
	"AllocAddressRequest.Requester":            effecttest.By("TestReservations"),

	"ReleaseAddressRequest.NetworkID":   effecttest.By("TestReservations"),
	"ReleaseAddressRequest.IPv4Address": effecttest.By("TestReservations"),

	"HostReport.confirms":      effecttest.By("TestPending"),
	"PendingRequest.objects":   effecttest.By("TestPending"),
	"PendingRequest.within":    effecttest.By("TestPending"),
	"HostReport.version":       effecttest.By("TestAgentsTell"),
	"HostReport.host":          effecttest.By("TestAgentsTell"),
	"HostReport.installation":  effecttest.By("TestAgentsTell"),
	"HostReport.boot":          effecttest.By("TestAgentsTell"),
	"HostReport.since":         effecttest.By("TestAgentsTell"),
	"HostReport.control":       effecttest.By("TestAgentsTell"),
	"HostReport.vtep":          effecttest.By("TestAgentsTell"),
	"HostReport.vxlanPort":     effecttest.By("TestAgentsTell"),
	"HostReport.driver":        effecttest.By("TestAgentsTell"),
	"HostReport.store":         effecttest.By("TestAgentsTell"),
	"HostReport.format":        effecttest.By("TestAgentsTell"),
	"HostReport.agentVersion":  effecttest.By("TestAgentsTell"),
	"HostReport.ipv6":          effecttest.By("TestAgentsTell"),
	"HostReport.takeHost":      effecttest.By("TestAgentsTell"),
	"HostReport.answersProbes": effecttest.By("TestAgentsTell"),
	"HostReport.listening":     effecttest.By("TestAgentsTell"),
	"HostReport.look":          effecttest.By("TestAgentsTell"),
	"HostReport.leaving":       effecttest.By("TestAgentsTell"),

	"HostStatusReport.version":      effecttest.By("TestAgentsTell"),
	"HostStatusReport.host":         effecttest.By("TestAgentsTell"),
	"HostStatusReport.installation": effecttest.By("TestAgentsTell"),
	"HostStatusReport.driver":       effecttest.By("TestAgentsTell"),
	"HostStatusReport.driverWhy":    effecttest.By("TestAgentsTell"),
	"HostStatusReport.agentVersion": effecttest.By("TestAgentsTell"),
	"HostStatusReport.updated":      effecttest.By("TestAgentsTell"),
	"HostStatusReport.revision":     effecttest.By("TestAgentsTell"),
	"HostStatusReport.ports":        effecttest.By("TestAgentsTell"),
	"HostStatusReport.pending":      effecttest.By("TestAgentsTell"),
	"HostStatusReport.error":        effecttest.By("TestAgentsTell"),
	"HostStatusReport.problems":     effecttest.By("TestAgentsTell"),
	"HostStatusReport.attachments":  effecttest.By("TestAgentsTell"),
	"HostStatusReport.ready":        effecttest.By("TestAgentsTell"),
	"HostStatusReport.conditions":   effecttest.By("TestAgentsTell"),
	"HostStatusReport.kinds":        effecttest.By("TestAgentsTell"),
	"HostStatusReport.tables":       effecttest.By("TestAgentsTell"),
	"HostStatusReport.bgp":          effecttest.By("TestAgentsTell"),

	"AnswerReport.version":      effecttest.By("TestAnswerNeighbours"),
	"AnswerReport.host":         effecttest.By("TestAnswerNeighbours"),
	"AnswerReport.installation": effecttest.By("TestAnswerOrder"),
	"AnswerReport.run":          effecttest.By("TestAnswerOrder"),
	"AnswerReport.seq":          effecttest.By("TestAnswerOrder"),
	"AnswerReport.able":         effecttest.By("TestAnswer"),

	"HostsHeard.hosts": effecttest.By("TestAgentsTell"),

	"JoinTokenRequest.expiresInSeconds": effecttest.By("TestMembers"),
	"JoinTokenRequest.host":             effecttest.By("TestMembers"),

	"ApplyRequest.objects": effecttest.By("TestApply"),
	"ApplyRequest.set":     effecttest.By("TestPruneDeletesWhatTheSetCreated"),
	"ApplyRequest.dryRun":  effecttest.By("TestApply"),
}

// jsonNames are the JSON names of a struct's fields, but for those of the server.
func jsonNames(typ reflect.Type) []string {
	var out []string
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "key" && name != "link-sets" && name != "links" {
			out = append(out, name)
		}
	}
	return out
}

// TestEveryFieldHasEffect: each field of each kind does something, by a test, or
// is in the table of what does not, by which answers warn, documents say it and
// hosts show it.
func TestEveryFieldHasEffect(t *testing.T) {
	var accepted []string
	effects := map[string]effecttest.Effect{}
	for _, k := range collections() {
		for name, e := range fieldCases[k.collection].effects {
			effects[k.collection+"."+name] = e
		}
		idle := model.NoEffects(k.collection)
		if slices.ContainsFunc(idle, func(n model.NoEffect) bool { return n.Field == "" }) {
			continue // the whole kind has none
		}
		for _, name := range jsonNames(reflect.TypeOf(k.object)) {
			values := slices.DeleteFunc(slices.Clone(k.fields[name].enum), func(v string) bool { return v == "" })
			if len(values) < 2 {
				values = []string{""}
			}
			for _, v := range values {
				if !slices.ContainsFunc(idle, func(n model.NoEffect) bool { return n.Field == name && n.Value == v }) {
					accepted = append(accepted, strings.TrimSuffix(k.collection+"."+name+"="+v, "="))
				}
			}
		}
		for _, n := range idle {
			if !slices.Contains(jsonNames(reflect.TypeOf(k.object)), n.Field) {
				t.Errorf("internal/model has %s.%s without effect, which does not exist", n.Kind, n.Field)
			}
		}
	}
	effecttest.Check(t, "the effects in the kind's test file in internal/apiserver", accepted, effects, nil, nil)
}

// TestEveryRequestFieldHasEffect: likewise for requests beside the collections.
func TestEveryRequestFieldHasEffect(t *testing.T) {
	source, err := os.ReadFile("../../api/plugin.go")
	if err != nil {
		t.Fatal(err)
	}
	var accepted []string
	var add func(typ reflect.Type)
	add = func(typ reflect.Type) {
		for _, name := range jsonNames(typ) {
			accepted = append(accepted, typ.Name()+"."+name)
		}
		for f := range typ.Fields() {
			if f.Type.Kind() == reflect.Struct {
				add(f.Type)
			}
		}
	}
	for _, x := range exchanges {
		if typ := reflect.TypeOf(x.in); typ != nil && typ.Kind() == reflect.Struct && typ != reflect.TypeFor[api.FlowEvent]() { // an agent's report, not a wish
			add(typ)
		}
	}
	effecttest.Check(t, "requestEffects in internal/apiserver/effects_test.go", accepted, requestEffects,
		func(_, sentence string) bool { return strings.Contains(string(source), sentence) }, nil)
}

// TestWarnings: whatever has no effect is taken with a warning that says so, in
// a header and in the result of applying it, and what has effect is not.
func TestWarnings(t *testing.T) {
	f := serve(t, 0)
	f.addHosts("h1")
	f.must("POST", "/api/v1/tenants/t/", `{"tenantName":"t"}`)
	seen := map[string]bool{}
	objects := []struct{ kind, key, body string }{
		{"global", "global", `{"name":"global","networkInfraType":"aci-opflex"}`},
		{"global", "global", `{"name":"global","networkInfraType":"aci"}`},
		{"global", "global", `{"name":"global","fwdMode":"routing","networkInfraType":"default"}`},
		{"netprofile", "t:np", `{"tenantName":"t","profileName":"np"}`},
		{"extContractsGroup", "t:ec", `{"tenantName":"t","contractsGroupName":"ec","contractsType":"provided"}`},
		{"network", "t:n", `{"tenantName":"t","networkName":"n","encap":"vxlan","subnet":"10.1.1.0/24","nwType":"infra","cfgdTag":"x"}`},
		{"network", "t:plain", `{"tenantName":"t","networkName":"plain","encap":"vxlan","subnet":"10.1.2.0/24"}`},
		{"endpointGroup", "t:g", `{"tenantName":"t","groupName":"g","networkName":"n","netProfile":"np","extContractsGrps":["ec"],"cfgdTag":"y"}`},
		{"endpointGroup", "t:h", `{"tenantName":"t","groupName":"h","networkName":"n"}`},
		{"serviceLB", "t:s", `{"tenantName":"t","serviceName":"s","networkName":"n","selectors":["a=b"],"ports":["80:80:tcp","9:9:sctp"]}`},
		{"appProfile", "t:a", `{"tenantName":"t","appProfileName":"a"}`},
		{"aciGw", "aciGw", `{"name":"aciGw"}`},
	}
	for _, k := range collections() { // kinds without any effect, by their field cases
		whole := slices.ContainsFunc(model.NoEffects(k.collection), func(n model.NoEffect) bool { return n.Field == "" })
		if !whole || slices.ContainsFunc(objects, func(c struct{ kind, key, body string }) bool { return c.kind == k.name }) {
			continue
		}
		body, key := fieldCases[k.collection].lay(t, `{"tenantName":"t"}`)
		objects = append(objects, struct{ kind, key, body string }{k.name, key, body})
	}
	for _, c := range objects {
		collection := collectionOf(t, c.kind)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/api/v1/"+collection+"/"+c.key, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		var told []string
		for _, h := range resp.Header.Values("Warning") {
			told = append(told, strings.Trim(strings.TrimPrefix(h, "299 - "), `"`))
		}
		var want []string
		for _, n := range model.NoEffects(collection) {
			set := strings.Contains(c.body, `"`+n.Field+`":"`+n.Value)
			inList := n.Value != "" && strings.Contains(c.body, `"`+n.Field+`":[`) && strings.Contains(c.body, ":"+n.Value+`"`) // such as a port's protocol
			if n.Field == "" || inList || n.Value != "" && strings.Contains(c.body, `"`+n.Field+`":"`+n.Value+`"`) || n.Value == "" && (set || strings.Contains(c.body, `"`+n.Field+`":[`)) {
				want = append(want, n.Text)
				seen[n.Text] = true
			}
		}
		if c.kind == "aciGw" || c.kind == "appProfile" || c.kind == "extContractsGroup" { // the cluster's type is default
			if len(told) == 0 || !strings.Contains(told[0], "'netctl global set --fabric-mode aci'") {
				t.Errorf("%s: warnings %q", c.body, told)
			}
			continue
		}
		if resp.StatusCode != http.StatusOK || !slices.Equal(told, want) {
			t.Errorf("%s: %d, warnings %q; want %q", c.body, resp.StatusCode, told, want)
		}
		answer, err := f.Apply(t.Context(), api.ApplyRequest{Objects: []json.RawMessage{json.RawMessage(`{"kind":"` + c.kind + `",` + c.body[1:])}})
		if err != nil || !slices.Equal(answer.Results[0].Warnings, want) {
			t.Errorf("apply %s: %v, warnings %+v; want %q", c.body, err, answer.Results, want)
		}
	}
	for _, n := range model.NoEffects("") {
		if !seen[n.Text] {
			t.Errorf("nothing here sets what %q is about", n.Text)
		}
	}
}

func collectionOf(t *testing.T, kind string) string {
	t.Helper()
	for _, k := range collections() {
		if k.name == kind {
			return k.collection
		}
	}
	t.Fatalf("no collection of %s", kind)
	return ""
}
