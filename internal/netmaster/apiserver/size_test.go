package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// sizedRule is a rule for everybody on the network n, which is an entry for each
// group there is, and a port.
func sizedRule(policy string, port int) string {
	return fmt.Sprintf(`{"kind":"rule","tenantName":"default","policyName":%q,"ruleId":"%d","direction":"in","action":"allow","protocol":"tcp","port":%[2]d,"fromNetwork":"n"}`, policy, port)
}

// TestRulesBeyondHostLimitsAreRefused: rules with the ports of very many peers are refused, one
// by one, in a list, and where a group joins two policies; so is a network policy.
// The answer names the policy and the limit, and nothing changes.
func TestRulesBeyondHostLimitsAreRefused(t *testing.T) {
	const groups = 500
	f := serve(t, 0)
	apply := func(dryRun bool, texts ...string) error {
		_, err := f.Apply(t.Context(), api.ApplyRequest{Objects: objects(texts...), DryRun: dryRun})
		return err
	}
	many := func(policy string, first, n int) (texts []string) {
		for i := range n {
			texts = append(texts, sizedRule(policy, first+i))
		}
		return texts
	}
	rules := func() int {
		all, err := f.Rules().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	start := []string{
		`{"kind":"network","tenantName":"default","networkName":"n","encap":"vxlan","subnet":"10.1.0.0/24"}`,
		`{"kind":"policy","tenantName":"default","policyName":"p"}`, `{"kind":"policy","tenantName":"default","policyName":"q"}`,
		`{"kind":"policy","tenantName":"default","policyName":"r"}`,
	}
	for i := range groups {
		start = append(start, fmt.Sprintf(`{"kind":"endpointGroup","tenantName":"default","groupName":"g%d","networkName":"n"}`, i))
	}
	if err := apply(false, start...); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error, part string) {
		t.Helper()
		e, ok := errors.AsType[*api.Error](err)
		if a, list := errors.AsType[*api.ApplyError](err); list {
			e, ok = a.Err, true
		}
		if !ok || e.Status != http.StatusConflict || !strings.Contains(e.Message, part) || !strings.Contains(e.Message, "at most 524288") {
			t.Errorf("%s: %v; want status 409, %s and the limit", what, err, part)
		}
	}
	// Each group, who has none, and the addresses of both families have an entry of
	// their own and one for each rule.
	const room = (1<<19)/(groups+1+2) - 1
	for _, dryRun := range []bool{true, false} {
		err := apply(dryRun, many("p", 1, room+10)...)
		refused("a list", err, `policy "default:p"`)
		if a, ok := errors.AsType[*api.ApplyError](err); !ok || a.Index != room {
			t.Errorf("refused %v; want the object at %d", err, room)
		}
		if n := rules(); n != 0 {
			t.Fatalf("%d rules after a refused list", n)
		}
	}
	if err := apply(false, many("p", 1, room)...); err != nil {
		t.Fatal(err)
	}
	one := func(text string) error {
		var r api.Rule
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		rules() // so that the mirror has what is committed, by which rules are judged
		_, err := f.Rules().Create(t.Context(), r)
		return err
	}
	refused("a rule", one(sizedRule("p", 5000)), `policy "default:p"`)
	if n := rules(); n != room {
		t.Errorf("%d rules, want %d", n, room)
	}
	if err := one(sizedRule("p", 1)); err != nil {
		t.Errorf("a rule that is there: %v", err)
	}
	if err := one(`{"tenantName":"default","policyName":"p","ruleId":"small","direction":"in","action":"allow","fromIpAddress":"10.0.0.0/24"}`); err != nil {
		t.Errorf("a rule that takes little: %v", err)
	}
	if err := f.Rules().Delete(t.Context(), "default:p:1"); err != nil {
		t.Fatal(err)
	}
	if err := one(sizedRule("p", 5000)); err != nil {
		t.Errorf("after another one has gone: %v", err)
	}
	// Policies that fit alone, and not together.
	if err := apply(false, append(many("q", 2000, room/2), many("r", 6000, 10)...)...); err != nil {
		t.Fatal(err)
	}
	group := func(policies string) string {
		return fmt.Sprintf(`{"kind":"endpointGroup","tenantName":"default","groupName":"h","networkName":"n","policies":[%s]}`, policies)
	}
	refused("a group", apply(false, group(`"q","p"`)), `policies "default:p,q" of one group`)
	if _, err := f.EndpointGroups().Get(t.Context(), "default:h"); !api.IsNotFound(err) {
		t.Errorf("the refused group: %v", err)
	}
	if err := apply(false, group(`"q","r"`)); err != nil {
		t.Fatal(err)
	}
	refused("a list with rules of one of them", apply(false, many("r", 7000, room/2)...), `policies "default:q,r" of one group`)

	wide := api.NetworkPolicy{TenantName: "default", NetworkPolicyName: "wide", DefaultIn: "deny"}
	rule := api.NetworkPolicyRule{RuleID: "1", Direction: "in", Action: "allow"}
	for i := range 64 {
		peer := api.NetworkPolicyPeer{CIDR: fmt.Sprintf("%d.0.0.0/8", 1+i)}
		for j := range 64 {
			peer.Except = append(peer.Except, fmt.Sprintf("%d.1.1.%d", 1+i, j))
		}
		rule.Peers = append(rule.Peers, peer)
		rule.Ports = append(rule.Ports, api.NetworkPolicyPort{Protocol: "tcp", Ports: strconv.Itoa(1000 + 2*i)})
	}
	wide.Rules = []api.NetworkPolicyRule{rule}
	_, err := f.NetworkPolicies().Create(t.Context(), wide)
	refused("a network policy", err, `policy "default:wide"`)
	if _, err := f.NetworkPolicies().Get(t.Context(), "default:wide"); !api.IsNotFound(err) {
		t.Errorf("the refused network policy: %v", err)
	}
}
