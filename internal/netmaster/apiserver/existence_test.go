package apiserver

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestOthersObjectsLookLikeNone: by no GET route, with whatever of its queries, does a
// tenant admin learn whether an object of somebody else exists.
func TestOthersObjectsLookLikeNone(t *testing.T) {
	mem := memory.New()
	if _, err := mem.Update(t.Context(), func(tx store.Tx) error { return tables.Hosts.Put(tx, model.Host{Name: "h-is"}) }); err != nil {
		t.Fatal(err)
	}
	f := startAskingOn(t, mem, func(c *Config) { c.Address = "127.0.0.1:1" })
	ask := f.ask
	// What exists ends in -is, what does not in -no.
	var made [][2]string
	for path, body := range map[string]string{
		"1 /api/v1/tenants/blue":                 `{"tenantName":"blue"}`,
		"1 /api/v1/tenants/t-is":                 `{"tenantName":"t-is"}`,
		"2 /api/v1/networks/t-is:n-is":           `{"tenantName":"t-is","networkName":"n-is","encap":"vlan","pktTag":7,"subnet":"10.1.2.0/24"}`,
		"2 /api/v1/policys/t-is:p-is":            `{"tenantName":"t-is","policyName":"p-is"}`,
		"3 /api/v1/rules/t-is:p-is:r-is":         `{"tenantName":"t-is","policyName":"p-is","ruleId":"r-is","direction":"in","action":"allow"}`,
		"2 /api/v1/netprofiles/t-is:b-is":        `{"tenantName":"t-is","profileName":"b-is","DSCP":1}`,
		"3 /api/v1/endpointGroups/t-is:g-is":     `{"tenantName":"t-is","groupName":"g-is","networkName":"n-is"}`,
		"3 /api/v1/networkPolicys/t-is:q-is":     `{"tenantName":"t-is","networkPolicyName":"q-is","tier":"contiv","order":100,"mode":"enforce","rules":[{"ruleId":"r-is","direction":"in","action":"deny"}]}`,
		"3 /api/v1/serviceLBs/t-is:s-is":         `{"tenantName":"t-is","serviceName":"s-is","networkName":"n-is","selectors":["a=b"],"ports":["80:80:TCP"]}`,
		"4 /api/v1/appProfiles/t-is:a-is":        `{"tenantName":"t-is","appProfileName":"a-is","endpointGroups":["g-is"]}`,
		"2 /api/v1/assertions/t-is:a-is":         `{"tenantName":"t-is","assertionName":"a-is","verdict":"never","from":"any","to":"host:h-is"}`,
		"2 /api/v1/extContractsGroups/t-is:x-is": `{"tenantName":"t-is","contractsGroupName":"x-is","contractsType":"provided","contracts":["uni/tn-common/brc-web"]}`,
		"4 /plugin/createEndpoint":               `{"TenantName":"t-is","NetworkName":"n-is","EndpointID":"e-is","EPCommonName":"name-is","ConfigEP":{"Host":"h-is","Container":"c-is"}}`,
	} {
		made = append(made, [2]string{path, body})
	}
	slices.SortFunc(made, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	for _, m := range made {
		if w := ask("root", http.MethodPost, m[0][2:], m[1]); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", m[0], w.Code, w.Body)
		}
	}
	// Nor does a refusal of a change name what others have.
	tagged := `{"tenantName":"blue","networkName":"n","encap":"vlan","pktTag":7,"subnet":"10.9.0.0/24"}`
	if w := ask("blue", http.MethodPost, "/api/v1/networks/blue:n", tagged); w.Code != http.StatusConflict || strings.Contains(w.Body.String(), "-is") {
		t.Errorf("the tag of another tenant's network: %d %s", w.Code, w.Body)
	}
	var paths []string
	for _, rt := range f.s.router.routes {
		path := rt.path
		if rt.method != http.MethodGet || !strings.Contains(path, "{") {
			continue
		}
		for _, key := range []string{"t-is", "t-is:n-is", "t-is:p-is", "t-is:p-is:r-is", "t-is:b-is", "t-is:g-is", "t-is:q-is", "t-is:s-is", "t-is:a-is", "t-is:x-is", "h-is", "e-is", "c-is", "name-is", "t-is:n-is:e-is"} {
			p := strings.NewReplacer("{key}", key, "{name}", "h-is", "{rule}", "r-is", "{id}", "s-is:t-is", "{namespace}", "s-is").Replace(path)
			if !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	for _, query := range []string{
		"endpoints?tenant=blue&host=h-is", "endpoints?tenant=&host=h-is", "endpoints?host=h-is", "endpoints?tenant=t-is", "endpoints?network=t-is:n-is", "endpoints?tenant=blue&network=t-is:n-is",
		"endpoints?tenant=blue&group=t-is:g-is", "endpoints?tenant=blue&network=n-is", "endpoints?tenant=blue&group=g-is", "endpoints?tenant=blue&host=h-is&group=t-is:g-is",
		"monitor?host=h-is", "monitor?from=t-is:g-is", "monitor?to=t-is:g-is", "monitor?from=g-is", "monitor?to=g-is",
	} {
		paths = append(paths, "/api/v1/"+query)
	}
	for _, path := range paths {
		is := ask("blue", http.MethodGet, path, "")
		last := strings.LastIndex(path, "-is")
		for _, none := range []string{strings.ReplaceAll(path, "-is", "-no"), path[:last] + "-no" + path[last+3:]} {
			isNot := ask("blue", http.MethodGet, none, "")
			if diff := cmp.Diff(strings.ReplaceAll(isNot.Body.String(), "-no", "-is"), is.Body.String()); is.Code != isNot.Code || diff != "" {
				t.Errorf("%s: %d, and %s: %d\n%s", path, is.Code, none, isNot.Code, diff)
			}
		}
		if is.Code < http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, is.Code, is.Body)
		}
	}
	if len(paths) < 200 {
		t.Errorf("only %d paths are asked", len(paths))
	}
}
