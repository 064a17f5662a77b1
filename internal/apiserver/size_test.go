package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// sizedRule is a rule for an address prefix and a port.
func sizedRule(policy string, id int, prefix string, port int) string {
	return fmt.Sprintf(`{"kind":"rule","tenantName":"default","policyName":%q,"ruleId":"%d","direction":"in","action":"allow","protocol":"tcp","port":%d,"fromIpAddress":%q}`, policy, id, port, prefix)
}

// TestRuleNoHostCanHold: rules whose ports all of very many prefixes inherit are
// refused, one by one, in a list, and where a group joins two policies; the
// answer names the policy and the limit, and nothing changes.
func TestRuleNoHostCanHold(t *testing.T) {
	const ports = 800
	f := serve(t, 0)
	apply := func(dryRun bool, texts ...string) error {
		_, err := f.Apply(t.Context(), api.ApplyRequest{Objects: objects(texts...), DryRun: dryRun})
		return err
	}
	many := func(policy string, n int) (texts []string) {
		for i := range n {
			texts = append(texts, sizedRule(policy, ports+i, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255), 80))
		}
		return texts
	}
	wide := func(policy string) (texts []string) {
		for i := range ports {
			texts = append(texts, sizedRule(policy, i, "10.0.0.0/8", 1000+i))
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
		`{"kind":"endpointGroup","tenantName":"default","groupName":"g","networkName":"n","policies":["p"]}`,
	}
	if err := apply(false, append(start, wide("p")...)...); err != nil {
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
	// Each prefix has 801 ports each, the one that covers them 800.
	const room = (1<<19 - ports) / (ports + 1)
	for _, dryRun := range []bool{true, false} {
		err := apply(dryRun, many("p", room+10)...)
		refused("a list", err, `policy "default:p"`)
		if a, ok := errors.AsType[*api.ApplyError](err); !ok || a.Index != room {
			t.Errorf("refused %v; want the object at %d", err, room)
		}
		if n := rules(); n != ports {
			t.Fatalf("%d rules after a refused list, want %d", n, ports)
		}
	}
	if err := apply(false, many("p", room)...); err != nil {
		t.Fatal(err)
	}
	one := func(policy string, id int, prefix string) error {
		var r api.Rule
		if err := json.Unmarshal([]byte(sizedRule(policy, id, prefix, 80)), &r); err != nil {
			t.Fatal(err)
		}
		rules() // so that the mirror has what is committed, by which rules are judged
		_, err := f.Rules().Create(t.Context(), r)
		return err
	}
	refused("a rule", one("p", 5000, "10.200.0.0/24"), `policy "default:p"`)
	if n := rules(); n != ports+room {
		t.Errorf("%d rules, want %d", n, ports+room)
	}
	if err := one("p", ports, "10.0.0.0/24"); err != nil {
		t.Errorf("a rule that is there: %v", err)
	}
	if err := one("p", 5001, "192.0.2.0/24"); err != nil {
		t.Errorf("a rule that inherits nothing: %v", err)
	}
	if err := f.Rules().Delete(t.Context(), fmt.Sprintf("default:p:%d", ports)); err != nil {
		t.Fatal(err)
	}
	if err := one("p", 5000, "10.200.0.0/24"); err != nil {
		t.Errorf("after another one has gone: %v", err)
	}
	// Policies that fit alone, and not together.
	if err := apply(false, many("q", room)...); err != nil {
		t.Fatal(err)
	}
	if err := apply(false, wide("r")...); err != nil {
		t.Fatal(err)
	}
	group := func(policies string) string {
		return fmt.Sprintf(`{"kind":"endpointGroup","tenantName":"default","groupName":"h","networkName":"n","policies":[%s]}`, policies)
	}
	const both = `policies "default:p,q" of one group`
	// p has lost a prefix of q's and got another.
	refused("a group", apply(false, group(`"q","p"`)), both)
	if _, err := f.EndpointGroups().Get(t.Context(), "default:h"); !api.IsNotFound(err) {
		t.Errorf("the refused group: %v", err)
	}
	if err := apply(false, group(`"q","r"`)); err != nil {
		t.Fatal(err)
	}
	refused("a rule of one of them", one("q", 7000, "10.201.0.0/24"), `policies "default:q,r" of one group`)
	refused("a list with a rule of one of them", apply(false, sizedRule("r", 7000, "10.201.0.0/24", 80)), `policies "default:q,r" of one group`)
}
