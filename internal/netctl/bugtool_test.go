package netctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
)

// TestBugtoolPacksAllHosts: one archive has what netmaster and each host send, in directories of their
// own, and a manifest that says what could not be had and why.
func TestBugtoolPacksAllHosts(t *testing.T) {
	pack := func(w http.ResponseWriter, r *http.Request) {
		err := (&supportbundle.Support{Version: "2.0"}).Pack(r.Context(), r.URL.Path, []supportbundle.Part{
			{Name: "../../who.txt", Read: func(context.Context) ([]byte, error) { return []byte(r.URL.Path), nil }},
			{Name: "lost.txt", Read: func(context.Context) ([]byte, error) { return nil, errors.New("it is lost") }},
		}, w)
		if err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/bundle", pack)
	mux.HandleFunc("GET /api/v1/hosts/h1/bundle", pack)
	mux.HandleFunc("GET /api/v1/hosts/h2/bundle", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		if err := supportbundle.WriteFile(tar.NewWriter(&b), "part.txt", time.Unix(0, 0), []byte("part")); err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b.Bytes()) // no manifest: it broke off
	})
	mux.HandleFunc("GET /api/v1/hosts/h4/bundle", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "host h4 does not answer", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /api/v1/hosts", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"name":"h1","state":"alive"},{"name":"h2","state":"alive"},{"name":"h3","state":"away"},{"name":"h4","state":"alive"}]`))
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	run := func(args ...string) (files map[string]string, m bugtoolManifest, out string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "out.tar.gz")
		got := netctl(t, s.URL, append(append([]string{"bugtool"}, args...), file)...)
		if got.code != ExitOK {
			t.Fatalf("%+v", got)
		}
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("others may read the archive: %v %v", st.Mode(), err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		zr, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		files = map[string]string{}
		for tr := tar.NewReader(zr); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			files[h.Name] = string(text)
		}
		if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
			t.Fatal(err)
		}
		return files, m, got.out
	}
	files, m, out := run()
	if files["netmaster/who.txt"] != "/api/v1/bundle" || files["hosts/h1/who.txt"] != "/api/v1/hosts/h1/bundle" || files["hosts/h2/part.txt"] != "part" {
		t.Errorf("the archive has %v", files)
	}
	errs := map[string]string{}
	for _, x := range m.Sources {
		errs[x.Directory] = x.Error
	}
	if len(errs) != 5 || errs["netmaster"] != "" || errs["hosts/h1"] != "" || !strings.Contains(errs["hosts/h2"], "interrupted") && !strings.Contains(errs["hosts/h2"], "EOF") ||
		!strings.Contains(errs["hosts/h3"], "away") || !strings.Contains(errs["hosts/h4"], "h4 does not answer") {
		t.Errorf("the manifest says %v", errs)
	}
	if !strings.Contains(out, "hosts/h1/lost.txt: it is lost") || !strings.Contains(out, "hosts/h3: the host is away") {
		t.Errorf("printed %s", out)
	}
	if files, m, _ := run("--host", "h1"); len(m.Sources) != 2 || files["hosts/h1/who.txt"] == "" {
		t.Errorf("one host: %+v", m)
	}

	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := netctl(t, s.URL, "bugtool", there); got.code == ExitOK || !strings.Contains(got.errOut, "is there already") {
		t.Errorf("over a file that is there: %+v", got)
	}
	if got := netctl(t, s.URL, "bugtool", "--host", "h1,h9", filepath.Join(t.TempDir(), "out")); got.code == ExitOK || !strings.Contains(got.errOut, `no host "h9"`) {
		t.Errorf("a host that there is not: %+v", got)
	}
	if got := netctl(t, s.URL, "bugtool", "-"); got.code != ExitOK || !strings.HasPrefix(got.out, "\x1f\x8b") {
		t.Errorf("to standard output: %+v", got)
	}
}

// TestRefusedBugtoolWritesNoArchive: who may not ask gets the sentence, and no archive of refusals.
func TestRefusedBugtoolWritesNoArchive(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/hosts", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"name":"h1","state":"alive"}]`))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "v (token, viewer) has no right to this; it needs the role cluster-admin", http.StatusForbidden)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	file := filepath.Join(t.TempDir(), "out.tar.gz")
	got := netctl(t, s.URL, "bugtool", file)
	if got.code != ExitFailure || !strings.Contains(got.errOut, "'netctl bugtool' is refused: v (token, viewer) has no right to this; it needs the role cluster-admin") || got.out != "" {
		t.Errorf("%+v", got)
	}
	if _, err := os.Lstat(file); err == nil {
		t.Error("an archive without anything in it")
	}
}
