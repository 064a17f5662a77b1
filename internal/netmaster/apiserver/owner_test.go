package apiserver

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// TestKubernetesObjectsRefuseChangesByREST: an object of a Kubernetes object says so. Requests to change or delete it are
// refused, and name the place where it can be changed. A request for its present state
// changes nothing and succeeds. Released, it is the users' again.
func TestKubernetesObjectsRefuseChangesByREST(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	term, err := f.mem.Update(t.Context(), func(tx store.Tx) error { return tx.Create(cluster.LeaderKey, []byte("x"), nil) })
	if err != nil {
		t.Fatal(err)
	}
	put := func(object string, ch control.Change) {
		t.Helper()
		if _, err := f.ctrl.Put(t.Context(), control.Leader{Key: cluster.LeaderKey, Create: term}.For(object, false), ch); err != nil {
			t.Fatal(err)
		}
	}
	put("kube", control.ChangeTenant(valid(t, model.Tenant{Name: "kube"}), false))
	network := model.Network{Key: model.NetworkKey{Tenant: "kube", Name: "n"}, Type: model.NetworkData, Encap: model.EncapVXLAN}
	network.Subnet, network.Range, _ = model.ParseSubnet4("subnet", "10.77.0.0/24")
	put("kube-n", f.ctrl.Networks.ChangeNetwork(valid(t, network)))
	rules := model.PolicyWithRules{
		Policy: model.ContivPolicy{Key: model.PolicyKey{Tenant: "kube", Name: "p"}},
		Rules:  []model.Rule{{Key: model.RuleKey{Tenant: "kube", Policy: "p", Rule: "1"}, Direction: model.In, Priority: 1, Action: model.Deny, Protocol: model.AnyProtocol}},
	}
	put("kube-p", f.ctrl.Policies.ReplaceContivPolicy(valid(t, rules)))
	put("kube-g", f.ctrl.Tenants.ChangeGroup(valid(t, model.Group{Key: model.GroupKey{Tenant: "kube", Name: "g"}, Network: "n"}), true))
	put("kube-np", control.ChangeNetProfile(valid(t, model.NetProfile{Key: model.NetProfileKey{Tenant: "kube", Name: "np"}, DSCP: 3})))

	collections := map[string]struct{ kind, key, resource, same, other string }{
		"tenants":        {"tenant", "kube", "tenants.contiv.io/kube", `{"tenantName":"kube"}`, `{"tenantName":"kube","defaultNetwork":"n"}`},
		"networks":       {"network", "kube:n", "networks.contiv.io/kube-n", `{"tenantName":"kube","networkName":"n","encap":"vxlan","subnet":"10.77.0.0/24"}`, `{"tenantName":"kube","networkName":"n","encap":"vlan","subnet":"10.77.0.0/24"}`},
		"policys":        {"policy", "kube:p", "policies.contiv.io/kube-p", `{"tenantName":"kube","policyName":"p"}`, ``},
		"endpointGroups": {"endpointGroup", "kube:g", "endpointgroups.contiv.io/kube-g", `{"tenantName":"kube","groupName":"g","networkName":"n"}`, `{"tenantName":"kube","groupName":"g","networkName":"n","policies":["p"]}`},
		"netprofiles":    {"netprofile", "kube:np", "netprofiles.contiv.io/kube-np", `{"tenantName":"kube","profileName":"np","DSCP":3}`, `{"tenantName":"kube","profileName":"np","DSCP":4}`},
	}
	refused := func(method, path, body, words string) {
		t.Helper()
		if status, text := f.do(method, "/api/v1/"+path, body); status != 409 || !strings.Contains(text, words) {
			t.Errorf("%s %s %s: %d %s; want 409 and %s", method, path, body, status, text, words)
		}
	}
	for collection, c := range collections {
		at := collection + "/" + c.key + "/"
		before := f.must("GET", "/api/v1/"+at, "")
		if !strings.Contains(before, `"owner":"kubernetes"`) {
			t.Errorf("%s is shown as %s", at, before)
		}
		words := "belongs to Kubernetes: change or delete it there, as " + c.resource
		refused("DELETE", at, "", words)
		f.must("PUT", "/api/v1/"+at, c.same)
		if c.other != "" {
			refused("PUT", at, c.other, words)
			refused("POST", "apply", `{"objects":[{"kind":"`+c.kind+`",`+c.other[1:]+`]}`, words)
		}
		if after := f.must("GET", "/api/v1/"+at, ""); after != before {
			t.Errorf("before %s, after %s", before, after)
		}
	}
	refused("POST", "rules/kube:p:2/", `{"tenantName":"kube","policyName":"p","ruleId":"2","direction":"in","action":"allow"}`, "policies.contiv.io/kube-p")
	refused("DELETE", "rules/kube:p:1/", "", "policies.contiv.io/kube-p")
	f.must("POST", "/api/v1/rules/kube:p:1/", `{"tenantName":"kube","policyName":"p","ruleId":"1","direction":"in","action":"deny"}`)

	// What users made in a tenant of Kubernetes is theirs.
	f.must("POST", "/api/v1/policys/kube:mine/", `{"tenantName":"kube","policyName":"mine"}`)
	refused("POST", "release", `{"kind":"policy","key":"kube:mine"}`, "already belongs to users")
	for _, c := range []struct {
		body, words string
		status      int
	}{
		{`{"kind":"policy","key":"kube:none"}`, "does not exist", 404},
		{`{"kind":"rule","key":"kube:p:1"}`, "must be one of tenant, network", 400},
		{`{"kind":"network","key":"kube"}`, "tenant:network", 400},
	} {
		if status, text := f.do("POST", "/api/v1/release", c.body); status != c.status || !strings.Contains(text, c.words) {
			t.Errorf("release %s: %d %s; want %d and %s", c.body, status, text, c.status, c.words)
		}
	}
	for _, collection := range []string{"netprofiles", "endpointGroups", "policys", "networks", "tenants"} {
		c := collections[collection]
		f.must("POST", "/api/v1/release", `{"kind":"`+c.kind+`","key":"`+c.key+`"}`)
		if got := f.must("GET", "/api/v1/"+collection+"/"+c.key+"/", ""); strings.Contains(got, "owner") {
			t.Errorf("released: %s", got)
		}
		if collection == "tenants" {
			f.must("DELETE", "/api/v1/policys/kube:mine/", "")
		}
		f.must("DELETE", "/api/v1/"+collection+"/"+c.key+"/", "")
	}
}

func valid[T model.Validator](t *testing.T, v T) model.Valid[T] {
	t.Helper()
	checked, err := model.Check(v)
	if err != nil {
		t.Fatal(err)
	}
	return checked
}
