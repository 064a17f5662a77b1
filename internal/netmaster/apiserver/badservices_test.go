package apiserver

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

// TestBadServicesAreRefusedWithReasons asks by REST for services and shared networks that cannot be: each is
// refused by a sentence that says why, and changes nothing. What is no fault yet is
// taken, and told of.
func TestBadServicesAreRefusedWithReasons(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.must("POST", "/api/v1/tenants/other/", `{"tenantName":"other"}`)
	f.must("POST", "/api/v1/networks/red:same/", `{"tenantName":"red","networkName":"same","encap":"vxlan","subnet":"10.1.1.0/24"}`)
	f.must("POST", "/api/v1/networks/red:r/", `{"tenantName":"red","networkName":"r","encap":"vxlan","subnet":"10.2.1.0/24"}`)
	f.must("POST", "/api/v1/networks/other:o/", `{"tenantName":"other","networkName":"o","encap":"vxlan","subnet":"10.3.1.0/24"}`)
	// service is a request for one with a name, network, address, label and ports.
	service := func(name, network, address, label, ports string) (method, path, body string) {
		return "POST", "/api/v1/serviceLBs/blue:" + name + "/", `{"tenantName":"blue","serviceName":"` + name + `","networkName":"` + network +
			`","ipAddress":"` + address + `","selectors":["` + label + `"],"ports":[` + ports + `]}`
	}
	f.must(service("shop", "n", "10.1.1.100", "no=body", `"80:8080:TCP"`)) // labels that no endpoint has
	if got := f.must("GET", "/api/v1/inspect/serviceLBs/blue:shop/", ""); !strings.Contains(got, "no endpoint of network blue:n has") {
		t.Errorf("of labels that match nothing is told: %s", got)
	}
	refused := func(what string, status int, words []string, method, path, body string) {
		t.Helper()
		before := f.contents()
		got, answer := f.do(method, path, body)
		if got != status {
			t.Errorf("%s: %d %s, want %d", what, got, answer, status)
		}
		for _, w := range words {
			if !strings.Contains(answer, w) {
				t.Errorf("%s: %q does not say %q", what, answer, w)
			}
		}
		if !maps.Equal(before, f.contents()) {
			t.Errorf("%s was refused, and has changed something", what)
		}
	}
	ask := func(what string, status int, words []string, name, network, address, ports string) {
		t.Helper()
		method, path, body := service(name, network, address, "app=web", ports)
		refused(what, status, words, method, path, body)
	}
	tcp := `"80:8080:TCP"`
	ask("a network without room", http.StatusConflict, []string{"blue:tiny"}, "x", "tiny", "", tcp)
	ask("a port given twice", http.StatusBadRequest, []string{"ports", "once"}, "x", "n", "", `"80:8080:TCP","80:8081:tcp"`)
	ask("a container's address", http.StatusConflict, []string{"10.1.1.5", `"e1"`}, "x", "n", "10.1.1.5", tcp)
	ask("another service's address", http.StatusConflict, []string{"10.1.1.100", `"shop"`}, "x", "n", "10.1.1.100", tcp)
	ask("another service's name but for capitals", http.StatusConflict, []string{`"SHOP"`, `"shop"`, "letter case"}, "SHOP", "n", "", tcp)
	refused("a container by a service's address", http.StatusConflict, []string{"10.1.1.100", `"shop"`}, "POST", "/plugin/createEndpoint", endpoint("n", "web", "e2", "10.1.1.100"))
	refused("networks of a tenant that overlap", http.StatusConflict, []string{"10.1.1.128/25", "10.1.1.0/24"},
		"POST", "/api/v1/networks/blue:half/", `{"tenantName":"blue","networkName":"half","encap":"vxlan","subnet":"10.1.1.128/25"}`)
	reaching := func(tenant, networks string) (method, path, body string) {
		return "POST", "/api/v1/tenants/" + tenant + "/", `{"tenantName":"` + tenant + `","sharedNetworks":[` + networks + `]}`
	}
	method, path, body := reaching("blue", `"red:r"`)
	refused("shared networks whose tenants' overlap", http.StatusConflict, []string{"10.1.1.0/24", `"blue:n"`, `"red:same"`}, method, path, body)
	// Each of two tenants lists a network of the other: no loop, since nothing is in
	// transit (drivertest's SharedNetworks shows it of the data planes).
	f.must("DELETE", "/api/v1/networks/red:same/", "")
	f.must(reaching("blue", `"red:r"`))
	f.must(reaching("red", `"blue:n"`))
	method, path, body = reaching("blue", `"blue:n"`)
	refused("a tenant's own network as one of others", http.StatusBadRequest, []string{"blue:n"}, method, path, body)
	refused("a network that overlaps one of who shares", http.StatusConflict, []string{"10.2.1.0/24"},
		"POST", "/api/v1/networks/blue:y/", `{"tenantName":"blue","networkName":"y","encap":"vxlan","subnet":"10.2.1.0/25"}`)
	f.must("POST", "/api/v1/networks/other:y/", `{"tenantName":"other","networkName":"y","encap":"vxlan","subnet":"10.2.1.0/25"}`)
	// A provider that does not listen: only it can know, and its stack refuses.
	f.must(service("deaf", "n", "", "app=web", `"80:9:TCP"`))
}
