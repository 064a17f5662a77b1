package pki

import (
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func made(t *testing.T) *Authority {
	t.Helper()
	a, err := Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, r Request) Certificate {
	t.Helper()
	c, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// certs reads a file of certificates.
func certs(t *testing.T, path string) []*x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// verify is what a peer with the given bundle thinks of the certificate in dir, at a
// time, when it connects to name.
func verify(t *testing.T, dir string, bundle []*x509.Certificate, name string, at time.Time) error {
	t.Helper()
	roots, links := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range bundle {
		roots.AddCert(c)
	}
	chain := certs(t, filepath.Join(dir, CertFile))
	for _, c := range chain[1:] {
		links.AddCert(c)
	}
	use := x509.ExtKeyUsageServerAuth
	if name == "" {
		use = x509.ExtKeyUsageClientAuth
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: links, DNSName: name, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{use}})
	return err
}

// wantErr checks that a refusal says what to do.
func wantErr(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("the error is %v; want %q in it", err, part)
	}
}

// TestCertificatesAreLimitedToTheirUse: a certificate is valid for its addresses, its role and its time only, and only
// its owner can read its key.
func TestCertificatesAreLimitedToTheirUse(t *testing.T) {
	a := made(t)
	now := time.Now()
	c := issue(t, a, Request{Name: "master1", Role: Netmaster, Addresses: []string{"10.0.0.1", "netmaster.example.com"}})
	for _, name := range []string{"10.0.0.1", "netmaster.example.com", "master1", "localhost", "127.0.0.1", "::1", ""} {
		if err := verify(t, c.Dir, a.Bundle(), name, now); err != nil {
			t.Errorf("as %q: %v", name, err)
		}
	}
	wantErr(t, verify(t, c.Dir, a.Bundle(), "10.0.0.2", now), "not 10.0.0.2")
	wantErr(t, verify(t, c.Dir, a.Bundle(), "", now.AddDate(0, 0, Days+1)), "expired")
	wantErr(t, verify(t, c.Dir, made(t).Bundle(), "", now), "unknown authority")
	admin := issue(t, a, Request{Name: "anna", Role: ClusterAdmin, Days: 1})
	if err := verify(t, admin.Dir, a.Bundle(), "", now); err != nil {
		t.Error(err)
	}
	if cert := certs(t, filepath.Join(admin.Dir, CertFile))[0]; len(cert.ExtKeyUsage) != 1 || cert.NotAfter.After(now.AddDate(0, 0, 1).Add(time.Minute)) {
		t.Errorf("a client of one day may be %v until %s", cert.ExtKeyUsage, cert.NotAfter)
	} else if role, err := RoleOf(cert); role != ClusterAdmin || err != nil {
		t.Errorf("its role is %q, %v", role, err)
	}
	_, err := RoleOf(a.Bundle()[0])
	wantErr(t, err, "has no role")
	if err := filepath.WalkDir(a.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedIssueSaysWhatToDo: what cannot be, and what would replace what is there, is refused, and
// says what to do.
func TestRefusedIssueSaysWhatToDo(t *testing.T) {
	a := made(t)
	issue(t, a, Request{Name: "host1", Role: Host})
	_, err := Init(a.dir)
	wantErr(t, err, "already; name another directory")
	_, err = Init(filepath.Join(a.dir, issuedDir))
	wantErr(t, err, "not empty")
	_, err = Open(t.TempDir())
	wantErr(t, err, "netctl pki init")
	for _, r := range []struct {
		Request
		part string
	}{
		{Request{Name: "host1", Role: Host}, "already"},
		{Request{Name: "../x", Role: Host}, "must be 1 to 64 letters"},
		{Request{Name: "", Role: Host}, "must be 1 to 64 letters"},
		{Request{Name: "x", Role: "guest"}, "give one of cluster-admin"},
		{Request{Name: "x", Role: Host, Addresses: []string{"http://x"}}, "without scheme and port"},
		{Request{Name: "x", Role: Client, Addresses: []string{"10.0.0.1"}}, "omit the addresses"},
		{Request{Name: "x", Role: Host, Days: -1}, "at least one"},
		{Request{Name: "x", Role: Host, Days: 4000}, "pki authority"},
	} {
		_, err := a.Issue(r.Request)
		wantErr(t, err, r.part)
	}
	if all, err := a.Issued(); err != nil || len(all) != 1 {
		t.Errorf("what was refused left %v, %v", all, err)
	}
	_, err = a.Renew("host2", 0)
	wantErr(t, err, "pki show")
	wantErr(t, a.Retire(), "no former authority")
	path := filepath.Join(a.dir, authorityFile)
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(a.dir)
	wantErr(t, err, "restore the file")
}

// TestRenewedCertificateHasAnotherKey: a renewed certificate is for the same, with another key; one whose
// renewal was interrupted is seen, and renewed again.
func TestRenewedCertificateHasAnotherKey(t *testing.T) {
	a := made(t)
	c := issue(t, a, Request{Name: "host1", Role: Host, Addresses: []string{"10.0.0.11"}, Days: 40})
	was := certs(t, filepath.Join(c.Dir, CertFile))[0]
	a.now = func() time.Time { return time.Now().AddDate(0, 0, 20) }
	if now := a.now(); !c.Due(now) || c.Due(time.Now()) || c.State(now) != "renew it: 19 days left" || c.State(now.AddDate(1, 0, 0)) != "ended: renew it" || c.State(time.Now()) != "good" {
		t.Errorf("due %v, %v; %q", c.Due(now), c.Due(time.Now()), c.State(now))
	}
	if err := os.Rename(filepath.Join(issue(t, a, Request{Name: "other", Role: Host}).Dir, KeyFile), filepath.Join(c.Dir, KeyFile)); err != nil {
		t.Fatal(err)
	}
	if torn, err := a.read("host1"); err != nil || !torn.Incomplete || !torn.Due(time.Now()) || torn.State(time.Now()) != "renew it: its key does not fit" {
		t.Errorf("%+v, %v", torn, err)
	}
	again, err := a.Renew("host1", 0)
	if err != nil {
		t.Fatal(err)
	}
	is := certs(t, filepath.Join(c.Dir, CertFile))[0]
	if again.Incomplete || again.Role != Host || strings.Join(again.Addresses, " ") != strings.Join(c.Addresses, " ") || again.End.Sub(c.End).Round(time.Hour) != 20*24*time.Hour {
		t.Errorf("%+v became %+v", c, again)
	}
	if string(is.RawSubjectPublicKeyInfo) == string(was.RawSubjectPublicKeyInfo) {
		t.Error("it has the former key")
	}
}

// TestHostsAcceptEachOtherDuringARenewal: while the authority is renewed, hosts that know the former one,
// both or the new one only accept each other's certificates, former and renewed; at
// its end the former one's are refused.
func TestHostsAcceptEachOtherDuringARenewal(t *testing.T) {
	a := made(t)
	for _, name := range []string{"host1", "host2"} {
		issue(t, a, Request{Name: name, Role: Host})
	}
	former := a.Bundle()
	if err := a.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, a.RenewAuthority(), "--retire")
	wantErr(t, a.Retire(), "renew it first")
	a, err := Open(a.dir) // the next command
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Renew("host1", 0)
	if err != nil {
		t.Fatal(err)
	}
	both := certs(t, filepath.Join(a.Dir("host2"), BundleFile))
	if len(both) != 2 {
		t.Fatalf("host2 is to trust %d authorities", len(both))
	}
	now := time.Now()
	for _, v := range []struct {
		name   string
		bundle []*x509.Certificate
		good   bool
	}{
		{"host1", former, true},
		{"host1", both, true},
		{"host1", both[:1], true},
		{"host2", former, true},
		{"host2", both, true},
		{"host2", both[:1], false},
	} {
		if err := verify(t, a.Dir(v.name), v.bundle, v.name, now); (err == nil) != v.good {
			t.Errorf("%s with %d authorities: %v", v.name, len(v.bundle), err)
		}
	}
	if c.Superseded {
		t.Error("the former authority signed what was renewed")
	}
	if all, err := a.Issued(); err != nil || len(all) != 2 || !all[1].Superseded || !all[1].Due(now) || all[1].State(now) != "renew it: it is signed by the former authority" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := a.Renew("host2", 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Retire(); err != nil {
		t.Fatal(err)
	}
	if left := certs(t, filepath.Join(a.Dir("host2"), BundleFile)); len(left) != 1 || !left[0].Equal(both[0]) {
		t.Errorf("%d authorities are left", len(left))
	}
	a.now = func() time.Time { return now.AddDate(Years, 0, 1) }
	wantErr(t, a.RenewAuthority(), "pki init")
}

// TestCertificatesTolerateClockSkew: what was just made is good for who has a clock that is a day behind; what was
// made with a clock that was further ahead is seen, and to be renewed; a renewal is for
// as many days as the former one was, also of a certificate that begins five minutes
// before it was made.
func TestCertificatesTolerateClockSkew(t *testing.T) {
	a := made(t)
	c := issue(t, a, Request{Name: "host1", Role: Host, Days: 40})
	leaf, roots := certs(t, filepath.Join(c.Dir, CertFile))[0], x509.NewCertPool()
	for _, root := range a.Bundle() {
		roots.AddCert(root)
	}
	for ago, want := range map[time.Duration]bool{0: true, 25 * time.Hour: true, 72 * time.Hour: false} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now().Add(-ago), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if (err == nil) != want {
			t.Errorf("with a clock that is %v behind: %v", ago, err)
		}
	}
	now := time.Now().AddDate(0, 0, -10)
	if !c.Due(now) || !strings.Contains(c.State(now), "set the clock") {
		t.Errorf("what begins in days counts as good: due %v, %q", c.Due(now), c.State(now))
	}
	for _, begin := range []time.Duration{clockSkew, 5 * time.Minute, clockSkew + time.Hour, 5*time.Minute - time.Hour} { // summer time has an hour more, or less
		for _, days := range []int{1, 40, 90, 400} {
			x := Certificate{Begin: now.Add(-begin), End: now.AddDate(0, 0, days)}
			if got := x.days(); got != days {
				t.Errorf("one that began %v before it was made for %d days counts as made for %d", begin, days, got)
			}
		}
	}
}
