package netctl

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Flags that netmaster has to act on are in what it is asked.
func TestFlagsAreInTheRequest(t *testing.T) {
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if asked == "" { // the first request
			asked = strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer s.Close()
	for line, want := range map[string]string{
		"monitor":                               "GET /api/v1/monitor",
		"monitor --drops":                       "GET /api/v1/monitor?drops=true",
		"monitor --from web --to blue:db":       "GET /api/v1/monitor?from=web&to=blue%3Adb",
		"monitor --host h1":                     "GET /api/v1/monitor?host=h1",
		"store adopt":                           "POST /api/v1/store/adopt {}",
		"store adopt --keep-tokens":             "POST /api/v1/store/adopt?keepTokens=true {}",
		"endpoint ls --host h1 -t blue":         "GET /api/v1/endpoints?host=h1&tenant=blue",
		"endpoint ls --group web --network net": "GET /api/v1/endpoints?group=web&network=net",
	} {
		asked = ""
		netctl(t, s.URL, strings.Fields(line)...)
		if asked != want {
			t.Errorf("netctl %s asks %q, want %q", line, asked, want)
		}
	}
}
