package netctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// TestPKICommandsRenewCertificates: the authority of a directory, its certificates and their renewal, from
// beginning to end by the command line.
func TestPKICommandsRenewCertificates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	do := func(part, line string) string {
		t.Helper()
		got := netctl(t, "", strings.Fields("pki "+strings.ReplaceAll(line, "DIR", dir))...)
		want := ExitOK
		if strings.HasPrefix(part, "!") {
			want, part = ExitFailure, part[1:]
		}
		if got.code != want || !strings.Contains(got.out+got.errOut, part) {
			t.Fatalf("netctl pki %s: exit code %d, %s%s; want %q", line, got.code, got.out, got.errOut, part)
		}
		return got.out
	}
	do("Made an authority", "init DIR")
	do("!already", "init DIR")
	do("issued/master1, good until", "issue DIR master1 --role netmaster --addresses 10.0.0.1,netmaster.example.com")
	do("", "issue DIR host1 --role host --days 400 -q")
	do("!already", "issue DIR host1 --role host")
	if got := netctl(t, "", "pki", "issue", dir, "host2", "--role", "host", "--days", "0"); got.code != ExitUsage || !strings.Contains(got.errOut, "--days 0") {
		t.Errorf("--days 0: exit code %d, %s", got.code, got.errOut)
	}
	do("None is due", "renew DIR")
	show := func() map[string]pkiCertificate {
		t.Helper()
		var rows []pkiCertificate
		if err := json.Unmarshal([]byte(do("", "show DIR --json")), &rows); err != nil {
			t.Fatal(err)
		}
		by := map[string]pkiCertificate{}
		for _, r := range rows {
			if r.Role == "authority" {
				r.Name = strings.Fields(r.State)[0] + " authority"
			}
			by[r.Name] = r
		}
		return by
	}
	ends := func(c pkiCertificate, days int) {
		t.Helper()
		at, err := time.Parse(time.RFC3339, c.Ends)
		if off := time.Until(at) - time.Duration(days)*24*time.Hour; err != nil || off.Abs() > 2*time.Hour { // a day may have 23
			t.Errorf("%s ends %s, %v; want in %d days", c.Name, c.Ends, err, days)
		}
	}
	was := show()
	m := was["master1"]
	if m.Role != "netmaster" || m.State != "good" || strings.Join(m.Addresses, " ") != "localhost netmaster.example.com master1 127.0.0.1 ::1 10.0.0.1" || m.Directory != filepath.Join(dir, "issued", "master1") || len(was) != 3 {
		t.Errorf("show has %+v", was)
	}
	ends(m, 90)
	ends(was["host1"], 400)
	do("Renewed", "renew DIR host1 --days 10")
	ends(show()["host1"], 10)
	do("issued/host1, good", "renew DIR") // as it ends within 30 days
	do("!no former authority", "authority --retire DIR")
	do("Made a new authority", "authority DIR")
	do("renew it: it is signed by the former authority", "show DIR")
	if by := show(); by["good authority"].Ends == "" || by["former: authority"].Ends == "" {
		t.Errorf("show has %+v", by)
	}
	do("!signed by the former authority", "authority --retire DIR")
	do("issued/master1", "renew --all DIR")
	do("no longer trusted", "authority --retire DIR")
	if by := show(); len(by) != 3 || by["master1"].State != "good" {
		t.Errorf("show has %+v", by)
	}
}

// TestAdminCertificateGrantsClusterAdministration: a certificate for a person has the person's name and the role of a cluster
// administrator, and works with netctl's --tls-dir. It is no server certificate.
func TestAdminCertificateGrantsClusterAdministration(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	for _, args := range [][]string{{"pki", "init", dir}, {"pki", "issue", dir, "anna", "--role", "cluster-admin"}} {
		if got := netctl(t, "", args...); got.code != ExitOK {
			t.Fatalf("%v: %d %s", args, got.code, got.errOut)
		}
	}
	d, err := transport.OpenDirectory(filepath.Join(dir, "issued", "anna"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Check(nil, pki.ClusterAdmin); err != nil || d.Leaf().Subject.CommonName != "anna" {
		t.Errorf("%v, %v", d.Leaf().Subject, err)
	}
	if err := d.Check(nil, pki.Netmaster, pki.Host, pki.Client); err == nil {
		t.Error("an admin is something else, too")
	}
	if got := netctl(t, "", "pki", "issue", dir, "ben", "--role", "cluster-admin", "--addresses", "10.0.0.1"); got.code == ExitOK || !strings.Contains(got.errOut, "a cluster-admin accepts no connections") {
		t.Errorf("with an address: %d %s", got.code, got.errOut)
	}
}

// TestIssuedFilesBelongToTheDirectorysOwner: what root issues in a directory of another user, such as netmaster's, that
// user can read.
func TestIssuedFilesBelongToTheDirectorysOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
	dir := filepath.Join(t.TempDir(), "pki")
	if r := netctl(t, "", "pki", "init", dir); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	const user = 65534
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	if r := netctl(t, "", "pki", "issue", dir, "anna", "--role", "cluster-admin"); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	for _, path := range []string{pki.BundleFile, "issued", "issued/anna", "issued/anna/" + pki.KeyFile} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != user {
			t.Errorf("%s: %+v", path, info.Sys())
		}
	}
}
