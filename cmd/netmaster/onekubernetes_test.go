package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestStoreFollowsOneKubernetes: a store follows the first Kubernetes that it meets. With another one
// netmaster does not start, and says what to do; when another one comes in its place under
// a netmaster that runs, that goes on, and its status and metrics say so; with
// --kubernetes-cluster it is taken over. What is kept then is tried in
// internal/netmaster/kubernetes/controller and test/kube.
func TestStoreFollowsOneKubernetes(t *testing.T) {
	var uid atomic.Value
	uid.Store("one")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		kind := `"kind":"NamespaceList","apiVersion":"v1"`
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
			kind = `"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"`
		}
		switch {
		case r.URL.Path == "/api/v1/namespaces" && r.URL.Query().Get("watch") != "": // it ends at once
			return
		case r.URL.Path == "/api/v1/namespaces":
			fmt.Fprintf(w, `{%s,"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"kube-system","resourceVersion":"1","uid":%q}}]}`, kind, uid.Load())
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--data-dir", filepath.Join(t.TempDir(), "etcd"), "--etcd-listen", storetest.FreePort(t), "--kubeconfig", file}
	p := start(t, nil, args...)
	p.ready()
	p.until("follows the first", func() bool {
		return strings.Contains(p.log.String(), "the store is bound to this Kubernetes cluster from now on")
	})
	foreign := func(n string) func() bool {
		return func() bool {
			return strings.Contains(answer(t, p, "/metrics"), "contiv_netmaster_kubernetes_foreign "+n)
		}
	}
	p.until("says so", foreign("0"))
	uid.Store("two")
	p.until("finds another one in its place", func() bool {
		text := answer(t, p, "/readyz")
		return strings.HasPrefix(text, "ok\n") && strings.Contains(text, "kubernetes: the API server belongs to the cluster two") && !strings.Contains(text, "are not read")
	})
	p.until("says so", foreign("1"))
	uid.Store("one")
	p.until("has it back", foreign("0"))
	p.stop()

	uid.Store("two")
	addresses := []string{"--external-address", storetest.FreePort(t), "--agent-address", storetest.FreePort(t)}
	code, _, stderr := finished(t, nil, append(addresses, args...)...)
	if code == 0 || !strings.Contains(stderr, "--kubeconfig: the API server belongs to the cluster two") || !strings.Contains(stderr, "--kubernetes-cluster two") {
		t.Errorf("with another one: code %d, %s", code, stderr)
	}
	p = start(t, nil, append(args, "--kubernetes-cluster", "two")...)
	p.ready()
	p.until("takes it over", func() bool {
		return strings.Contains(p.log.String(), "the store is bound to another Kubernetes cluster than before")
	})
	p.until("says so", foreign("0"))
	p.stop()
	p = start(t, nil, args...) // it stays so
	p.ready()
	p.until("says so", foreign("0"))
	p.stop()
}
