package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// cacheTime is for how long files are believed without a look at them.
const cacheTime = time.Second

// Directory is a certificate with its key and the authorities to trust, as 'netctl
// pki issue' writes it: ca.crt, tls.crt, tls.key. It is safe for concurrent use.
//
// Files that change count within a second, for connections made from then on; what
// cannot be read, or does not fit together while it is being copied, leaves what was
// read before. Only the authorities that a client trusts are those of when Client was
// called: a renewed authority's certificates bring the link to the former one along.
type Directory struct {
	path string
	now  func() time.Time

	mu        sync.Mutex
	checkedAt time.Time
	text      string // of all three files
	cert      *tls.Certificate
	roots     *x509.CertPool
	failed    error
}

// OpenDirectory reads a directory. One whose certificate has ended is read too: its
// renewal counts when it comes.
func OpenDirectory(path string) (*Directory, error) {
	d := &Directory{path: path, now: time.Now}
	d.refresh()
	return d, d.failed
}

// Files names the files, for who reads them by itself.
func (d *Directory) Files() *Files {
	at := func(name string) string { return filepath.Join(d.path, name) }
	return &Files{Cert: at(pki.CertFile), Key: at(pki.KeyFile), ClientCA: at(pki.BundleFile)}
}

// Leaf returns the certificate as it is now.
func (d *Directory) Leaf() *x509.Certificate {
	cert, _ := d.current()
	return cert.Leaf
}

// All returns the certificate and those of the authorities beside it, as they are now.
func (d *Directory) All() (leaf *x509.Certificate, authorities []*x509.Certificate) {
	leaf = d.Leaf()
	d.mu.Lock()
	defer d.mu.Unlock()
	text, _, _ := strings.Cut(d.text, "\x00")
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return leaf, authorities
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			authorities = append(authorities, cert)
		}
	}
}

// Path names the directory.
func (d *Directory) Path() string { return d.path }

// Check refuses a certificate that is of none of the roles, where some are given, or is not good for one of
// the names by which others connect.
func (d *Directory) Check(names []string, roles ...pki.Role) error {
	leaf := d.Leaf()
	if len(roles) > 0 {
		if err := hasRole(leaf, roles); err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
	}
	for _, name := range names {
		if err := leaf.VerifyHostname(name); err != nil {
			return fmt.Errorf("%s: others connect to %s, for which the certificate is not valid (%w); issue one with 'netctl pki issue --addresses %s'", d.path, name, err, name)
		}
	}
	return nil
}

// Server is for a listener that lets in who shows a certificate of the authorities
// with one of the roles.
func (d *Directory) Server(roles ...pki.Role) *tls.Config {
	return d.server(tls.RequireAndVerifyClientCert, roles)
}

// ServerOptionalCert is Server for a listener that also takes who shows no certificate,
// and has to find out by other means who that is. One that is shown must be good.
func (d *Directory) ServerOptionalCert(roles ...pki.Role) *tls.Config {
	return d.server(tls.VerifyClientCertIfGiven, roles)
}

func (d *Directory) server(how tls.ClientAuthType, roles []pki.Role) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, roots := d.current()
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert},
				ClientAuth: how, ClientCAs: roots,
				SessionTicketsDisabled: true, // each connection is verified
				VerifyConnection: func(s tls.ConnectionState) error {
					if len(s.PeerCertificates) == 0 {
						return nil // where one is required, the handshake has failed before
					}
					if err := hasRole(s.PeerCertificates[0], roles); err != nil {
						return fmt.Errorf("a client is refused: %w", err)
					}
					return nil
				},
			}, nil
		},
	}
}

// Client is the configuration of clients that connect to servers of the authorities with
// one of the roles; without roles, to any of their servers.
func (d *Directory) Client(servers ...pki.Role) *tls.Config {
	_, roots := d.current()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _ := d.current()
			return cert, nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(servers) == 0 {
				return nil
			}
			if err := hasRole(s.PeerCertificates[0], servers); err != nil {
				return fmt.Errorf("the server is refused: %w", err)
			}
			return nil
		},
	}
}

// Config is what a process with this certificate serves and asks with, the store left
// out.
func (d *Directory) Config() Config {
	return Config{
		APIServer:        d.Server(pki.Roles...),
		APIClient:        d.Client(pki.Netmaster),
		InspectionServer: d.ServerOptionalCert(pki.ClusterAdmin, pki.Netmaster, pki.Client),
		DebugServer:      d.Server(pki.ClusterAdmin),
	}
}

func hasRole(cert *x509.Certificate, roles []pki.Role) error {
	role, err := pki.RoleOf(cert)
	if err != nil {
		return err
	}
	if !slices.Contains(roles, role) {
		return fmt.Errorf("the certificate of %q has the role %s, and here it must be one of %v", cert.Subject.CommonName, role, roles)
	}
	return nil
}

func (d *Directory) current() (*tls.Certificate, *x509.CertPool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now().Sub(d.checkedAt) >= cacheTime {
		d.refresh()
	}
	return d.cert, d.roots
}

// refresh reads the files; what cannot be used leaves what there is.
func (d *Directory) refresh() {
	d.checkedAt = d.now()
	var text []string
	for _, name := range []string{pki.BundleFile, pki.CertFile, pki.KeyFile} {
		b, err := os.ReadFile(filepath.Join(d.path, name))
		if err != nil {
			d.failed = fmt.Errorf("read the certificate: %w; the directory must have %s, %s and %s, as 'netctl pki issue' makes them", err, pki.BundleFile, pki.CertFile, pki.KeyFile)
			return
		}
		text = append(text, string(b))
	}
	whole := strings.Join(text, "\x00")
	if whole == d.text {
		d.failed = nil
		return
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(text[0])) {
		d.failed = fmt.Errorf("%s has no certificate of an authority; copy it from where the certificate was issued", filepath.Join(d.path, pki.BundleFile))
		return
	}
	cert, err := tls.X509KeyPair([]byte(text[1]), []byte(text[2]))
	if err != nil {
		d.failed = fmt.Errorf("%s and %s of %s do not match: %w; copy both from where the certificate was issued", pki.CertFile, pki.KeyFile, d.path, err)
		return
	}
	d.text, d.cert, d.roots, d.failed = whole, &cert, roots, nil
}

// Unusable is why the files as they are now cannot be used, so that what was read before
// is; nil = they are used.
func (d *Directory) Unusable() error {
	d.current()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Problem is what is wrong with the certificate: files that cannot be used, an end
// that is near, or over; nil = nothing.
func (d *Directory) Problem() error {
	if err := d.Unusable(); err != nil {
		return fmt.Errorf("the former certificate stays in use: %w", err)
	}
	leaf := d.Leaf()
	d.mu.Lock()
	defer d.mu.Unlock()
	left := leaf.NotAfter.Sub(d.now())
	if left <= 0 {
		return fmt.Errorf("the certificate of %s expired on %s and others refuse it; renew it with 'netctl pki renew' and copy it here", d.path, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if left < pki.Soon {
		return fmt.Errorf("the certificate of %s expires on %s, in less than 30 days; renew it with 'netctl pki renew' and copy it here", d.path, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

const (
	checkInterval = time.Minute
	remindEvery   = 12 * time.Hour
)

// Watch logs what is wrong with the certificate, at once and then twice a day while it
// lasts, and when another one is in use, until ctx ends.
func (d *Directory) Watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	used, told, last := d.Leaf(), "", time.Time{}
	for {
		if is := d.Leaf(); !is.Equal(used) {
			used = is
			log.Info("a renewed certificate is in use", "directory", d.path, "until", is.NotAfter.UTC().Format(time.RFC3339))
		}
		err := d.Problem()
		switch {
		case err == nil:
			told = ""
		case err.Error() != told || d.now().Sub(last) >= remindEvery:
			told, last = err.Error(), d.now()
			log.Warn("the certificate needs attention", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
