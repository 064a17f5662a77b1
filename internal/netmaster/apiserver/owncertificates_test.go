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

// TestStatusReportsExpiringCertificates: the status tells of the certificates of the netmaster that answers:
// one that has ended is wrong, one that does soon worth a notice. Alerts fire on both.
func TestStatusReportsExpiringCertificates(t *testing.T) {
	now := time.Now()
	certificates := []api.Certificate{{Use: "good", Ends: now.Add(31 * 24 * time.Hour)}}
	f := serveWith(t, func(c *Config) {
		c.Address = "10.0.0.9:9999"
		c.Support = &supportbundle.Support{Certificates: func() []api.Certificate { return certificates }}
	})
	good := f.scrape()
	certificates = append(
		certificates,
		api.Certificate{Use: "near", Ends: now.Add(29 * 24 * time.Hour), Remedy: "renew near"},
		api.Certificate{Use: "over", Ends: now.Add(-time.Hour), Remedy: "renew over"},
		api.Certificate{Use: "later", Ends: now.Add(99 * 24 * time.Hour), TellFrom: now.Add(-time.Hour), Remedy: "renew later"},
	)
	testenv.AlertsFire(t, good, f.scrape(), "ContivCertificateEnds", "ContivNotWell")
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

// TestFaultsAreReportedOnce: what netmasters and hosts tell of themselves is not repeated by
// their conditions and by the warnings of the store's members.
func TestFaultsAreReportedOnce(t *testing.T) {
	now := time.Now()
	near := func(use, subject string) []api.Certificate {
		return []api.Certificate{{Use: use, Subject: subject, Ends: now.Add(time.Hour), Remedy: "renew it"}}
	}
	host := func(name string) api.Host {
		return api.Host{
			Name: name, State: api.HostAlive, Ready: true, LastWord: now.UTC().Format(time.RFC3339),
			Conditions: []api.Condition{{Name: "certificates", Severity: api.SeverityWarning, Message: "its own (CN=" + name + ") ends"}},
		}
	}
	f := facts{
		now: now, masters: []api.Master{{Role: roleLeader}}, hosts: []api.Host{host("h1"), host("h2")}, machines: map[string]api.Machine{"m1": {Certificates: near("its own", "CN=a")}},
		health: api.Health{Conditions: []api.Condition{{Name: "disk", Message: "the disk has 3 MB free"}}},
		warnings: []string{
			"a: its own (CN=a) ends on D: renew it", "b: its own (CN=b) ends on D: renew it", "a: the disk has 3 MB free", "b: the disk has 4 MB free",
			"the certificate of host h1 ends on D and was not renewed", "the certificate of host h2 ends on D and was not renewed", "the certificate of host h3 ends on D and was not renewed",
		},
	}
	status := []string{
		"cluster store-members b: its own", "cluster store-members b: the disk", "cluster store-members the certificate of host h3",
		"host h1 certificates", "host h2 certificates",
	}
	check := func(found []api.Finding, want []string) {
		t.Helper()
		for _, x := range found {
			text := x.Where + " " + x.Name + " " + x.Text
			i := slices.IndexFunc(want, func(w string) bool { return strings.HasPrefix(text, w) })
			if i < 0 {
				t.Errorf("not expected: %s", text)
				continue
			}
			want = slices.Delete(slices.Clone(want), i, i+1)
		}
		if len(want) > 0 {
			t.Errorf("missing: %q", want)
		}
	}
	check(f.judgeCluster(), status)
	f.asksHosts, f.inspections = true, &hostInspections{of: map[string]api.HostInspection{}, keys: map[string][][]byte{}, ahead: map[string]time.Duration{}}
	for _, h := range f.hosts {
		f.inspections.of[h.Name] = api.HostInspection{
			Findings: []api.Finding{{Name: "certificates", Text: "its own ends"}, {Name: "disk", Text: "it is full"}},
			Machine:  api.Machine{Certificates: near("its own", "CN="+h.Name), Disks: []api.Disk{{Use: "state", Size: 1 << 40}, {Use: "flow log", Size: 1 << 40}}},
		}
	}
	check(f.judge(), append(
		slices.Clone(status[:3]), "netmaster m1 certificate-ends its own (CN=a)",
		"host h1 certificate-ends its own (CN=h1)", "host h1 disk it is full", "host h1 disk-full the disk of  (flow log)",
		"host h2 certificate-ends its own (CN=h2)", "host h2 disk it is full", "host h2 disk-full the disk of  (flow log)",
	))
}

// scrape is what Prometheus gets.
func (f *fixture) scrape() testenv.Scrape {
	f.t.Helper()
	out := testenv.Scrape{}
	if err := out.Add("netmaster", "m:9999", f.must("GET", "/metrics", "")); err != nil {
		f.t.Fatal(err)
	}
	return out
}
