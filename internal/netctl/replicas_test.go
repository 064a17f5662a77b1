package netctl

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// TestReplicasWithoutStoreAreUnknown: a netmaster that cannot use its store is unknown to the others, and
// one that is gone too. status and doctor name those of --netmaster, and are not well.
func TestReplicasWithoutStoreAreUnknown(t *testing.T) {
	well := startNetmaster(t)
	ill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := api.Health{Ready: true}
		condition.MasterAudit.Add(&h, errors.New("no room"))
		condition.MasterStore.Add(&h, errors.New("etcd is away"))
		if r.URL.Path != "/readyz" {
			http.Error(w, "the store is away", http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer ill.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, command := range []string{"status", "status --quiet", "status --json", "doctor", "doctor --json"} {
		if got := netctl(t, well, strings.Fields(command)...); got.code != ExitOK && !strings.HasPrefix(command, "doctor") || strings.Contains(got.out, "netctl") && strings.Contains(got.out, "netmaster http") {
			t.Errorf("%s of one that is well: %+v", command, got)
		}
		for _, urls := range [][]string{{well, ill.URL}, {ill.URL, well}, {well, gone.URL}, {ill.URL, gone.URL, well}, {well, well}} {
			got := netctl(t, strings.Join(urls, ","), strings.Fields(command)...)
			all := strings.Join(strings.Fields(got.out), " ")
			isIll, isGone := strings.Contains(strings.Join(urls, ","), ill.URL), strings.Contains(strings.Join(urls, ","), gone.URL)
			if has := strings.Contains(all, "etcd is away"); has != isIll || has && !strings.Contains(all, ill.URL) {
				t.Errorf("%s of %q: that one is without its store is said: %t\n%s", command, urls, has, got.out)
			}
			if has := strings.Contains(all, "does not answer netctl: dial tcp"); has != isGone || has && !strings.Contains(all, gone.URL) {
				t.Errorf("%s of %q: that one is gone is said: %t\n%s", command, urls, has, got.out)
			}
			if (isIll || isGone) && (got.code != ExitUnhealthy || strings.Contains(all, "All is well") || strings.Contains(all, `"well": true`) || strings.Contains(all, "no room")) {
				t.Errorf("%s of %q: exit code %d\n%s", command, urls, got.code, got.out)
			}
		}
		got := netctl(t, ill.URL+","+gone.URL, strings.Fields(command)...)
		if got.code != ExitUnavailable || got.out != "" || !strings.Contains(got.errOut, "the store is away") {
			t.Errorf("%s of none that has its store: %+v", command, got)
		}
	}
}
