package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reviews returns the kubeconfig of an API server that says of every token that it is
// ns1/plugin's, of a pod on node1.
func reviews(t *testing.T) (file string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"audiences":["contiv"],"user":{"username":"system:serviceaccount:ns1:plugin",` +
			`"extra":{"authentication.kubernetes.io/pod-name":["p"],"authentication.kubernetes.io/pod-uid":["u"],"authentication.kubernetes.io/node-name":["node1"]}}}}`))
	}))
	t.Cleanup(server.Close)
	file = filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestServiceAccountTokensAreReviewed: netmaster asks the API server of --kubeconfig whose a token
// is, for that service account; without the flag it takes none, and the flag is refused
// where it cannot do anything.
func TestServiceAccountTokensAreReviewed(t *testing.T) {
	file := reviews(t)
	base := []string{"--secure", "--internal-address", "10.9.9.1:9999", "--kubeconfig", file}
	for account, want := range map[string]string{"ns1/plugin": "", "ns1/other": `belongs to "system:serviceaccount:ns1:plugin"`} {
		o, err := parse(t, nil, append(base, "--enroll-service-account", account)...)
		if err != nil {
			t.Fatal(err)
		}
		vouch, err := o.tokenReviewer()
		if err != nil {
			t.Fatal(err)
		}
		host, by, err := vouch(t.Context(), "a.b.c")
		if want == "" && (err != nil || host != "node1" || by != "pod ns1/p") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q by %q, %v", account, host, by, err)
		}
	}
	if o, err := parse(t, nil, base...); err != nil || o.enroll != "" {
		t.Fatal(o.enroll, err)
	} else if vouch, err := o.tokenReviewer(); err != nil || vouch != nil {
		t.Errorf("without the flag tokens are taken, or %v", err)
	}
	for line, part := range map[string]string{
		"--enroll-service-account a/b --kubeconfig x":        "give --secure too",
		"--enroll-service-account a/b --secure":              "name that with --kubeconfig",
		"--enroll-service-account b --secure --kubeconfig x": "NAMESPACE/NAME",
	} {
		if _, err := parse(t, nil, append(strings.Fields(line), "--internal-address", "10.9.9.1:9999")...); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %q", line, err, part)
		}
	}
}
