package netctl

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// noTokens accepts none.
type noTokens struct{}

func (noTokens) Takes(string) bool { return true }

func (noTokens) Identify(context.Context, string) (access.Identity, error) {
	return access.Identity{}, httpguard.Unauthorized("the token T1 is not accepted: it was revoked")
}

// A token that no netmaster accepts is what every command says, with one netmaster and with
// several of which one is away.
func TestRefusedTokenIsSaidByEveryCommand(t *testing.T) {
	url := startNetmasterBehind(t, memory.New(), noTokens{})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("revoked-token-of-nobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"monitor", "status", "status --quiet", "doctor", "bugtool " + filepath.Join(t.TempDir(), "b.tar.gz"), "export", "get networks --watch", "endpoint ls", "host ls",
		"backup " + filepath.Join(t.TempDir(), "backup"), "store info", "pending", "token ls", "apply -f testdata/endpoint.yaml", "delete -f testdata/endpoint.yaml",
	} {
		for _, netmasters := range []string{url, "http://127.0.0.1:1," + url, url + ",http://127.0.0.1:1"} {
			got := netctl(t, netmasters, append([]string{"--token-file", token}, strings.Fields(line)...)...)
			if got.code != ExitFailure || !strings.Contains(got.errOut, "the token T1 is not accepted") || strings.Contains(got.errOut, "no netmaster answers") {
				t.Errorf("netctl %s at %s: %+v", line, netmasters, got)
			}
		}
	}
}

// A monitor whose token is revoked while it runs says so.
func TestMonitorSaysThatItsTokenWasRevoked(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.MediaLines)
		_, _ = w.Write([]byte(`{"time":"2026-11-28T17:00:00Z","event":"end","reason":"unauthorized","text":"the token T1 is not accepted: it was revoked"}` + "\n"))
	}))
	defer s.Close()
	got := netctl(t, s.URL, "monitor")
	if got.code != ExitFailure || got.errOut != "netctl: the token T1 is not accepted: it was revoked\n" {
		t.Errorf("%+v", got)
	}
}

// A netmaster that is not ready is passed over by a monitor, as by other requests.
func TestMonitorAsksTheNextNetmaster(t *testing.T) {
	notReady := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the store is away", http.StatusServiceUnavailable)
	}))
	defer notReady.Close()
	url := startNetmaster(t)
	if got := netctl(t, notReady.URL+","+url, "monitor", "--from", "nosuch"); got.code != ExitNotFound {
		t.Errorf("%+v", got)
	}
	if got := netctl(t, notReady.URL+",http://127.0.0.1:1", "monitor"); got.code != ExitUnavailable || !strings.Contains(got.errOut, "the store is away") {
		t.Errorf("%+v", got)
	}
}
