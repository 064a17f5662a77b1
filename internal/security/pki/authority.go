package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
)

const (
	// Years is for how long an authority is good.
	Years = 10
	// Days is for how long a certificate is good when nothing else is asked for.
	Days = 90
	// Soon is how long before its end a certificate, or an authority, is to be renewed.
	Soon = 30 * 24 * time.Hour
	// clockSkew is by how much a verifier's clock may be behind the signer's: a day, for a clock
	// that was set back, and half a day more, so that days can distinguish it from the five
	// minutes that earlier versions used.
	clockSkew = 36 * time.Hour

	// authorityFile has the key, the authorities, newest first, and the newest one as
	// the former ones signed it: in one file, so that they always fit together.
	authorityFile = "authority.pem"
	issuedDir     = "issued"

	blockCert = "CERTIFICATE"
	blockKey  = "PRIVATE KEY"
)

// The files of a certificate's directory, which --tls-dir takes.
const (
	BundleFile = "ca.crt"  // authorities to trust
	CertFile   = "tls.crt" // the certificate, and the links to former authorities
	KeyFile    = "tls.key"
)

// Authority is the certificate authority of a directory. It is not safe for
// concurrent use, and one process at a time may change a directory.
type Authority struct {
	dir   string
	now   func() time.Time
	key   *ecdsa.PrivateKey
	roots []*x509.Certificate // trusted; the first is the one that signs
	links []*x509.Certificate // the first of roots, signed by former ones
}

// Init makes an authority in a directory, which is made too. A directory that has
// one is refused.
func Init(dir string) (*Authority, error) {
	if _, err := os.Lstat(filepath.Join(dir, authorityFile)); err == nil {
		return nil, fmt.Errorf("%s has an authority already; name another directory, or renew this one with 'netctl pki authority %s'", dir, dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make an authority: %w; name a directory that you may write to", err)
	}
	if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
		return nil, fmt.Errorf("%s is not empty and has no authority; name a new or an empty directory", dir)
	}
	a := &Authority{dir: dir, now: time.Now}
	var err error
	if a.key, err = newKey(); err != nil {
		return nil, err
	}
	root, err := a.sign(a.authorityTemplate(), nil, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	a.roots = []*x509.Certificate{root}
	if err := os.MkdirAll(filepath.Join(dir, issuedDir), 0o700); err != nil {
		return nil, fmt.Errorf("make an authority: %w; name a directory that you may write to", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // it may have been there
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return a, a.save()
}

// Open reads the authority of a directory.
func Open(dir string) (*Authority, error) {
	path := filepath.Join(dir, authorityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no authority; name the directory of one, or make one there with 'netctl pki init %s'", dir, dir)
	} else if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	a := &Authority{dir: dir, now: time.Now}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case blockKey:
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("read the authority: key of %s: %w; restore the file from a copy", path, err)
			}
			a.key, _ = key.(*ecdsa.PrivateKey)
		case blockCert:
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("read the authority: certificate of %s: %w; restore the file from a copy", path, err)
			}
			if bytes.Equal(cert.RawIssuer, cert.RawSubject) {
				a.roots = append(a.roots, cert)
			} else {
				a.links = append(a.links, cert)
			}
		}
	}
	if a.key == nil || len(a.roots) == 0 || !a.key.PublicKey.Equal(a.roots[0].PublicKey) {
		return nil, fmt.Errorf("read the authority: %s does not have a key and the certificate to it; restore the file from a copy", path)
	}
	return a, nil
}

// Bundle returns the authorities to trust, the one that signs first.
func (a *Authority) Bundle() []*x509.Certificate { return slices.Clone(a.roots) }

// RenewAuthority makes a new authority, which signs from now on, beside the existing ones,
// and gives each certificate's directory the bundle of all. The former authority's key is
// deleted; the certificates it signed stay valid.
func (a *Authority) RenewAuthority() error {
	a.roots = slices.DeleteFunc(a.roots, func(c *x509.Certificate) bool { return !c.Equal(a.roots[0]) && !a.now().Before(c.NotAfter) })
	if len(a.roots) > 1 {
		return fmt.Errorf("the authority of %s was renewed and the former one is still trusted; renew its certificates ('netctl pki renew --all %s'), copy them to their hosts, and retire the former one with 'netctl pki authority --retire %s'", a.dir, a.dir, a.dir)
	}
	former, formerKey := a.roots[0], a.key
	if !a.now().Before(former.NotAfter) {
		return fmt.Errorf("the authority of %s expired on %s, so it cannot sign a successor; make another in a new directory with 'netctl pki init DIR', and give every host a certificate of that", a.dir, date(former.NotAfter))
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	template := a.authorityTemplate()
	root, err := a.sign(template, nil, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if template.NotAfter.After(former.NotAfter) {
		template.NotAfter = former.NotAfter
	}
	link, err := a.sign(template, former, &key.PublicKey, formerKey)
	if err != nil {
		return err
	}
	a.key, a.roots, a.links = key, []*x509.Certificate{root, former}, []*x509.Certificate{link}
	return a.save()
}

// Retire takes the former authorities out of the bundle. It is refused while a certificate
// that they signed is in use.
func (a *Authority) Retire() error {
	if len(a.roots) == 1 {
		return fmt.Errorf("the authority of %s has no former authority to retire; renew it first with 'netctl pki authority %s'", a.dir, a.dir)
	}
	all, err := a.Issued()
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Superseded {
			return fmt.Errorf("%s was signed by the former authority; renew it first with 'netctl pki renew %s %s', and put it on its host", c.Name, a.dir, c.Name)
		}
	}
	a.roots, a.links = a.roots[:1], nil
	return a.save()
}

// save writes the authority, then what follows from it.
func (a *Authority) save() error {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der})
	text = append(text, encode(a.roots)...)
	if err := durable.WriteFile(filepath.Join(a.dir, authorityFile), append(text, encode(a.links)...)); err != nil {
		return fmt.Errorf("write the authority: %w", err)
	}
	return a.DistributeBundle()
}

// DistributeBundle gives every certificate's directory the bundle as it is now: a RenewAuthority
// that was interrupted is made whole by it.
func (a *Authority) DistributeBundle() error {
	names, err := a.names()
	if err != nil {
		return err
	}
	paths := []string{filepath.Join(a.dir, BundleFile)}
	for _, name := range names {
		paths = append(paths, filepath.Join(a.Dir(name), BundleFile))
	}
	bundle := encode(a.roots)
	for _, path := range paths {
		if had, err := os.ReadFile(path); err == nil && bytes.Equal(had, bundle) {
			continue
		}
		if err := durable.WriteFile(path, bundle); err != nil {
			return fmt.Errorf("write the authorities to trust: %w", err)
		}
	}
	return nil
}

func (a *Authority) authorityTemplate() *x509.Certificate {
	now := a.now()
	return &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"Contiv"}, CommonName: "Contiv authority of " + now.UTC().Format(time.RFC3339Nano)},
		NotBefore: now.Add(-clockSkew), NotAfter: now.AddDate(Years, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

// sign makes a certificate; a nil parent is the template itself.
func (a *Authority) sign(template, parent *x509.Certificate, pub *ecdsa.PublicKey, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, by)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func encode(certs []*x509.Certificate) []byte {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: c.Raw})...)
	}
	return text
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
