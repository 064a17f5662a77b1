package netctl

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// admins are tokens by name: root may do all, others what their tenant's admin may.
type admins struct{}

func (admins) Takes(string) bool { return true }

func (admins) Identify(_ context.Context, token string) (access.Identity, error) {
	grant := access.Grant{Role: access.ClusterAdmin}
	if token != "root-of-this-cluster" {
		grant = access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue"}}
	}
	return access.Identity{Name: "anna", How: access.ByToken, Grants: []access.Grant{grant}}, nil
}

// startScoped starts a netmaster that asks who its clients are, and returns netctl as root
// or as anna, who is admin of blue.
func startScoped(t *testing.T) (as func(who string, args ...string) result) {
	t.Helper()
	url := startNetmasterBehind(t, memory.New(), admins{})
	files := map[string]string{}
	for name, token := range map[string]string{"root": "root-of-this-cluster", "anna": "anna-of-tenant-blue"} {
		files[name] = filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(files[name], []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(who string, args ...string) result {
		t.Helper()
		return netctlEnv(t, map[string]string{"NETMASTER": url, "NETMASTER_TOKEN_FILE": files[who]}, args...)
	}
}

// A tenant admin's export, status, hosts and monitor show what its tenant has, and a
// refusal names the command that was typed.
func TestTenantAdminIsShownWhatItsTenantHas(t *testing.T) {
	as := startScoped(t)
	for _, line := range []string{"tenant create blue", "tenant create red", "network create -t blue -s 10.1.1.0/24 net", "network create -t red -s 10.2.1.0/24 vault", "group create -t red vault crypt"} {
		if got := as("root", strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	for line, want := range map[string]struct {
		code    int
		out     string
		errOuts string
	}{
		"export":                  {ExitOK, "tenantName: blue", "left out the kind global: anna (token, tenant-admin of blue) has no right to this; it needs the role cluster-admin or viewer"},
		"export --tenant blue":    {ExitOK, "networkName: net", "left out the kinds tenant and endpoint: only a cluster-admin writes them"},
		"service ls --all -q":     {ExitOK, "", ""},
		"get networks -a -o name": {ExitOK, "blue:net\n", ""},
		"get endpoints -t blue":   {ExitOK, "", ""},
		"endpoint ls -t blue":     {ExitOK, "Tenant", ""},
		"endpoint ls -t red":      {ExitFailure, "", "'netctl endpoint ls' is refused: not found in tenant blue: anna (token, tenant-admin of blue) has no right to what others have"},
		"endpoint ls":             {ExitOK, "Tenant", ""}, // of its tenants
		"endpoint ls --network n": {ExitNotFound, "", `network "n" does not exist`},
		"status":                  {ExitOK, "endpoints of blue 0", ""},
		"host ls":                 {ExitOK, "Host", ""},
		"monitor --from crypt":    {ExitNotFound, "", `endpoint group "crypt" does not exist in any tenant`},
		"verify":                  {ExitFailure, "", "'netctl verify' is refused: anna (token, tenant-admin of blue) has no right to this; it needs the role cluster-admin or viewer"},
		"doctor":                  {ExitFailure, "", "'netctl doctor' is refused: anna (token, tenant-admin of blue) has no right to this; it needs the role cluster-admin or viewer"},
		"network ls -t red":       {ExitFailure, "", "'netctl network ls' is refused: not found in tenant blue: anna"},
		"tenant create --help":    {ExitOK, "", ""},
		"tenant create green":     {ExitFailure, "", "'netctl tenant create' is refused: anna (token, tenant-admin of blue) has no right to this; it needs the role cluster-admin"},
		"export --tenant red":     {ExitFailure, "", "'netctl export' is refused"},
		"network inspect -t red":  {ExitUsage, "", ""},
	} {
		got := as("anna", strings.Fields(line)...)
		if got.code != want.code || !strings.Contains(got.out, want.out) || !strings.Contains(got.errOut, want.errOuts) || want.errOuts == "" && got.code == ExitOK && got.errOut != "" {
			t.Errorf("netctl %s: %+v", line, got)
		}
		for _, secret := range []string{"vault", "10.2.1", "/api/v1", "?tenant"} {
			if strings.Contains(got.out+got.errOut, secret) {
				t.Errorf("netctl %s shows %q: %+v", line, secret, got)
			}
		}
	}
}

// What a tenant admin exports it can compare and apply again.
func TestTenantAdminAppliesItsExport(t *testing.T) {
	as := startScoped(t)
	for _, line := range []string{
		"tenant create blue", "network create -t blue -s 10.1.1.0/24 net", "network create -t blue -s 10.3.1.0/24 --nw-type infra storage", "policy create -t blue in", "group create -t blue -p in net web",
		"service create -t blue --network net --selector app=web --port 80:8080:TCP shop", "network-policy create -t blue --tier admin --default-in deny adm",
	} {
		if got := as("root", strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	endpoint := filepath.Join(t.TempDir(), "endpoint.yaml")
	if err := os.WriteFile(endpoint, []byte("kind: endpoint\nTenantName: blue\nNetworkName: net\nEndpointID: e1\nConfigEP: {Host: h1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := as("root", "apply", "-f", endpoint); got.code != ExitOK {
		t.Fatalf("%+v", got)
	}
	for _, how := range []string{"export", "export --in-use", "export --tenant blue", "export -t blue --in-use --json"} {
		got := as("anna", strings.Fields(how)...)
		if got.code != ExitOK || !strings.Contains(got.out, "web") {
			t.Fatalf("%s: %+v", how, got)
		}
		file := filepath.Join(t.TempDir(), "blue.yaml")
		if err := os.WriteFile(file, []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"diff -f " + file, "apply -f " + file} {
			got := as("anna", strings.Fields(line)...)
			if got.code != ExitOK && (got.code != ExitDiffers || !strings.Contains(how, "--in-use")) { // it pins what netmaster chose
				t.Errorf("%s, then %s: %+v", how, line, got)
			}
		}
	}
	if got := as("root", "export", "--in-use"); !strings.Contains(got.out, "kind: tenant") || !strings.Contains(got.out, "kind: endpoint") || got.errOut != "" {
		t.Errorf("root's export: %+v", got)
	}
}

// A list of which a tenant admin may not delete all is refused before any of it is deleted.
func TestTenantAdminDeletesAllOfAListOrNothing(t *testing.T) {
	as := startScoped(t)
	both := documentsOf(t, "{kind: policy, tenantName: blue, policyName: p}\n---\n{kind: policy, tenantName: red, policyName: p}\n")
	for _, line := range []string{"tenant create blue", "tenant create red", "apply -f " + both} {
		if got := as("root", strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	for _, flags := range [][]string{nil, {"--dry-run"}} {
		says(t, as("anna", append([]string{"delete", "-f", both}, flags...)...), ExitFailure, "", "nothing is deleted: ", "anna (token, tenant-admin of blue) has no right to what others have")
	}
	says(t, as("root", "policy", "ls", "--all", "-q"), ExitOK, "blue:p\nred:p\n")
	own := documentsOf(t, "{kind: tenant, tenantName: default}\n---\n{kind: policy, tenantName: blue, policyName: p}\n")
	says(t, as("anna", "delete", "-f", own), ExitOK, "Deleted policy blue:p\nKept, as it always exists: tenant default\n")
}

// A set is of who applies it: a tenant admin's is not the cluster's of the same name.
func TestSetsBelongToWhoAppliesThem(t *testing.T) {
	as := startScoped(t)
	for _, line := range []string{"tenant create blue", "tenant create red"} {
		says(t, as("root", strings.Fields(line)...), ExitOK, "Created tenant "+strings.Fields(line)[2]+"\n")
	}
	apply := func(who, text string) result {
		return as(who, "apply", "-f", documentsOf(t, text), "--prune", "--set", "shared")
	}
	says(t, apply("anna", "{kind: policy, tenantName: blue, policyName: annas}\n"), ExitOK, "Created policy blue:annas\n")
	says(t, apply("root", "{kind: policy, tenantName: blue, policyName: roots}\n"), ExitOK, "Created policy blue:roots\n")
	says(t, apply("anna", "{kind: policy, tenantName: blue, policyName: other}\n"), ExitOK, "Created policy blue:other\nDeleted policy blue:annas\n")
	says(t, apply("root", "{kind: policy, tenantName: red, policyName: p}\n"), ExitOK, "Created policy red:p\nDeleted policy blue:roots\n")
	says(t, as("root", "policy", "ls", "--all", "-q"), ExitOK, "blue:other\nred:p\n")
}

// A tenant admin's shell completes the endpoints of its tenants, and no others.
func TestCompletionOfATenantAdminsEndpoints(t *testing.T) {
	as := startScoped(t)
	for _, line := range []string{
		"tenant create blue", "tenant create red", "network create -t blue -s 10.1.1.0/24 backend", "network create -t red -s 10.2.1.0/24 backend", "group create -t blue backend web",
		"apply -f testdata/endpoint.yaml", "apply -f " + documentsOf(t, "{kind: endpoint, TenantName: red, NetworkName: backend, EndpointID: r1, ConfigEP: {Host: h}}\n"),
	} {
		if got := as("root", strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	for _, line := range [][]string{{"endpoint", "inspect", ""}, {"get", "endpoint", "-t", "blue", ""}} {
		for who, want := range map[string]string{"anna": "e1\n", "root": "e1\nr1\n"} {
			if line[0] == "get" {
				want = "e1\n"
			}
			got := as(who, append([]string{completeCommand}, line...)...)
			if got.out != want {
				t.Errorf("%s completes %q: %+v, want %q", who, line, got, want)
			}
		}
	}
}
