package netctl

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

func TestOverrideIsInTheRequest(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get(api.OverrideHeader))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer s.Close()
	for _, line := range []string{"policy create p", "policy rule-add -d in p 1", "policy rm p", "confirm x", "delete -f testdata/endpoint.yaml", "apply -f testdata/endpoint.yaml", "global set --fwd-mode routing"} {
		asked = nil
		netctl(t, s.URL, append(strings.Fields(line), "--override", "incident 7")...)
		if len(asked) == 0 || asked[len(asked)-1] != "incident 7" {
			t.Errorf("netctl %s: the header is %q", line, asked)
		}
	}
}

func TestAssertionNeedsAVerdict(t *testing.T) {
	for _, line := range []string{"assertion create --from any --to group:db x", "assertion create --never --always --from any --to group:db x"} {
		if r := netctl(t, "http://127.0.0.1:1", strings.Fields(line)...); r.code != ExitUsage || !strings.Contains(r.errOut, "give either --never or --always") {
			t.Errorf("%s: got %+v", line, r)
		}
	}
}

const assertedFiles = `
{kind: global, name: global, fwdMode: routing}
---
{kind: tenant, tenantName: blue}
---
{kind: network, tenantName: blue, networkName: n, encap: vxlan, subnet: 10.1.1.0/24}
---
{kind: policy, tenantName: blue, policyName: p}
---
{kind: rule, tenantName: blue, policyName: p, ruleId: rest, direction: in, action: deny, priority: 1}
---
{kind: rule, tenantName: blue, policyName: p, ruleId: web, direction: in, action: allow, priority: 2, fromEndpointGroup: web, protocol: tcp, port: 5432}
---
{kind: endpointGroup, tenantName: blue, networkName: n, groupName: web}
---
{kind: endpointGroup, tenantName: blue, networkName: n, groupName: db, policies: [p]}
---
{kind: endpoint, TenantName: blue, NetworkName: n, ServiceName: db, EndpointID: d1, ConfigEP: {Host: h1, IPAddress: 10.1.1.9}}
---
{kind: assertion, tenantName: blue, assertionName: database, verdict: always, from: "group:web", to: d1, ports: [tcp/5432]}
---
{kind: assertion, tenantName: blue, assertionName: ssh, verdict: never, from: any, to: "group:db", ports: [tcp/22]}
---
{kind: assertion, tenantName: blue, assertionName: labels, verdict: never, from: app=test, to: "group:db"}
---
{kind: assertion, tenantName: blue, assertionName: pods, verdict: never, from: "pod:shop/web", to: "group:db"}
`

func TestFilesAreTestedWithoutACluster(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "netmaster"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", dir)
	test := func(text string, more ...string) result {
		file := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return netctl(t, "http://127.0.0.1:1", append([]string{"assert", "test", "-f", file}, more...)...)
	}
	if r := test(assertedFiles); r.code != ExitOK || strings.Count(r.out, " holds ") != 4 || !strings.Contains(r.out, "from pod:shop/web selects no endpoint") || strings.Contains(r.out, "app=test selects no") {
		t.Errorf("got %+v", r)
	}
	opened := strings.Replace(assertedFiles, "protocol: tcp, port: 5432", "protocol: tcp", 1)
	if r := test(opened); r.code != ExitDenied || strings.Count(r.out, " broken ") != 1 || !strings.Contains(r.out, "tcp/22 (IPv4) is allowed") || !strings.Contains(r.out, "by rule blue:p:web") {
		t.Errorf("got %+v", r)
	}
	var all []api.AssertionVerdict
	if r := test(opened, "-j"); r.code != ExitDenied || json.Unmarshal([]byte(r.out), &all) != nil || len(all) != 4 || all[3].State != api.AssertionBroken {
		t.Errorf("got %+v", r)
	}
	if r := test(strings.Replace(assertedFiles, "verdict: never, from: any, to: \"group:db\"", "verdict: always, from: app=test, to: \"group:db\"", 1)); r.code != ExitConflict || !strings.Contains(r.errOut, "contradicts") {
		t.Errorf("got %+v", r)
	}
	if r := test(strings.Replace(assertedFiles, "tcp/22", "icmp/22", 1)); r.code != ExitFailure || !strings.Contains(r.errOut, "of tcp, udp and sctp with ports") {
		t.Errorf("got %+v", r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Setenv("PATH", t.TempDir())
	if r := test(assertedFiles); r.code != ExitFailure || !strings.Contains(r.errOut, "by the program netmaster") {
		t.Errorf("got %+v", r)
	}
}
