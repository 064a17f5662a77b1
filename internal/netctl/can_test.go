package netctl

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// canCluster has endpoints web1, db1 and db2, of groups of their names, and a policy that lets
// only db in to web, by tcp/80.
func canCluster(t *testing.T) (url string) {
	t.Helper()
	url = startNetmasterOn(t, memory.New())
	for _, line := range []string{
		"tenant create blue",
		"network create --tenant blue --subnet 10.1.1.0/24 n",
		"policy create --tenant blue p",
		"group create --tenant blue --policy p n web",
		"group create --tenant blue n db",
		"policy rule-add --tenant blue --direction in --from-group db --protocol tcp --port 80 --action allow --priority 2 p 1",
		"policy rule-add --tenant blue --direction in --action deny --priority 1 p rest",
	} {
		if r := netctl(t, url, strings.Fields(line)...); r.code != 0 {
			t.Fatalf("netctl %s: %+v", line, r)
		}
	}
	c, err := api.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for id, group := range map[string]string{"web1": "web", "db1": "db", "db2": "db"} {
		if _, err := c.CreateEndpoint(t.Context(), api.CreateEndpointRequest{
			TenantName: "blue", NetworkName: "n", EndpointID: id, ServiceName: group, ConfigEP: api.ConfigEP{Host: "host1", Labels: map[string]string{"app": group}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	return url
}

// An endpoint at the first address of a range does not answer for the rest of it.
func TestCanAnswersForARangeThatBeginsWithAnEndpoint(t *testing.T) {
	url := startNetmaster(t)
	c, err := api.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r := netctl(t, url, strings.Fields("network create --encap vlan --pkt-tag 10 --subnet 10.3.0.0/24 lan")...); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, id := range []string{"e1", "e2", "e3", "e4"} {
		if _, err := c.CreateEndpoint(t.Context(), api.CreateEndpointRequest{TenantName: "default", NetworkName: "lan", EndpointID: id, ConfigEP: api.ConfigEP{Host: "host1"}}); err != nil {
			t.Fatal(err)
		}
	}
	r := netctl(t, url, "can", "e1", "10.3.0.4/30", "tcp/443")
	if r.code != ExitOK || !strings.Contains(r.out, "physical-network") {
		t.Errorf("%+v", r)
	}
}

func TestCanAnswersWithTheRulesThatDecide(t *testing.T) {
	url := canCluster(t)
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"can db1 web1 tcp/80", ExitOK, `yes: db1 to web1 by tcp/80

From        To           Allowed  Ports   Route         Decided by
----        --           -------  -----   -----         ----------
blue:n:db1  blue:n:web1  yes      tcp/80  network IPv4  out: no rule matches; in: rule 1 of policy blue:p
`},
		{"can db1 web1 tcp/79-80", ExitDenied, `partly: db1 to web1 by tcp/79-80

From        To           Allowed  Ports   Route         Decided by
----        --           -------  -----   -----         ----------
blue:n:db1  blue:n:web1  no       tcp/79  network IPv4  out: no rule matches; in: rule rest of policy blue:p
blue:n:db1  blue:n:web1  yes      tcp/80  network IPv4  out: no rule matches; in: rule 1 of policy blue:p
`},
		{"can --to web1 --port tcp", ExitOK, `From                   To           Allowed  Ports   Route         Decided by
----                   --           -------  -----   -----         ----------
blue:n:db1 blue:n:db2  blue:n:web1  yes      tcp/80  network IPv4  out: no rule matches; in: rule 1 of policy blue:p
`},
		{"can --from app=web --tenant blue --port udp/53", ExitOK, `From         To                     Allowed  Ports   Route         Decided by
----         --                     -------  -----   -----         ----------
blue:n:web1  blue:n:db1 blue:n:db2  yes      udp/53  network IPv4  out: no rule matches; in: no rule matches
blue:n:web1  0.0.0.0/0              yes      udp/53  host IPv4     out: no rule matches
`},
		{"can --to web1 --port udp", ExitOK, "No connection is allowed.\n"},
		{"can db1 web1 22", ExitDenied, "no: db1 to web1 by IP protocol 22 (not port 22: write tcp/22)\n"},
		{"can --quiet web1 db1", ExitOK, ""},
		{"can -q db1 web1", ExitDenied, ""},
	} {
		r := netctl(t, url, strings.Fields(c.line)...)
		if r.code != c.code || !strings.HasPrefix(r.out, c.want) {
			t.Errorf("netctl %s: exit code %d\n%s%s\nwant %d\n%s", c.line, r.code, r.out, r.errOut, c.code, c.want)
		}
	}
	r := netctl(t, url, "can", "--json", "db1", "web1", "tcp/80")
	var got api.Reachability
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.Verdict != api.ReachYes || len(got.Connections) != 1 {
		t.Errorf("as JSON: %s, %v", r.out, err)
	}
}

func TestCanRefusesQuestionsWithoutTwoSides(t *testing.T) {
	for _, line := range []string{"can", "can web1", "can web1 db1 tcp/80 more", "can web1 db1 --to db1", "can --to db1 --from web1", "can web1 db1 tcp/80 --port tcp/80"} {
		if r := netctl(t, "http://127.0.0.1:1", strings.Fields(line)...); r.code != ExitUsage {
			t.Errorf("netctl %s: %+v", line, r)
		}
	}
}

func TestExplainShowsPoliciesInOrder(t *testing.T) {
	url := canCluster(t)
	if r := netctl(t, url, strings.Fields("network-policy create --tenant blue --group web --default-out deny --mode audit later")...); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := netctl(t, url, "explain", "web1")
	if r.code != ExitOK || !strings.Contains(r.out, `Group      blue:web
Labels     app=web

Connections to it:
  1. tier contiv: 2 rules of blue:p; the next tier decides about the rest
  2. everything else passes

Connections of it:
  all pass: no policy applies

Under audit, without effect: blue:later
`) {
		t.Errorf("%+v", r)
	}
	if r := netctl(t, url, "explain", "db1"); !strings.Contains(r.out, "Connections to it:\n  all pass: no policy applies\n") {
		t.Errorf("%+v", r)
	}
	if r := netctl(t, url, "explain", "none"); r.code != ExitNotFound {
		t.Errorf("%+v", r)
	}
}

func TestAnswerWithoutRowsBeginsWithTheVerdict(t *testing.T) {
	var out, notes strings.Builder
	o := &canOptions{common: common{session: &session{}}}
	o.out, o.stderr = &out, &notes
	if err := o.show(api.Reachability{From: "a", To: "service:b", Port: "tcp/80", Verdict: api.ReachNo, Unconfirmed: []string{"x1"}}, false); err != nil || out.String() != "no: a to service:b by tcp/80\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if !strings.Contains(notes.String(), "unconfirmed changes") || !strings.Contains(notes.String(), "x1") {
		t.Errorf("the note is %q", notes.String())
	}
}

func TestExplanationSaysWhatPassesBetweenTenants(t *testing.T) {
	got := explanation(api.Explanation{In: []api.ExplainedTier{{Tier: "tenants", Rules: 4, Default: "deny"}}})
	if !strings.Contains(got, "  2. everything that tier tenants leaves to the next one passes\n") || strings.Contains(got, "the rest is denied") {
		t.Errorf("got %s", got)
	}
}
