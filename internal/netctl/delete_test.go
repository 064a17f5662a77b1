package netctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
)

// stack is a tenant with a network, a policy and a group, in an order in which nothing
// could be deleted.
const stack = `{kind: tenant, tenantName: blue}
---
{kind: network, tenantName: blue, networkName: n, encap: vxlan, subnet: 10.1.1.0/24}
---
{kind: policy, tenantName: blue, policyName: p}
---
{kind: rule, tenantName: blue, policyName: p, ruleId: "1", direction: in, protocol: tcp, port: 80, action: allow}
---
{kind: endpointGroup, tenantName: blue, groupName: g, networkName: n, policies: [p]}
`

// documentsOf writes a file with those documents of a text that have none of some words.
func documentsOf(t *testing.T, text string, without ...string) string {
	t.Helper()
	var kept []string
	for d := range strings.SplitSeq(text, "---\n") {
		has := false
		for _, w := range without {
			has = has || strings.Contains(d, "kind: "+w+",")
		}
		if !has {
			kept = append(kept, d)
		}
	}
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(kept, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func says(t *testing.T, got result, code int, out string, errs ...string) {
	t.Helper()
	if diff := cmp.Diff(out, got.out); diff != "" || got.code != code {
		t.Errorf("exit code %d, want %d (-want +got):\n%s\n%s", got.code, code, diff, got.errOut)
	}
	for _, e := range errs {
		if !strings.Contains(got.errOut, e) {
			t.Errorf("it says %q, want %q", got.errOut, e)
		}
	}
	if len(errs) == 0 && got.errOut != "" {
		t.Errorf("it says %q", got.errOut)
	}
}

// What a set created and its files do not have any more is deleted, those first that
// refer to others; what somebody else made is not, whatever the files said.
func TestPruneDeletesWhatTheSetCreated(t *testing.T) {
	url := startNetmaster(t)
	apply := func(file string, flags ...string) result {
		t.Helper()
		return netctl(t, url, append([]string{"apply", "-f", file}, flags...)...)
	}
	web := []string{"--prune", "--set", "web"}
	all := documentsOf(t, stack)
	says(t, netctl(t, url, "tenant", "create", "blue"), ExitOK, "Created tenant blue\n")
	says(t, apply(all, web...), ExitOK, "Unchanged: tenant blue\nCreated network blue:n\nCreated policy blue:p\nCreated rule blue:p:1\nCreated endpointGroup blue:g\n",
		`note: tenant blue: not created by the set "web", so --prune will not delete it`)
	says(t, netctl(t, url, "policy", "create", "-t", "blue", "mine"), ExitOK, "Created policy blue:mine\n")

	less := documentsOf(t, strings.ReplaceAll(stack, "policies: [p]", "policies: []"), "policy", "rule", "tenant")
	says(t, apply(less, append(web, "--dry-run")...), ExitOK, "Unchanged: network blue:n\nWould update endpointGroup blue:g\nWould delete policy blue:p\nWould delete rule blue:p:1\n")
	says(t, apply(less), ExitOK, "Unchanged: network blue:n\nUpdated endpointGroup blue:g\n")
	says(t, apply(less, "--prune", "--set", "other"), ExitOK, "Unchanged: network blue:n\nUnchanged: endpointGroup blue:g\n",
		`note: network blue:n and 1 more: not created by the set "other"`)
	says(t, apply(less, web...), ExitOK, "Unchanged: network blue:n\nUnchanged: endpointGroup blue:g\nDeleted policy blue:p\nDeleted rule blue:p:1\n")

	says(t, netctl(t, url, "policy", "create", "-t", "blue", "p"), ExitOK, "Created policy blue:p\n") // another one
	says(t, netctl(t, url, "group", "create", "-t", "blue", "n", "other"), ExitOK, "Created group blue:other\n")
	least := documentsOf(t, "{kind: netprofile, tenantName: blue, profileName: v}\n")
	says(t, apply(least, web...), ExitConflict, "Created netprofile blue:v\nDeleted endpointGroup blue:g\n", `network blue:n: delete network "blue:n": it is used by endpoint groups, for one "blue:other"`)
	says(t, netctl(t, url, "group", "rm", "-t", "blue", "other"), ExitOK, "Deleted group blue:other\n")
	says(t, apply(least, web...), ExitOK, "Unchanged: netprofile blue:v\nDeleted network blue:n\n") // what was refused is tried again
	says(t, netctl(t, url, "policy", "ls", "-t", "blue", "-q"), ExitOK, "mine\np\n")

	for flags, want := range map[string]string{
		"--prune": "flag --prune needs --set NAME", "--set web": "flag --set needs --prune", "--prune --set web --confirm-within 1m": "cannot go with --prune",
		"--prune --set a/b": `set "a/b"`,
	} {
		if got := apply(least, strings.Fields(flags)...); got.code == ExitOK || got.out != "" || !strings.Contains(got.errOut, want) {
			t.Errorf("apply %s: %+v", flags, got)
		}
	}
}

// What files name is deleted, those first that refer to others. What is not there is no
// error, and what something else uses stays, with the reason.
func TestDeleteFileDeletesWhatItNames(t *testing.T) {
	url := startNetmaster(t)
	file := documentsOf(t, "{kind: global, name: global}\n---\n"+stack)
	says(t, netctl(t, url, "apply", "-f", file, "-q"), ExitOK, "global\nblue\nblue:n\nblue:p\nblue:p:1\nblue:g\n")
	says(t, netctl(t, url, "policy", "rule-rm", "-t", "blue", "p", "1"), ExitOK, "Deleted rule blue:p:1\n")
	kept := "Kept, as it always exists: global global\n"
	says(t, netctl(t, url, "delete", "-f", file, "--dry-run"), ExitOK,
		"Would delete endpointGroup blue:g\nWould delete policy blue:p\nNot there: rule blue:p:1\nWould delete network blue:n\nWould delete tenant blue\n"+kept)
	says(t, netctl(t, url, "group", "create", "-t", "blue", "n", "other"), ExitOK, "Created group blue:other\n")
	says(t, netctl(t, url, "delete", "-f", file), ExitConflict, "Deleted endpointGroup blue:g\nDeleted policy blue:p\nNot there: rule blue:p:1\n"+kept,
		`network blue:n: delete network "blue:n": it is used by endpoint groups, for one "blue:other"`, `tenant blue: delete tenant "blue": it has`)
	says(t, netctl(t, url, "group", "rm", "-t", "blue", "other"), ExitOK, "Deleted group blue:other\n")
	says(t, netctl(t, url, "delete", "-f", file, "-q"), ExitOK, "blue:g\nblue:p\nblue:p:1\nblue:n\nblue\nglobal\n")
	says(t, netctl(t, url, "tenant", "ls", "-q"), ExitOK, "default\n")
	unnamed := documentsOf(t, "{kind: network, tenantName: blue}\n")
	says(t, netctl(t, url, "delete", "-f", unnamed), ExitFailure, "", "document 1: the fields that name the network are missing or empty: tenantName, networkName")
	says(t, netctl(t, url, "delete"), ExitUsage, "", "--file is missing")
}

// A manifest of Kubernetes is called so, whether or not its kind has the name of one of ours.
func TestManifestOfKubernetesIsCalledSo(t *testing.T) {
	for _, kind := range []string{"NetworkPolicy", "Pod"} {
		file := documentsOf(t, "kind: "+kind+"\napiVersion: networking.k8s.io/v1\nmetadata: {name: x}\n")
		for _, command := range []string{"apply", "diff", "delete"} {
			says(t, netctl(t, "http://127.0.0.1:1", command, "-f", file), ExitFailure, "", "document 1: is a manifest of Kubernetes (apiVersion networking.k8s.io/v1): give it to 'kubectl apply -f'")
		}
	}
}

// attached creates an endpoint of group g as a host does for a container.
func attached(t *testing.T, url, host string) {
	t.Helper()
	c, err := api.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateEndpoint(t.Context(), api.CreateEndpointRequest{TenantName: "blue", NetworkName: "n", EndpointID: "e1", ServiceName: "g", ConfigEP: api.ConfigEP{Host: host}}); err != nil {
		t.Fatal(err)
	}
}

const denied = stack + `---
{kind: networkPolicy, tenantName: blue, networkPolicyName: np, applies: {group: g}, defaultIn: deny}
---
{kind: rule, tenantName: blue, policyName: p, ruleId: self, direction: in, fromEndpointGroup: g, action: deny}
`

// While containers are attached, what protects them stays whole: rules stay with their
// policies, and a dry run says so.
func TestDeletionKeepsWhatProtectsAttachedContainers(t *testing.T) {
	url := startNetmaster(t)
	file := documentsOf(t, denied)
	set := []string{"--prune", "--set", "web"}
	if got := netctl(t, url, append([]string{"apply", "-f", file, "-q"}, set...)...); got.code != ExitOK {
		t.Fatal(got)
	}
	attached(t, url, "host1")
	none := documentsOf(t, "{kind: tenant, tenantName: blue}\n")
	why := []string{"endpointGroup blue:g: ", "policy blue:p: ", "rule blue:p:1: stays: ", "rule blue:p:self: stays: ", "networkPolicy blue:np: stays: ", "network blue:n: "}
	says(t, netctl(t, url, append([]string{"apply", "-f", none, "--dry-run"}, set...)...), ExitConflict, "Unchanged: tenant blue\n", why...)
	says(t, netctl(t, url, append([]string{"apply", "-f", none}, set...)...), ExitConflict, "Unchanged: tenant blue\n", why...)
	says(t, netctl(t, url, "delete", "-f", file, "--dry-run"), ExitConflict, "", why...)
	says(t, netctl(t, url, "delete", "-f", file), ExitConflict, "", why...)
	rules := documentsOf(t, denied, "policy", "network", "tenant", "networkPolicy") // of a policy that is not named
	says(t, netctl(t, url, "delete", "-f", rules), ExitConflict, "", "rule blue:p:1: stays: endpointGroup blue:g stays")
	says(t, netctl(t, url, "policy", "rule-ls", "-t", "blue", "p", "-q"), ExitOK, "self\n1\n")

	says(t, netctl(t, url, "export", "--in-use", "-q"), ExitOK, "global global\ntenant blue\ntenant default\nnetwork blue:n\npolicy blue:p\nrule blue:p:1\nrule blue:p:self\nendpointGroup blue:g\nnetworkPolicy blue:np\nendpoint blue:n:e1\n")
	endpoint := documentsOf(t, "{kind: endpoint, TenantName: blue, NetworkName: n, EndpointID: e1}\n---\n"+denied)
	for _, flags := range [][]string{{"--dry-run"}, nil} {
		says(t, netctl(t, url, append([]string{"delete", "-f", endpoint}, flags...)...), ExitConflict, "", append(why, "endpoint blue:n:e1: stays: it is a container's")...)
	}

	c, err := api.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteEndpoint(t.Context(), api.DeleteEndpointRequest{TenantName: "blue", NetworkName: "n", EndpointID: "e1"}); err != nil {
		t.Fatal(err)
	}
	attached(t, url, "") // as a document makes it: no container's
	all := "Deleted endpoint blue:n:e1\nDeleted networkPolicy blue:np\nDeleted rule blue:p:self\nDeleted endpointGroup blue:g\nDeleted policy blue:p\nDeleted rule blue:p:1\nDeleted network blue:n\nDeleted tenant blue\n"
	says(t, netctl(t, url, "delete", "-f", endpoint), ExitOK, all)
}
