package netctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestNetworkPolicyFlagsReachThePolicy: what each flag and each word of a rule becomes in the
// policy that netmaster keeps, and that apply takes what export writes of it.
func TestNetworkPolicyFlagsReachThePolicy(t *testing.T) {
	url := startNetmaster(t)
	run := func(args ...string) string {
		t.Helper()
		r := netctl(t, url, args...)
		if r.code != 0 {
			t.Fatalf("%q: %s", args, r.errOut)
		}
		return r.out
	}
	run("tenant", "create", "blue")
	run("network", "create", "-t", "blue", "-s", "10.1.0.0/16", "-g", "10.1.0.1", "net")
	run("group", "create", "-t", "blue", "net", "web")
	want := api.NetworkPolicy{
		Key: "blue:p", TenantName: "blue", NetworkPolicyName: "p", Tier: "admin", Order: 7, Mode: "audit", Owner: "user",
		Applies:   &api.Selector{Group: "web", Network: "net", MatchLabels: map[string]string{"app": "db", "zone": ""}},
		DefaultIn: "deny", DefaultOut: "pass",
		Rules: []api.NetworkPolicyRule{
			{
				RuleID: "1", Direction: "in", Action: "allow", Priority: 60, Log: true,
				Peers: []api.NetworkPolicyPeer{
					{Selector: &api.Selector{MatchLabels: map[string]string{"app": "web", "tier": "front"}}},
					{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "10.2.0.1"}},
					{CIDR: "fd00::1"},
				},
				Ports: []api.NetworkPolicyPort{{Protocol: "tcp", Ports: "80,8000-8080"}, {Protocol: "icmp"}, {Protocol: "47"}},
			},
			{
				RuleID: "2", Direction: "out", Action: "deny", Priority: 50,
				Peers: []api.NetworkPolicyPeer{{Selector: &api.Selector{Group: "web"}}, {Network: "net"}},
			},
		},
		Links: api.NetworkPolicyLinks{Tenant: api.Link{Type: "tenant", Key: "blue"}},
	}
	var got api.NetworkPolicy
	text := run("network-policy", "create", "-t", "blue", "--json", "--tier", "admin", "--order", "7", "--mode", "audit", "-g", "web", "-n", "net",
		"--label", "app=db,zone=", "--default-in", "deny", "--default-out", "pass",
		"--rule", "in allow app=web,tier=front 10.0.0.0/8!10.1.0.0/16!10.2.0.1 fd00::1 tcp/80,8000-8080 icmp 47 priority=60 log",
		"--rule", "out deny group:web network:net", "p")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("stored (-want +got):\n%s", d)
	}
	for _, rule := range []string{"in", "in allow app=web app", "in allow tcp/80 priority=high", "in allow priority=7 priority=8", "in allow a=1,a=2", "in allow group: tcp/22", "in allow network:", "in allow 10.0.0.0/8!", "in allow app=web tcp/", "in allow app=web tcp 22", "in allow udp 5353"} {
		if r := netctl(t, url, "network-policy", "create", "-t", "blue", "--rule", rule, "q"); r.code == 0 || !strings.Contains(r.errOut, "--rule") {
			t.Errorf("%q: %d %s", rule, r.code, r.errOut)
		}
	}
	if r := netctl(t, url, "network-policy", "create", "-t", "blue", "--rule", "in allow", "--rule", "in allow tcp/99999", "q"); r.code == 0 || !strings.Contains(r.errOut, `--rule "in allow tcp/99999": ports "99999"`) {
		t.Errorf("a port that is none: %+v", r)
	}
	for _, flags := range [][]string{{"--group", ""}, {"--label", ""}, {"--network", " "}, {"--order", "0"}} { // an unset variable
		r := netctl(t, url, append(append([]string{"network-policy", "create", "-t", "blue", "--default-in", "deny"}, flags...), "q")...)
		if r.code == 0 || !strings.Contains(r.errOut, flags[0]) {
			t.Errorf("%q: %d %s", flags, r.code, r.errOut)
		}
	}
	if out := run("get", "network-policies", "-t", "blue", "-q"); out != "p\n" {
		t.Errorf("get network-policies: %q", out)
	}
	exported := run("export")
	run("network-policy", "rm", "-t", "blue", "p")
	file := filepath.Join(t.TempDir(), "export.yaml")
	if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	run("apply", "-f", file)
	if again := run("export"); again != exported {
		t.Errorf("exported again (-want +got):\n%s", cmp.Diff(exported, again))
	}
	if out := run("diff", "-f", file); strings.Contains(out, "networkPolicy") {
		t.Errorf("diff after apply: %s", out)
	}
}

// TestCreateKeepsWhatNoFlagGives: a command that changes an object leaves what no flag gives as
// it is, also if the change waits to be confirmed. --replace removes it and names it, and so
// does a network policy, which is written whole.
func TestCreateKeepsWhatNoFlagGives(t *testing.T) {
	st := memory.New()
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		return tables.Hosts.Put(tx, model.Host{Name: "h1", Confirms: true})
	}); err != nil {
		t.Fatal(err)
	}
	url := startNetmasterOn(t, st)
	for _, line := range []string{"network create -s 10.1.1.0/24 net", "policy create in", "policy create out", "netprofile create --bandwidth 10mbps other", "group create net web", "group create net db"} {
		if r := netctl(t, url, strings.Fields(line)...); r.code != ExitOK {
			t.Fatalf("%s: %+v", line, r)
		}
	}
	for _, tc := range []struct {
		create, change, replace string
		kept, cleared           []string // in the JSON of the object, and in the note
	}{
		{
			"netprofile create --bandwidth 50mbps --burst 99 --dscp 46 gold", "netprofile create --burst 100 gold", "netprofile create --replace --bandwidth 50mbps gold",
			[]string{`"DSCP": 46`, `"burst": 100`, `"bandwidth": "50mbps"`},
			[]string{"DSCP (46)", "burst (100)"},
		},
		{
			"group create --policy in --policy out --networkprofile other net app", "group create --networkprofile gold net app", "group create --replace --networkprofile gold net app",
			[]string{`"netProfile": "gold"`, `"in"`, `"out"`},
			[]string{"policies ([in, out])"},
		},
		{
			"service create --network net --selector app=web --port 80:8080:TCP --affinity off shop", "service create --port 81:8080:TCP shop", "service create --replace --network net --selector app=web --port 81:8080:TCP shop",
			[]string{`"app=web"`, `"81:8080:TCP"`, `"affinity": "off"`},
			[]string{"affinity (off)"},
		},
		{
			"app-profile create --group web,db all", "app-profile update all", "app-profile create --replace all",
			[]string{`"web"`, `"db"`},
			[]string{"endpointGroups ([web, db])"},
		},
		{
			"app-profile create --group web some", "app-profile create some", "app-profile update --replace some",
			[]string{`"web"`},
			[]string{"endpointGroups ([web])"},
		},
		{
			"bgp create --router-ip 50.1.1.1/24 --as 65002 --neighbors 50.1.1.9@500 --max-prefixes 7 --password hush h1",
			"bgp create --router-ip 50.1.1.1/24 --as 65002 --neighbor 50.1.1.200 --neighbor-as 501 h1",
			"bgp create --replace --router-ip 50.1.1.1/24 --as 65002 --neighbor 50.1.1.200 --neighbor-as 501 h1",
			[]string{`"maxPrefixes": 7`, `"password": "`, `"neighbor": "50.1.1.200"`, `"neighbor-as": "501"`},
			[]string{"maxPrefixes (7)", "password ("},
		},
		{
			"network-policy create --default-in deny --group web closed", "network-policy rule-set closed ssh in_allow_tcp/22", "network-policy create --default-in deny closed",
			nil,
			[]string{"applies (", "rules ("},
		},
	} {
		run := func(line string) result {
			t.Helper()
			words := strings.Fields(line)
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "_", " ")
			}
			r := netctl(t, url, words...)
			if r.code != ExitOK {
				t.Fatalf("%s: %+v", line, r)
			}
			return r
		}
		run(tc.create)
		if r := run(tc.change); strings.Contains(r.errOut, "no longer set") && !strings.HasPrefix(tc.change, "bgp") {
			t.Errorf("%s: %s", tc.change, r.errOut)
		}
		words := strings.Fields(tc.create)
		got := run(words[0] + " inspect " + words[len(words)-1]).out
		for _, part := range tc.kept {
			if !strings.Contains(got, part) {
				t.Errorf("%s, then %s: %q is gone:\n%s", tc.create, tc.change, part, got)
			}
		}
		said := run(tc.replace).errOut
		for _, part := range append(tc.cleared, "note: no longer set, since no flag gives it: ") {
			if !strings.Contains(said, part) {
				t.Errorf("%s: %q, want %q", tc.replace, said, part)
			}
		}
	}
	if r := netctl(t, url, strings.Fields("group create --policy in --networkprofile gold net app")...); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	r := netctl(t, url, strings.Fields("group create -q --networkprofile other --confirm-within 60s net app")...)
	if confirmed := netctl(t, url, "confirm", strings.TrimSpace(r.out)); confirmed.code != ExitOK {
		t.Fatalf("%+v, %+v", r, confirmed)
	}
	if got := netctl(t, url, "group", "inspect", "app").out; !strings.Contains(got, `"netProfile": "other"`) || !strings.Contains(got, `"in"`) {
		t.Errorf("a change that waits for confirmation: %s", got)
	}
}

// TestCreateWarnsOfAudit: a policy that is in force and is created again to be audited is
// enforced no longer, which its answer says; a new one in audit needs no warning.
func TestCreateWarnsOfAudit(t *testing.T) {
	url := startNetmaster(t)
	audit := []string{"network-policy", "create", "--default-in", "deny", "--mode", "audit", "db"}
	check(t, result{ExitOK, "Created network-policy default:db\n", ""}, netctl(t, url, audit...))
	check(t, result{ExitOK, "Updated network-policy default:db\n", ""}, netctl(t, url, "network-policy", "create", "--default-in", "deny", "db"))
	const warns = "warning: the policy was enforced and is only audited now: create it again without --mode audit, and audit changes under another name\n"
	check(t, result{ExitOK, "Updated network-policy default:db\n", warns}, netctl(t, url, audit...))
	check(t, result{ExitOK, "Unchanged: network-policy default:db\n", ""}, netctl(t, url, audit...))
}

// TestNetworkPolicyRuleCommands: one rule of a policy is added, replaced and deleted, and the
// others stay.
func TestNetworkPolicyRuleCommands(t *testing.T) {
	url := startNetmaster(t)
	for _, c := range []struct {
		args []string
		code int
		told string
	}{
		{[]string{"create", "--rule", "in allow tcp/22", "db"}, 0, "Created network-policy default:db"},
		{[]string{"rule-set", "db", "web", "in allow app=web tcp/5432"}, 0, "Created rule default:db:web"},
		{[]string{"rule-add", "db", "web", "in allow app=web tcp/5432"}, 0, "Unchanged: rule default:db:web"},
		{[]string{"rule-set", "db", "web", "out deny 10.0.0.0/8!10.1.0.0/16 priority=7 log"}, 0, "Updated rule default:db:web"},
		{[]string{"rule-set", "db", "web", "in"}, ExitUsage, `TEXT "in": must begin with a direction and an action`},
		{[]string{"rule-set", "db", "web", "in", "allow"}, ExitUsage, `unexpected argument "allow"`},
		{[]string{"rule-set", "db", "web", "in allow group:none"}, ExitNotFound, `group "none"`},
		{[]string{"rule-set", "none", "web", "in allow"}, ExitNotFound, `policy "default:none" does not exist`},
		{[]string{"rule-rm", "db", "1"}, 0, "Deleted rule default:db:1"},
		{[]string{"rule-rm", "db", "1"}, ExitNotFound, `rule "default:db:1" does not exist`},
		{[]string{"rule-rm", "db", "web"}, ExitConflict, "delete the policy instead"},
	} {
		r := netctl(t, url, append([]string{"network-policy"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.out+r.errOut, c.told) {
			t.Errorf("%q: %d %s%s; want %d and %s", c.args, r.code, r.out, r.errOut, c.code, c.told)
		}
	}
	var got api.Inspection[api.NetworkPolicy, api.PolicyOper]
	if err := json.Unmarshal([]byte(netctl(t, url, "network-policy", "inspect", "db").out), &got); err != nil {
		t.Fatal(err)
	}
	want := []api.NetworkPolicyRule{{RuleID: "web", Direction: "out", Action: "deny", Priority: 7, Log: true, Peers: []api.NetworkPolicyPeer{{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}}}}
	if d := cmp.Diff(want, got.Config.Rules); d != "" {
		t.Errorf("stored (-want +got):\n%s", d)
	}
}

// TestExportKeepsSelectors: a selector's field "key" is written, applied and compared,
// though the field of that name in the object itself is the server's.
func TestExportKeepsSelectors(t *testing.T) {
	url := startNetmaster(t)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	run := func(code int, policyKey string, args ...string) string {
		t.Helper()
		text := `{kind: tenant, tenantName: blue}
---
kind: networkPolicy
tenantName: blue
networkPolicyName: p
applies: {matchExpressions: [{key: ` + policyKey + `, operator: NotIn, values: [test]}]}
rules: [{ruleId: r, direction: in, action: deny, peers: [{selector: {matchExpressions: [{key: app, operator: Exists}]}}]}]
`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := netctl(t, url, append(args, "-f", file)...)
		if r.code != code {
			t.Fatalf("%q: %d %s%s", args, r.code, r.out, r.errOut)
		}
		return r.out
	}
	run(0, "zone", "apply")
	for _, format := range [][]string{nil, {"--json"}} {
		exported := netctl(t, url, append([]string{"export", "--tenant", "blue"}, format...)...).out
		if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := netctl(t, url, "diff", "-f", file); r.code != 0 {
			t.Errorf("%q: diff of what was exported: %d %s%s\n%s", format, r.code, r.out, r.errOut, exported)
		}
	}
	if out := run(ExitDiffers, "other", "diff"); !strings.Contains(out, "other") {
		t.Errorf("diff to a selector of another label: %s", out)
	}
}

// A selector by labels that no endpoint has is accepted, and its spelling is questioned.
func TestMisspeltLabelIsQuestioned(t *testing.T) {
	url := startNetmaster(t)
	for _, line := range []string{"tenant create blue", "network create -t blue -s 10.1.1.0/24 backend", "group create -t blue backend web"} {
		if got := netctl(t, url, strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	create := []string{"network-policy", "create", "-t", "blue", "--label", "ap=web", "--rule", "in allow app=web,tier=db tcp/80", "--rule", "in allow app=web tcp/81", "p"}
	says(t, netctl(t, url, create...), ExitOK, "Created network-policy blue:p\n") // there is nothing to compare with
	says(t, netctl(t, url, "apply", "-f", "testdata/endpoint.yaml"), ExitOK, "Created endpoint blue:backend:e1\n")
	says(t, netctl(t, url, "endpoint", "ls", "-q"), ExitOK, "blue:backend:e1\n") // from here on netmaster's copy of the store has it
	says(t, netctl(t, url, append(create, "--order", "7")...), ExitOK, "Updated network-policy blue:p\n",
		"warning: it applies to no endpoint now (tenant blue: ap=web): check the spelling", "warning: rule 1 matches no endpoint now (tenant blue: app=web, tier=db): check the spelling")
	if got := netctl(t, url, append(create, "--order", "8")...); strings.Contains(got.errOut, "rule 2") {
		t.Errorf("a label that an endpoint has: %s", got.errOut)
	}
}

// TestPolicyOfOtherKind: commands of group policies say what a network policy is, and the
// other way round.
func TestPolicyOfOtherKind(t *testing.T) {
	url := startNetmaster(t)
	for _, line := range []string{"network-policy create --default-in deny np", "policy create p"} {
		if got := netctl(t, url, strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	for line, want := range map[string]string{
		"policy rule-ls np":        `policy "default:np" is a network policy: look at it as one ('netctl network-policy inspect')`,
		"policy inspect np":        `policy "default:np" is a network policy: look at it as one ('netctl network-policy inspect')`,
		"get policy np":            `policy "default:np" is a network policy: look at it as one ('netctl network-policy inspect')`,
		"network-policy inspect p": `policy "default:p" is no network policy: look at it as a group policy ('netctl policy inspect')`,
		"policy inspect none":      `policy "default:none" does not exist`,
	} {
		if got := netctl(t, url, strings.Fields(line)...); got.code != ExitNotFound || got.errOut != "netctl: "+want+"\n" {
			t.Errorf("%s: %+v", line, got)
		}
	}
}
