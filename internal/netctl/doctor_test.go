package netctl

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestDoctorShowsFindingsAndExitsByTheWorst: the table has findings with object, severity and remedy, and a verdict;
// the exit code is the worst finding's.
func TestDoctorShowsFindingsAndExitsByTheWorst(t *testing.T) {
	d := api.Diagnosis{Hosts: 3, Answered: 2, Findings: []api.Finding{
		{Check: api.CheckHosts, Where: "host h1", Severity: api.SeverityNotice, Text: "its clock", Remedy: "to apply it"},
	}}
	show := func() string {
		t.Helper()
		var b strings.Builder
		if err := (&doctorOptions{common: common{terminal: terminal{out: &b}}}).show(d); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if text := show(); !d.IsHealthy() || !strings.Contains(text, "notice   hosts  host h1  its clock  to apply it") || !strings.Contains(text, "1 finding; 2 of 3 hosts answered.") {
		t.Errorf("a notice:\n%s", text)
	}
	d.Findings = append(d.Findings, api.Finding{Severity: api.SeverityError, Text: "lost", Remedy: "repair it", Repair: api.RepairDone})
	if text := show(); !d.IsHealthy() || !strings.Contains(text, "nothing: it was repaired") {
		t.Errorf("what was repaired:\n%s", text)
	}
	d.Findings[1].Repair = api.RepairFailed + ": taken"
	if text := show(); d.IsHealthy() || !strings.Contains(text, "the repair failed: taken") {
		t.Errorf("what was not:\n%s", text)
	}
	d.Findings[1].Repair = api.RepairPossible
	if text := show(); d.IsHealthy() || !strings.Contains(text, "repair it") {
		t.Errorf("what can be:\n%s", text)
	}
	d.Findings = nil
	if text := show(); text != "Nothing was found; 2 of 3 hosts answered.\n" {
		t.Errorf("nothing:\n%s", text)
	}
}
