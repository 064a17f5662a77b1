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
	"github.com/contiv/netplugin/v2/internal/netnstest"
	"github.com/contiv/netplugin/v2/internal/pki"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// TestStoreUsers: with a real etcd that has authentication on, and the users and roles of
// docs/user/tls.md, netmaster and netplugin work; netplugin's user reads what agents
// read, nothing else, and changes nothing; netmaster's does not leave its prefix.
func TestStoreUsers(t *testing.T) {
	netnstest.Need(t)
	const etcd = "/usr/bin/etcd"
	if _, err := os.Stat(etcd); err != nil {
		t.Skip("the package etcd-server is missing")
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	root := as("root")
	readWrite, read := clientv3.PermissionType(clientv3.PermReadWrite), clientv3.PermissionType(clientv3.PermRead)
	for _, do := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, "contiv-netmaster"); return err },
		func() error { _, err := root.RoleAdd(ctx, "contiv-host"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "contiv-netmaster", store.Root, store.PrefixEnd(store.Root), readWrite)
			return err
		},
		func() error {
			_, err := root.RoleGrantPermission(ctx, "contiv-host", store.AgentsBegin, store.AgentsEnd, read)
			return err
		},
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for user, role := range map[string]string{"root": "root", "master1": "contiv-netmaster", "n-host1": "contiv-host"} {
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

	c := noCluster(t)
	c.spawn("netmaster", nil, "--etcd-endpoints", listen, "--store-tls-dir", dirs["master1"], "--external-address", "127.0.0.1:9999", "--internal-address", "127.0.0.1:9999")
	if c.client, err = api.NewClient("http://127.0.0.1:9999"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	c.eventually("netmaster leads", func() error { return c.client.Do(ctx, http.MethodGet, "/readyz", nil, nil) })
	c.must("POST", "/api/v1/tenants/blue/", api.Tenant{TenantName: "blue"})
	c.must("POST", "/api/v1/networks/blue:net1/", api.Network{TenantName: "blue", NetworkName: "net1", NwType: "data", Encap: "vxlan", Subnet: "10.1.1.0/24", Gateway: "10.1.1.254"})
	c.startPlugin("CONTIV_NETPLUGIN_ETCD_ENDPOINTS="+listen, "CONTIV_NETPLUGIN_STORE_TLS_DIR="+dirs["n-host1"])
	ns := newNetns(t)
	for _, verb := range []string{"ADD", "DEL"} {
		if code, out := c.cni(verb, "c1", ns); code != 0 {
			t.Fatalf("%s: %d %s", verb, code, out)
		}
	}
	if log := c.plugin.log.String(); strings.Contains(log, "permission denied") {
		t.Errorf("netplugin asks for more than it may read:\n%s", log)
	}

	// The users by themselves.
	const secret = store.Root + "access/tokens/x"
	master, host := as("master1"), as("n-host1")
	if _, err := master.Put(ctx, secret, "1"); err != nil {
		t.Fatal(err)
	}
	if r, err := host.Get(ctx, store.AgentsBegin, clientv3.WithRange(store.AgentsEnd), clientv3.WithCountOnly()); err != nil || r.Count == 0 {
		t.Errorf("a host reads what agents read: %+v, %v", r, err)
	}
	for what, do := range map[string]func() error{
		"a host reads a token":       func() error { _, err := host.Get(ctx, secret); return err },
		"a host reads a join token":  func() error { _, err := host.Get(ctx, store.Root+"join/", clientv3.WithPrefix()); return err },
		"a host reads all":           func() error { _, err := host.Get(ctx, "", clientv3.WithPrefix()); return err },
		"a host writes a state":      func() error { _, err := host.Put(ctx, store.Root+"state/x", "1"); return err },
		"a host deletes the states":  func() error { _, err := host.Delete(ctx, store.Root+"state/", clientv3.WithPrefix()); return err },
		"a host enters the registry": func() error { _, err := host.Put(ctx, store.Root+"service/x", "1"); return err },
		"a host writes by a transaction": func() error {
			_, err := host.Txn(ctx).Then(clientv3.OpPut(store.CommitKey, "1")).Commit()
			return err
		},
		"a host makes a user":         func() error { _, err := host.UserAdd(ctx, "x", "x"); return err },
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
