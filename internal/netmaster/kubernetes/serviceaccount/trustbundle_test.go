package serviceaccount

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// bundleServer has one ConfigMap, and takes changes of its newest version alone.
type bundleServer struct {
	has     *corev1.ConfigMap
	others  int // how many changes of others come right after a read
	refuses string
	writes  int
}

func (s *bundleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int32, reason metav1.StatusReason) {
		w.WriteHeader(int(code))
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: code, Message: string(reason)})
	}
	switch {
	case r.URL.Path != "/api/v1/namespaces/ns1/configmaps/contiv-authority" || s.has == nil:
		fail(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == s.refuses:
		fail(http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(s.has)
		if s.others > 0 {
			s.others--
			s.has.ResourceVersion += "1"
		}
	case r.Method == http.MethodPut:
		var m corev1.ConfigMap
		if json.NewDecoder(r.Body).Decode(&m) != nil || m.ResourceVersion != s.has.ResourceVersion {
			fail(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		s.writes++
		m.ResourceVersion = strconv.Itoa(s.writes)
		s.has = &m
		_ = json.NewEncoder(w).Encode(s.has)
	default:
		fail(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed)
	}
}

func authority(t *testing.T, dir string) *pki.Authority {
	t.Helper()
	a, err := pki.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, Data: data,
		ObjectMeta: metav1.ObjectMeta{Name: BundleName, Namespace: "ns1", ResourceVersion: "9"},
	}
}

// TestConfigMapFollowsTheAuthority: the ConfigMap gets the file's authority and its renewals, though others change
// it meanwhile. An up-to-date ConfigMap is not written again, failures are reported, and
// another cluster's trust bundle stays.
func TestConfigMapFollowsTheAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ours")
	ours := authority(t, dir)
	file := filepath.Join(dir, pki.BundleFile)
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first, another := read(), string(authority(t, filepath.Join(t.TempDir(), "other")).Text())
	if err := ours.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	if err := ours.DistributeBundle(); err != nil {
		t.Fatal(err)
	}
	renewed := read()
	if first == renewed {
		t.Fatal("the authority was not renewed")
	}
	foreign := errors.New("of another cluster")
	for what, tc := range map[string]struct {
		has    *corev1.ConfigMap
		change func(*bundleServer, *TrustBundleConfig)
		is     string // afterwards
		writes int
		kind   error
		told   string
	}{
		"an empty one":           {configMap(nil), nil, renewed, 1, nil, ""},
		"one of before":          {configMap(map[string]string{BundleKey: first}), nil, renewed, 1, nil, ""},
		"one with other things":  {configMap(map[string]string{"x": "y", BundleKey: "no certificate"}), nil, renewed, 1, nil, ""},
		"the right one":          {configMap(map[string]string{BundleKey: renewed}), nil, renewed, 0, nil, ""},
		"others change it":       {configMap(nil), func(s *bundleServer, _ *TrustBundleConfig) { s.others = 2 }, renewed, 1, nil, ""},
		"others always do":       {configMap(nil), func(s *bundleServer, _ *TrustBundleConfig) { s.others = 99 }, "", 0, model.ErrUnavailable, "keeps being changed"},
		"another cluster's":      {configMap(map[string]string{BundleKey: another}), nil, another, 0, model.ErrConflict, `patch configmap contiv-authority -p '{"data":null}'`},
		"none":                   {nil, nil, "", 0, model.ErrNotFound, "create configmap contiv-authority"},
		"without right to read":  {configMap(nil), func(s *bundleServer, _ *TrustBundleConfig) { s.refuses = http.MethodGet }, "", 0, nil, "read ConfigMap ns1/contiv-authority: Forbidden"},
		"without right to write": {configMap(nil), func(s *bundleServer, _ *TrustBundleConfig) { s.refuses = http.MethodPut }, "", 0, nil, "write ConfigMap ns1/contiv-authority: Forbidden"},
		"another Kubernetes":     {configMap(nil), func(_ *bundleServer, c *TrustBundleConfig) { c.Ours = func(context.Context) error { return foreign } }, "", 0, foreign, "of another cluster"},
		"no file":                {configMap(nil), func(_ *bundleServer, c *TrustBundleConfig) { c.File += "x" }, "", 0, os.ErrNotExist, "this cluster's authority"},
	} {
		s := &bundleServer{has: tc.has}
		server := httptest.NewServer(s)
		cfg := TrustBundleConfig{
			API: &rest.Config{Host: server.URL}, Namespace: "ns1", File: file, Log: slog.New(slog.DiscardHandler),
			Ours: func(context.Context) error { return nil },
		}
		if tc.change != nil {
			tc.change(s, &cfg)
		}
		k, err := NewTrustBundle(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = k.once(t.Context())
		server.Close()
		switch {
		case tc.told == "" && err != nil, tc.told != "" && (err == nil || !strings.Contains(err.Error(), tc.told)), tc.kind != nil && !errors.Is(err, tc.kind):
			t.Errorf("%s: %v; want %q", what, err, tc.told)
		}
		if s.writes != tc.writes {
			t.Errorf("%s: written %d times, not %d", what, s.writes, tc.writes)
		}
		if s.has == nil {
			continue
		}
		if s.has.Data[BundleKey] != tc.is || tc.has.Data["x"] != s.has.Data["x"] {
			t.Errorf("%s: it has %v", what, s.has.Data)
		}
	}
}

// TestTrustBundleProblemIsReported: what is wrong is known while it is, and the end of ctx ends it.
func TestTrustBundleProblemIsReported(t *testing.T) {
	asked := make(chan struct{}, 1)
	k, err := NewTrustBundle(TrustBundleConfig{API: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "ns1", File: "/none", Log: slog.New(slog.NewTextHandler(notes(asked), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	<-asked
	if err := k.Err(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the trouble is %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := (*TrustBundle)(nil).Run(t.Context()); err != nil {
		t.Errorf("none does %v", err)
	}
}

// notes tells of what is written to it.
type notes chan<- struct{}

func (n notes) Write(b []byte) (int, error) {
	select {
	case n <- struct{}{}:
	default:
	}
	return len(b), nil
}
