package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// installed is a cluster in which netmaster has been installed before.
type installed struct{ client dynamic.Interface }

func (i installed) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return i.client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: strings.ToLower(kind) + "s"}), true, nil
}

// TestUpgrade: an installation that is plain is turned secure in two steps, and goes back
// in two; Helm refuses to take the second one of either first. A secure one grows to three
// netmasters in one step, and does not go back to one.
func TestUpgrade(t *testing.T) {
	for _, tc := range []struct {
		is     string // netmaster's flags that are there; "none" = no netmaster is, "three" = a DaemonSet
		values map[string]any
		want   string // refused with; empty = it is not
	}{
		{"none", address("10.0.0.1"), ""},
		{"none", plain(address("10.0.0.1")), ""},
		{"--peer-listen=none", address("10.0.0.1"), "--set secure.acceptPlain=true"},
		{"", address("10.0.0.1"), "--set secure.acceptPlain=true"},
		{"--peer-listen=none", with("secure", map[string]any{"acceptPlain": true}), ""},
		{"--peer-listen=none", plain(address("10.0.0.1")), ""},
		{"--secure --accept-plain", address("10.0.0.1"), ""},
		{"--secure", address("10.0.0.1"), ""},
		{"--secure", plain(address("10.0.0.1")), "--set secure.acceptPlain=true first"},
		{"--secure", with("secure", map[string]any{"acceptPlain": true}), ""},
		{"--secure --accept-plain", plain(address("10.0.0.1")), ""},
		{"--secure", several(), ""},
		{"--peer-listen=none", several(), "--set secure.acceptPlain=true"},
		{"three", several(), ""},
		{"three", address("10.0.0.1"), "set controlPlane.addresses as before"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if tc.is == "three" && r.URL.Path == "/apis/apps/v1/namespaces/kube-system/daemonsets/contiv-netmaster" {
				fmt.Fprint(w, `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"contiv-netmaster"}}`)
				return
			}
			if tc.is == "none" || tc.is == "three" || r.URL.Path != "/apis/apps/v1/namespaces/kube-system/deployments/contiv-netmaster" {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
				return
			}
			args := ""
			if tc.is != "" {
				args = `,"args":["` + strings.Join(strings.Fields(tc.is), `","`) + `"]`
			}
			fmt.Fprint(w, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"contiv-netmaster"},"spec":{"template":{"spec":{"containers":[{"name":"netmaster"`+args+`}]}}}}`)
		}))
		client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		c, err := loader.LoadDir(chart)
		if err != nil {
			t.Fatal(err)
		}
		values, err := chartutil.ToRenderValues(c, tc.values, chartutil.ReleaseOptions{Name: "contiv", Namespace: "kube-system", Revision: 2, IsUpgrade: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.RenderWithClientProvider(c, values, installed{client})
		server.Close()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("where netmaster has %q, %v: %v; want %q", tc.is, tc.values, err, tc.want)
		}
	}
}
