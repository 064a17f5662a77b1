package testenv

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Scrape is what Prometheus has after a scrape of its targets: values by series.
type Scrape map[string]float64

var sampleRE = regexp.MustCompile(`(?m)^(contiv_[a-z_]+)(?:\{(.*)\})? (\S+)$`)

// Add enters what a target says at /metrics, by the labels that Prometheus gives the target.
func (s Scrape) Add(job, instance, text string) error {
	for _, m := range sampleRE.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", m[0], err)
		}
		labels := fmt.Sprintf("job=%q,instance=%q", job, instance)
		if m[2] != "" {
			labels += "," + m[2]
		}
		s[m[1]+"{"+labels+"}"] = v
	}
	return nil
}

// rules are the alert rules that users get.
const rules = "packaging/prometheus/contiv-alerts.yaml"

// Replay plays scrapes to Prometheus' own engine, each for some minutes, and compares what
// expressions answer (promtool test rules). It knows the alert rules that users get.
type Replay struct {
	Minutes int // that each step stands
	Steps   []Scrape
	checks  []string
}

// Check wants an expression to have answers, or none, in a minute of a step.
func (r *Replay) Check(step, minute int, expr string, some bool) {
	samples := "[]"
	if some {
		expr, samples = "count("+expr+") > bool 0", "[{labels: '{}', value: 1}]"
	}
	r.checks = append(r.checks, fmt.Sprintf("      - {expr: %s, eval_time: %dm, exp_samples: %s}\n", quoted(expr), step*r.Minutes+minute, samples))
}

// Fires wants an alert to fire at the end of a step, with the labels that its text names.
func (r *Replay) Fires(t testing.TB, step int, alert string) {
	t.Helper()
	for _, labels := range labelsOf(t, alert) {
		r.Check(step, r.Minutes-1, "ALERTS{"+labels+"}", true)
	}
}

// labelsOf returns selectors of a firing alert: the alert, and the same with each label that
// its text names.
func labelsOf(t testing.TB, alert string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), rules))
	if err != nil {
		t.Fatal(err)
	}
	_, rule, there := strings.Cut(string(text), "- alert: "+alert+"\n")
	if !there {
		t.Errorf("%s has no alert %s", rules, alert)
	}
	rule, _, _ = strings.Cut(rule, "- alert: ")
	out := []string{fmt.Sprintf(`alertname=%q,alertstate="firing"`, alert)}
	for _, m := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(rule, -1) {
		out = append(out, fmt.Sprintf(`%s,%s!=""`, out[0], m[1]))
	}
	return out
}

// root is the module's directory, above the test's.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, rules)); err == nil {
			return dir
		}
	}
	t.Fatalf("no directory above has %s", rules)
	return ""
}

// Run plays the steps and fails the test where an answer is not as wanted. Without promtool it
// judges nothing, except in CI, where that is a failure.
func (r *Replay) Run(t testing.TB) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Error("promtool is not installed (Debian: prometheus)")
		}
		t.Log("alerts are not judged: promtool is not installed (Debian: prometheus)")
		return
	}
	text := "rule_files: [" + quoted(filepath.Join(root(t), rules)) + "]\nevaluation_interval: 1m\ntests:\n" + r.yaml()
	file := filepath.Join(t.TempDir(), "replay.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// quoted is a string of YAML.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (r *Replay) yaml() string {
	var b strings.Builder
	b.WriteString("  - name: scraped\n    interval: 1m\n    input_series:\n")
	all := map[string]bool{}
	for _, s := range r.Steps {
		for k := range s {
			all[k] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		var values []string
		was := false
		for _, s := range r.Steps {
			v, is := s[k]
			switch {
			case is && !math.IsNaN(v):
				values = append(values, fmt.Sprintf("%sx%d", strconv.FormatFloat(v, 'f', -1, 64), r.Minutes-1))
			case was:
				values = append(values, fmt.Sprintf("stale _x%d", r.Minutes-1))
			default:
				values = append(values, fmt.Sprintf("_x%d", r.Minutes))
			}
			was = is
		}
		fmt.Fprintf(&b, "      - {series: %s, values: '%s'}\n", quoted(k), strings.Join(values, " "))
	}
	b.WriteString("    promql_expr_test:\n" + strings.Join(r.checks, ""))
	return b.String()
}

// AlertsFire fails the test unless each alert fires after a fault, and did not before, by
// scrapes of the programs before and after.
func AlertsFire(t testing.TB, before, after Scrape, alerts ...string) {
	t.Helper()
	r := Replay{Minutes: 10, Steps: []Scrape{before, after, after}}
	for _, a := range alerts {
		for i, labels := range labelsOf(t, a) {
			if i == 0 {
				r.Check(0, r.Minutes-1, "ALERTS{"+labels+"}", false)
			}
			r.Check(2, r.Minutes-1, fmt.Sprintf("last_over_time(ALERTS{%s}[%dm])", labels, 2*r.Minutes), true)
		}
	}
	r.Run(t)
}
