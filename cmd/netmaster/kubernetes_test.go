package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestMissingKubeconfigStopsNetmaster: a kubeconfig that is not there ends netmaster; an API server that is
// not there leaves it ready, with a notice, and the metrics say it. What is tried with a
// real API server is in test/kube.
func TestMissingKubeconfigStopsNetmaster(t *testing.T) {
	code, _, stderr := finished(t, nil, "--etcd-endpoints", "http://127.0.0.1:1", "--external-address", storetest.FreePort(t), "--agent-address", storetest.FreePort(t), "--kubeconfig", "/no/such/file")
	if code == 0 || !strings.Contains(stderr, "--kubeconfig /no/such/file") {
		t.Errorf("a file that is not there: code %d, %s", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := strings.ReplaceAll(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://ADDRESS"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, "ADDRESS", storetest.FreePort(t))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "--data-dir", filepath.Join(t.TempDir(), "etcd"), "--etcd-listen", storetest.FreePort(t), "--kubeconfig", file)
	p.ready()
	p.until("says that Kubernetes is not known", func() bool {
		return strings.HasPrefix(answer(t, p, "/readyz"), "ok\nwarning: kubernetes: clusternetworkpolicies are not known: ")
	})
	if m := answer(t, p, "/metrics"); !strings.Contains(m, `contiv_netmaster_kubernetes_followed{kind="pods"} 0`) {
		t.Errorf("metrics say nothing of it:\n%s", m)
	}
	p.stop()
}

// TestGroupsOfPodsAreLimitedByFlag: --pod-groups limits the groups that pods may choose: any group, the listed
// ones, or none. internal/netmaster/kubernetes/controller and test/kube try its effects.
func TestGroupsOfPodsAreLimitedByFlag(t *testing.T) {
	for _, tc := range []struct {
		args    []string
		want    string // as Go writes it
		refused string
	}{
		{nil, "[]model.GroupName(nil)", ""},
		{[]string{"--pod-groups", "*"}, "[]model.GroupName(nil)", ""},
		{[]string{"--pod-groups", "web,db"}, `[]model.GroupName{"web", "db"}`, ""},
		{[]string{"--pod-groups="}, "[]model.GroupName{}", ""},
		{[]string{"--pod-groups", "web,*"}, "", "it stands alone"},
		{[]string{"--pod-groups", "a b"}, "", "a b"},
	} {
		o, err := parse(t, nil, append([]string{"--kubeconfig", "/k", "--etcd-endpoints", "http://127.0.0.1:1"}, tc.args...)...)
		if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.refused)
			continue
		}
		if got := fmt.Sprintf("%#v", choices(o).Groups); err == nil && got != tc.want {
			t.Errorf("%v: %s, want %s", tc.args, got, tc.want)
		}
	}
	if _, err := parse(t, nil, "--pod-groups", "web"); err == nil || !strings.Contains(err.Error(), "name it with --kubeconfig") {
		t.Errorf("without Kubernetes: %v", err)
	}
}

// answer is what a netmaster answers, as text; empty when it does not.
func answer(t *testing.T, p *process, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.api+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(text)
}
