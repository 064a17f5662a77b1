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
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster/optioncoverage"
)

// requestEffects are the fields of requests beside the collections. The sentence
// about one without effect stands beside it in package api.
var requestEffects = map[string]optioncoverage.Effect{
	"Release.kind": optioncoverage.By("TestOwner"),
	"MirrorAsk.id": optioncoverage.By("TestMirror"), "MirrorAsk.prefixes": optioncoverage.By("TestMirror"), "MirrorAsk.at": optioncoverage.By("TestHubsDie"),
	"MirrorAsk.atPlace":         optioncoverage.By("TestHubsDie"),
	"MirrorAsk.store":           optioncoverage.By("TestHubsDie"),
	"MirrorAsk.grade":           optioncoverage.By("TestHubsDie"),
	"EndpointPlace.TenantName":  optioncoverage.By("TestEndpointPlace"),
	"EndpointPlace.NetworkName": optioncoverage.By("TestEndpointPlace"),
	"EndpointPlace.ServiceName": optioncoverage.By("TestEndpointPlace"),
	"MirrorAsk.commits":         optioncoverage.By("TestConformance"), "MirrorAsk.end": optioncoverage.By("TestMirror"), "MirrorAsk.since": optioncoverage.By("TestConformance"),
	"TokenRequest.name": optioncoverage.By("TestWhoIsLetIn"), "TokenRequest.role": optioncoverage.By("TestWhoIsLetIn"), "TokenRequest.tenants": optioncoverage.By("TestWhoIsLetIn"), "TokenRequest.life": optioncoverage.By("TestLife"),

	"CreateEndpointRequest.TenantName":   optioncoverage.By("TestEndpointLife"),
	"CreateEndpointRequest.NetworkName":  optioncoverage.By("TestEndpointLife"),
	"CreateEndpointRequest.ServiceName":  optioncoverage.By("TestEndpointLife"),
	"CreateEndpointRequest.EndpointID":   optioncoverage.By("TestEndpointLife"),
	"CreateEndpointRequest.EPCommonName": optioncoverage.By("TestEndpointLife"),
	"CreateEndpointRequest.ConfigEP":     optioncoverage.By("TestEndpointLife"),

	"ConfigEP.Container":   optioncoverage.By("TestEndpointLife"),
	"ConfigEP.Host":        optioncoverage.By("TestEndpointLife"),
	"ConfigEP.IPAddress":   optioncoverage.By("TestEndpointLife"),
	"ConfigEP.IPv6Address": optioncoverage.By("TestPreferredAddress"),
	"ConfigEP.MacAddress":  optioncoverage.By("TestChosenMAC"),
	"ConfigEP.ServiceName": optioncoverage.By("TestEndpointLife"),
	"ConfigEP.Labels":      optioncoverage.By("TestProviders"),
	"ConfigEP.LabelsLater": optioncoverage.By("TestLabelsLater"),
	"ConfigEP.Health":      optioncoverage.By("TestHealth"),
	"ConfigEP.Pod":         optioncoverage.By("TestPods"),
	"ConfigEP.Rates":       optioncoverage.By("TestRates"),

	"NetworkPolicyRule.ruleId":    optioncoverage.By("TestOneRuleOfNetworkPolicyIsWritten"),
	"NetworkPolicyRule.direction": optioncoverage.By("TestNetworkPolicy"),
	"NetworkPolicyRule.priority":  optioncoverage.By("TestNetworkPolicy"),
	"NetworkPolicyRule.action":    optioncoverage.By("TestNetworkPolicy"),
	"NetworkPolicyRule.log":       optioncoverage.By("TestNetworkPolicy"),
	"NetworkPolicyRule.peers":     optioncoverage.By("TestNetworkPolicy"),
	"NetworkPolicyRule.ports":     optioncoverage.By("TestNetworkPolicy"),

	"Pod.Namespace": optioncoverage.By("TestPods"),
	"Pod.Name":      optioncoverage.By("TestPods"),
	"Pod.UID":       optioncoverage.By("TestPods"),

	"DeleteEndpointRequest.TenantName":  optioncoverage.By("TestEndpointLife"),
	"DeleteEndpointRequest.NetworkName": optioncoverage.By("TestEndpointLife"),
	"DeleteEndpointRequest.EndpointID":  optioncoverage.By("TestEndpointLife"),
	"DeleteEndpointRequest.ServiceName": optioncoverage.None("not looked at, as in 1.x: the other three name the endpoint"),
	"DeleteEndpointRequest.IPv4Address": optioncoverage.None("not looked at, as in 1.x: the other three name the endpoint"),

	"UpdateEndpointRequest.IPAddress":     optioncoverage.By("TestEndpointLife"),
	"UpdateEndpointRequest.ContainerID":   optioncoverage.By("TestEndpointLife"),
	"UpdateEndpointRequest.Labels":        optioncoverage.By("TestProviders"),
	"UpdateEndpointRequest.Tenant":        optioncoverage.By("TestEndpointLife"),
	"UpdateEndpointRequest.Network":       optioncoverage.By("TestEndpointLife"),
	"UpdateEndpointRequest.Event":         optioncoverage.By("TestEndpointLife"),
	"UpdateEndpointRequest.EndpointID":    optioncoverage.By("TestEndpointLife"),
	"UpdateEndpointRequest.EPCommonName":  optioncoverage.By("TestEndpointLife"),
	"UpdateEndpointRequest.RemovedLabels": optioncoverage.By("TestRemovedLabels"),
	"UpdateEndpointRequest.Health":        optioncoverage.By("TestHealth"),

	"AllocAddressRequest.NetworkID":            optioncoverage.By("TestReservations"),
	"AllocAddressRequest.AddressPool":          optioncoverage.By("TestEndpointLife"),
	"AllocAddressRequest.PreferredIPv4Address": optioncoverage.By("TestReservations"),
	"AllocAddressRequest.Host":                 optioncoverage.By("TestReservations"),
	"AllocAddressRequest.AnyHost":              optioncoverage.By("TestReservations"),
	"AllocAddressRequest.Requester":            optioncoverage.By("TestReservations"),

	"ReleaseAddressRequest.NetworkID":   optioncoverage.By("TestReservations"),
	"ReleaseAddressRequest.IPv4Address": optioncoverage.By("TestReservations"),

	"HostReport.confirms":      optioncoverage.By("TestPending"),
	"PendingRequest.objects":   optioncoverage.By("TestPending"),
	"PendingRequest.within":    optioncoverage.By("TestPending"),
	"HostReport.version":       optioncoverage.By("TestAgentsTell"),
	"HostReport.host":          optioncoverage.By("TestAgentsTell"),
	"HostReport.installation":  optioncoverage.By("TestAgentsTell"),
	"HostReport.boot":          optioncoverage.By("TestAgentsTell"),
	"HostReport.since":         optioncoverage.By("TestAgentsTell"),
	"HostReport.control":       optioncoverage.By("TestAgentsTell"),
	"HostReport.vtep":          optioncoverage.By("TestAgentsTell"),
	"HostReport.vxlanPort":     optioncoverage.By("TestAgentsTell"),
	"HostReport.driver":        optioncoverage.By("TestAgentsTell"),
	"HostReport.store":         optioncoverage.By("TestAgentsTell"),
	"HostReport.format":        optioncoverage.By("TestAgentsTell"),
	"HostReport.agentVersion":  optioncoverage.By("TestAgentsTell"),
	"HostReport.ipv6":          optioncoverage.By("TestAgentsTell"),
	"HostReport.takeHost":      optioncoverage.By("TestAgentsTell"),
	"HostReport.answersProbes": optioncoverage.By("TestAgentsTell"),
	"HostReport.listening":     optioncoverage.By("TestAgentsTell"),
	"HostReport.look":          optioncoverage.By("TestAgentsTell"),
	"HostReport.leaving":       optioncoverage.By("TestAgentsTell"),

	"HostStatusReport.version":      optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.host":         optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.installation": optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.driver":       optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.driverWhy":    optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.agentVersion": optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.updated":      optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.revision":     optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.ports":        optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.pending":      optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.error":        optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.problems":     optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.attachments":  optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.ready":        optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.conditions":   optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.kinds":        optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.tables":       optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.bgp":          optioncoverage.By("TestAgentsTell"),
	"HostStatusReport.surroundings": optioncoverage.By("TestTenantAdminChangesNoHost"),

	"AnswerReport.version":      optioncoverage.By("TestAnswerNeighbours"),
	"AnswerReport.host":         optioncoverage.By("TestAnswerNeighbours"),
	"AnswerReport.installation": optioncoverage.By("TestAnswerOrder"),
	"AnswerReport.run":          optioncoverage.By("TestAnswerOrder"),
	"AnswerReport.seq":          optioncoverage.By("TestAnswerOrder"),
	"AnswerReport.able":         optioncoverage.By("TestAnswer"),

	"HostsHeard.hosts": optioncoverage.By("TestAgentsTell"),

	"JoinTokenRequest.expiresInSeconds": optioncoverage.By("TestMembers"),
	"JoinTokenRequest.host":             optioncoverage.By("TestMembers"),

	"ApplyRequest.objects": optioncoverage.By("TestApply"),
	"ApplyRequest.set":     optioncoverage.By("TestPruneDeletesWhatTheSetCreated"),
	"ApplyRequest.dryRun":  optioncoverage.By("TestApply"),
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
	effects := map[string]optioncoverage.Effect{}
	for _, k := range collections() {
		for name, e := range fieldCases[k.collection].effects {
			effects[k.collection+"."+name] = e
		}
		idle := model.NoEffects(k.collection)
		if slices.ContainsFunc(idle, func(n model.NoEffect) bool { return n.Field == "" }) {
			continue // the whole kind has none
		}
		for _, name := range jsonNames(reflect.TypeOf(k.object)) {
			values := slices.DeleteFunc(slices.Clone(k.fields[name].Enum), func(v string) bool { return v == "" })
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
	optioncoverage.Check(t, "the effects in the kind's test file in internal/netmaster/apiserver", accepted, effects, nil, nil)
}

// TestEveryRequestFieldHasEffect: likewise for requests beside the collections.
func TestEveryRequestFieldHasEffect(t *testing.T) {
	source, err := os.ReadFile("../../../api/plugin.go")
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
	optioncoverage.Check(t, "requestEffects in internal/netmaster/apiserver/effects_test.go", accepted, requestEffects,
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
