package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// TestTLSFlags: a certificate of another host or role, and plain addresses beside one,
// are refused; with the right one every end speaks TLS, the store's by its own.
func TestTLSFlags(t *testing.T) {
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	dir := func(name string, role pki.Role) string {
		c, err := a.Issue(pki.Request{Name: name, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		return c.Dir
	}
	host, master := dir("host1", pki.Host), dir("master1", pki.Netmaster)
	for _, tc := range []struct {
		line string
		part string // of the sentence; "" = taken
	}{
		{"--tls-dir HOST --netmaster master1,https://master2:1", ""},
		{"--tls-dir HOST --store-tls-dir HOST --etcd https://127.0.0.1:2379", ""},
		{"--tls-dir HOST --host host2", "belongs to host host1, and this is host host2"},
		{"--tls-dir MASTER", "one of [host]"},
		{"--tls-dir /nowhere", "netctl pki issue"},
		{"--tls-dir HOST --netmaster http://master1:9999", "write https://"},
		{"--store-tls-dir HOST --etcd http://10.9.9.9:2379", "write https://"},
		{"--store-tls-dir /nowhere", "--store-tls-dir"},
	} {
		var o options
		fs := newFlags(&o)
		err := fs.ParseAll(append([]string{"--host", "host1", "--ctrl-ip", "127.0.0.1"}, strings.Fields(strings.NewReplacer("HOST", host, "MASTER", master).Replace(tc.line))...), noEnv)
		if err == nil {
			err = o.finish(t.Context(), fs)
		}
		if tc.part == "" && err != nil || tc.part != "" && (err == nil || !strings.Contains(err.Error(), tc.part)) {
			t.Errorf("%s: %v; want %q", tc.line, err, tc.part)
		}
		if err != nil {
			continue
		}
		if o.tls.APIClient == nil || o.tls.InspectionServer == nil || o.tls.DebugServer == nil {
			t.Errorf("%s: some end is plain: %+v", tc.line, o.tls)
		}
		if len(o.seeds) != 1 || o.seeds[0] != "https://127.0.0.1:9999" {
			t.Errorf("%s: netmasters are looked for at %v", tc.line, o.seeds)
		}
		if strings.Contains(tc.line, "--netmaster") && o.netmaster != "https://master1:9999,https://master2:1" {
			t.Errorf("%s: netmasters are %s", tc.line, o.netmaster)
		}
	}
}

// TestContainersAreAttachedOverTLSOnly: containers are attached and released where netmaster, its store and netplugin
// speak TLS only, also while the authority and all certificates are renewed, and by a
// netplugin that starts when the former authority has ended.
func TestContainersAreAttachedOverTLSOnly(t *testing.T) {
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[pki.Role]string{}
	for name, role := range map[string]pki.Role{"master1": pki.Netmaster, "n-host1": pki.Host, "anna": pki.ClusterAdmin} {
		c, err := a.Issue(pki.Request{Name: name, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		dirs[role] = c.Dir
	}
	admin, err := transport.OpenDirectory(dirs[pki.ClusterAdmin])
	if err != nil {
		t.Fatal(err)
	}
	c := newClusterAt(t, "https", []api.Option{api.WithTLS(admin.Config().APIClient)}, "--tls-dir", dirs[pki.Netmaster], "--store-tls-dir", dirs[pki.Netmaster])
	env := []string{"CONTIV_NETPLUGIN_TLS_DIR=" + dirs[pki.Host]}
	c.startPlugin(env...)
	ns := newNetns(t)
	round := func(what string) {
		t.Helper()
		if code, out := c.cni("ADD", "c1", ns); code != 0 {
			t.Fatalf("%s: ADD: %d %s", what, code, out)
		}
		c.eventually("DEL and its release, "+what, func() error {
			if code, out := c.cni("DEL", "c1", ns); code != 0 {
				return fmt.Errorf("DEL: %d %s", code, out)
			}
			n, err := c.client.Networks().Inspect(t.Context(), "blue:net1")
			if err == nil && n.Oper.NumEndpoints != 0 {
				err = fmt.Errorf("netmaster has %d endpoints", n.Oper.NumEndpoints)
			}
			return err
		})
	}
	round("at first")
	if err := a.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n-host1", "master1", "anna"} {
		if _, err := a.Renew(name, 0); err != nil {
			t.Fatal(err)
		}
		round(name + " is renewed")
	}
	if err := a.Retire(); err != nil {
		t.Fatal(err)
	}
	c.plugin.stop()
	c.startPlugin(env...) // it knows the new authority only
	round("the former authority is retired")
}
