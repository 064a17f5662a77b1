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

// installed is a cluster as Helm's lookup sees it: its objects by their paths.
type installed map[string]string

func (i installed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	text, there := i[strings.NewReplacer("/apis/apps/v1/namespaces/kube-system/", "", "/api/v1/namespaces/kube-system/", "", "/api/v1/", "").Replace(r.URL.Path)]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	fmt.Fprint(w, text)
}

// clients are those of a cluster.
type clients struct{ dynamic.Interface }

func (c clients) GetClientFor(version, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	of, err := schema.ParseGroupVersion(version)
	return c.Resource(of.WithResource(strings.ToLower(kind) + "s")), kind != "Namespace", err
}

// install is what `helm upgrade --install -n kube-system contiv` asks and refuses.
func (i installed) install(t *testing.T, values map[string]any) error {
	t.Helper()
	server := httptest.NewServer(i)
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "contiv", Namespace: "kube-system", Revision: 2, IsUpgrade: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = engine.RenderWithClientProvider(c, all, clients{client})
	return err
}

// TestPlainInstallationIsTurnedSecureInTwoSteps: an installation that is plain is turned secure in two steps, and goes back
// in two; Helm refuses to take the second one of either first. A secure one grows to three
// netmasters in one step, and does not go back to one.
func TestPlainInstallationIsTurnedSecureInTwoSteps(t *testing.T) {
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
		{"", external(address("10.0.0.1")), ""},
		{"--peer-listen=none", several(), "--set secure.acceptPlain=true"},
		{"three", several(), ""},
		{"three", address("10.0.0.1"), "set controlPlane.addresses as before"},
	} {
		cluster := installed{}
		switch tc.is {
		case "none":
		case "three":
			cluster["daemonsets/contiv-netmaster"] = `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"contiv-netmaster"}}`
		default:
			args := ""
			if tc.is != "" {
				args = `,"args":["` + strings.Join(strings.Fields(tc.is), `","`) + `"]`
			}
			cluster["deployments/contiv-netmaster"] = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"contiv-netmaster"},"spec":{"template":{"spec":{"containers":[{"name":"netmaster"` + args + `}]}}}}`
		}
		err := cluster.install(t, tc.values)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("where netmaster has %q, %v: %v; want %q", tc.is, tc.values, err, tc.want)
		}
	}
}

// TestInstallIsRefused: a second chart in a cluster, and a Secret that is not there or lacks a key,
// are refused with a sentence that says what to do.
func TestInstallIsRefused(t *testing.T) {
	const system = "namespaces/kube-system"
	of := func(name, namespace string) installed {
		return installed{"deployments/contiv-netmaster": `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"contiv-netmaster","annotations":{"meta.helm.sh/release-name":"` + name + `","meta.helm.sh/release-namespace":"` + namespace + `"}},"spec":{"template":{"spec":{"containers":[{"args":["--secure"]}]}}}}`}
	}
	secret := func(name, data string) installed {
		return installed{system: `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system"}}`, "secrets/" + name: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"` + name + `"}` + data + `}`}
	}
	monitored := with("monitoring", map[string]any{"enabled": true})
	for _, tc := range []struct {
		cluster installed
		values  map[string]any
		want    string // "" = it is not refused
	}{
		{of("contiv", "kube-system"), address("10.0.0.1"), ""},
		{of("other", "kube-system"), address("10.0.0.1"), "this cluster has Contiv already, by the release other in namespace kube-system"},
		{of("contiv", "net"), address("10.0.0.1"), "by the release contiv in namespace net"},
		{installed{"daemonsets/contiv-netmaster": `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"contiv-netmaster","annotations":{"meta.helm.sh/release-name":"other","meta.helm.sh/release-namespace":"kube-system"}}}`}, several(), "by the release other"},
		{of("other", "kube-system"), manifests["uninstall.yaml"], "by the release other"},
		{of("contiv", "kube-system"), manifests["uninstall.yaml"], ""},
		{secret("contiv-token", `,"data":{"token":"eA=="}`), plain(address("10.0.0.1")), ""},
		{secret("contiv-token", ``), plain(address("10.0.0.1")), "no Secret contiv-token with the key token: kubectl -n kube-system create secret generic contiv-token"},
		{secret("other", `,"data":{"token":"eA=="}`), plain(address("10.0.0.1")), "token.secret: namespace kube-system has no Secret contiv-token"},
		{secret("other", `,"data":{"token":"eA=="}`), plain(with("token", map[string]any{"secret": "other"})), ""},
		{secret("contiv-token", ``), address("10.0.0.1"), ""},
		{secret("contiv-monitoring", `,"data":{"token":"eA==","ca.crt":"eA=="}`), monitored, ""},
		{secret("contiv-monitoring", `,"data":{"token":"eA=="}`), monitored, "no Secret contiv-monitoring with the key ca.crt: make it as docs/how-to/metrics.md says"},
	} {
		if err := tc.cluster.install(t, tc.values); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v, %v: %v; want %q", tc.cluster, tc.values, err, tc.want)
		}
	}
}
