package netctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// completed has objects that netmaster completes with tags, addresses or defaults. It names
// none of these.
const completed = `
{kind: tenant, tenantName: blue, defaultNetwork: both}
---
{kind: network, tenantName: blue, networkName: both, encap: vxlan, subnet: 10.1.0.0/16, gateway: 10.1.255.254, ipv6Subnet: "fd01::/64"}
---
{kind: network, tenantName: blue, networkName: vl, encap: vlan, subnet: 10.2.0.0/16}
---
{kind: netprofile, tenantName: blue, profileName: slow, bandwidth: 10 mbps}
---
{kind: policy, tenantName: blue, policyName: p}
---
{kind: rule, tenantName: blue, policyName: p, ruleId: r, direction: in, action: deny}
---
{kind: endpointGroup, tenantName: blue, groupName: g, networkName: both, policies: [p], netProfile: slow}
---
{kind: endpointGroup, tenantName: blue, groupName: pool, networkName: vl, ipPool: 10.2.1.1-10.2.1.9}
---
{kind: networkPolicy, tenantName: blue, networkPolicyName: np, rules: [{ruleId: a, direction: in, action: allow}]}
---
{kind: serviceLB, tenantName: blue, serviceName: shop, networkName: both, selectors: [app=web], ports: ["80:8080:TCP"]}
---
{kind: appProfile, tenantName: blue, appProfileName: app, endpointGroups: [g]}
---
{kind: endpoint, TenantName: blue, NetworkName: both, EndpointID: e1, ServiceName: g, ConfigEP: {Host: h1}}
`

// TestExportedDocumentsChangeNothingAfterRestore: documents that leave the choice to netmaster change nothing in a
// cluster that was restored from export --in-use, and so do their plain exports.
func TestExportedDocumentsChangeNothingAfterRestore(t *testing.T) {
	from, to := startNetmaster(t), startNetmaster(t)
	if got := netctlIn(t, completed, from, "apply", "-f", "-"); got.code != ExitOK {
		t.Fatalf("%+v", got)
	}
	plain := netctl(t, from, "export").out
	if got := netctlIn(t, netctl(t, from, "export", "--in-use").out, to, "apply", "-f", "-"); got.code != ExitOK {
		t.Fatalf("%+v", got)
	}
	for what, documents := range map[string]string{"documents": completed, "export": plain} {
		got := netctlIn(t, documents, to, "apply", "-f", "-")
		if got.code != ExitOK || strings.Count(got.out, "\n") != strings.Count(got.out, "Unchanged: ") {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestFaultsOfAllDocuments: what netctl finds wrong with one document hides no fault of
// another, nor of another file.
func TestFaultsOfAllDocuments(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "kind: netwrk\n---\nkind: tenant\ntenantName: a\n---\nkind: rule\nport: 0443\n---\n[1, {kind: tenants}]\n---\n}\n",
		"b.yaml": "tenantName: b\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := netctl(t, "", "apply", "-f", dir)
	var lines []string
	for line := range strings.Lines(got.errOut) {
		lines = append(lines, line)
	}
	want := []string{`document 1: line 1: unknown kind "netwrk"`, `document 3: line 7: number "0443"`, "document 4: line 9: must be an object", "document 5: ", `b.yaml: document 1: line 1: field "kind"`}
	if got.code != ExitFailure || len(lines) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, part := range want {
		if !strings.Contains(lines[i], part) {
			t.Errorf("line %d is %q, want %q", i, lines[i], part)
		}
	}
	many := strings.Repeat("---\nkind: netwrk\n", maxFaults+1)
	if got := netctlIn(t, many, "", "apply", "-f", "-"); strings.Count(got.errOut, "netwrk") != maxFaults {
		t.Errorf("%d of many faults are reported", strings.Count(got.errOut, "netwrk"))
	}
}
