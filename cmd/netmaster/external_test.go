package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	etcdtransport "go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// etcdWithTLS is an etcd of the user's own, which asks clients for a certificate.
func etcdWithTLS(t *testing.T, files *transport.Files) (endpoint string) {
	t.Helper()
	c := embed.NewConfig()
	c.Dir, c.LogOutputs = t.TempDir(), []string{os.DevNull}
	clients, peers := url.URL{Scheme: "https", Host: storetest.FreePort(t)}, url.URL{Scheme: "http", Host: storetest.FreePort(t)}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ClientTLSInfo = etcdtransport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.ClientCA, ClientCertAuth: true}
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return clients.String()
}

// TestSecureNetmastersShareAuthoritiesOnEtcd: two netmasters with --secure on an etcd that asks for certificates. They
// share the authorities: a certificate of one is taken by the other. Another one that did not
// join them is refused, and so is a store that everybody reaches.
func TestSecureNetmastersShareAuthoritiesOnEtcd(t *testing.T) {
	testenv.Need(t)
	ca := newAuthority(t)
	endpoint, shown := etcdWithTLS(t, ca.files("etcd")), ca.directory("master", pki.Client)
	flags := func(more ...string) options {
		t.Helper()
		external := storetest.FreePort(t)
		o, err := parse(t, nil, append(more, "--secure", "--etcd-endpoints", endpoint, "--store-tls-dir", shown, "--data-dir", filepath.Join(t.TempDir(), "data"),
			"--external-address", external, "--internal-address", external, "--agent-address", storetest.FreePort(t), "--join-listen", storetest.FreePort(t))...)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	begin := func(o options) {
		t.Helper()
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
	admin := func(of options, at string) *api.Client {
		t.Helper()
		own, err := transport.OpenDirectory(membership.AdminDir(of.dataDir))
		if err != nil {
			t.Fatal(err)
		}
		c, err := api.NewClient("https://"+at, api.WithTLS(own.Config().APIClient), api.WithTimeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	ready := func(o options) {
		t.Helper()
		eventually(t, "netmaster is ready", func() error {
			if _, err := os.Stat(membership.AdminDir(o.dataDir)); err != nil {
				return err
			}
			return admin(o, o.external).Do(t.Context(), http.MethodGet, "/readyz", nil, nil)
		})
	}
	first := flags("--member-name", "a")
	begin(first)
	ready(first)
	client := admin(first, first.external)
	if _, err := client.Tenants().Create(t.Context(), api.Tenant{TenantName: "blue"}); err != nil {
		t.Error(err)
	}
	token, err := client.NewJoinToken(t.Context(), api.JoinTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	second := flags("--member-name", "b", "--join", strings.Join(token.Addresses, ","), "--token", token.Token)
	begin(second)
	ready(second)
	for what, c := range map[string]*api.Client{"the second's, at the first": admin(second, first.external), "the first's, at the second": admin(first, second.external)} {
		all, err := c.Tenants().List(t.Context())
		if err != nil || len(all) != 2 {
			t.Errorf("the administrator's certificate that is %s: %v, %v", what, all, err)
		}
	}
	members, err := client.Members(t.Context())
	if err != nil || len(members.Members) != 2 || len(members.Warnings) != 0 {
		t.Errorf("members: %+v, %v", members, err)
	}
	if _, err := os.Stat(filepath.Join(second.dataDir, "member")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it runs an etcd: %v", err)
	}
	if err := run(t.Context(), flags("--member-name", "c"), &testenv.Log{}); err == nil || !strings.Contains(err.Error(), "belongs to netmasters with another authority") {
		t.Errorf("one that did not join: %v", err)
	}
	for line, part := range map[string]string{
		"--etcd-endpoints http://10.9.9.9:1":                           "anyone who can reach the store at http://10.9.9.9:1 controls the cluster",
		"--consul-endpoints http://127.0.0.1:1":                        "embedded etcd",
		"--etcd-endpoints https://10.9.9.9:1 --accept-plain":           "embedded etcd",
		"--etcd-endpoints https://10.9.9.9:1 --peer-listen 10.9.9.1:1": "embedded etcd",
		"--etcd-endpoints https://10.9.9.9:1 --etcd-listen 10.9.9.1:1": "embedded etcd",
		"--etcd-endpoints https://10.9.9.9:1 --tls-dir " + shown:       "makes its own certificates",
		"--etcd-endpoints http://10.9.9.9:1 --store-tls-dir " + shown:  "https://",
	} {
		if _, err := parse(t, nil, append(strings.Fields(line), "--secure", "--internal-address", "10.9.9.1:9999")...); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %q", line, err, part)
		}
	}
}
