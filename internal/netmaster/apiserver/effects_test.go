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
	"github.com/contiv/netplugin/v2/internal/archtest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// requestEffects are the fields of requests beside the collections. The sentence
// about one without effect stands beside it in package api.
var requestEffects = map[string]archtest.Effect{
	"OwnershipRelease.kind": archtest.By("TestKubernetesObjectsRefuseChangesByREST"),
	"MirrorRequest.id":      archtest.By("TestAgentsGetWhatTheyAskForOnly"), "MirrorRequest.prefixes": archtest.By("TestAgentsGetWhatTheyAskForOnly"), "MirrorRequest.at": archtest.By("TestDyingHubCausesNoList"),
	"MirrorRequest.atPlace":         archtest.By("TestDyingHubCausesNoList"),
	"MirrorRequest.store":           archtest.By("TestDyingHubCausesNoList"),
	"MirrorRequest.grade":           archtest.By("TestDyingHubCausesNoList"),
	"EndpointPlacement.TenantName":  archtest.By("TestHostLearnsTheNetworkOfAGroup"),
	"EndpointPlacement.NetworkName": archtest.By("TestHostLearnsTheNetworkOfAGroup"),
	"EndpointPlacement.ServiceName": archtest.By("TestHostLearnsTheNetworkOfAGroup"),
	"MirrorRequest.commits":         archtest.By("TestConformance"), "MirrorRequest.end": archtest.By("TestAgentsGetWhatTheyAskForOnly"), "MirrorRequest.since": archtest.By("TestConformance"),
	"TokenRequest.name": archtest.By("TestWhoIsLetIn"), "TokenRequest.role": archtest.By("TestWhoIsLetIn"), "TokenRequest.tenants": archtest.By("TestWhoIsLetIn"), "TokenRequest.life": archtest.By("TestTokenIsValidUntilItExpires"),

	"CreateEndpointRequest.TenantName":   archtest.By("TestEndpointCreationIsRepeatable"),
	"CreateEndpointRequest.NetworkName":  archtest.By("TestEndpointCreationIsRepeatable"),
	"CreateEndpointRequest.ServiceName":  archtest.By("TestEndpointCreationIsRepeatable"),
	"CreateEndpointRequest.EndpointID":   archtest.By("TestEndpointCreationIsRepeatable"),
	"CreateEndpointRequest.EPCommonName": archtest.By("TestEndpointCreationIsRepeatable"),
	"CreateEndpointRequest.ConfigEP":     archtest.By("TestEndpointCreationIsRepeatable"),

	"ConfigEP.Container":   archtest.By("TestEndpointCreationIsRepeatable"),
	"ConfigEP.Host":        archtest.By("TestEndpointCreationIsRepeatable"),
	"ConfigEP.IPAddress":   archtest.By("TestEndpointCreationIsRepeatable"),
	"ConfigEP.IPv6Address": archtest.By("TestRequestedAddressIsGiven"),
	"ConfigEP.MacAddress":  archtest.By("TestChosenMACIsUniqueOnItsNetwork"),
	"ConfigEP.ServiceName": archtest.By("TestEndpointCreationIsRepeatable"),
	"ConfigEP.Labels":      archtest.By("TestProvidersFollowLabels"),
	"ConfigEP.LabelsLater": archtest.By("TestPendingLabelsHaveAnIdentityOfTheirOwn"),
	"ConfigEP.Health":      archtest.By("TestContainerHealthIsShownWithItsEndpoint"),
	"ConfigEP.Pod":         archtest.By("TestPodEndpointsFollowKubernetes"),
	"ConfigEP.Rates":       archtest.By("TestPortHasTheRateOfItsGroup"),

	"NetworkPolicyRule.ruleId":    archtest.By("TestOneRuleOfNetworkPolicyIsWritten"),
	"NetworkPolicyRule.direction": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
	"NetworkPolicyRule.priority":  archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
	"NetworkPolicyRule.action":    archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
	"NetworkPolicyRule.log":       archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
	"NetworkPolicyRule.peers":     archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
	"NetworkPolicyRule.ports":     archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),

	"PodPlacementRequest.Namespace": archtest.By("TestPodEndpointsFollowKubernetes"),
	"PodPlacementRequest.Name":      archtest.By("TestPodEndpointsFollowKubernetes"),
	"PodPlacementRequest.UID":       archtest.By("TestPodEndpointsFollowKubernetes"),
	"PodPlacementRequest.Interface": archtest.By("TestFurtherInterfacesStayInThePodsTenant"),

	"DeleteEndpointRequest.TenantName":  archtest.By("TestEndpointCreationIsRepeatable"),
	"DeleteEndpointRequest.NetworkName": archtest.By("TestEndpointCreationIsRepeatable"),
	"DeleteEndpointRequest.EndpointID":  archtest.By("TestEndpointCreationIsRepeatable"),
	"DeleteEndpointRequest.ServiceName": archtest.None("not looked at, as in 1.x: the other three name the endpoint"),
	"DeleteEndpointRequest.IPv4Address": archtest.None("not looked at, as in 1.x: the other three name the endpoint"),

	"UpdateEndpointRequest.IPAddress":     archtest.By("TestEndpointCreationIsRepeatable"),
	"UpdateEndpointRequest.ContainerID":   archtest.By("TestEndpointCreationIsRepeatable"),
	"UpdateEndpointRequest.Labels":        archtest.By("TestProvidersFollowLabels"),
	"UpdateEndpointRequest.Tenant":        archtest.By("TestEndpointCreationIsRepeatable"),
	"UpdateEndpointRequest.Network":       archtest.By("TestEndpointCreationIsRepeatable"),
	"UpdateEndpointRequest.Event":         archtest.By("TestEndpointCreationIsRepeatable"),
	"UpdateEndpointRequest.EndpointID":    archtest.By("TestEndpointCreationIsRepeatable"),
	"UpdateEndpointRequest.EPCommonName":  archtest.By("TestEndpointCreationIsRepeatable"),
	"UpdateEndpointRequest.RemovedLabels": archtest.By("TestLabelsAreRemovedByName"),
	"UpdateEndpointRequest.Health":        archtest.By("TestContainerHealthIsShownWithItsEndpoint"),

	"AllocAddressRequest.NetworkID":            archtest.By("TestReservedAddressBecomesTheEndpoints"),
	"AllocAddressRequest.AddressPool":          archtest.By("TestEndpointCreationIsRepeatable"),
	"AllocAddressRequest.PreferredIPv4Address": archtest.By("TestReservedAddressBecomesTheEndpoints"),
	"AllocAddressRequest.Host":                 archtest.By("TestReservedAddressBecomesTheEndpoints"),
	"AllocAddressRequest.AnyHost":              archtest.By("TestReservedAddressBecomesTheEndpoints"),
	"AllocAddressRequest.Requester":            archtest.By("TestReservedAddressBecomesTheEndpoints"),

	"ReleaseAddressRequest.NetworkID":   archtest.By("TestReservedAddressBecomesTheEndpoints"),
	"ReleaseAddressRequest.IPv4Address": archtest.By("TestReservedAddressBecomesTheEndpoints"),

	"HostReport.confirms":      archtest.By("TestChangesWaitForConfirmation"),
	"PendingRequest.objects":   archtest.By("TestChangesWaitForConfirmation"),
	"PendingRequest.within":    archtest.By("TestChangesWaitForConfirmation"),
	"HostReport.version":       archtest.By("TestAgentReportsAreShown"),
	"HostReport.host":          archtest.By("TestAgentReportsAreShown"),
	"HostReport.installation":  archtest.By("TestAgentReportsAreShown"),
	"HostReport.boot":          archtest.By("TestAgentReportsAreShown"),
	"HostReport.since":         archtest.By("TestAgentReportsAreShown"),
	"HostReport.control":       archtest.By("TestAgentReportsAreShown"),
	"HostReport.vtep":          archtest.By("TestAgentReportsAreShown"),
	"HostReport.vxlanPort":     archtest.By("TestAgentReportsAreShown"),
	"HostReport.driver":        archtest.By("TestAgentReportsAreShown"),
	"HostReport.store":         archtest.By("TestAgentReportsAreShown"),
	"HostReport.format":        archtest.By("TestAgentReportsAreShown"),
	"HostReport.agentVersion":  archtest.By("TestAgentReportsAreShown"),
	"HostReport.ipv6":          archtest.By("TestAgentReportsAreShown"),
	"HostReport.takeHost":      archtest.By("TestAgentReportsAreShown"),
	"HostReport.answersProbes": archtest.By("TestAgentReportsAreShown"),
	"HostReport.listening":     archtest.By("TestAgentReportsAreShown"),
	"HostReport.look":          archtest.By("TestAgentReportsAreShown"),
	"HostReport.leaving":       archtest.By("TestAgentReportsAreShown"),

	"HostStatusReport.version":      archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.host":         archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.installation": archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.driver":       archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.driverWhy":    archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.agentVersion": archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.updated":      archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.revision":     archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.verified":     archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.published":    archtest.By("TestHostReportsPublishedPorts"),
	"PublishedPorts.ports":          archtest.By("TestHostReportsPublishedPorts"),
	"PublishedPorts.unlisted":       archtest.By("TestHostReportsPublishedPorts"),
	"HostStatusReport.ports":        archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.pending":      archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.error":        archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.problems":     archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.attachments":  archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.ready":        archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.conditions":   archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.kinds":        archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.tables":       archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.bgp":          archtest.By("TestAgentReportsAreShown"),
	"HostStatusReport.surroundings": archtest.By("TestTenantAdminChangesNoHost"),

	"L2AnnouncerReport.version":      archtest.By("TestHostGetsTheAddressesItAnnounces"),
	"L2AnnouncerReport.host":         archtest.By("TestHostGetsTheAddressesItAnnounces"),
	"L2AnnouncerReport.installation": archtest.By("TestOutdatedAnnouncerReportsChangeNothing"),
	"L2AnnouncerReport.run":          archtest.By("TestOutdatedAnnouncerReportsChangeNothing"),
	"L2AnnouncerReport.seq":          archtest.By("TestOutdatedAnnouncerReportsChangeNothing"),
	"L2AnnouncerReport.able":         archtest.By("TestOneHostAnnouncesAnAddress"),

	"HostHeartbeats.hosts": archtest.By("TestAgentReportsAreShown"),

	"JoinTokenRequest.expiresInSeconds": archtest.By("TestStatusShowsTheStoresMembers"),
	"JoinTokenRequest.host":             archtest.By("TestStatusShowsTheStoresMembers"),

	"ApplyRequest.objects": archtest.By("TestApplyingAgainChangesNothing"),
	"ApplyRequest.set":     archtest.By("TestPruneDeletesWhatTheSetCreated"),
	"TraceRequest.from":    archtest.By("TestTraceComparesWhatHostsSawWithWhatIsExpected"), "TraceRequest.to": archtest.By("TestTraceComparesWhatHostsSawWithWhatIsExpected"),
	"TraceRequest.port": archtest.By("TestTraceComparesWhatHostsSawWithWhatIsExpected"), "TraceRequest.tenant": archtest.By("TestTraceTakesTheServicesOfATenant"),
	"PlanRequest.changes": archtest.By("TestPlanShowsWhatOpensAndCloses"), "ApplyPlanRequest.changes": archtest.By("TestPlanIsAppliedUnlessItIsAnotherByNow"),
	"ApplyPlanRequest.set": archtest.By("TestPlanCoversPruningAndDeletion"), "ApplyPlanRequest.revision": archtest.By("TestPlanIsAppliedUnlessItIsAnotherByNow"),
	"ApplyPlanRequest.id": archtest.By("TestPlanIsAppliedUnlessItIsAnotherByNow"),
	"ApplyRequest.dryRun": archtest.By("TestApplyingAgainChangesNothing"),
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
	effects := map[string]archtest.Effect{}
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
	archtest.CheckEffects(t, "the effects in the kind's test file in internal/netmaster/apiserver", accepted, effects, nil, nil)
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
	archtest.CheckEffects(t, "requestEffects in internal/netmaster/apiserver/effects_test.go", accepted, requestEffects,
		func(_, sentence string) bool { return strings.Contains(string(source), sentence) }, nil)
}

// TestFieldsWithoutEffectAreWarnedOf: whatever has no effect is taken with a warning that says so, in
// a header and in the result of applying it, and what has effect is not.
func TestFieldsWithoutEffectAreWarnedOf(t *testing.T) {
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
