package access

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/access/audit"
)

// Agents report every few seconds: the record has what a report changes, and a refusal
// once for as long as it stays the same.
func TestReportIsRecordedWhenItChangesSomethingOrIsRefusedAnew(t *testing.T) {
	var rec records
	changed, refused := "", ""
	d := newDoor(t, func(c *Config) {
		c.Audit = &rec
		c.Next = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(changedHeader, changed)
			w.Header().Set(refusedHeader, refused)
		})
	})
	report := func(path, willChange, willRefuse string) []audit.Entry {
		t.Helper()
		changed, refused = willChange, willRefuse
		_, w := d.ask("h1", "POST", "/plugin/"+path, `{"host":"h1"}`)
		if w.Code != http.StatusOK || w.Header().Get(changedHeader)+w.Header().Get(refusedHeader) != "" {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
		return rec.take()
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

func TestRefusalsOfReportsAreRememberedWithinBounds(t *testing.T) {
	h := &handler{Config: Config{Log: discard(), Audit: &records{}, Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(refusedHeader, "no")
		w.WriteHeader(http.StatusOK)
	})}, refused: map[string]string{}}
	for i := range maxRefusals + 1 {
		h.serveReport(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/plugin/host", http.NoBody), audit.Entry{Objects: []audit.Object{{Kind: "host", Key: strconv.Itoa(i)}}})
		if want := i%maxRefusals + 1; len(h.refused) != want {
			t.Fatalf("%d refusals are remembered after %d, want %d", len(h.refused), i+1, want)
		}
	}
}
