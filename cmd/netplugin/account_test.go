package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestHostJoinsByItsServiceAccount: with the token of its pod's service account this host gets its
// certificate, and uses it; what the flags contradict is refused.
func TestHostJoinsByItsServiceAccount(t *testing.T) {
	dir := t.TempDir()
	token, data, door := filepath.Join(dir, "token"), filepath.Join(dir, "etcd"), storetest.FreePort(t)
	if err := os.WriteFile(token, []byte("a.b.c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := membership.Start(t.Context(), membership.Config{
		Dir: data, Client: storetest.FreePort(t), Peer: storetest.FreePort(t), EnrollmentAddress: door, Secure: []string{"127.0.0.1"}, Logger: slog.New(slog.DiscardHandler),
		TokenReviewer: func(_ context.Context, token string) (host, by string, err error) {
			if token != "a.b.c" {
				return "", "", model.Errorf(model.ErrInvalid, "the token is %q", token)
			}
			return "host1", "pod x", nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	state, authority := filepath.Join(dir, "state"), filepath.Join(data, "join", "authority", "ca.crt")
	finish := func(line string) (options, error) {
		var o options
		fs := newFlags(&o)
		err := fs.ParseAll(append([]string{"--host", "host1", "--ctrl-ip", "127.0.0.1", "--state-dir", state}, strings.Fields(line)...), noEnv)
		if err == nil {
			err = o.finish(t.Context(), fs)
		}
		return o, err
	}
	account := " --join-token-file " + token + " --join-authority " + authority
	for range 2 { // it starts again with the same line
		o, err := finish("--join " + door + account)
		if err != nil {
			t.Fatal(err)
		}
		if o.joining.dir != filepath.Join(state, joinedDir) || len(o.seeds) != 1 || o.seeds[0] != "https://127.0.0.1:9999" {
			t.Errorf("its certificate is in %q, netmasters at %q", o.joining.dir, o.seeds)
		}
		if c := o.enrolment("d"); c.Account.TokenFile != token || c.Account.Authority != authority || c.Dir != "d" || c.Name != "host1" || len(c.Addresses) == 0 {
			t.Errorf("its certificate is kept by %+v", c)
		}
	}
	// All netmasters that it knows were replaced, and it is given one of the present.
	if o, err := finish("--join 127.0.0.2:9005,127.0.0.1:9005" + account); err != nil || strings.Join(o.seeds, " ") != "https://127.0.0.1:9999 https://127.0.0.2:9999" {
		t.Errorf("it asks netmasters at %q, %v", o.seeds, err)
	}
	// The cluster was rolled back to plain: the pod gets a store without TLS and no join
	// flags.
	if o, err := finish("--etcd-endpoints http://127.0.0.1:9002"); err != nil || o.joining.dir != "" || o.joining.left == "" || o.tls.StoreClient != nil || o.store.Etcd[0] != "http://127.0.0.1:9002" {
		t.Errorf("a pod of a plain cluster: %+v, at %q, %v", o.joining, o.store.Etcd, err)
	}
	for _, line := range []string{"", "--etcd-endpoints https://127.0.0.1:9002"} {
		if o, err := finish(line); err != nil || o.joining.dir == "" || o.joining.left != "" {
			t.Errorf("a pod that is told %q: %+v, %v", line, o.joining, err)
		}
	}
	other := filepath.Join(dir, "other")
	if err := os.CopyFS(other, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	joined := filepath.Join(other, joinedDir, "joined.json")
	text, err := os.ReadFile(joined)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(joined, bytes.Replace(text, []byte(`"token":""`), []byte(`"token":"spent"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := finish("--etcd-endpoints http://127.0.0.1:9002 --state-dir " + other); err == nil || !strings.Contains(err.Error(), "has no TLS") {
		t.Errorf("a host that joined by a token of its own is told a plain store: %v", err)
	}
	for line, part := range map[string]string{
		"--join 127.0.0.1:9005 --join-token-file x":                                                           "--join-authority",
		"--join 127.0.0.1:9005 --join-authority x":                                                            "give --join-token-file too",
		"--join 127.0.0.1:9005 --token x --join-token-file x --join-authority x":                              "omit one",
		"--join-token-file x --join-authority x":                                                              "give them with --join",
		"--join 127.0.0.1:9005 --tls-dir /x" + account:                                                        "omit one",
		"--join 127.0.0.1:9005 --join-authority /none --join-token-file /none":                                "read the netmasters' authority",
		"--join 127.0.0.1:9005 --join-token-file /none --join-authority " + authority + " --state-dir " + dir: "read the token of the service account",
	} {
		if _, err := finish(line); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %q", line, err, part)
		}
	}
}
