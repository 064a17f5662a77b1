package apiserver

import (
	"archive/tar"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// TestServedForClientByMethodAndPath: a request that the server makes itself finds no route of
// another method or path.
func TestServedForClientByMethodAndPath(t *testing.T) {
	f := startAsking(t, nil)
	for ask, want := range map[string]int{"GET /api/v1/status": 200, "POST /api/v1/status": 404, "GET /api/v1/nothing": 404} {
		method, path, _ := strings.Cut(ask, " ")
		w := httptest.NewRecorder()
		f.s.router.serveFor(everybody["root"], path).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", ask, w.Code, want)
		}
	}
}

// TestBundleIsPackedForItsClient: what a netmaster packs of itself it reads for the client
// that asks, whom the server knows already.
func TestBundleIsPackedForItsClient(t *testing.T) {
	f := startAsking(t, nil)
	f.must(403, "viewer", "GET", "/api/v1/bundle", "")
	f.rec.take()
	packed := tar.NewReader(strings.NewReader(f.must(200, "root", "GET", "/api/v1/bundle", "")))
	if recorded := f.rec.take(); len(recorded) != 1 || recorded[0].Status != http.StatusOK || recorded[0].Result != audit.Done {
		t.Errorf("recorded is %+v", recorded)
	}
	names := map[string]bool{}
	for {
		h, err := packed.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(packed)
		if err != nil {
			t.Fatal(err)
		}
		names[h.Name[strings.LastIndex(h.Name, "/")+1:]] = true
		if strings.Contains(string(text), "who asks is not known") || strings.Contains(string(text), "answered 40") {
			t.Errorf("%s: %s", h.Name, text)
		}
	}
	for _, name := range []string{"status.json", "hosts.json", "store.json", "doctor.json", "ready.txt", "metrics.txt", "info.json", "version.json", "settings.json", "manifest.json"} {
		if !names[name] {
			t.Errorf("there is no %s", name)
		}
	}
}
