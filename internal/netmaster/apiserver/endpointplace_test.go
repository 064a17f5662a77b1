package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

// TestHostLearnsTheNetworkOfAGroup: a host that knows nothing of a tenant asks for the network of a group,
// and hears what is wrong with what it names.
func TestHostLearnsTheNetworkOfAGroup(t *testing.T) {
	f := serveWith(t, func(*Config) {})
	f.must("POST", "/api/v1/tenants/blue/", `{"tenantName":"blue"}`)
	f.must("POST", "/api/v1/networks/blue:n/", `{"tenantName":"blue","networkName":"n","nwType":"data","encap":"vxlan","subnet":"10.1.1.0/24"}`)
	f.must("POST", "/api/v1/networks/blue:m/", `{"tenantName":"blue","networkName":"m","nwType":"data","encap":"vxlan","subnet":"10.1.2.0/24"}`)
	f.must("POST", "/api/v1/endpointGroups/blue:web/", `{"tenantName":"blue","groupName":"web","networkName":"n"}`)
	for body, want := range map[string]string{
		`{"TenantName":"blue","ServiceName":"web"}`:                   `"NetworkName":"n"`,
		`{"TenantName":"blue","ServiceName":"web","NetworkName":"n"}`: `"NetworkName":"n"`,
		`{"TenantName":"blue","NetworkName":"m"}`:                     `"NetworkName":"m"`,
	} {
		if got := f.must("POST", "/plugin/network", body); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	for body, want := range map[string]int{
		`{"TenantName":"blue","ServiceName":"web","NetworkName":"m"}`: http.StatusConflict,
		`{"TenantName":"blue","ServiceName":"db"}`:                    http.StatusNotFound,
		`{"TenantName":"red","NetworkName":"n"}`:                      http.StatusNotFound,
		`{"TenantName":"blue"}`:                                       http.StatusNotFound,
	} {
		if got, text := f.do("POST", "/plugin/network", body); got != want {
			t.Errorf("%s: %d %s, want %d", body, got, text, want)
		} else if strings.Contains(body, "red") && !strings.Contains(text, `tenant "red" does not exist`) {
			t.Errorf("%s: %s, want the tenant named", body, text)
		}
	}
}
