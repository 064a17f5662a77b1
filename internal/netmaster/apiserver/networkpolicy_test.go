package apiserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/archtest"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// ruled is a network policy's rules with one rule, on which a change is laid.
func ruled(change string) string {
	rule := `"ruleId":"1","direction":"in","action":"allow"`
	return `{"rules":[{` + rule + change + `}]}`
}

func manyRules(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`{"ruleId":"%d","direction":"in","action":"allow"}`, i))
	}
	return `{"rules":[` + strings.Join(out, ",") + `]}`
}

func naming(n int) string {
	return `{"rules":[{"ruleId":"1","direction":"in","action":"allow","peers":[` + strings.TrimSuffix(strings.Repeat(`{"selector":{"group":"web"}},`, n), ",") + `]}]}`
}

var _ = tested("networkPolicys", kindCases{
	object: `{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny"}`, key: []string{"tenantName", "networkPolicyName"},
	fields: map[string]cases{
		"tenantName": tenantCases(), "networkPolicyName": nameCases("networkPolicyName"),
		"tier": {
			[]string{`{"tier":""}`, `{"tier":"admin"}`, `{"tier":"contiv"}`, `{"tier":"baseline"}`},
			[]string{`{"tier":"kubernetes"}`, `{"tier":"Admin"}`, `{"tier":"first"}`},
		},
		"order": {
			[]string{`{"order":0}`, `{"order":1}`, `{"order":200}`, `{"order":null}`},
			[]string{`{"order":-1}`, `{"order":201}`, `{"order":"1"}`, `{"order":1.5}`},
		},
		"mode":  {[]string{`{"mode":""}`, `{"mode":"enforce"}`, `{"mode":"audit"}`}, []string{`{"mode":"Audit"}`, `{"mode":"off"}`}},
		"owner": {[]string{`{"owner":""}`, `{"owner":"user"}`}, []string{`{"owner":"kubernetes"}`, `{"owner":"me"}`}},
		"applies": {
			[]string{
				`{"applies":{}}`, `{"applies":{"group":"web"}}`, `{"applies":{"network":"n"}}`, `{"applies":{"matchLabels":{"app":"web"}}}`, `{"applies":{"matchLabels":{"a.b/app":""}}}`,
				`{"applies":{"matchExpressions":[{"key":"app","operator":"In","values":["a","b"]},{"key":"app","operator":"NotIn","values":["b"]},{"key":"x","operator":"Exists"},{"key":"y","operator":"DoesNotExist"}]}}`,
			},
			[]string{
				`{"applies":{"group":"none"}}`, `{"applies":{"network":"none"}}`, `{"applies":{"group":"a b"}}`, `{"applies":{"matchLabels":{"a b":"c"}}}`, `{"applies":{"matchLabels":{"app":"` + text64 + `"}}}`,
				`{"applies":{"matchLabels":{"pod-template-hash":"1"}}}`, `{"applies":{"matchLabels":{"com.docker.compose.project":"x"}}}`,
				`{"applies":{"matchExpressions":[{"key":"app","operator":"in","values":["a"]}]}}`, `{"applies":{"matchExpressions":[{"key":"app","operator":"In"}]}}`,
				`{"applies":{"matchExpressions":[{"key":"app","operator":"Exists","values":["a"]}]}}`,
				`{"applies":{"matchLabels":{"app":"a"},"matchExpressions":[{"key":"app","operator":"In","values":["b"]}]}}`,
			},
		},
		"defaultIn":  {[]string{`{"defaultIn":"allow"}`, `{"defaultIn":"deny"}`, `{"defaultIn":"pass","defaultOut":"deny"}`}, []string{`{"defaultIn":"drop"}`, `{"defaultIn":""}`, `{"defaultIn":"pass"}`, `{"defaultIn":"pass","defaultOut":"pass"}`}},
		"defaultOut": {[]string{`{"defaultOut":""}`, `{"defaultOut":"allow"}`, `{"defaultOut":"deny"}`, `{"defaultOut":"pass"}`}, []string{`{"defaultOut":"reject"}`}},
		"rules": {
			[]string{
				`{"rules":[]}`, ruled(``), ruled(`,"log":true,"priority":100`), ruled(`,"action":"pass"`), manyRules(300), naming(64),
				ruled(`,"ports":[{"protocol":"tcp","ports":"80,443,8000-8080"},{"protocol":"icmp"},{"protocol":"47"}]`),
				ruled(`,"peers":[{"cidr":"10.0.0.0/8","except":["10.1.0.0/16","10.2.0.1"]},{"cidr":"fd00::1"},{"network":"n"},{"selector":{}},{"selector":{"group":"web","matchLabels":{"app":"web"}}}]`),
			},
			[]string{
				manyRules(model.MaxNetworkPolicyRules + 1), naming(65), ruled(`,"priority":101`), ruled(`,"priority":-1`), ruled(`,"direction":"both"`), ruled(`,"action":"drop"`), ruled(`,"ruleId":"a b"`), ruled(`,"ruleId":""`),
				`{"rules":[{"ruleId":"1","direction":"in","action":"allow"},{"ruleId":"1","direction":"out","action":"allow"}]}`,
				ruled(`,"ports":[{"ports":"80"}]`), ruled(`,"ports":[{"protocol":"icmp","ports":"1"}]`), ruled(`,"ports":[{"protocol":"tcp","ports":"0"}]`), ruled(`,"ports":[{"protocol":"tcp","ports":"90-80"}]`),
				ruled(`,"ports":[{"protocol":"tcp","ports":"80,"}]`), ruled(`,"ports":[{"protocol":"tcp","ports":"65536"}]`),
				ruled(`,"peers":[{}]`), ruled(`,"peers":[{"cidr":"10.0.0.0/8","network":"n"}]`), ruled(`,"peers":[{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]}]`), ruled(`,"peers":[{"network":"none"}]`),
				ruled(`,"peers":[{"network":"n","except":["10.0.0.0/8"]}]`), ruled(`,"peers":[{"cidr":"somewhere"}]`), ruled(`,"peers":[{"selector":{"group":"none"}}]`), ruled(`,"peers":[{"selector":{"matchLabels":{"controller-uid":"1"}}}]`),
			},
		},
	},
	effects: map[string]archtest.Effect{
		"tenantName": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "networkPolicyName": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
		"tier=admin": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "tier=contiv": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "tier=baseline": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
		"order":        archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
		"mode=enforce": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "mode=audit": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
		"applies":         archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
		"defaultIn=allow": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "defaultIn=deny": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "defaultIn=pass": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
		"defaultOut=allow": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "defaultOut=deny": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "defaultOut=pass": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"),
		"rules": archtest.By("TestEachFieldOfNetworkPoliciesHasEffect"), "owner": archtest.By("TestFieldConstraintsAreEnforced"),
	},
})

// TestNetworkPolicyIsUnambiguous: a field of a network policy that is misspelt,
// there twice or empty is refused at any depth: an allow rule without "peers" lets
// anybody in.
func TestNetworkPolicyIsUnambiguous(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	rule := func(rest string) string {
		return `{"tenantName":"blue","networkPolicyName":"x","rules":[{"ruleId":"1","direction":"in","action":"allow",` + rest + `}]}`
	}
	for body, words := range map[string]string{
		rule(`"peer":[{"cidr":"10.0.0.1"}]`): `"peer"`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","selector":{"group":"web"}}`:         `"selector"`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","applies":{"labels":{"app":"web"}}}`: `"labels"`,
		rule(`"peers":[{"cidr":"10.0.0.1"}],"PEERS":null`):                                                    `twice`,
		rule(`"peers":[{"cidr":"10.0.0.1"}],"peers":[]`):                                                      `twice`,
		rule(`"peers":[]`): `peers: must not be empty`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","applies":null}`:                                                                    `applies: must not be empty`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","applies":{"matchLabels":{}}}`:                                                      `matchLabels: must not be empty`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","applies":{"matchExpressions":[{"key":"app","operator":"NotIn","values":[null]}]}}`: `values: must not have null`,
		rule(`"peers":[{"selector":{"matchLabels":{}}}]`):                                                                                                    `matchLabels: must not be empty`,
		rule(`"peers":null`):                                `peers: must not be empty`,
		rule(`"peers":[{"selector":{"group":""}}]`):         `group: must not be empty`,
		rule(`"peers":[{"selector":{"matchLabels":null}}]`): `matchLabels: must not be empty`,
		rule(`"ports":[{"protocol":"tcp","ports":""}]`):     `ports: must not be empty`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","applies":{"matchLabels":{"app":null}}}`:      `"app"`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","applies":{"matchLabels":{"a":"b","a":"c"}}}`: `twice`,
		rule(`"PEERS":null`):    `PEERS: must not be empty`,
		rule(`"peer\u017f":[]`): `must not be empty`,
		rule(`"peers":[{"selector":{"MatchLabels":{"app":null}}}]`): `"app"`,
		rule(`"log":"true"`):   `rules.log: must be true or false, not a string`,
		rule(`"priority":"9"`): `rules.priority: must be a whole number, not a string`,
		rule(`"peers":[{"cidr":"10.0.0.0/8","network":"n"}]`):                                 `peers[0] "cidr, network": must name endpoints by one of`,
		rule(`"ports":[{"protocol":"any"}]`):                                                  `protocol "any": must be tcp, udp, icmp or a number`,
		`{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","tier":"first"}`:     `tier "first": must be one of admin, contiv, baseline`,
		rule(`"peers":[{"selector":{"matchLabels":{"app":"web"}},"except":["10.1.0.0/16"]}]`): `except`,
	} {
		code, text := f.do("POST", "/api/v1/networkPolicys/blue:x/", body)
		if code != 400 || !strings.Contains(text, words) {
			t.Errorf("%s: %d %s; want 400 and %s", body, code, text, words)
		}
	}
	f.must("POST", "/api/v1/networkPolicys/blue:x/", `{"tenantName":"blue","networkPolicyName":"x","defaultIn":"deny","applies":{"matchLabels":{"App":"b","app":"c"}}}`)
}

// TestLargeNetworkPolicyIsWrittenAndRead: 10,000 rules of one policy are written, read, applied and
// told apart like few.
func TestLargeNetworkPolicyIsWrittenAndRead(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	const n = 10_000
	policy := func(port int, kind string) string {
		var rules []string
		for i := range n {
			rules = append(rules, fmt.Sprintf(`{"ruleId":"r%05d","direction":"in","action":"allow","peers":[{"cidr":"10.%d.%d.%d"}],"ports":[{"protocol":"tcp","ports":"%d"}]}`, i, i>>16, i>>8&255, i&255, port))
		}
		return `{` + kind + `"tenantName":"blue","networkPolicyName":"x","rules":[` + strings.Join(rules, ",") + `]}`
	}
	told := func(port int) {
		t.Helper()
		text := f.must("GET", "/api/v1/networkPolicys/blue:x/", "")
		if all, right := strings.Count(text, `"ruleId"`), strings.Count(text, fmt.Sprintf(`"ports":"%d"`, port)); all != n || right != n {
			t.Errorf("%d rules, %d with port %d", all, right, port)
		}
	}
	f.must("POST", "/api/v1/networkPolicys/blue:x/", policy(80, ""))
	told(80)
	text := f.must("POST", "/api/v1/apply", `{"objects":[`+policy(443, `"kind":"networkPolicy",`)+`]}`)
	if !strings.Contains(text, `"updated"`) {
		t.Errorf("apply answers %.200s", text)
	}
	told(443)
	if text := f.must("POST", "/api/v1/apply", `{"objects":[`+policy(443, `"kind":"networkPolicy",`)+`]}`); !strings.Contains(text, `"unchanged"`) {
		t.Errorf("apply again answers %.200s", text)
	}
	f.must("DELETE", "/api/v1/networkPolicys/blue:x/", "")
}

// TestNetworkPolicyErrorsNameTheWrittenField: what is wrong is named as it was written.
func TestNetworkPolicyErrorsNameTheWrittenField(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	rule := func(id, rest string) string {
		return `{"ruleId":"` + id + `","direction":"in","action":"allow"` + rest + `}`
	}
	for wrong, words := range map[string]string{
		`,"peers":[{"cidr":"10.0.0.1"},{"selector":{"group":"none"}}]`:                                `rules[1].peers[1].selector.group "none"`,
		`,"peers":[{"cidr":"10.0.0.1"},{"selector":{"network":"none"}}]`:                              `rules[1].peers[1].selector.network "none"`,
		`,"peers":[{"network":"none"}]`:                                                               `rules[1].peers[0].network "none"`,
		`,"peers":[{"network":"a b"}]`:                                                                `rules[1].peers[0].network "a b"`,
		`,"peers":[{"selector":{"group":"a b"}}]`:                                                     `rules[1].peers[0].selector.group "a b"`,
		`,"peers":[{"selector":{"matchLabels":{"a b":"c"}}}]`:                                         `rules[1].peers[0].selector.matchLabels "a b"`,
		`,"peers":[{"selector":{"matchLabels":{"controller-uid":"c"}}}]`:                              `rules[1].peers[0].selector "controller-uid"`,
		`,"peers":[{"selector":{"matchExpressions":[{"key":"app","operator":"in","values":["a"]}]}}]`: `rules[1].peers[0].selector.matchExpressions.operator "in"`,
		`,"peers":[{"cidr":"10.1.2.3/8"}]`:                                                            `rules[1].peers[0].cidr "10.1.2.3/8": has address bits beyond its length; the subnet is 10.0.0.0/8`,
		`,"peers":[{"cidr":"2001:db8::1/64"}]`:                                                        `the subnet is 2001:db8::/64`,
		`,"peers":[{"cidr":"10.0.0.0/8","except":["10.2.0.0/16","10.1.2.3/16"]}]`:                     `rules[1].peers[0].except[1] "10.1.2.3/16": has address bits beyond its length; the subnet is 10.1.0.0/16`,
		`,"peers":[{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]}]`:                                   `rules[1].peers[0].except "11.0.0.0/16"`,
		`,"peers":[{"cidr":"10.0.0.0/8"},{"cidr":"10.0.0.0/8","network":"n"}]`:                        `rules[1].peers[1] "cidr, network"`,
		`,"ports":[{"protocol":"tcp"},{"protocol":"tcp","ports":"0"}]`:                                `rules[1].ports[1].ports "0"`,
		`,"ports":[{"protocol":"tcpp"}]`:                                                              `rules[1].ports[0].protocol "tcpp"`,
		`,"priority":101`:                                                                             `rules[1].priority "101"`,
		`},` + rule("z", ``)[:len(rule("z", ``))-1]:                                                   `rules[2].ruleId "z"`,
	} {
		body := `{"tenantName":"blue","networkPolicyName":"x","rules":[` + rule("z", ``) + `,` + rule("a", wrong) + `]}`
		code, text := f.do("POST", "/api/v1/networkPolicys/blue:x/", body)
		if code < 400 || code > 409 || !strings.Contains(text, words) {
			t.Errorf("%s: %d %s; want %s", wrong, code, text, words)
		}
	}
	f.must("POST", "/api/v1/networkPolicys/blue:x/", `{"tenantName":"blue","networkPolicyName":"x","rules":[`+rule("z", ``)+`,`+rule("a", `,"peers":[{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]},{"cidr":"10.1.2.3"}]`)+`]}`)
	if text := f.must("GET", "/api/v1/networkPolicys/blue:x/", ""); strings.Index(text, `"ruleId":"a"`) > strings.Index(text, `"ruleId":"z"`) {
		t.Errorf("rules are not told by id: %s", text)
	}
}

// TestKubernetesPoliciesAreReadOnly: a policy of Kubernetes is shown, and requests to create, change or
// delete it or its rules are refused; nothing changes.
func TestKubernetesPoliciesAreReadOnly(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	k := model.PolicyKey{Tenant: "blue", Name: "ofkube"}
	p := model.Policy{
		Key: k, Kind: model.KindNetwork, Owner: model.OwnerKubernetes, Tier: model.TierKubernetes, Order: 100,
		Applies: model.Selector{Tenant: "blue"}, Default: model.Defaults{In: model.Deny},
	}
	r := model.PolicyRule{Key: model.RuleKey{Tenant: "blue", Policy: k.Name, Rule: "1"}, Direction: model.In, Priority: 50, Action: model.Allow}
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		return errors.Join(tables.Policies.Create(tx, p), tables.Rules.Create(tx, r))
	}); err != nil {
		t.Fatal(err)
	}
	before := f.must("GET", "/api/v1/networkPolicys/blue:ofkube/", "")
	if !strings.Contains(before, `"owner":"kubernetes"`) || !strings.Contains(before, `"tier":"kubernetes"`) {
		t.Errorf("it is shown as %s", before)
	}
	mine := `"tenantName":"blue","networkPolicyName":"ofkube","defaultIn":"allow"`
	const owned = `belongs to kubernetes: change it there`
	for _, c := range []struct {
		method, path, body string
		status             int
		words              string
	}{
		{"POST", "networkPolicys/blue:ofkube/", `{` + mine + `}`, 409, owned},
		{"PUT", "networkPolicys/blue:ofkube/", `{` + mine + `}`, 409, owned},
		{"POST", "networkPolicys/blue:ofkube/", `{` + mine + `,"rules":[{"ruleId":"1","direction":"in","action":"deny"}]}`, 409, owned},
		{"POST", "networkPolicys/blue:ofkube/", `{` + mine + `,` + manyRules(300)[1:], 409, owned},
		{"DELETE", "networkPolicys/blue:ofkube/", ``, 409, owned},
		{"POST", "apply", `{"objects":[{"kind":"networkPolicy",` + mine + `}]}`, 409, owned},
		{"POST", "apply", `{"dryRun":true,"objects":[{"kind":"networkPolicy",` + mine + `}]}`, 409, owned},
		{"POST", "apply", `{"objects":[{"kind":"networkPolicy",` + mine + `,` + manyRules(300)[1:] + `]}`, 409, owned},
		{"POST", "policys/blue:ofkube/", `{"tenantName":"blue","policyName":"ofkube"}`, 409, owned},
		{"DELETE", "policys/blue:ofkube/", ``, 409, owned},
		{"POST", "rules/blue:ofkube:2/", `{"tenantName":"blue","policyName":"ofkube","ruleId":"2","direction":"in","action":"deny"}`, 409, owned},
		{"DELETE", "rules/blue:ofkube:1/", ``, 409, owned},
		{"PUT", "networkPolicys/blue:ofkube/rules/2/", `{"direction":"in","action":"deny"}`, 409, owned},
		{"DELETE", "networkPolicys/blue:ofkube/rules/1/", ``, 409, owned},
		{"POST", "networkPolicys/blue:mine/", `{"tenantName":"blue","networkPolicyName":"mine","defaultIn":"deny","tier":"kubernetes"}`, 400, "is for policies that Kubernetes owns"},
		{"POST", "networkPolicys/blue:mine/", `{"tenantName":"blue","networkPolicyName":"mine","defaultIn":"deny","owner":"kubernetes"}`, 400, "other owners cannot be set"},
		{"POST", "apply", `{"objects":[{"kind":"networkPolicy","tenantName":"blue","networkPolicyName":"mine","defaultIn":"deny","tier":"kubernetes"}]}`, 400, "is for policies that Kubernetes owns"},
	} {
		status, text := f.do(c.method, "/api/v1/"+c.path, c.body)
		if status != c.status || !strings.Contains(text, c.words) {
			t.Errorf("%s %s %.120s: %d %s; want %d and %s", c.method, c.path, c.body, status, text, c.status, c.words)
		}
	}
	if after := f.must("GET", "/api/v1/networkPolicys/blue:ofkube/", ""); after != before {
		t.Errorf("before %s, after %s", before, after)
	}
}

// TestUnselectableLabelsAreWarnedOf: labels that nothing can select by are taken, and the answer
// names them.
func TestUnselectableLabelsAreWarnedOf(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	c, told := f.warned(t)
	labels := map[string]string{"app": "web", "note": "two words", "a b": "c", "com.docker.x": "y"}
	_, err := c.CreateEndpoint(t.Context(), api.CreateEndpointRequest{TenantName: "blue", NetworkName: "n", EndpointID: "l1", ConfigEP: api.ConfigEP{Host: "h1", Labels: labels}})
	if err != nil || len(*told) != 1 || !strings.Contains((*told)[0], `labels "a b", "note": kept and shown`) {
		t.Errorf("create: %v, %q", err, *told)
	}
	*told = nil
	_, err = c.UpdateEndpoint(t.Context(), api.UpdateEndpointRequest{Event: api.EventStart, Tenant: "blue", Network: "n", EndpointID: "l1", ContainerID: "x", Labels: map[string]string{"more": "a,b"}})
	if err != nil || len(*told) != 1 || !strings.Contains((*told)[0], `labels "more"`) {
		t.Errorf("update: %v, %q", err, *told)
	}
}

// warned is a client, and what the server's answers to it warn of.
func (f *fixture) warned(t *testing.T) (c *api.Client, told *[]string) {
	t.Helper()
	told = new([]string)
	c, err := api.NewClient(f.url, api.WithHTTPClient(f.http), api.WithWarnings(func(text string) { *told = append(*told, text) }))
	if err != nil {
		t.Fatal(err)
	}
	return c, told
}
