package membership

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// authorityFile is what a member hands to a new one: all of a pki.Authority.
const (
	authorityFile = "authority.pem"
	authorityDir  = "authority"
)

// peers is the authority of members. Every member has all of it: the admitting member hands
// it over, so that losing a host does not end it. Each member makes and renews its own
// certificate.
type peers struct {
	dir  string
	auth atomic.Pointer[pki.Authority]
	cert pki.Certificate // of openPeers and renew alone; others read the files
	by   Fingerprint     // of who signed cert
	own  string          // the directory of the certificate's files
}

// makeAuthority makes the authority of a new cluster, or takes the one that is there.
func makeAuthority(d *directory) (*pki.Authority, error) {
	return putAuthority(d, authorityDir, initAuthority)
}

func initAuthority(tmp string) error {
	_, err := pki.Init(tmp)
	return err
}

// takeAuthority makes a copy of the cluster's authority, as it was handed over.
func takeAuthority(d *directory, text []byte) (*pki.Authority, error) {
	return putAuthority(d, authorityDir, func(tmp string) error { return durable.WriteFile(filepath.Join(tmp, authorityFile), text) })
}

// putAuthority has the authority made aside, so that there is a whole one or none.
func putAuthority(d *directory, name string, put func(tmp string) error) (*pki.Authority, error) {
	dir := d.own(name)
	if a, err := pki.Open(dir); err == nil {
		return a, nil
	}
	left, err := filepath.Glob(dir + ".new-*")
	if err != nil {
		return nil, err
	}
	for _, l := range left { // of who was killed here
		if err := os.RemoveAll(l); err != nil {
			return nil, fmt.Errorf("make an authority: %w", err)
		}
	}
	tmp, err := os.MkdirTemp(d.own(""), name+".new-")
	if err == nil {
		err = put(tmp)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(tmp, "issued"), 0o700)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err == nil {
		err = durable.SyncDir(d.own(""))
	}
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return pki.Open(dir)
}

func fingerprint(a *pki.Authority) Fingerprint { return sha256.Sum256(a.Bundle()[0].Raw) }

// openPeers opens the authority and makes, or renews, the certificate of a member.
func openPeers(d *directory, cfg Config) (*peers, error) {
	a, err := pki.Open(d.own("authority"))
	if err != nil {
		return nil, err
	}
	if err := a.DistributeBundle(); err != nil {
		return nil, err
	}
	p := &peers{dir: d.own("authority"), own: a.Dir(d.Name)}
	p.auth.Store(a)
	p.by = fingerprint(a)
	p.cert, err = certify(a, d.Name, pki.Netmaster, cfg.hosts())
	return p, err
}

// certify makes, or renews, a netmaster's certificate of that name, good for the
// addresses by which others connect.
func certify(a *pki.Authority, name string, role pki.Role, want []string) (pki.Certificate, error) {
	all, err := a.Issued()
	if err != nil {
		return pki.Certificate{}, err
	}
	i := slices.IndexFunc(all, func(c pki.Certificate) bool { return c.Name == name })
	if i >= 0 && !slices.ContainsFunc(want, func(h string) bool { return !slices.Contains(all[i].Addresses, h) }) {
		if all[i].Due(time.Now()) {
			return a.Renew(name, 0)
		}
		return all[i], nil
	}
	if i >= 0 { // for other addresses than others connect to now
		if err := os.RemoveAll(a.Dir(name)); err != nil {
			return pki.Certificate{}, fmt.Errorf("replace the certificate of %s: %w", name, err)
		}
	}
	return a.Issue(pki.Request{Name: name, Role: role, Addresses: want})
}

// renew makes a new certificate when the present one ends soon. Users of the certificate
// read it at each connection.
func (p *peers) renew() error {
	auth := p.auth.Load()
	if !p.cert.Due(time.Now()) && p.by == fingerprint(auth) {
		return nil
	}
	cert, err := auth.Renew(p.cert.Name, 0)
	if err != nil {
		return err
	}
	p.cert, p.by = cert, fingerprint(auth)
	return nil
}

// export is the authority as a new member needs it.
func (p *peers) export() ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(p.dir, authorityFile))
	if err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "read the members' authority: %w", err)
	}
	return b, nil
}

// hosts are the names by which others connect to a member.
func (c Config) hosts() []string {
	var out []string
	for _, a := range []string{c.Peer, c.EnrollmentAddress} {
		if host, _, err := net.SplitHostPort(a); err == nil && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}
