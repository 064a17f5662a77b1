package netctl

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestTLSDirGivesTheCertificate: netctl asks a netmaster by TLS with the certificate of --tls-dir, or of
// the environment's directory; refused on either side, it says what to do.
func TestTLSDirGivesTheCertificate(t *testing.T) {
	dir := func(a *pki.Authority, name string, role pki.Role, days int) string {
		t.Helper()
		c, err := a.Issue(pki.Request{Name: name, Role: role, Days: days})
		if err != nil {
			t.Fatal(err)
		}
		return c.Dir
	}
	made := func() *pki.Authority {
		t.Helper()
		a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := made()
	anna, soon, other := dir(a, "anna", pki.ClusterAdmin, 0), dir(a, "soon", pki.ClusterAdmin, 20), dir(made(), "anna", pki.ClusterAdmin, 0)
	serve := func(of string) string {
		t.Helper()
		d, err := transport.OpenDirectory(of)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ln, err := transport.Listen(ctx, "127.0.0.1:0", d.Config().APIServer, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		st := memory.New()
		ctrl := control.New(st, control.Options{})
		log := slog.New(slog.DiscardHandler)
		h, err := apiserver.New(apiserver.Config{
			Control: ctrl, Cluster: alone{}, Mode: "none", Log: log, Version: api.Version{Version: "2.1.0"}, Address: ln.Addr().String(),
		})
		if err != nil {
			t.Fatal(err)
		}
		var running errgroup.Group
		running.Go(func() error { return ctrl.Run(ctx) })
		running.Go(func() error { return daemon.Serve(ctx, ln, h, log) })
		t.Cleanup(func() {
			cancel()
			if err := running.Wait(); err != nil {
				t.Error(err)
			}
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
		return ln.Addr().String()
	}
	master, host := serve(dir(a, "master1", pki.Netmaster, 0)), serve(dir(a, "host1", pki.Host, 0))
	for _, tc := range []struct {
		env, netmaster, args string
		code                 int
		has                  string
	}{
		{"", "https://" + master, "--tls-dir " + anna + " tenant ls", ExitOK, "default"},
		{anna, master, "tenant ls", ExitOK, "default"}, // https, as there is a certificate
		{soon, master, "tenant ls", ExitOK, "warning: the certificate of " + soon + " expires on"},
		{anna, "http://" + master, "tenant ls", ExitUsage, "write https://"},
		{"", "http://" + master, "tenant ls", ExitFailure, "speaks TLS there: ask it at https://"},
		{other, master, "--insecure tenant ls", ExitUnavailable, "it refuses our certificate, which is of another authority"},
		{"", "https://" + master, "--insecure tenant ls", ExitUnavailable, "it wants a certificate: show one"},
		{"", "https://" + master, "tenant ls", ExitUnavailable, "give the directory with the cluster's ca.crt with --tls-dir"},
		{other, "https://" + master, "tenant ls", ExitUnavailable, "of an authority that is not trusted here"},
		{anna, "https://" + host, "tenant ls", ExitUnavailable, "has the role host"},
		{"/nowhere", "https://" + master, "tenant ls", ExitUsage, "netctl pki issue"},
	} {
		got := netctlEnv(t, map[string]string{"NETMASTER": tc.netmaster, "NETMASTER_TLS_DIR": tc.env}, strings.Fields(tc.args)...)
		if got.code != tc.code || !strings.Contains(got.out+got.errOut, tc.has) {
			t.Errorf("%q at %s, %s: %+v, want code %d and %q", tc.env, tc.netmaster, tc.args, got, tc.code, tc.has)
		}
	}
}
