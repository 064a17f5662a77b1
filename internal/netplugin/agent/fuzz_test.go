package agent

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// FuzzLegacy: what the contivk8s of 1.x, or somebody at the socket, sends names an
// interface of a container, or is answered in the form that it can read.
func FuzzLegacy(f *testing.F) {
	for _, s := range []string{
		`{"K8S_POD_NAME":"p","K8S_POD_NAMESPACE":"ns","K8S_POD_INFRA_CONTAINER_ID":"c","CNI_NETNS":"/ns","CNI_IFNAME":"eth0"}`,
		`{"K8S_POD_INFRA_CONTAINER_ID":" "}`, `{"K8S_POD_INFRA_CONTAINER_ID":7}`, `{"k8s_pod_infra_container_id":"c"} x`, `null`, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var p legacyPod
		w := httptest.NewRecorder()
		if decodeLegacy(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)), &p) {
			if k := p.key(); strings.TrimSpace(k.Container) == "" || k.IfName == "" || w.Body.Len() > 0 {
				t.Errorf("%q names %+v, and is answered %q", body, k, w.Body)
			}
			return
		}
		var said legacyAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != http.StatusInternalServerError || said.Result == 0 || said.ErrInfo == "" {
			t.Errorf("%q is answered %d %q, %v", body, w.Code, w.Body, err)
		}
	})
}

// FuzzFiles: whatever stands in the files of a former run, an agent begins: as the installation
// that the file names, or as a new one, and then the file stays, set aside; and of a file of
// peers that cannot be read as a whole nothing counts.
func FuzzFiles(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","since":"2026-01-01T00:00:00Z","host":"h1"}`, `{"version":1,"id":"6ba7b810"}`,
		`{"version":2,"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}`, `{"version":1,"answered":{"h2":"10.0.0.2","h3":"fd00::3"}}`,
		`{"version":1,"answered":{"h2":"10.0.0.2","h3":"x"}}`, `{"version":2,"answered":{"h2":"10.0.0.2"}}`, `null`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg := &Config{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
		for _, name := range []string{installationFile, peersFile} {
			if err := os.WriteFile(filepath.Join(cfg.StateDir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		i, err := openInstallation(cfg.StateDir, cfg.Log)
		if err != nil || i.Version != 1 || uuid.Validate(i.ID) != nil {
			t.Fatalf("%q is the installation %+v, %v", data, i, err)
		}
		var said installation
		if json.Unmarshal(data, &said) != nil || said != i {
			if kept, err := os.ReadFile(filepath.Join(cfg.StateDir, installationFile+".bad")); err != nil || string(kept) != string(data) || i.ID == said.ID {
				t.Errorf("%q is the installation %+v, and kept as %q, %v", data, i, kept, err)
			}
		}
		if again, err := openInstallation(cfg.StateDir, cfg.Log); err != nil || again != i {
			t.Errorf("%q is the installation %+v, again %+v, %v", data, i, again, err)
		}
		var peers savedPeers
		if json.Unmarshal(data, &peers) != nil || peers.Version != 1 {
			peers.Answered = nil
		}
		if got := loadPeers(cfg); !maps.Equal(got, peers.Answered) {
			t.Errorf("%q has the peers %v", data, got)
		}
	})
}
