package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// authority makes certificates of a test, as 'netctl pki' does.
type authority struct {
	t *testing.T
	a *pki.Authority
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, a}
}

// directory is what --tls-dir takes.
func (ca *authority) directory(name string, role pki.Role) string {
	ca.t.Helper()
	c, err := ca.a.Issue(pki.Request{Name: name, Role: role})
	if err != nil {
		ca.t.Fatal(err)
	}
	return c.Dir
}

func (ca *authority) files(name string) *transport.Files {
	ca.t.Helper()
	d, err := transport.OpenDirectory(ca.directory(name, pki.Netmaster))
	if err != nil {
		ca.t.Fatal(err)
	}
	return d.Files()
}

// of is what a process with a certificate of its own serves and asks with.
func (ca *authority) of(name string, role pki.Role) transport.Config {
	ca.t.Helper()
	d, err := transport.OpenDirectory(ca.directory(name, role))
	if err != nil {
		ca.t.Fatal(err)
	}
	c := d.Config()
	c.StoreClient = d.Client()
	return c
}

// TestAllConnectionsUseTLS: a netmaster with an embedded store, a second one on that store, an agent and
// a client speak TLS with each other at every port, find each other by the registry, and
// refuse clients without a certificate.
func TestAllConnectionsUseTLS(t *testing.T) {
	testenv.Need(t)
	ca := newAuthority(t)
	// flags are a netmaster's as its command line has them.
	flags := func(name string, more ...string) options {
		t.Helper()
		dir, external := ca.directory(name, pki.Netmaster), storetest.FreePort(t)
		o, err := parse(t, nil, append(more, "--mode", modeTest, "--tls-dir", dir, "--store-tls-dir", dir,
			"--external-address", external, "--internal-address", external, "--agent-address", storetest.FreePort(t), "--debug-address", storetest.FreePort(t))...)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := flags("netmaster", "--data-dir", t.TempDir(), "--etcd-listen", storetest.FreePort(t))
	begin := func(o options) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- run(ctx, o, &testenv.Log{}) }()
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
	mine := ca.of("operator", pki.ClusterAdmin)
	first := client(mine, "https://"+o.external)
	eventually(t, "the first netmaster is ready", func() error { return first.Do(t.Context(), http.MethodGet, "/readyz", nil, nil) })

	second := flags("netmaster2", "--etcd-endpoints", o.etcdListen) // https, as it has a certificate
	begin(second)
	eventually(t, "the second netmaster is ready", func() error {
		return client(mine, "https://"+second.agent).Do(t.Context(), http.MethodGet, "/readyz", nil, nil)
	})
	if _, err := first.Tenants().Create(t.Context(), api.Tenant{TenantName: "blue"}); err != nil {
		t.Errorf("write over TLS: %v", err)
	}

	log := slog.New(slog.DiscardHandler)
	hosts := ca.of("host1", pki.Host)
	st, err := etcd.New(etcd.Config{Endpoints: []string{"https://" + o.etcdListen}, TLS: mine.StoreClient, Logger: log})
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
		Host: "host1", Control: loopback, VTEP: loopback, DriverName: "fake", Driver: reference.New(), FromNetmasters: true, Seeds: []string{"https://" + o.external}, Log: log, TLS: hosts,
		StateDir: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "s"), RESTAddress: "127.0.0.1:0", NoDNS: true,
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
	look := transport.OwnClient(mine.StoreClient, "127.0.0.1", 5*time.Second) // of servers of any role
	// What it needs includes an answer of a netmaster, which it finds by the registry.
	eventually(t, "the agent learns of the cluster from a netmaster", func() error { return ask(t.Context(), look, "https://"+at+"/readyz") })

	stranger := newAuthority(t).of("stranger", pki.ClusterAdmin)
	for what, addr := range map[string]string{"inspection": at, "profiling": o.debug} {
		resp, err := transport.OwnClient(hosts.StoreClient, "127.0.0.1", 5*time.Second).Get("https://" + addr + "/version") //nolint:noctx // it has a time limit
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s lets in who has another host's certificate: %s", what, resp.Status)
		}
	}
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
			// A request without TLS gets an answer that says so. A client without a
			// certificate that inspects a host gets an answer that it needs one.
			if resp, err := c.Do(req); err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest && (resp.StatusCode != http.StatusUnauthorized || what != "inspection") {
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

// TestTLSFlags: certificates by which others would not believe a netmaster, and
// addresses that contradict them, are refused at its start, with what to do.
func TestTLSFlags(t *testing.T) {
	ca := newAuthority(t)
	master, host := ca.directory("master1", pki.Netmaster), ca.directory("host1", pki.Host)
	for _, tc := range []struct {
		line string
		part string // of the sentence; "" = taken
	}{
		{"--tls-dir MASTER --internal-address 127.0.0.1:9999", ""},
		{"--tls-dir MASTER --internal-address 10.9.9.9:9999", "--addresses 10.9.9.9"},
		{"--tls-dir HOST --internal-address 127.0.0.1:9999", "one of [netmaster]"},
		{"--tls-dir /nowhere --internal-address 127.0.0.1:9999", "netctl pki issue"},
		{"--store-tls-dir MASTER --etcd-listen 10.9.9.9:2379", "--addresses 10.9.9.9"},
		{"--store-tls-dir HOST --etcd-listen 127.0.0.1:2379", "one of [netmaster]"},
		{"--store-tls-dir HOST --etcd https://10.9.9.9:2379", ""}, // of an authority of its own, which knows no roles
		{"--store-tls-dir HOST --etcd http://10.9.9.9:2379", "write https://"},
		{"--store-tls-dir HOST --consul http://10.9.9.9:8500", "write https://"},
	} {
		o, err := parse(t, nil, strings.Fields(strings.NewReplacer("MASTER", master, "HOST", host).Replace(tc.line))...)
		if tc.part == "" && err != nil || tc.part != "" && (err == nil || !strings.Contains(err.Error(), tc.part)) {
			t.Errorf("%s: %v; want %q", tc.line, err, tc.part)
		}
		if err == nil && (o.tls.APIServer != nil) != strings.Contains(tc.line, "--tls-dir MASTER") {
			t.Errorf("%s: listeners are of %v", tc.line, o.tls.APIServer)
		}
	}
	o, err := parse(t, map[string]string{"CONTIV_NETMASTER_STORE_TLS_DIR": host}, "--cluster-store", "etcd://10.9.9.9:2379")
	if err != nil || len(o.store.Etcd) != 1 || o.store.Etcd[0] != "https://10.9.9.9:2379" {
		t.Errorf("the store is %v, %v", o.store.Etcd, err)
	}
}
