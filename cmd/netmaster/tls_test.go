package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/agent"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/netnstest"
	"github.com/contiv/netplugin/v2/internal/oracle"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// authority is a certificate authority of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca := &authority{t: t}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca.cert, ca.key = ca.sign("test authority", template)
	return ca
}

// sign makes a certificate by a template, by itself while there is no authority.
func (ca *authority) sign(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := ca.cert, ca.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

// files writes a certificate for loopback that serves both ends.
func (ca *authority) files(name string) transport.Files {
	ca.t.Helper()
	cert, key := ca.sign(name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	dir := ca.t.TempDir()
	f := transport.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem")}
	for path, b := range map[string]*pem.Block{
		f.Cert: {Type: "CERTIFICATE", Bytes: cert.Raw}, f.Key: {Type: "EC PRIVATE KEY", Bytes: der}, f.ClientCA: {Type: "CERTIFICATE", Bytes: ca.cert.Raw},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			ca.t.Fatal(err)
		}
	}
	return f
}

// mutual is a configuration in which both ends of each connection show a
// certificate of the authority.
func (ca *authority) mutual(name string) transport.Config {
	ca.t.Helper()
	f := ca.files(name)
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		ca.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	server := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	client := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool}
	return transport.Config{
		APIServer: server, APIClient: client, StoreServer: &f, StoreClient: client, InspectionServer: server, DebugServer: server,
	}
}

// TestTLSPath: a netmaster with an embedded store, a second one on that store, an
// agent and a client speak TLS with each other at every port, find each other by
// the registry, and nobody gets in without a certificate.
func TestTLSPath(t *testing.T) {
	netnstest.Need(t)
	ca := newAuthority(t)
	o := options{
		tls: ca.mutual("netmaster"), dataDir: t.TempDir(), etcdListen: free(t), external: free(t), agent: free(t), debug: free(t),
		mode: modeTest, infra: "default", log: daemon.DefaultLog(),
	}
	o.internal = o.external
	begin := func(o options) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- run(ctx, o, &logBuffer{}) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("netmaster: %v", err)
			}
		})
	}
	begin(o)
	client := func(with transport.Config, url string) *api.Client {
		c, err := api.NewClient(url, api.WithTimeout(time.Minute), api.WithTLS(with.APIClient))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	mine := ca.mutual("operator")
	first := client(mine, "https://"+o.external)
	eventually(t, "the first netmaster is ready", func() error { return first.Do(t.Context(), http.MethodGet, "/readyz", nil, nil) })

	second := o
	second.tls, second.etcd = ca.mutual("netmaster 2"), []string{"https://" + o.etcdListen}
	second.external, second.agent, second.debug = free(t), free(t), free(t)
	second.internal = second.external
	begin(second)
	eventually(t, "the second netmaster is ready", func() error {
		return client(mine, "https://"+second.agent).Do(t.Context(), http.MethodGet, "/readyz", nil, nil)
	})
	if _, err := first.Tenants().Create(t.Context(), api.Tenant{TenantName: "blue"}); err != nil {
		t.Errorf("write over TLS: %v", err)
	}

	log := slog.New(slog.DiscardHandler)
	hosts := ca.mutual("host")
	st, err := etcd.New(etcd.Config{Endpoints: []string{"https://" + o.etcdListen}, TLS: hosts.StoreClient, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, name := range []string{"netmaster", "netmaster.rpc"} {
		eventually(t, "both are registered", func() error {
			list, err := cluster.Services(t.Context(), st, name)
			if err != nil || len(list) != 2 || list[0].Scheme != "https" || list[1].Scheme != "https" {
				return fmt.Errorf("%s is registered as %+v, %w; want two at https", name, list, err)
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	loopback := netip.MustParseAddr("127.0.0.1")
	a, err := agent.New(ctx, agent.Config{
		Host: "host1", Control: loopback, VTEP: loopback, DriverName: "fake", Driver: oracle.New(), Store: st, Log: log, TLS: hosts,
		StoreAddresses: st.Addresses, StateDir: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "s"), RESTAddress: "127.0.0.1:0", NoDNS: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("agent: %v", err)
		}
	}()
	at := a.RESTAddr().String()
	look := transport.OwnClient(mine.APIClient, "127.0.0.1", 5*time.Second)
	// What it needs includes an answer of a netmaster, which it finds by the registry.
	eventually(t, "the agent reaches a netmaster and the store", func() error { return ask(t.Context(), look, "https://"+at+"/readyz") })

	stranger := newAuthority(t).mutual("stranger")
	for what, addr := range map[string]string{
		"API": o.external, "agents' API": o.agent, "second API": second.external, "store": o.etcdListen, "inspection": at, "profiling": o.debug,
	} {
		trusting := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // it is the server that has to refuse
		for who, c := range map[string]*http.Client{
			"plain": {Timeout: 5 * time.Second}, "no certificate": transport.OwnClient(trusting, "", 5*time.Second),
			"another authority": transport.OwnClient(stranger.APIClient, "127.0.0.1", 5*time.Second),
		} {
			url := "https://" + addr + "/version"
			if who == "plain" {
				url = "http://" + addr + "/version"
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := c.Do(req); err == nil { // a plain request is told that it is one
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%s lets in who has %s: %s", what, who, resp.Status)
				}
			}
		}
		resp, err := look.Get("https://" + addr + "/version") //nolint:noctx // it has a time limit
		if err != nil {
			t.Errorf("%s does not let in who has a certificate: %v", what, err)
			continue
		}
		_ = resp.Body.Close()
	}
	if _, err := client(stranger, "https://"+o.external).Tenants().List(t.Context()); err == nil || !strings.Contains(err.Error(), "authority") {
		t.Errorf("a client that does not know the authority says %v", err)
	}
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s: %v", what, err)
		}
	}
}
