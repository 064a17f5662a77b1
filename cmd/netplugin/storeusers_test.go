package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestDocumentedStoreUsersSuffice: with a real etcd that has authentication on, and the users and roles of
// docs/how-to/tls.md, netmaster works, and netplugin, which has no user; netmaster's does not
// leave its prefix.
func TestDocumentedStoreUsersSuffice(t *testing.T) {
	testenv.Need(t)
	const etcd = "/usr/bin/etcd"
	if _, err := os.Stat(etcd); err != nil {
		t.Skip("the package etcd-server is missing")
	}
	c := noCluster(t) // before the time that follows: it builds the programs
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{}
	for name, role := range map[string]pki.Role{"etcd1": pki.Netmaster, "root": pki.Client, "master1": pki.Netmaster, "n-host1": pki.Host} {
		c, err := a.Issue(pki.Request{Name: name, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		dirs[name] = c.Dir
	}
	at := func(user, file string) string { return filepath.Join(dirs[user], file) }
	listen, peer := "https://"+storetest.FreePort(t), "http://"+storetest.FreePort(t)
	storetest.Start(t, "etcd", etcd, "--data-dir", filepath.Join(t.TempDir(), "etcd"), "--listen-client-urls", listen, "--advertise-client-urls", listen,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--cert-file", at("etcd1", pki.CertFile), "--key-file", at("etcd1", pki.KeyFile), "--trusted-ca-file", at("etcd1", pki.BundleFile), "--client-cert-auth")
	as := func(user string) *clientv3.Client {
		t.Helper()
		d, err := transport.OpenDirectory(dirs[user])
		if err != nil {
			t.Fatal(err)
		}
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{listen}, TLS: d.Client(), DialTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	root := as("root")
	readWrite, read := clientv3.PermissionType(clientv3.PermReadWrite), clientv3.PermissionType(clientv3.PermRead)
	grant := func(role, from, to string, may clientv3.PermissionType) error {
		_, err := root.RoleGrantPermission(ctx, role, from, to, may)
		return err
	}
	for _, do := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, "contiv-netmaster"); return err },
		func() error { return grant("contiv-netmaster", store.Root, store.PrefixEnd(store.Root), read) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for user, role := range map[string]string{"root": "root", "master1": "contiv-netmaster"} {
		if _, err := root.UserAddWithOptions(ctx, user, "", &clientv3.UserAddOptions{NoPassword: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := root.UserGrantRole(ctx, user, role); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := root.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}

	netmaster := c.spawn("netmaster", nil, "--etcd-endpoints", listen, "--store-tls-dir", dirs["master1"], "--external-address", "127.0.0.1:9999", "--internal-address", "127.0.0.1:9999")
	if c.client, err = api.NewClient("http://127.0.0.1:9999"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	says := func(p *process, words string) {
		t.Helper()
		c.eventually("it says "+words, func() error {
			if log := p.log.String(); !strings.Contains(log, "refuses this client") || !strings.Contains(log, words) {
				return errors.New(log[max(0, len(log)-500):])
			}
			return nil
		})
	}
	const wants = "readwrite /contiv.io/ /contiv.io0"
	mayWrite := func(may clientv3.PermissionType) {
		t.Helper()
		if err := grant("contiv-netmaster", store.Root, store.PrefixEnd(store.Root), may); err != nil {
			t.Fatal(err)
		}
	}
	says(netmaster, wants) // it may only read, and goes on when it may write
	mayWrite(readWrite)
	c.eventually("netmaster leads", func() error { return c.client.Do(ctx, http.MethodGet, "/readyz", nil, nil) })
	c.must("POST", "/api/v1/tenants/blue/", api.Tenant{TenantName: "blue"})
	c.must("POST", "/api/v1/networks/blue:net1/", api.Network{TenantName: "blue", NetworkName: "net1", NwType: "data", Encap: "vxlan", Subnet: "10.1.1.0/24", Gateway: "10.1.1.254"})
	store1 := []string{"CONTIV_NETPLUGIN_ETCD_ENDPOINTS=" + listen, "CONTIV_NETPLUGIN_STORE_TLS_DIR=" + dirs["n-host1"]}
	c.startPlugin(store1...)
	ns := newNetns(t)
	for _, verb := range []string{"ADD", "DEL"} {
		if code, out := c.cni(verb, "c1", ns); code != 0 {
			t.Fatalf("%s: %d %s", verb, code, out)
		}
	}
	if log := c.plugin.log.String(); strings.Contains(log, "permission denied") {
		t.Errorf("netplugin asks for more than it may read:\n%s", log)
	}

	// Rights are withdrawn from netmaster while it runs, and given back.
	mayWrite(read)
	err = c.client.Do(ctx, http.MethodPost, "/api/v1/tenants/green/", api.Tenant{TenantName: "green"}, nil)
	if err == nil || !strings.Contains(err.Error(), wants) {
		t.Errorf("a change while it may not write: %v", err)
	}
	var h api.Health
	if err := c.client.Do(ctx, http.MethodGet, "/readyz?format=json", nil, &h); err == nil || !strings.Contains(err.Error(), "DENIED") {
		t.Errorf("it is ready while it may not write: %v", err)
	}
	var st api.ClusterStatus
	if err := c.client.Do(ctx, http.MethodGet, "/api/v1/status", nil, &st); err != nil || st.Well || !strings.Contains(strings.Join(st.Wrong, "\n"), "DENIED") {
		t.Errorf("status while it may not write: %q, %v", st.Wrong, err)
	}
	mayWrite(readWrite)
	c.must("POST", "/api/v1/tenants/green/", api.Tenant{TenantName: "green"})
	c.eventually("netmaster is ready again", func() error { return c.client.Do(ctx, http.MethodGet, "/readyz", nil, nil) })

	// The users by themselves.
	const secret = store.Root + "access/tokens/x"
	master, host := as("master1"), as("n-host1")
	if _, err := master.Put(ctx, secret, "1"); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"a host reads a state":        func() error { _, err := host.Get(ctx, store.Root+"state/x"); return err },
		"netmaster writes elsewhere":  func() error { _, err := master.Put(ctx, "/other", "1"); return err },
		"netmaster reads elsewhere":   func() error { _, err := master.Get(ctx, "/other"); return err },
		"netmaster deletes elsewhere": func() error { _, err := master.Delete(ctx, "", clientv3.WithPrefix()); return err },
		"netmaster makes a user":      func() error { _, err := master.UserAdd(ctx, "x", "x"); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "permission denied") || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
