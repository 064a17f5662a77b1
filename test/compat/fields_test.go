package compat

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// unknownField is the exchange with a field that no kind has, and noField begins the reason
// why a field is refused.
const (
	unknownField = 79
	noField      = "there is no such field"
)

// fieldsOf1x are the fields that 1.x's netctl, its Go client and its user interface send, by
// what they are sent to. The client sends objects back as it read them, with links.
var fieldsOf1x = map[string]string{
	"/api/v1/globals/global/":         "key name networkInfraType fwdMode arpMode vlans vxlans pvtSubnet",
	"/api/v1/tenants/t/":              "key tenantName defaultNetwork link-sets",
	"/api/v1/networks/t:n/":           "key tenantName networkName nwType encap pktTag subnet gateway ipv6Subnet ipv6Gateway cfgdTag link-sets links",
	"/api/v1/endpointGroups/t:g/":     "key tenantName groupName networkName policies netProfile ipPool extContractsGrps cfgdTag link-sets links",
	"/api/v1/policys/t:p/":            "key tenantName policyName link-sets links",
	"/api/v1/rules/t:p:1/":            "key tenantName policyName ruleId direction priority action protocol port fromEndpointGroup fromNetwork fromIpAddress toEndpointGroup toNetwork toIpAddress link-sets links",
	"/api/v1/netprofiles/t:np/":       "key tenantName profileName bandwidth DSCP burst link-sets links",
	"/api/v1/serviceLBs/t:s/":         "key tenantName serviceName networkName ipAddress selectors ports links",
	"/api/v1/appProfiles/t:a/":        "key tenantName appProfileName endpointGroups link-sets links",
	"/api/v1/Bgps/host1/":             "key hostname routerip as neighbor-as neighbor",
	"/api/v1/extContractsGroups/t:c/": "key tenantName contractsGroupName contractsType contracts link-sets links",
	"/api/v1/aciGws/aciGw/":           "key name physicalDomain pathBindings nodeBindings enforcePolicies includeCommonTenant",
	"/plugin/allocAddress":            "NetworkID AddressPool PreferredIPv4Address",
	"/plugin/releaseAddress":          "NetworkID IPv4Address",
	"/plugin/createEndpoint":          "TenantName NetworkName ServiceName EndpointID EPCommonName ConfigEP",
	"/plugin/createEndpoint ConfigEP": "Container Host IPAddress IPv6Address ServiceName",
	"/plugin/deleteEndpoint":          "TenantName NetworkName ServiceName EndpointID IPv4Address",
	"/plugin/updateEndpoint":          "IPAddress ContainerID Labels Tenant Network Event EndpointID EPCommonName",
}

// TestNoFieldOf1xIsUnknown: so no field has to be accepted with a warning for a while.
// TestRecordedExchangesOf1xAreAnsweredAlike looks at the recorded exchanges likewise.
func TestNoFieldOf1xIsUnknown(t *testing.T) {
	s := newServer(t)
	refused := func(path, body string) bool {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode == http.StatusNotFound && strings.Contains(string(answer), "path") {
			t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, answer, err)
		}
		return strings.Contains(string(answer), noField)
	}
	for to, fields := range fieldsOf1x {
		path, within, _ := strings.Cut(to, " ")
		body := func(field string) string {
			b := fmt.Sprintf(`{%q:null}`, field)
			if within != "" {
				b = fmt.Sprintf(`{%q:%s}`, within, b)
			}
			return b
		}
		if !refused(path, body("bogus")) {
			t.Errorf("%s takes any field", to)
		}
		for field := range strings.FieldsSeq(fields) {
			if refused(path, body(field)) {
				t.Errorf("%s: %s is unknown", to, field)
			}
		}
	}
}
