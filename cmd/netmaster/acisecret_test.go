package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestAPICPasswordIsNowhere: an APIC repeats the password in what it refuses; it is in
// none of the process list, the log, the record of changes, the store's files, and what
// netmaster tells, the archive of netctl bugtool among it.
func TestAPICPasswordIsNowhere(t *testing.T) {
	const password = "hunter2-and-nobody-else"
	sim := acitest.NewAPIC()
	sim.Password = password
	apic := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/api/mo/") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"totalCount":"1","imdata":[{"error":{"attributes":{"code":"1","text":"not with %s"}}}]}`, password) // who asked has gone
			return
		}
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(apic.Close)
	dir := t.TempDir()
	given, written := filepath.Join(dir, "given"), filepath.Join(dir, "written")
	for _, d := range []string{given, written} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"password": password + "\n", "tokens": "0123456789abcdef\n", "ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: apic.Certificate().Raw}))} {
		if err := os.WriteFile(filepath.Join(given, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, nil, "--etcd-listen", storetest.FreePort(t), "--data-dir", filepath.Join(written, "data"), "--audit-dir", filepath.Join(written, "audit"), "--token-file", filepath.Join(given, "tokens"),
		"--infra", "aci", "--log-level", "debug", "--apic", apic.URL, "--apic-user", sim.User, "--apic-password-file", filepath.Join(given, "password"), "--apic-ca", filepath.Join(given, "ca.pem"))
	p.Close()
	var err error
	if p.Client, err = api.NewClient("http://"+p.api, api.WithToken(func() string { return "0123456789abcdef" })); err != nil {
		t.Fatal(err)
	}
	p.ready()
	for path, body := range map[string]map[string]any{
		"aciGws/aciGw": {"name": "aciGw", "physicalDomain": "containers"}, "appProfiles/default:shop": {"tenantName": "default", "appProfileName": "shop"},
	} {
		if err := p.Do(t.Context(), http.MethodPost, "/api/v1/"+path+"/", body, nil); err != nil {
			t.Fatal(err)
		}
	}
	tell := func(path string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.api+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer 0123456789abcdef")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const inspect = "/api/v1/inspect/aciGws/aciGw/"
	p.until("tells what the APIC refuses", func() bool { return strings.Contains(tell(inspect), "not with ") })
	p.until("writes it into its log", func() bool { return strings.Contains(p.log.String(), "not with ") })
	seen := map[string]string{"the log": p.log.String()}
	for _, path := range []string{inspect, "/readyz", "/metrics", "/api/v1/bundle", "/api/v1/status", "/api/v1/doctor", "/api/v1/inspect/appProfiles/default:shop/"} {
		seen[path] = tell(path)
	}
	for _, name := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = string(text)
	}
	p.stop()
	if err := filepath.WalkDir(written, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		seen[path] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for where, text := range seen {
		all.WriteString(text)
		if bytes.Contains([]byte(text), []byte(password)) {
			t.Errorf("the password is in %s", where)
		}
	}
	// What was looked at is what it claims to be.
	for where, part := range map[string]string{"/api/v1/bundle": "manifest.json", "cmdline": "--apic-password-file", inspect: "not with (password)", "/metrics": "contiv_netmaster_aci_"} {
		if !strings.Contains(seen[where], part) {
			t.Errorf("%s has no %q: %.300q", where, part, seen[where])
		}
	}
	if n := strings.Count(all.String(), "not with (password)"); n < 4 { // told, in the log, the archive and the store
		t.Errorf("the refusal was seen %d times", n)
	}
}
