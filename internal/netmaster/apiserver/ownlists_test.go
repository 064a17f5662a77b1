package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
)

// TestListsShowOnlyOwnTenants: every list that tenant admins may ask for has just those of
// all objects whose tenant is theirs, in the same order.
func TestListsShowOnlyOwnTenants(t *testing.T) {
	f := startAsking(t, nil)
	tenants := []string{"blu", "blue", "blue2", "green", "red", "zeb"}
	for i, tenant := range tenants {
		f.must(200, "root", "POST", "/api/v1/tenants/"+tenant, `{"tenantName":"`+tenant+`"}`)
		var list []string
		for n := range 1 + i%3 {
			list = append(list, strings.NewReplacer("TENANT", tenant, "SUBNET", fmt.Sprintf("10.%d.%d.0/24", i, n), "_N", fmt.Sprint("a", n)).Replace(`
				{"kind":"network","tenantName":"TENANT","networkName":"_N","encap":"vxlan","subnet":"SUBNET"},
				{"kind":"policy","tenantName":"TENANT","policyName":"_N"}, {"kind":"rule","tenantName":"TENANT","policyName":"_N","ruleId":"_N","direction":"in","action":"allow"},
				{"kind":"netprofile","tenantName":"TENANT","profileName":"_N","DSCP":1}, {"kind":"endpointGroup","tenantName":"TENANT","groupName":"g_N","networkName":"_N"},
				{"kind":"networkPolicy","tenantName":"TENANT","networkPolicyName":"q_N","tier":"contiv","order":100,"mode":"enforce","rules":[{"ruleId":"_N","direction":"in","action":"deny"}]},
				{"kind":"serviceLB","tenantName":"TENANT","serviceName":"_N","networkName":"_N","selectors":["a=b"],"ports":["80:80:TCP"]},
				{"kind":"appProfile","tenantName":"TENANT","appProfileName":"_N","endpointGroups":["g_N"]},
				{"kind":"assertion","tenantName":"TENANT","assertionName":"_N","verdict":"never","from":"host:none","to":"any"},
				{"kind":"extContractsGroup","tenantName":"TENANT","contractsGroupName":"_N","contractsType":"provided","contracts":["uni/tn-common/brc-web"]}`))
		}
		f.must(200, "root", "POST", "/api/v1/apply", `{"objects":[`+strings.Join(list, ",")+`]}`)
	}
	all := func(who, path string) (list []map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.must(200, who, "GET", path, "")), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	lists := 0
	for _, rt := range f.s.router.routes {
		if rt.method != http.MethodGet || rt.need&access.WithinScope == 0 || rt.kind == nil && rt.path != "/services" {
			continue
		}
		lists++
		every := all("root", rt.path)
		for who, own := range map[string][]string{"blue": {"blue"}, "two": {"green", "red"}, "viewer": append(tenants, "default"), "both": append(tenants, "default")} {
			want := slices.DeleteFunc(slices.Clone(every), func(o map[string]any) bool {
				tenant := o["tenantName"]
				if tenant == nil {
					tenant = o["tenantname"] // of services
				}
				name, ok := tenant.(string)
				return !ok || !slices.Contains(own, name)
			})
			if len(want) < len(own)-1 || who == "blue" && len(want) == len(every) {
				t.Errorf("%s: this tests little: %d of %d", rt.path, len(want), len(every))
			}
			if diff := cmp.Diff(want, all(who, rt.path)); diff != "" {
				t.Errorf("%s %s: %s", who, rt.path, diff)
			}
		}
	}
	if lists < 11 {
		t.Errorf("only %d lists", lists)
	}
}
