package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestHostCertificateAddsNoAddressOfOthers: a host's certificate cannot make other hosts
// refuse, or send tunnels to, an address that is not that host's. The audit log has the
// changes of a report, and each refusal once.
func TestHostCertificateAddsNoAddressOfOthers(t *testing.T) {
	s := startSecured(t)
	admin, thief := s.as("root", pki.ClusterAdmin), s.as("h1", pki.Host)
	s.things(admin)
	const stranger = "198.51.100.7"
	own := report("h1", "10.0.0.1")
	listens := strings.Replace(own, `{`, `{"listening":["10.0.0.1:9090","127.0.0.1:443","[::ffff:127.0.0.1]:444","[::1]:443","0.0.0.0:443","224.0.0.1:443","169.254.1.1:443","`+stranger+`:443"],"ipv6":"2001:db8::7",`, 1)
	if answer := s.must(200, thief, "POST", "/plugin/host", listens, ""); strings.Contains(answer, "taken") {
		t.Fatal(answer)
	}
	moved := report("h1", stranger)
	leaving := strings.Replace(own, `{`, `{"leaving":true,`, 1)
	s.must(200, thief, "POST", "/plugin/host", leaving, "")
	for range 3 {
		if answer := s.must(200, thief, "POST", "/plugin/host", moved, ""); !strings.Contains(answer, "is not enrolled") {
			t.Errorf("%s", answer)
		}
	}
	s.must(200, thief, "POST", "/plugin/host", listens, "")
	for key, row := range s.dump() {
		if (strings.Contains(row, stranger) || strings.Contains(row, "2001:db8::7")) && !strings.Contains(key, "/oper/") {
			t.Errorf("%s has %s", key, row)
		}
	}
	listed, err := cluster.Services(t.Context(), s.store, cluster.ListenService)
	if err != nil || len(listed) != 1 || listed[0].HostAddr != "10.0.0.1" {
		t.Errorf("containers are kept from %+v, %v", listed, err)
	}

	status := `{"version":1,"host":"h1","installation":"0a0b0c0d-0000-4000-8000-000000000001","driver":"fake","updated":"2026-01-01T00:00:00Z","ready":true,"revision":REV}`
	for _, rev := range []string{"1", "2", "3"} {
		s.must(200, thief, "POST", "/plugin/hostStatus", strings.Replace(status, "REV", rev, 1), "")
	}
	s.must(200, admin, "POST", "/api/v1/hosts/h1/addresses/"+stranger, "{}", "")
	if answer := s.must(200, thief, "POST", "/plugin/host", moved, ""); strings.Contains(answer, "is not enrolled") {
		t.Errorf("an administrator's address: %s", answer)
	}

	text, err := os.ReadFile(s.audit)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var e struct{ Who, Route, Result, Why, What string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Who != "h1" {
			continue
		}
		switch {
		case strings.Contains(e.Why, "is not enrolled"):
			count["refused "+e.Result]++
		case strings.Contains(e.What, "enrolled address 10.0.0.1"):
			count["enrolled "+e.Result]++
		case e.Route == "POST /plugin/hostStatus":
			count["status "+e.What]++
		}
	}
	for what, want := range map[string]int{"refused refused": 1, "enrolled done": 1, "status changed: driver, ready": 1} {
		if count[what] != want {
			t.Errorf("%s: %d lines, want %d: %s", what, count[what], want, text)
		}
	}
}

// TestPlainChangesAreRecorded: changes by connections without TLS are in the audit log, and
// clients that were accepted before still are.
func TestPlainChangesAreRecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	o, err := parse(t, nil, "--internal-address", "127.0.0.1:9999", "--audit-dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	st := memory.New()
	log := slog.New(slog.DiscardHandler)
	g, err := o.newAPIAccess(st, log)
	if err != nil {
		t.Fatal(err)
	}
	ctrl := control.New(st, control.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ctrl.Run(ctx) }()
	h, err := apiserver.New(apiserver.Config{Control: ctrl, Cluster: clusterAPI{}, Log: log, Authenticate: g.authenticate, Audit: g.recorder(), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "http://localhost/api/v1/tenants/blue", nil))
	cancel()
	if err := errors.Join(<-done, g.close(), st.Close()); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil || w.Code != http.StatusNotFound || !strings.Contains(string(text), `"how":"plain"`) || !strings.Contains(string(text), `"key":"blue"`) {
		t.Errorf("%d %s, recorded %s, %v", w.Code, w.Body, text, err)
	}
}
