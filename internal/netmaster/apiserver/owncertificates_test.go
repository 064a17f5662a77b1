package apiserver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestOwnCertificates: the status tells of the certificates of the netmaster that answers:
// one that has ended is wrong, one that does soon worth a notice. Alerts fire on both.
func TestOwnCertificates(t *testing.T) {
	now := time.Now()
	certificates := []api.Certificate{{Use: "good", Ends: now.Add(31 * 24 * time.Hour)}}
	f := serveWith(t, func(c *Config) {
		c.Address = "10.0.0.9:9999"
		c.Support = &supportbundle.Support{Certificates: func() []api.Certificate { return certificates }}
	})
	scrape := func() testenv.Scrape {
		t.Helper()
		out := testenv.Scrape{}
		if err := out.Add("netmaster", "m:9999", f.must("GET", "/metrics", "")); err != nil {
			t.Fatal(err)
		}
		return out
	}
	good := scrape()
	certificates = append(
		certificates,
		api.Certificate{Use: "near", Ends: now.Add(29 * 24 * time.Hour), Remedy: "renew near"},
		api.Certificate{Use: "over", Ends: now.Add(-time.Hour), Remedy: "renew over"},
		api.Certificate{Use: "later", Ends: now.Add(99 * 24 * time.Hour), TellFrom: now.Add(-time.Hour), Remedy: "renew later"},
	)
	testenv.AlertsFire(t, good, scrape(), "ContivCertificateEnds", "ContivNotWell")
	var s api.ClusterStatus
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &s); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(slices.Concat(s.Wrong, s.Notices), "\n")
	for list, want := range map[*[]string]string{&s.Wrong: "renew over", &s.Notices: "renew near"} {
		if !slices.ContainsFunc(*list, func(x string) bool {
			return strings.HasPrefix(x, "netmaster 10.0.0.9:9999: ") && strings.Contains(x, want)
		}) {
			t.Errorf("nothing says %q: %q", want, *list)
		}
	}
	if s.Well || strings.Contains(all, "good") || !strings.Contains(all, "renew later") {
		t.Errorf("well %v: %s", s.Well, all)
	}
}
