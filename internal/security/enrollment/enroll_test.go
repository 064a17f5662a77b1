package enrollment

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func member(t *testing.T) *membership.Member {
	t.Helper()
	return started(t.Context(), t, membership.Config{EnrollmentAddress: storetest.FreePort(t)})
}

// started is a member by what the test wants of it, which is in no one else's way.
func started(ctx context.Context, t *testing.T, cfg membership.Config) *membership.Member {
	t.Helper()
	cfg.Dir, cfg.Client, cfg.Peer = t.TempDir(), storetest.FreePort(t), storetest.FreePort(t)
	cfg.Secure, cfg.Logger = []string{"127.0.0.1"}, slog.New(slog.DiscardHandler)
	m, err := membership.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func token(t *testing.T, m *membership.Member, host string, life time.Duration) string {
	t.Helper()
	text, _, err := m.Enrolment.NewHostToken(t.Context(), host, life)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func refused(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %q", what, err, part)
		}
	}
}

// copyDir is what somebody has stolen.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "stolen")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestTokenGetsOneCertificate: a token gets its host a certificate, once, in time, of the cluster that
// made it; the certificate gets the next one; a stolen one is noticed; an ended or a
// foreign one is refused, each with what to do.
func TestTokenGetsOneCertificate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m, other := member(t), member(t)
	dir := filepath.Join(t.TempDir(), "tls")
	at := []net.IP{net.IPv4(10, 0, 0, 11).To4()}
	first := token(t, m, "host1", 0)
	cfg := Config{Dir: dir, Name: "host1", Addresses: at, Token: first}
	if err := Join(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	own, err := transport.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Check([]string{"host1", "10.0.0.11"}, pki.Host); err != nil {
		t.Error(err)
	}
	if s, err := os.Stat(filepath.Join(dir, pki.KeyFile)); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", s, err)
	}
	if err := Join(ctx, cfg); err != nil { // it is in the unit's file still
		t.Errorf("again: %v", err)
	}
	elsewhere := func(name, text string) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return Join(ctx, Config{Dir: filepath.Join(t.TempDir(), "x"), Name: name, Token: text})
	}
	refused(t, "used twice", elsewhere("host1", first), "was used on", "works once", "netctl cluster token --host host1")
	refused(t, "of another host", elsewhere("host2", token(t, m, "host1", 0)), "for the host host1, and this is host2")
	forged, err := jointoken.Parse(token(t, m, "host1", 0))
	if err != nil {
		t.Fatal(err)
	}
	forged.Host = "host2" // the text is not signed: the cluster has to know
	refused(t, "forged", elsewhere("host2", forged.Text()), "for the host host1, and this is host2")
	forged.Host, forged.Secret = "host1", strings.Repeat("A", jointoken.SecretLen)
	refused(t, "guessed", elsewhere("host1", forged.Text()), "does not know this token")
	late := token(t, m, "host1", time.Second)
	<-time.After(1100 * time.Millisecond) // the least that a token may live
	refused(t, "too late", elsewhere("host1", late), "the token ended on", "netctl cluster token --host host1")
	members, _, err := m.Enrolment.NewToken(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "a netmaster's", elsewhere("host1", members), "is for a netmaster")
	moved, err := jointoken.Parse(token(t, m, "host1", 0))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := jointoken.Parse(token(t, other, "host1", 0))
	if err != nil {
		t.Fatal(err)
	}
	moved.Addresses = theirs.Addresses
	refused(t, "at another cluster", elsewhere("host1", moved.Text()), "another cluster than the token")
	refused(t, "at another cluster's address", Join(ctx, Config{Dir: filepath.Join(t.TempDir(), "x"), Name: "host1", Servers: theirs.Addresses, Token: token(t, m, "host1", 0)}), "another cluster than the token")
}

// TestJoinedCertificatesAreRenewed: see TestTokenGetsOneCertificate.
func TestJoinedCertificatesAreRenewed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := member(t)
	dir := filepath.Join(t.TempDir(), "tls")
	if err := Join(ctx, Config{Dir: dir, Name: "host1", Token: token(t, m, "host1", 0)}); err != nil {
		t.Fatal(err)
	}
	key := func(dir string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, pki.KeyFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	ended := copyDir(t, dir)
	testenv.ExpireCertificate(t, membership.AuthorityDir(m.Dir()), ended)
	refused(t, "one that has ended", Renew(ctx, ended, nil), "refuses this host's certificate", "expired", "netctl cluster token --host host1", "--join and --token")
	if err := Join(ctx, Config{Dir: ended, Name: "host2", Token: token(t, m, "host2", 0)}); err != nil { // as the sentence says
		t.Error(err)
	}
	stolen, was := copyDir(t, dir), key(dir)
	var out bytes.Buffer
	k := &renewer{dir: dir, log: slog.New(slog.NewTextHandler(&out, nil)), now: time.Now}
	if k.check(ctx); key(dir) != was {
		t.Error("it renews a certificate that has 90 days")
	}
	k.now = func() time.Time { return time.Now().AddDate(0, 0, 61) }
	if k.check(ctx); key(dir) == was {
		t.Errorf("it does not renew one that has 29 days: %s", out.String())
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, pki.CertFile), filepath.Join(dir, pki.KeyFile)); err != nil {
		t.Error(err)
	}
	refused(t, "with a stolen one", Renew(ctx, stolen, nil), "was replaced", "was stolen", "netctl cluster token --host host1")
	// The thief was faster: the host hears of it, and a token puts an end to the thief's.
	stolen = copyDir(t, dir)
	if err := Renew(ctx, stolen, nil); err != nil {
		t.Fatal(err)
	}
	refused(t, "the host's own", Renew(ctx, dir, nil), "was replaced", "was stolen")
	if err := Join(ctx, Config{Dir: dir, Name: "host1", Token: token(t, m, "host1", 0)}); err != nil {
		t.Fatal(err)
	}
	refused(t, "the thief's", Renew(ctx, stolen, nil), "was replaced")
	if err := Renew(ctx, dir, nil); err != nil {
		t.Error(err)
	}
	// A host's certificate is none of a member's.
	d, err := transport.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	pinned := jointoken.Pinned(s.Members)
	cert, err := tls.LoadX509KeyPair(d.Files().Cert, d.Files().Key)
	if err != nil {
		t.Fatal(err)
	}
	pinned.Certificates = []tls.Certificate{cert}
	c := transport.OwnClient(pinned, "", time.Minute)
	defer c.CloseIdleConnections()
	for _, path := range []string{"/join/v1/status", "/join/v1/clients"} {
		err := jointoken.Call(ctx, c, "GET", "https://"+s.Servers[0]+path, nil, new(any))
		refused(t, path, err, "only members may ask")
	}
	// A foreign certificate.
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := a.Issue(pki.Request{Name: "host1", Role: pki.Host})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{pki.CertFile, pki.KeyFile} {
		if err := os.Rename(filepath.Join(foreign.Dir, f), filepath.Join(dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, "a foreign one", Renew(ctx, dir, nil), "refuses this host's certificate", "netctl cluster token --host host1")
}

// TestHostHearsOfRenewedAuthorities: a host hears within the hour that authorities were renewed, and
// gets a certificate of the next one; nothing is renewed before.
func TestHostHearsOfRenewedAuthorities(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := member(t)
	dir := filepath.Join(t.TempDir(), "tls")
	if err := Join(ctx, Config{Dir: dir, Name: "host1", Token: token(t, m, "host1", 0)}); err != nil {
		t.Fatal(err)
	}
	look := func() (authorities int, by string) {
		t.Helper()
		d, err := transport.OpenDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		leaf, all := d.All()
		if err := leaf.CheckSignatureFrom(all[0]); err != nil {
			t.Errorf("the newest authority has not signed it: %v", err)
		}
		return len(all), leaf.SerialNumber.String()
	}
	var out bytes.Buffer
	now := time.Now()
	k := &renewer{dir: dir, log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	_, first := look()
	k.check(ctx)
	if n, by := look(); n != 1 || by != first {
		t.Errorf("with nothing renewed: %d authorities", n)
	}
	if err := m.Authorities.RenewAuthorities(ctx); err != nil {
		t.Fatal(err)
	}
	now = now.Add(supersededInterval / 2)
	k.check(ctx)
	if _, by := look(); by != first {
		t.Error("it asks all the time")
	}
	now = now.Add(supersededInterval)
	k.check(ctx)
	n, second := look()
	if n != 2 || second == first {
		t.Fatalf("after the renewal: %d authorities: %s", n, out.String())
	}
	now = now.Add(2 * supersededInterval)
	k.check(ctx)
	if _, by := look(); by != second {
		t.Error("it renews again and again")
	}
	if err := Renew(ctx, dir, nil); err != nil {
		t.Error(err)
	}
}

// TestForgetRemovesWhatJoiningMade: what joining made of a directory goes, and nothing of somebody else's.
func TestForgetRemovesWhatJoiningMade(t *testing.T) {
	for what, tc := range map[string]struct {
		has  []string
		was  bool
		left []string // nil = the directory is gone
	}{
		"of a host that joined":   {[]string{stateFile, pki.KeyFile, pki.CertFile, pki.BundleFile, nextFile}, true, nil},
		"half of one":             {[]string{stateFile, pki.BundleFile}, true, nil},
		"with a file of a user's": {[]string{stateFile, pki.KeyFile, "notes"}, true, []string{"notes"}},
		"a user's own":            {[]string{pki.KeyFile, pki.CertFile}, false, []string{pki.CertFile, pki.KeyFile}},
	} {
		dir := filepath.Join(t.TempDir(), "tls")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range tc.has {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		was, err := Forget(dir)
		if err != nil || was != tc.was {
			t.Errorf("%s: %t, %v", what, was, err)
		}
		var left []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, tc.left) || (err == nil) != (tc.left != nil) {
			t.Errorf("%s: left is %v, %v", what, left, err)
		}
	}
}

// TestAccountIsRememberedAsTheJoiningWay: a host that joined without a token of the cluster did by its account.
func TestAccountIsRememberedAsTheJoiningWay(t *testing.T) {
	dir := t.TempDir()
	if ByAccount(dir) {
		t.Error("nothing joined")
	}
	for token, want := range map[string]bool{"": true, "abcdefghij": false} {
		if writeState(t, dir, state{Name: "host1", Token: token}); ByAccount(dir) != want {
			t.Errorf("with the token %q: %v", token, !want)
		}
	}
}
