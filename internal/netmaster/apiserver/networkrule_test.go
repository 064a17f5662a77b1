package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestOneRuleOfNetworkPolicyIsWritten: one rule is added, replaced, read and deleted by
// itself, and the policy shows it with the others.
func TestOneRuleOfNetworkPolicyIsWritten(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	const path = "/api/v1/networkPolicys/blue:np/"
	f.must("PUT", path, `{"tenantName":"blue","networkPolicyName":"np","tier":"admin","rules":[{"ruleId":"a","direction":"in","action":"allow"}]}`)
	before := f.must("GET", path, "")
	want := `{"ruleId":"b.1","direction":"out","priority":50,"action":"deny","peers":[{"selector":{"group":"web"}}],"ports":[{"protocol":"tcp","ports":"80,443"}]}`
	got := f.must("PUT", path+"rules/b.1/", `{"direction":"out","action":"deny","peers":[{"selector":{"group":"web"}}],"ports":[{"protocol":"tcp","ports":"80,443"}]}`)
	if strings.TrimSpace(got) != want {
		t.Errorf("PUT answers %s, want %s", got, want)
	}
	if again := f.must("PUT", path+"rules/b.1", got); again != got {
		t.Errorf("put back: %s", again)
	}
	if text := f.must("GET", path+"rules/b.1/", ""); text != got {
		t.Errorf("GET answers %s", text)
	}
	if text := f.must("GET", path, ""); !strings.Contains(text, want) || !strings.Contains(text, `"ruleId":"a"`) || !strings.Contains(text, `"tier":"admin"`) {
		t.Errorf("the policy is %s", text)
	}
	if status, text := f.do("DELETE", "/api/v1/endpointGroups/blue:web/", ""); status != http.StatusConflict {
		t.Errorf("the group of a peer is deleted: %d %s", status, text)
	}
	got = f.must("PUT", path+"rules/b.1/", `{"ruleId":"b.1","direction":"in","action":"allow","priority":7}`)
	if !strings.Contains(got, `"priority":7`) || strings.Contains(got, "peers") {
		t.Errorf("replaced, it is %s", got)
	}
	if text := f.must("DELETE", path+"rules/b.1/", ""); strings.TrimSpace(text) != `"blue:np:b.1"` {
		t.Errorf("DELETE answers %s", text)
	}
	if after := f.must("GET", path, ""); after != before {
		t.Errorf("the policy is %s, before %s", after, before)
	}
}

// TestWrongRulesOfNetworkPolicyAreRefused: a refusal names what was wrong as it was written,
// and changes nothing.
func TestWrongRulesOfNetworkPolicyAreRefused(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	const path = "/api/v1/networkPolicys/blue:np/rules/"
	f.must("PUT", "/api/v1/networkPolicys/blue:np/", `{"tenantName":"blue","networkPolicyName":"np","rules":[{"ruleId":"a","direction":"in","action":"allow"}]}`)
	rule := func(rest string) string { return `{"direction":"in","action":"allow"` + rest + `}` }
	c, told := f.warned(t)
	misspelt := api.NetworkPolicyRule{RuleID: "a", Direction: "in", Action: "allow", Peers: []api.NetworkPolicyPeer{{Selector: &api.Selector{MatchLabels: map[string]string{"app": "wbe"}}}}}
	if _, err := c.PutNetworkPolicyRule(t.Context(), "blue:np", misspelt); err != nil || len(*told) != 1 || !strings.Contains((*told)[0], "rule a matches no endpoint now") {
		t.Errorf("a selector that selects nothing: %v, %q", err, *told)
	}
	before := f.contents()
	for _, c := range []struct {
		method, path, body string
		status             int
		words              string
	}{
		{"PUT", path + "b/", rule(`,"ruleId":"c"`), 400, `key "b": must equal the key that the body's fields build, "c"`},
		{"PUT", path + "b/", rule(`,"ruleId":""`), 400, `must equal`},
		{"PUT", path + "b/", rule(`,"peer":[]`), 400, `"peer": there is no such field`},
		{"PUT", path + "b/", rule(`,"peers":[]`), 400, "peers: must not be empty"},
		{"PUT", path + "b/", rule(`,"peers":[{"cidr":"10.0.0.1"}],"PEERS":[{"cidr":"10.0.0.2"}]`), 400, "twice"},
		{"PUT", path + "b/", rule(`,"peers":[{"selector":{"group":"none"}}]`), 404, `peers[0].selector.group "none"`},
		{"PUT", path + "b/", rule(`,"priority":101`), 400, `priority "101"`},
		{"PUT", path + "b/", rule(`,"ports":[{"protocol":"tcp","ports":"0"}]`), 400, `ports[0].ports "0"`},
		{"PUT", path + "b/", `{"direction":"in"}`, 400, `action ""`},
		{"PUT", path + "b/", ``, 400, "body: must not be empty"},
		{"PUT", path + "b/", `[`, 400, "not valid JSON"},
		{"PUT", path + "a%20b/", rule(""), 400, `ruleId "a b"`},
		{"PUT", "/api/v1/networkPolicys/blue:none/rules/b/", rule(""), 404, `policy "blue:none" does not exist`},
		{"PUT", "/api/v1/networkPolicys/none/rules/b/", rule(""), 404, `networkPolicy "none" does not exist`},
		{"PUT", "/api/v1/networkPolicys/blue:p/rules/b/", rule(""), 409, `is a contiv policy`},
		{"GET", "/api/v1/networkPolicys/blue:p/rules/1/", "", 404, `rule "blue:p:1" does not exist`},
		{"DELETE", "/api/v1/networkPolicys/blue:p/rules/1/", "", 409, `is a contiv policy`},
		{"GET", path + "b/", "", 404, `rule "blue:np:b" does not exist`},
		{"GET", path + "a%20b/", "", 404, `does not exist`},
		{"DELETE", path + "b/", "", 404, `rule "blue:np:b" does not exist`},
		{"DELETE", path + "a/", "", 409, `it is the last rule of policy "blue:np"`},
		{"POST", path + "a/", rule(""), 405, "DELETE, GET, HEAD, PUT"},
	} {
		status, text := f.do(c.method, c.path, c.body)
		if status != c.status || !strings.Contains(text, c.words) {
			t.Errorf("%s %s %s: %d %s; want %d and %s", c.method, c.path, c.body, status, text, c.status, c.words)
		}
	}
	if after := f.contents(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("a refusal has changed the store")
	}
}
