package condition

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

var update = flag.Bool("update", false, "write docs/reference/conditions.md")

const (
	root   = "../../"
	alerts = root + "packaging/prometheus/contiv-alerts.yaml"
)

// intro is what the generated page says of each kind of object.
var intro = []struct {
	object        Object
	heading, text string
}{
	{Host, "Hosts", "A host's netplugin reports these of itself. `contiv_netplugin_condition{condition,severity}` is 1 while all is well, and 0 while the condition is reported. `contiv_cluster_findings{object=\"host\",condition,severity}` is the number of hosts that report it."},
	{Netmaster, "Netmasters", "The netmaster that answers reports these. Metric: `contiv_cluster_findings{object=\"netmaster\",condition,severity}`, the number of objects that have the condition, 0 while all is well."},
	{Cluster, "Cluster", "The netmaster that answers finds these in the store and in what hosts and netmasters report. Metric: `contiv_cluster_findings{object=\"cluster\",condition,severity}`, the number of objects that have the condition, of those that `netctl status` shows; 0 while all is well."},
}

func generated() *pagetest.Page {
	p := &pagetest.Page{
		Name: "conditions.md", Command: "go test ./internal/condition -update", Title: "Conditions",
		Purpose: "On this page you look up what a reported condition means and what to do.",
	}
	p.Printf("%s", "\nEvery condition has a name here. Names are stable. Problems of single objects of a host, such as `egress` or `firewall`, belong to its conditions [devices](#host-devices), [objects](#host-objects) and [remarks](#host-remarks), and `netctl host inspect HOST` shows them. `netctl status`, `netctl doctor`, `/healthz`, `/readyz`, metrics and alerts use the same names and severities. "+
		"A name is unique among the conditions of one kind of object: hosts, netmasters, the cluster. A host's `store`, say, is not a netmaster's `store`.\n")
	p.Table([]string{"severity", "meaning", "exit code 7 of", "`/healthz`"},
		[]string{"error", "something does not work, or will not soon", "`netctl status`, `netctl doctor`", "503"},
		[]string{"warning", "something is not as it should be", "`netctl doctor`", "200"},
		[]string{"notice", "an operator may choose to leave it so", "", "200"})
	p.Printf("\nWhile an error that says *not ready* lasts, `/readyz` answers 503 too, and containers may not be attached.\n")
	for _, part := range intro {
		p.Printf("\n## %s\n\n%s\n", part.heading, part.text)
		for _, c := range All() {
			if c.object != part.object {
				continue
			}
			severity := c.severity
			if c.notReady {
				severity += ", not ready"
			}
			p.Printf("\n<a id=\"%s\"></a>\n\n### %s\n\n*%s.* %s\n\nWhat to do: %s.\n", c.htmlID(), c.name, severity, c.means, c.remedy)
		}
	}
	return p
}

func TestPageHasAllConditions(t *testing.T) { generated().Check(t, *update) }

// TestPageHasNamesThatUsersSee: a condition is found by the name that every command prints, and
// by the anchor of its page, which is nothing else's.
func TestPageHasNamesThatUsersSee(t *testing.T) {
	data, err := os.ReadFile(root + page)
	if err != nil {
		t.Fatal(err)
	}
	text, headings := string(data), map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		headings[strings.ToLower(m[1])] = true
	}
	for _, c := range All() {
		_, anchor, _ := strings.Cut(c.Page(), "#")
		if !strings.Contains(text, `<a id="`+anchor+`"></a>`+"\n\n### "+c.Name()+"\n") {
			t.Errorf("%s has no heading %q at #%s", page, c.Name(), anchor)
		}
		if headings[anchor] {
			t.Errorf("%s: #%s is another heading's anchor too", page, anchor)
		}
	}
}

// TestNamesAreFrozen: testdata/names.txt lists each condition with its severity. -update
// leaves it alone, so that a name is added by hand, and changed or removed knowingly.
func TestNamesAreFrozen(t *testing.T) {
	const file = "testdata/names.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	frozen, have := strings.Split(strings.TrimSpace(string(data)), "\n"), []string{}
	for _, c := range All() {
		have = append(have, fmt.Sprintf("%s %s %s", c.object, c.name, c.severity))
	}
	for _, line := range frozen {
		if !slices.Contains(have, line) {
			t.Errorf("no condition is %q any more: users' alerts depend on the name and the severity; keep both, or replace the line of %s and say so in the changelog", line, file)
		}
	}
	for _, line := range have {
		if !slices.Contains(frozen, line) {
			t.Errorf("condition %q is not in %s: add it, and it keeps its name and severity from then on", line, file)
		}
	}
}

func TestConditionsAreComplete(t *testing.T) {
	name, seen := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`), map[string]bool{}
	for _, c := range All() {
		switch {
		case !name.MatchString(c.name):
			t.Errorf("%q is not kebab-case", c.name)
		case seen[c.htmlID()]:
			t.Errorf("there are two conditions %s", c.htmlID())
		case c.severity != api.SeverityError && c.severity != api.SeverityWarning && c.severity != api.SeverityNotice:
			t.Errorf("%s has severity %q", c.htmlID(), c.severity)
		case c.notReady && c.severity != api.SeverityError:
			t.Errorf("%s makes its daemon not ready, and is no error", c.htmlID())
		case !strings.HasSuffix(c.means, ".") || c.remedy == "" || strings.HasSuffix(c.remedy, ".") || strings.HasPrefix(c.remedy, "as it says") || c.check == "":
			t.Errorf("%s lacks a sentence, a remedy or a check", c.htmlID())
		}
		seen[c.htmlID()] = true
	}
}

// TestAlertsCoverErrors: an alert that names a condition names one that there is, with its
// severity, and an alert fires on each error.
func TestAlertsCoverErrors(t *testing.T) {
	data, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[Object]string{Host: "contiv_netplugin_condition", Netmaster: "contiv_cluster_findings", Cluster: "contiv_cluster_findings"}
	covered := func(c *Condition, text string) bool {
		return strings.Contains(text, metrics[c.object]+`{severity="`+c.severity+`"}`) || strings.Contains(text, metrics[c.object]+`{condition="`+c.name+`"}`)
	}
	for _, c := range All() {
		if c.severity == api.SeverityError && !covered(c, string(data)) {
			t.Errorf("no alert fires on %s", c.htmlID())
		}
	}
	for _, alert := range strings.Split(string(data), "- alert: ")[1:] {
		severity := regexp.MustCompile(`labels: \{severity: (\w+)\}`).FindStringSubmatch(alert)
		if severity == nil || severity[1] != api.SeverityError && severity[1] != api.SeverityWarning && severity[1] != api.SeverityNotice {
			t.Errorf("an alert has another severity than conditions have: %s", alert)
			continue
		}
		for _, m := range regexp.MustCompile(`(contiv_\w+)\{condition="([^"]*)"\}`).FindAllStringSubmatch(alert, -1) {
			known := false
			for _, c := range All() {
				known = known || c.name == m[2] && metrics[c.object] == m[1] && c.severity == severity[1]
			}
			if !known {
				t.Errorf("no condition %q of severity %s has the metric %s: %s", m[2], severity[1], m[1], alert)
			}
		}
	}
}

func TestErrorMakesDaemonUnwell(t *testing.T) {
	h := api.Health{Ready: true}
	HostNotes.Add(&h, errors.New("x"))
	HostMTU.Add(&h, errors.New("x"))
	if !h.Ready || !h.IsHealthy() {
		t.Errorf("a notice and a warning: %+v", h)
	}
	HostObjects.Add(&h, errors.New("x"))
	if !h.Ready || h.IsHealthy() {
		t.Errorf("something is cut off: %+v", h)
	}
	HostPorts.Add(&h, errors.New("x"))
	if h.Ready {
		t.Errorf("a port is not programmed: %+v", h)
	}
}

func TestUnknownConditionKeepsItsSeverity(t *testing.T) {
	f := HostFinding("h1", api.Condition{Name: "novel", Severity: api.SeverityNotice, Message: "m"})
	if f.Name != "novel" || f.Severity != api.SeverityNotice || f.Text != "novel: m" || f.Where != "host h1" {
		t.Errorf("%+v", f)
	}
	if f := HostFinding("h1", api.Condition{Name: "novel"}); f.Severity != api.SeverityError {
		t.Errorf("without a severity: %+v", f)
	}
}

func TestOneIsSingular(t *testing.T) {
	if got := Count(0, "port") + ", " + Count(1, "port") + ", " + Count(2, "port"); got != "0 ports, 1 port, 2 ports" {
		t.Error(got)
	}
}
