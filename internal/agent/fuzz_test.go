package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
