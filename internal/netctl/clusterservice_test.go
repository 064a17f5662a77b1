package netctl

import (
	"strings"
	"testing"
)

// TestServicesOfKubernetesAreListedAndNotDeleted: services of Kubernetes are listed behind those of tenant default,
// and of all, are shown, and are not netctl's to delete. A netmaster that is older has
// none.
func TestServicesOfKubernetesAreListedAndNotDeleted(t *testing.T) {
	m := newFakeMaster(t)
	m.store("tenants", "blue", `{"key":"blue","tenantName":"blue"}`)
	m.store("serviceLBs", "default:shop", `{"key":"default:shop","serviceName":"shop","tenantName":"default","networkName":"n","selectors":["a=b"],"ports":["80:80:TCP"]}`)
	m.store("clusterServices", "", `{"serviceName":"ns/web","owner":"kubernetes","tenantName":"blue","networkName":"net","addresses":["10.96.0.9"],"ports":[]}`)
	for line, want := range map[string]string{
		"service ls":            "ServiceName  Tenant   Network  Selectors  Owner\n-----------  ------   -------  ---------  -----\nshop         default  n        a=b\nns/web       blue     net                 kubernetes\n",
		"service ls --all -q":   "default:shop\nns/web\n",
		"service ls -q":         "shop\nns/web\n",
		"service ls -t blue -q": "",
		"service ls -t blue -j": "[]\n",
	} {
		if got := netctl(t, m.url, strings.Fields(line)...); got.code != 0 || got.out != want {
			t.Errorf("%s: code %d\n%q, want\n%q\n%s", line, got.code, got.out, want, got.errOut)
		}
	}
	if got := netctl(t, m.url, "service", "ls", "--json"); !strings.Contains(got.out, `"serviceName": "ns/web"`) || !strings.Contains(got.out, `"owner": "kubernetes"`) {
		t.Errorf("as JSON: %s", got.out)
	}
	before := len(m.requests)
	if got := netctl(t, m.url, "service", "rm", "ns/web"); got.code == 0 || !strings.Contains(got.errOut, `service "ns/web" belongs to Kubernetes: delete it there`) || len(m.requests) != before {
		t.Errorf("rm: code %d, %s, asked %v", got.code, got.errOut, m.requests[before:])
	}
	m.refuse["GET /api/v1/clusterServices/ns/web"] = refusal{200, `{"serviceName":"ns/web","owner":"kubernetes","addresses":["10.96.0.9"],"ports":[],"backends":[{"address":"10.1.0.1","slice":"s"}]}`}
	if got := netctl(t, m.url, "service", "inspect", "ns/web"); got.code != 0 || !strings.Contains(got.out, `"address": "10.1.0.1"`) {
		t.Errorf("inspect: code %d, %s %s", got.code, got.out, got.errOut)
	}
	m.refuse["GET /api/v1/clusterServices"] = refusal{404, "404 page not found"}
	if got := netctl(t, m.url, "service", "ls", "-q"); got.code != 0 || got.out != "shop\n" {
		t.Errorf("of an older netmaster: code %d, %s %s", got.code, got.out, got.errOut)
	}
	m.refuse["GET /api/v1/clusterServices"] = refusal{503, "the store is away"}
	if got := netctl(t, m.url, "service", "ls", "-q"); got.code == 0 {
		t.Errorf("of a netmaster without its store: %s", got.out)
	}
}
