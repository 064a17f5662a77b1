package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestContivJSON: --kubeconfig takes the file of 1.x, as its installation wrote it: the
// API server is asked with what is in it, and the range of services is its.
func TestContivJSON(t *testing.T) {
	ca := newAuthority(t)
	server, client := ca.files("server"), ca.files("client-of-1.x")
	cert, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.a.Bundle()[0])
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if c := r.TLS.PeerCertificates; len(c) > 0 {
			who = c[0].Subject.CommonName
		}
		_, _ = fmt.Fprintf(w, "%s, %q", who, r.Header.Get("Authorization"))
	}))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	s.StartTLS()
	t.Cleanup(s.Close)

	for _, tc := range []struct {
		what    string
		keys    map[string]string // beside server and CA
		flags   string
		says    string
		ranges  string
		refused string
	}{
		{"a certificate", map[string]string{"K8S_CERT": client.Cert, "K8S_KEY": client.Key}, "", `client-of-1.x, ""`, "[]", ""},
		{"a token, and no certificate", map[string]string{"K8S_TOKEN": "t1\n", "K8S_CERT": "", "K8S_KEY": "", "SVC_SUBNET": "10.254.0.0/16"}, "", `nobody, "Bearer t1"`, "[10.254.0.0/16]", ""},
		{"both", map[string]string{"K8S_TOKEN": "t1", "K8S_CERT": client.Cert, "K8S_KEY": client.Key}, "", `client-of-1.x, "Bearer t1"`, "[]", ""},
		{"a token, and files that are gone", map[string]string{"K8S_TOKEN": "t1", "K8S_CERT": "/no/cert", "K8S_KEY": "/no/key"}, "", `nobody, "Bearer t1"`, "[]", ""},
		{"a flag wins", map[string]string{"K8S_TOKEN": "t1", "SVC_SUBNET": "10.254.0.0/16"}, "10.96.0.0/12", `nobody, "Bearer t1"`, "[10.96.0.0/12]", ""},
		{"files that are gone", map[string]string{"K8S_CERT": "/no/cert", "K8S_KEY": "/no/key"}, "", "", "", "K8S_CERT and K8S_KEY, without a K8S_TOKEN beside: open /no/cert"},
		{"no authority", map[string]string{"K8S_TOKEN": "t1", "K8S_CA": "/no/ca"}, "", "", "", "K8S_CA: open /no/ca"},
		{"another key", map[string]string{"K8S_TOKENS": "t1"}, "", "", "", `unknown field "K8S_TOKENS": a contiv.json of 1.x has K8S_API_SERVER`},
		{"no range", map[string]string{"K8S_TOKEN": "t1", "SVC_SUBNET": "10.254.1.1/16"}, "", "", "", `SVC_SUBNET "10.254.1.1/16": must be prefixes`},
	} {
		keys := map[string]string{"K8S_API_SERVER": s.URL, "K8S_CA": server.ClientCA}
		maps.Copy(keys, tc.keys)
		data, err := json.MarshalIndent(keys, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "contiv.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		o := options{kubeconfig: file}
		if tc.flags != "" {
			o.services.ranges = parsePrefixes([]string{tc.flags})
		}
		config, err := kubeConfig(&o)
		if tc.refused != "" {
			if err == nil || !strings.Contains(err.Error(), "--kubeconfig "+file+": ") || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %v, want %s", tc.what, err, tc.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.what, err)
			continue
		}
		if got := whatIsSeen(t, config); got != tc.says {
			t.Errorf("%s: the server saw %s, want %s", tc.what, got, tc.says)
		}
		if got := fmt.Sprint(o.services.ranges); got != tc.ranges {
			t.Errorf("%s: ranges of services %s, want %s", tc.what, got, tc.ranges)
		}
	}
}

// whatIsSeen is what a server of a configuration answers.
func whatIsSeen(t *testing.T, config *rest.Config) string {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
