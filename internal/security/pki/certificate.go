package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
)

// Request is what a certificate is to be.
type Request struct {
	Name      string // of its owner: host name, user, program; its directory's name too
	Role      Role
	Addresses []string // names and IP addresses by which others connect to it
	Days      int      // 0 = Days
}

// Certificate is one that an authority signed.
type Certificate struct {
	Name       string
	Role       Role
	Addresses  []string
	Dir        string // with ca.crt, tls.crt and tls.key
	Begin      time.Time
	End        time.Time
	Superseded bool // signed by an authority that was renewed since
	Incomplete bool // a renewal was interrupted: the key is another one's
}

// State says whether the certificate is good at a time, and what to do if not.
func (c Certificate) State(now time.Time) string {
	switch left := c.End.Sub(now); {
	case left <= 0:
		return "ended: renew it"
	case c.Incomplete:
		return "renew it: its key does not fit"
	case now.Before(c.Begin):
		return fmt.Sprintf("good from %s on: renew it, or set the clock", date(c.Begin))
	case c.Superseded:
		return "renew it: it is signed by the former authority"
	case left < Soon:
		return fmt.Sprintf("renew it: %d days left", int(left.Hours()/24))
	}
	return "good"
}

// Due reports whether the certificate is to be renewed: it ends Soon, or has not begun
// (who signed it had a clock that was ahead), its authority was renewed, or its own
// renewal was interrupted.
func (c Certificate) Due(now time.Time) bool {
	return c.Superseded || c.Incomplete || c.End.Sub(now) < Soon || now.Before(c.Begin)
}

// days is for how many days the certificate was made, which is not from its Begin on.
func (c Certificate) days() int {
	const day = 24 * time.Hour
	d := c.End.Sub(c.Begin)
	if part := d % day; part > day/4 && part < 3*day/4 { // else it begins five minutes before it was made
		d -= clockSkew
	}
	return max(1, int((d+2*time.Hour)/day)) // days in which clocks are put back and forth are no whole ones
}

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	validDNS  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)
)

// local are added to servers' certificates, since they are asked on their own host too.
var local = []string{"localhost", "127.0.0.1", "::1"}

// Issue makes a certificate. A name that has one is refused.
func (a *Authority) Issue(r Request) (Certificate, error) {
	template, err := a.template(r)
	if err != nil {
		return Certificate{}, err
	}
	dir := a.Dir(r.Name)
	if _, err := os.Lstat(dir); err == nil {
		return Certificate{}, fmt.Errorf("%s has a certificate already, in %s; renew it with 'netctl pki renew %s %s', or issue one under another name", r.Name, dir, a.dir, r.Name)
	}
	tmp, err := os.MkdirTemp(filepath.Join(a.dir, issuedDir), ".new-")
	if err == nil {
		err = a.write(tmp, template)
	}
	if err == nil {
		err = durable.WriteFile(filepath.Join(tmp, BundleFile), encode(a.roots))
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return Certificate{}, errors.Join(fmt.Errorf("write the certificate of %s: %w", r.Name, err), os.RemoveAll(tmp))
	}
	if err := durable.SyncDir(filepath.Dir(dir)); err != nil {
		return Certificate{}, err
	}
	return a.read(r.Name)
}

// Renew replaces a certificate by one of the same name, role and addresses, with a
// key of its own, which is good as long as the former was, or for days unless that
// is 0.
func (a *Authority) Renew(name string, days int) (Certificate, error) {
	had, err := a.read(name)
	if err != nil {
		return had, err
	}
	if days == 0 {
		days = had.days()
	}
	template, err := a.template(Request{name, had.Role, had.Addresses, days})
	if err != nil {
		return had, err
	}
	if err := a.write(a.Dir(name), template); err != nil {
		return had, fmt.Errorf("write the certificate of %s: %w; renew it again", name, err)
	}
	return a.read(name)
}

// template checks a request and makes a certificate of it, not yet signed.
func (a *Authority) template(r Request) (*x509.Certificate, error) {
	if !validName.MatchString(r.Name) {
		return nil, fmt.Errorf("name %q: must be 1 to 64 letters, digits, dots, hyphens and underscores, the first a letter or digit", r.Name)
	}
	if _, err := ParseRole(string(r.Role)); err != nil {
		return nil, err
	}
	if r.Days == 0 {
		r.Days = Days
	}
	now := a.now()
	t := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"Contiv"}, OrganizationalUnit: []string{string(r.Role)}, CommonName: r.Name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.AddDate(0, 0, r.Days),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if end := a.roots[0].NotAfter; r.Days < 1 || t.NotAfter.After(end) {
		return nil, fmt.Errorf("%d days: must be at least one, and end before the authority does, on %s; ask for another number of days, or renew the authority with 'netctl pki authority %s'", r.Days, date(end), a.dir)
	}
	if r.Role.serves() {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		r.Addresses = append(slices.Clone(local), r.Addresses...)
		if validDNS.MatchString(r.Name) {
			r.Addresses = append(r.Addresses, r.Name)
		}
	} else if len(r.Addresses) > 0 {
		return nil, fmt.Errorf("a %s accepts no connections: omit the addresses, or issue it for the role %s or %s", r.Role, Netmaster, Host)
	}
	for _, s := range r.Addresses {
		if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
			if b := net.IP(ip.AsSlice()); !slices.ContainsFunc(t.IPAddresses, b.Equal) {
				t.IPAddresses = append(t.IPAddresses, b)
			}
		} else if len(s) <= 253 && validDNS.MatchString(s) {
			if !slices.Contains(t.DNSNames, s) {
				t.DNSNames = append(t.DNSNames, s)
			}
		} else {
			return nil, fmt.Errorf("address %q: must be a host's name or an IP address, without scheme and port", s)
		}
	}
	return t, nil
}

// write makes a key and signs. The key comes first: a certificate without its key
// is seen and renewed again, by what the certificate says.
func (a *Authority) write(dir string, template *x509.Certificate) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	cert, err := a.sign(template, a.roots[0], &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, KeyFile), pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der})); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, CertFile), encode(append([]*x509.Certificate{cert}, a.links...)))
}

// Dir is where a certificate is: what --tls-dir takes.
func (a *Authority) Dir(name string) string { return filepath.Join(a.dir, issuedDir, name) }

// Issued returns all certificates, by name.
func (a *Authority) Issued() ([]Certificate, error) {
	names, err := a.names()
	if err != nil {
		return nil, err
	}
	var all []Certificate
	for _, name := range names {
		c, err := a.read(name)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// names of certificates, sorted; what an interrupted Issue left is none.
func (a *Authority) names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(a.dir, issuedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list certificates: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (a *Authority) read(name string) (Certificate, error) {
	if !validName.MatchString(name) {
		return Certificate{}, fmt.Errorf("there is no certificate named %q; 'netctl pki show %s' lists them", name, a.dir)
	}
	path := filepath.Join(a.Dir(name), CertFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Certificate{}, fmt.Errorf("%s has no certificate named %s; 'netctl pki show %s' lists them", a.dir, name, a.dir)
	} else if err != nil {
		return Certificate{}, fmt.Errorf("read the certificate of %s: %w", name, err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return Certificate{}, fmt.Errorf("read the certificate of %s: %s has none; delete its directory and issue it again", name, path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Certificate{}, fmt.Errorf("read the certificate of %s: %w; delete %s and issue it again", name, err, a.Dir(name))
	}
	role, err := RoleOf(cert)
	if err != nil {
		return Certificate{}, err
	}
	c := Certificate{Name: name, Role: role, Dir: a.Dir(name), Begin: cert.NotBefore, End: cert.NotAfter, Superseded: cert.CheckSignatureFrom(a.roots[0]) != nil}
	c.Addresses = append(c.Addresses, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		c.Addresses = append(c.Addresses, ip.String())
	}
	key, err := os.ReadFile(filepath.Join(a.Dir(name), KeyFile))
	c.Incomplete = err != nil || !matches(cert, key)
	return c, nil //nolint:nilerr // a key that cannot be read is what Torn says
}

// matches reports whether a key in PEM is the one of a certificate.
func matches(cert *x509.Certificate, text []byte) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	own, ok := key.(*ecdsa.PrivateKey)
	return err == nil && ok && own.PublicKey.Equal(cert.PublicKey)
}
