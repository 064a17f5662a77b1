package netctl

import (
	"net/http"
	"net/http/httptest"
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
