package cli

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/access"
	"github.com/contiv/netplugin/v2/internal/control"
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

// A tenant admin's export, status, hosts and monitor show what its tenant has, and a
// refusal names the command that was typed.
func TestTenantAdminIsShownWhatItsTenantHas(t *testing.T) {
	url := startNetmasterBehind(t, memory.New(), func(next http.Handler) http.Handler {
		scoped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if scope := access.From(r.Context()).Scope(); scope != nil {
				r = r.WithContext(control.ScopeTo(r.Context(), scope))
			}
			next.ServeHTTP(w, r)
		})
		return access.New(access.Config{Next: scoped, Bearers: []access.Bearer{admins{}}, Log: slog.New(slog.DiscardHandler)})
	})
	files := map[string]string{}
	for name, token := range map[string]string{"root": "root-of-this-cluster", "anna": "anna-of-tenant-blue"} {
		files[name] = filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(files[name], []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	as := func(who string, args ...string) result {
		return netctl(t, url, append([]string{"--token-file", files[who]}, args...)...)
	}
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
		"export --tenant blue":    {ExitOK, "networkName: net", ""},
		"service ls --all -q":     {ExitOK, "", ""},
		"get networks -a -o name": {ExitOK, "net\n", ""},
		"status":                  {ExitOK, "endpoints of blue 0", ""},
		"host ls":                 {ExitOK, "Host", ""},
		"monitor --from crypt":    {ExitNotFound, "", `endpoint group "crypt" does not exist in any tenant`},
		"doctor":                  {ExitFailure, "", "'netctl doctor' is refused: anna (token, tenant-admin of blue) has no right to this; it needs the role cluster-admin or viewer"},
		"network ls -t red":       {ExitFailure, "", "'netctl network ls' is refused: anna"},
		"tenant create --help":    {ExitOK, "", ""},
		"tenant create green":     {ExitFailure, "", "'netctl tenant create' is refused: anna (token, tenant-admin of blue) has no right to this; it needs the role cluster-admin"},
		"export --tenant red":     {ExitFailure, "", "'netctl export' is refused"},
		"network inspect -t red":  {ExitUsage, "", ""},
	} {
		got := as("anna", strings.Fields(line)...)
		if got.code != want.code || !strings.Contains(got.out, want.out) || !strings.Contains(got.errOut, want.errOuts) || want.errOuts == "" && got.code == ExitOK && got.errOut != "" {
			t.Errorf("netctl %s: %+v", line, got)
		}
		for _, secret := range []string{"vault", "10.2.1", "/api/v1"} {
			if strings.Contains(got.out+got.errOut, secret) {
				t.Errorf("netctl %s shows %q: %+v", line, secret, got)
			}
		}
	}
}
