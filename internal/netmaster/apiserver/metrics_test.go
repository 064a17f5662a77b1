package apiserver

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

const (
	reference  = "../../../docs/reference/"
	alertRules = "../../../packaging/prometheus/contiv-alerts.yaml"
	alertTests = "../../../packaging/prometheus/contiv-alerts_test.yaml"
	dashboard  = "../../../packaging/grafana/contiv.json"
)

var metricName = regexp.MustCompile(`contiv_[a-z_]+`)

func fileText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metricNames returns the different metrics that a text names.
func metricNames(text string) []string {
	found := metricName.FindAllString(text, -1)
	slices.Sort(found)
	return slices.Compact(found)
}

// TestAlertsPageIsWhatTheRulesSay: the page of alerts is what their rules say.
func TestAlertsPageIsWhatTheRulesSay(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, For          string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(fileText(t, alertRules)), &file); err != nil {
		t.Fatal(err)
	}
	value := regexp.MustCompile(`\{\{ \$(?:labels\.)?([a-z]+) \}\}`)
	p := &pagetest.Page{
		Name: "alerts.md", Command: "go test ./internal/netmaster/apiserver -run TestAlertsPageIsWhatTheRulesSay -update", Title: "Alerts",
		Purpose: "On this page you look up what an alert of [contiv-alerts.yaml](../../packaging/prometheus/contiv-alerts.yaml) means and what to do; [metrics](../how-to/metrics.md) explains how to install the rules.",
	}
	var rows [][]string
	for _, r := range file.Groups[0].Rules {
		a := r.Annotations
		rows = append(rows, []string{r.Alert, r.Labels["severity"], r.For, value.ReplaceAllString(a["summary"], "*$1*"), value.ReplaceAllString(a["remedy"], "*$1*")})
	}
	p.Table([]string{"alert", "severity", "after", "meaning", "what to do"}, rows...)
	p.Check(t, *update)
}

// TestClusterMetricsAreExported: hosts, tags, addresses, objects and the store, with
// nothing known and with something.
func TestClusterMetricsAreExported(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.addHosts("host1")
	tells := func(want ...string) { // once the view has what was committed
		t.Helper()
		for _, w := range want {
			deadline := time.Now().Add(patience)
			for !strings.Contains(f.must("GET", "/metrics", ""), w) {
				if time.Now().After(deadline) {
					t.Fatalf("no %s in\n%s", w, f.must("GET", "/metrics", ""))
				}
			}
		}
	}
	tells(
		`contiv_tags_used{pool="vlans"} 1`, `contiv_tags_size{pool="vnis"} `, `contiv_network_addresses_used{network="blue:tiny"} 2`,
		`contiv_objects{kind="endpoints"} 3`, `contiv_store_up{server="memory"} 1`,
	)
	reg, err := cluster.Register(t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.0.0.1", Port: 4789, Hostname: "host1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		if err := tables.AwayTimes.Put(tx, tables.AwayTime{Host: "host2", Seconds: 90}); err != nil {
			return err
		}
		return tables.HostStatuses.Put(tx, tables.HostStatus{Host: "host1", Ready: true, Kinds: map[string]int{"network": 2}, Problems: map[string]string{"a": "b"}})
	}); err != nil {
		t.Fatal(err)
	}
	f.addHosts("host2")
	tells(
		"contiv_hosts_known 2\n", "contiv_hosts_alive 1\n", `contiv_host_alive{host="host2"} 0`, `contiv_host_away_seconds{host="host2"} 90`, `contiv_host_ready{host="host1"} 1`, `contiv_host_problems{host="host1",kind="network"} 2`,
	)
}

// TestMethodsAreBounded: whatever methods clients think of, the metrics have one
// label for them; what is answered 405 is counted.
func TestMethodsAreBounded(t *testing.T) {
	f := serve(t, 0)
	for i := range 20 {
		f.do(fmt.Sprintf("MADE%d", i), "/nothing", "")
		f.do(fmt.Sprintf("MADE%d", i), "/version", "")
	}
	got := f.must("GET", "/metrics", "")
	for _, w := range []string{
		`contiv_netmaster_http_requests_total{code="404",method="other",route="none"} 20`,
		`contiv_netmaster_http_requests_total{code="405",method="other",route="none"} 20`,
	} {
		if !strings.Contains(got, w) {
			t.Errorf("no %s", w)
		}
	}
	if strings.Contains(got, "MADE") {
		t.Error("a made-up method has a series")
	}
}

// TestAlertsFireOnTheirConditions: what rules and panels ask for exists, and each alert
// fires on its condition, by promtool.
func TestAlertsFireOnTheirConditions(t *testing.T) {
	known := metricNames(fileText(t, reference+"metrics-netmaster.md") + fileText(t, reference+"metrics-netplugin.md"))
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, file := range []string{alertRules, alertTests, dashboard} {
		for _, n := range metricNames(fileText(t, file)) {
			if !slices.Contains(known, n) && !slices.Contains(known, suffix.ReplaceAllString(n, "")) {
				t.Errorf("%s asks for %s, which no program reports", file, n)
			}
		}
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(fileText(t, dashboard)), &board); err != nil || len(board.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	tests := fileText(t, alertTests)
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(fileText(t, alertRules), -1) {
		if !strings.Contains(tests, "alertname=\""+m[1]+"\"") {
			t.Errorf("alert %s has no test", m[1])
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Fatal("promtool is not installed (Debian: prometheus)")
		}
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, p := range board.Panels {
		for j, x := range p.Targets {
			expr, err := json.Marshal(x.Expr) // a JSON string is one of YAML
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&rules, "      - {record: 'panel%d:%d', expr: %s}\n", i, j, expr)
		}
	}
	file := t.TempDir() + "/dashboard.yaml"
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", alertRules, file}, {"test", "rules", alertTests}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
