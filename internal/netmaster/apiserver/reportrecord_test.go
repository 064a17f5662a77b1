package apiserver

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// Agents report every few seconds: the record has what a report changes, and a refusal
// once for as long as it stays the same.
func TestReportIsRecordedWhenItChangesSomethingOrIsRefusedAnew(t *testing.T) {
	changed, refused := "", ""
	f := startAsking(t, nil)
	for _, path := range []string{"host", "hostStatus"} {
		f.s.routeOf(t, "POST /plugin/"+path).prepare = func(_ http.ResponseWriter, r *request) (access.Resource, func() (any, error), error) {
			return ofHost("h1"), func() (any, error) { r.changed, r.refused = changed, refused; return "ok", nil }, nil
		}
	}
	report := func(path, willChange, willRefuse string) []audit.Entry {
		t.Helper()
		changed, refused = willChange, willRefuse
		f.must(200, "h1", "POST", "/plugin/"+path, `{"host":"h1"}`)
		return f.rec.take()
	}
	for i, step := range []struct {
		path, changed, refused string
		result, why, what      string // result "": nothing is recorded
	}{
		{path: "host"},
		{path: "host", changed: "its address", result: audit.Done, what: "its address"},
		{path: "host"},
		{path: "host", refused: "it is in a network", result: audit.Refused, why: "it is in a network"},
		{path: "host", refused: "it is in a network"},
		{path: "hostStatus", refused: "it is in a network", result: audit.Refused, why: "it is in a network"},
		{path: "host", refused: "it is another's", result: audit.Refused, why: "it is another's"},
		{path: "host", refused: "it is another's"},
		{path: "host"},
		{path: "host", refused: "it is another's", result: audit.Refused, why: "it is another's"},
	} {
		got := report(step.path, step.changed, step.refused)
		if step.result == "" {
			if len(got) != 0 {
				t.Errorf("report %d: recorded %+v", i, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Result != step.result || got[0].Why != step.why || got[0].What != step.what || got[0].Status != http.StatusOK {
			t.Errorf("report %d: recorded %+v, want %+v", i, got, step)
		}
	}
}

// A report that cannot be read is recorded, once while it stays so.
func TestUnreadableReportIsRecordedOnce(t *testing.T) {
	f := startAsking(t, nil)
	for i, body := range []string{`{"x":1}`, `{"x":1}`, `{"y":1}`} {
		f.must(400, "h1", "POST", "/plugin/host", body)
		if got := f.rec.take(); len(got) != map[int]int{0: 1, 1: 0, 2: 1}[i] || len(got) == 1 && (got[0].Result != audit.Refused || got[0].Status != 400 || got[0].Who != "h1") {
			t.Errorf("report %d: recorded %+v", i, got)
		}
	}
}

func TestRefusalsOfReportsAreRememberedWithinBounds(t *testing.T) {
	var x reportRefusals
	for i := range maxRefusals + 1 {
		x.isRepeated(audit.Entry{Objects: []audit.Object{{Kind: "host", Key: strconv.Itoa(i)}}}, "no")
		if want := i%maxRefusals + 1; len(x.last) != want {
			t.Fatalf("%d refusals are remembered after %d, want %d", len(x.last), i+1, want)
		}
	}
}
