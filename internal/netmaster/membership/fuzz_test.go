package membership

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/store"
)

// FuzzEnrolment: any request to the enrolment server, without credentials or with host h's
// certificate, gets one of two answers. A client that has h's token, or renews h's
// certificate, gets a certificate of h. All others get a refusal of a known kind, which
// contains no secret and changes nothing. No host joins without a secret.
func FuzzEnrolment(f *testing.F) {
	client := address(98, 23791)
	host, _, err := net.SplitHostPort(client)
	if err != nil {
		f.Fatal(err)
	}
	m, err := Start(f.Context(), Config{
		Dir: f.TempDir(), Name: "a", Logger: slog.New(slog.DiscardHandler), Secure: []string{host},
		Client: client, Peer: address(98, 23801), EnrollmentAddress: address(98, 23781),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := m.Close(); err != nil {
			f.Error(err)
		}
	})
	csr := func() string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			f.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 4)}}, key)
		if err != nil {
			f.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(der)
	}
	hostToken := func() Token {
		_, tok, err := m.Enrolment.NewHostToken(f.Context(), "h", 0)
		if err != nil {
			f.Fatal(err)
		}
		return tok
	}
	ask := func(ctx context.Context, path string, body []byte, chains [][]*x509.Certificate) (int, []byte) {
		r, w := httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body)), httptest.NewRecorder()
		r.TLS = &tls.ConnectionState{VerifiedChains: chains}
		m.enrollmentServer.http.Handler.ServeHTTP(w, r)
		return w.Code, w.Body.Bytes()
	}
	certificate := func(t testing.TB, answer []byte) *x509.Certificate {
		t.Helper()
		var a jointoken.HostAnswer
		if err := json.Unmarshal(answer, &a); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		block, _ := pem.Decode(a.Certificate)
		if block == nil {
			t.Fatalf("no certificate: %q", answer)
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return leaf
	}
	_, member, err := m.Enrolment.NewToken(f.Context(), 0)
	if err != nil {
		f.Fatal(err)
	}
	first := hostToken()
	code, answer := ask(f.Context(), jointoken.HostPath, []byte(`{"id":"`+first.ID+`","secret":"`+first.Secret+`","name":"h","csr":"`+csr()+`"}`), nil)
	if code != http.StatusOK {
		f.Fatalf("%d %s", code, answer)
	}
	shown := [][]*x509.Certificate{{certificate(f, answer), m.Authorities.clients.Load().Bundle()[0]}}
	token := hostToken()
	known := strings.NewReplacer("@MEMBER", member.ID, "@ID", token.ID, "@SECRET", token.Secret, "@CSR", csr(), "@OLD", first.ID, "@SPENT", first.Secret)
	rows := func(ctx context.Context) (map[string]string, error) {
		r, err := m.server.client.Get(ctx, store.Root+"join/", clientv3.WithPrefix())
		if err != nil {
			return nil, err
		}
		all := map[string]string{}
		for _, kv := range r.Kvs {
			all[string(kv.Key)] = string(kv.Value)
		}
		return all, nil
	}
	before, err := rows(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		"", "{}", "null", `{"name":7}`, `{"name":"h","csr":"@CSR"}{"name":"h"}`,
		`{"id":"@ID","secret":"@SECRET","name":"h","csr":"@CSR"}`, `{"id":"@ID","secret":"@SECRET","name":"x","csr":"@CSR"}`, `{"id":"@ID","secret":"@SECRET","name":"h","csr":"AAAA"}`,
		`{"id":"@OLD","secret":"@SPENT","name":"h","csr":"@CSR"}`, `{"id":"@MEMBER","secret":"@SECRET","name":"h","csr":"@CSR"}`, `{"account":"a.b.c","name":"h","csr":"@CSR"}`, `{"name":"../h","csr":"@CSR"}`,
		`{"id":"@MEMBER","secret":"@SECRET","dir":"123456789012345678901234567890123456","name":"b","peer":"10.0.0.2:9004","door":"10.0.0.2:9005","secure":true}`,
		`{"id":"@MEMBER","secret":"x","dir":"","name":"b\u0000","peer":"0.0.0.0:1","door":":"}`,
	} {
		for path := range uint8(3) {
			f.Add(path, path == 2, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, path uint8, certified bool, body []byte) {
		paths := []string{joinPath, jointoken.HostPath, jointoken.RenewPath}
		to := paths[int(path)%len(paths)]
		var chains [][]*x509.Certificate
		if certified {
			chains = shown
		}
		code, answer := ask(t.Context(), to, []byte(known.Replace(string(body))), chains)
		after, err := rows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if code != http.StatusOK {
			var no struct{ Kind, Error string }
			if err := json.Unmarshal(answer, &no); err != nil || no.Error == "" || !slices.ContainsFunc(jointoken.Kinds, func(k jointoken.Kind) bool { return k.Name == no.Kind }) {
				t.Errorf("%s %q: %d %s", to, body, code, answer)
			}
			if strings.Contains(no.Error, token.Secret) || strings.Contains(no.Error, first.Secret) {
				t.Errorf("%s %q: a secret is told: %s", to, body, no.Error)
			}
			if !maps.Equal(before, after) {
				t.Errorf("%s %q: refused, and there are %v", to, body, after)
			}
			return
		}
		if to == joinPath {
			t.Errorf("%q joins: %s", body, answer)
			return
		}
		leaf := certificate(t, answer)
		if role, err := pki.RoleOf(leaf); err != nil || role != pki.Host || leaf.Subject.CommonName != "h" || leaf.IsCA || len(leaf.IPAddresses) > maxAddresses {
			t.Errorf("%s %q: got a certificate of %s, %v", to, body, leaf.Subject, err)
		}
		var ops []clientv3.Op // what it was
		for key := range after {
			if _, had := before[key]; !had {
				ops = append(ops, clientv3.OpDelete(key))
			}
		}
		for key, value := range before {
			if after[key] != value {
				ops = append(ops, clientv3.OpPut(key, value))
			}
		}
		if _, err := m.server.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	})
}
