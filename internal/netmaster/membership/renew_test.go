package membership

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// asHost is a host that gets its certificate and its trusted authorities now.
func asHost(t *testing.T, m *Member) *tls.Config { t.Helper(); return as(t, m, pki.Host) }

// as is a client of a role.
func as(t *testing.T, m *Member, role pki.Role) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := m.Authorities.clients.Load()
	_, text, err := a.Sign(pki.Request{Name: "h", Role: role}, &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Text())
	cert := tls.Certificate{PrivateKey: key}
	for rest := text; ; {
		c, more := pem.Decode(rest)
		if c == nil {
			break
		}
		cert.Certificate, rest = append(cert.Certificate, c.Bytes), more
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}}
}

// asks reports whether the store of a member and its enrolment server know a host.
func asks(t *testing.T, host *tls.Config, members Fingerprint, m *Member) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + m.cfg.Client}, TLS: host, DialTimeout: patient})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Get(ctx, store.Root); err == nil || !strings.Contains(err.Error(), "asks netmaster, and not the store") { // it knows who asks
		return fmt.Errorf("the store of %s: %w", m.Name(), err)
	}
	pinned := jointoken.Pinned(members)
	pinned.Certificates = host.Certificates
	d := transport.OwnClient(pinned, "", patient)
	defer d.CloseIdleConnections()
	if err := jointoken.Call(ctx, d, "GET", "https://"+m.cfg.EnrollmentAddress+jointoken.RootsPath, nil, new(jointoken.Roots)); err != nil {
		return fmt.Errorf("the enrollment server of %s: %w", m.Name(), err)
	}
	return nil
}

func secured(t *testing.T, n int, name string) Config {
	t.Helper()
	cfg := config(t, n, name)
	cfg.Secure = []string{"127.0.0.1"}
	if host, _, err := net.SplitHostPort(cfg.Client); err == nil {
		cfg.Secure = append(cfg.Secure, host)
	}
	return cfg
}

// pair starts a member, and another one that joins it by a token that is not in its
// configuration any more.
func pair(t *testing.T, aCfg Config, bCfg *Config) (a, b *Member) {
	t.Helper()
	a = start(t, aCfg)
	bCfg.Token, _ = tokenOf(t, a)
	b = start(t, *bCfg)
	bCfg.Token = ""
	return a, b
}

// TestRenewedAuthoritiesReachAllMembers: one command renews both authorities. All members take them, also
// one that was away. Hosts with certificates from before and after connect to members that
// run since before and to restarted ones. Writes never stop.
func TestRenewedAuthoritiesReachAllMembers(t *testing.T) {
	t.Parallel()
	aCfg, bCfg := secured(t, 93, "a"), secured(t, 94, "b")
	a, b := pair(t, aCfg, &bCfg)
	before, was := asHost(t, a), fingerprint(a.peers.auth.Load())
	let := func(what string, host *tls.Config, members Fingerprint, all ...*Member) {
		t.Helper()
		for _, m := range all {
			if err := asks(t, host, members, m); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		if _, err := all[0].server.client.Put(ctx, "/written", what); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	let("before", before, was, a, b)

	// It was killed when the next one was in its file: that one counts later.
	next, err := pki.Open(a.dir.own(clientsDir))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	a.Authorities.clients.Store(next)
	if err := a.Authorities.RenewAuthorities(t.Context()); err != nil {
		t.Fatal(err)
	}
	is(t, "again", a.Authorities.RenewAuthorities(t.Context()), model.ErrConflict, "trusted until")
	now := fingerprint(a.peers.auth.Load())
	if got, err := get[Fingerprint](t.Context(), a.server.client, clientsRow); err != nil || got.value != fingerprint(next) || now == was || fingerprint(a.Authorities.clients.Load()) != fingerprint(next) {
		t.Errorf("what counts: %+v, %v", got, err)
	}
	let("before b has heard", before, was, a, b)
	closed(t, b)
	b = start(t, bCfg)
	until(t, "b takes both", func() bool {
		return fingerprint(b.Authorities.clients.Load()) == fingerprint(next) && fingerprint(b.peers.auth.Load()) == now
	})
	b.Authorities.followAll(t.Context())
	if err := b.Authorities.renewPeer(); err != nil {
		t.Fatal(err)
	}
	if err := b.Authorities.renewOwn(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Member{a, b} {
		for _, e := range []string{m.peers.own, ClientsDir(m.dir.path)} {
			d, err := transport.OpenDirectory(e)
			if err != nil {
				t.Fatal(err)
			}
			if leaf, roots := d.All(); len(roots) != 2 || leaf.CheckSignatureFrom(roots[0]) != nil {
				t.Errorf("%s is not of the next authority, of %d", e, len(roots))
			}
		}
	}
	after := asHost(t, b)
	let("a host of before", before, was, a, b)
	let("a host of after", after, now, a, b)
	closed(t, b) // with its next certificate, to a that trusts what it did when it started
	b = start(t, bCfg)
	let("b anew", before, was, a, b)
	closed(t, a)
	a = start(t, aCfg)
	let("a anew", before, was, a, b)
	let("a anew, a host of after", after, now, b, a)
	if all, err := a.Roster.List(t.Context()); err != nil || len(all) != 2 || !all[0].isAlive() || !all[1].isAlive() {
		t.Errorf("members: %+v, %v", all, err)
	}
	cCfg := secured(t, 95, "c")
	var tok Token
	cCfg.Token, tok = tokenOf(t, b)
	if c := start(t, cCfg); tok.Authority != now || fingerprint(c.peers.auth.Load()) != now {
		t.Error("who joins has a former authority")
	}
}

// TestExpiredCertificatesAreReplacedAtStart: a netmaster whose certificates ended while it was off has others when it
// starts; one of before there was an authority of clients gets it from the others.
func TestExpiredCertificatesAreReplacedAtStart(t *testing.T) {
	t.Parallel()
	bCfg := secured(t, 97, "b")
	a, b := pair(t, secured(t, 96, "a"), &bCfg)
	host, members := asHost(t, a), fingerprint(a.peers.auth.Load())
	closed(t, b)
	testenv.ExpireCertificate(t, b.dir.own(authorityDir), b.peers.own)
	for _, dir := range []string{ClientsDir(b.dir.path), AdminDir(b.dir.path)} {
		testenv.ExpireCertificate(t, AuthorityDir(b.dir.path), dir)
	}
	b = start(t, bCfg)
	if d, err := transport.OpenDirectory(AdminDir(b.dir.path)); err != nil || d.Problem() != nil {
		t.Errorf("the administrator's certificate: %v, %v", d.Problem(), err)
	}
	if err := asks(t, host, members, b); err != nil {
		t.Error(err)
	}
	if all, err := a.Roster.List(t.Context()); err != nil || len(all) != 2 || !all[0].isAlive() || !all[1].isAlive() {
		t.Errorf("members: %+v, %v", all, err)
	}
	closed(t, b)
	if err := os.RemoveAll(filepath.Join(b.dir.path, "join", clientsDir)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	_, err := Start(ctx, bCfg)
	is(t, "with --secure", err, model.ErrConflict, "start it once without --secure")
	bCfg.Secure = nil
	b = start(t, bCfg)
	until(t, "it gets the authority of clients", func() bool {
		got := b.Authorities.clients.Load()
		return got != nil && fingerprint(got) == fingerprint(a.Authorities.clients.Load())
	})
	closed(t, b)
	bCfg.Secure = secured(t, 97, "b").Secure
	b = start(t, bCfg)
	if err := asks(t, host, members, b); err != nil {
		t.Error(err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}
