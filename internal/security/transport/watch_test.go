package transport

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// What was read is believed for cacheTime, and files that are no good leave it in use.
func TestDirectoryReadsItsFilesAgain(t *testing.T) {
	a := authority(t)
	d := issue(t, a, "host1", pki.Host)
	now := time.Now()
	d.now = func() time.Time { return now }
	later := func() { now = now.Add(cacheTime) }
	bundle := append(a.Text(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...) // which is none
	if err := os.WriteFile(filepath.Join(d.path, pki.BundleFile), bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	later()
	d.current()
	leaf, authorities := d.All()
	if !leaf.Equal(d.Leaf()) || len(authorities) != 1 || !authorities[0].Equal(a.Bundle()[0]) {
		t.Errorf("it has %d authorities", len(authorities))
	}
	before, roots := d.current()
	later()
	if same, pool := d.current(); same != before || pool != roots {
		t.Error("files that did not change are parsed again")
	}
	if _, err := a.Renew("host1", 0); err != nil {
		t.Fatal(err)
	}
	if now = now.Add(cacheTime - 1); !d.Leaf().Equal(leaf) {
		t.Error("the files are read again at once")
	}
	if now = now.Add(1); d.Leaf().Equal(leaf) {
		t.Error("the renewed certificate is not used")
	}
	before, roots = d.current()
	for file, want := range map[string]string{pki.BundleFile: "has no certificate of an authority", pki.CertFile: "do not match", "": "the directory must have"} {
		at := filepath.Join(d.path, file)
		change := func() error { return os.WriteFile(at, nil, 0o600) }
		if file == "" {
			at = filepath.Join(d.path, pki.KeyFile)
			change = func() error { return os.Remove(at) }
		}
		whole, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		later()
		if err := d.Unusable(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", at, err, want)
		}
		if same, pool := d.current(); same != before || pool != roots {
			t.Errorf("%s: what was read before is not in use", at)
		}
		if err := os.WriteFile(at, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		later()
		if err := d.Unusable(); err != nil {
			t.Errorf("%s is whole again: %v", at, err)
		}
	}
	for at, want := range map[time.Time]string{d.Leaf().NotAfter: "expired on", d.Leaf().NotAfter.Add(-pki.Soon): "", d.Leaf().NotAfter.Add(1 - pki.Soon): "in less than 30 days"} {
		now = at
		if err := d.Problem(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("at %v: %v, want %q", at, err, want)
		}
	}
	if err := hasRole(&x509.Certificate{}, pki.Roles); err == nil || !strings.Contains(err.Error(), "has no role: its subject needs an OU") {
		t.Errorf("a certificate without a role: %v", err)
	}
}

// Watch logs a problem once, and again half a day later or when it came back; and a renewal.
func TestWatchLogsProblemsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authority(t)
		d := issue(t, a, "host1", pki.Host)
		time.Sleep(time.Until(d.Leaf().NotAfter.AddDate(0, 0, -20)))
		var out bytes.Buffer
		go d.Watch(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
		logs := func(what string, after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			lines := strings.SplitAfter(out.String(), "\n")
			out.Reset()
			if len(lines)-1 != len(want) {
				t.Fatalf("%s: %q, want %q", what, lines, want)
			}
			for i, w := range want {
				if !strings.Contains(lines[i], w) {
					t.Errorf("%s: %q, want %q", what, lines[i], w)
				}
			}
		}
		bundle := filepath.Join(d.path, pki.BundleFile)
		whole, err := os.ReadFile(bundle)
		if err != nil {
			t.Fatal(err)
		}
		write := func(text []byte) {
			t.Helper()
			if err := os.WriteFile(bundle, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		const soon, broken, renewed = "in less than 30 days", "the former certificate stays in use", "a renewed certificate is in use"
		logs("at once", 0, soon)
		logs("before half a day", remindEvery-time.Second)
		logs("after half a day", time.Second, soon)
		write(nil)
		logs("another problem", checkInterval, broken)
		write(whole)
		logs("the first one", checkInterval, soon)
		if _, err := a.Renew("host1", 365); err != nil {
			t.Fatal(err)
		}
		logs("renewed", checkInterval, renewed)
		logs("still renewed", checkInterval)
		write(nil)
		logs("a problem", checkInterval, broken)
		write(whole)
		logs("none", checkInterval)
		write(nil)
		logs("the same problem", checkInterval, broken)
	})
}
