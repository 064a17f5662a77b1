package membership

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
)

// maxAddresses is how many addresses a host may have in its certificate.
const maxAddresses = 16

// hostRow is what the store has of a host's certificate: the newest key, and the one
// before, which may ask again for what was lost on the way. A certificate of an older
// key renews nothing, so one that was copied and used is noticed by the host's own.
type hostRow struct {
	Name string    `json:"name"`
	Key  []byte    `json:"key"`           // SHA-256 of the public key
	Was  []byte    `json:"was,omitempty"` // of the one before
	By   string    `json:"by"`            // token, or renewal
	At   time.Time `json:"at"`
	End  time.Time `json:"end"`
}

// handleHosts serves hosts. Accounts have their own limit, since another server checks
// their tokens and may be slow: they take no slot from hosts with the cluster's
// credentials.
func (m *Enrolment) handleHosts(mux *http.ServeMux, strangers *transport.Slots) {
	accounts, known := transport.NewSlots(atOnce, accountsOne), transport.NewSlots(atOnce, atOnce)
	handle := func(path string, do func(r *http.Request, q jointoken.HostRequest) (jointoken.HostAnswer, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var q jointoken.HostRequest
			if err := strictjson.Read(r.Body, maxBody, &q); err != nil {
				jointoken.Refuse(w, model.Errorf(model.ErrInvalid, "the request cannot be read: is this host's Contiv of another version? %w", err))
				return
			}
			of := strangers
			switch {
			case len(r.TLS.VerifiedChains) > 0:
				of = known
			case q.Account != "":
				of = accounts
			}
			end, ok := of.Acquire(transport.ClientAtRemote(r.RemoteAddr))
			if !ok {
				jointoken.Refuse(w, errTooMany)
				return
			}
			defer end()
			a, err := do(r, q)
			if err != nil {
				m.cfg.Logger.Warn("a host gets no certificate", "host", q.Name, "from", r.RemoteAddr, "token", q.ID, "error", err)
				jointoken.Refuse(w, err)
				return
			}
			jointoken.Reply(w, http.StatusOK, a)
		})
	}
	handle(jointoken.HostPath, func(r *http.Request, q jointoken.HostRequest) (jointoken.HostAnswer, error) {
		if q.Account != "" {
			return m.enrollAccount(r.Context(), q)
		}
		return m.enrollHost(r.Context(), q)
	})
	handle(jointoken.RenewPath, func(r *http.Request, q jointoken.HostRequest) (jointoken.HostAnswer, error) {
		if len(r.TLS.VerifiedChains) == 0 || m.isMember(r) {
			return jointoken.HostAnswer{}, model.Errorf(model.ErrInvalid, "a host's certificate can only be renewed by a client that presents it")
		}
		return m.renewHost(r.Context(), r.TLS.VerifiedChains[0][0], q, r.RemoteAddr)
	})
	mux.HandleFunc("GET "+jointoken.ServersPath, func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 {
			jointoken.Refuse(w, model.Errorf(model.ErrInvalid, "only hosts with a certificate may ask"))
			return
		}
		doors, err := m.enrollmentAddresses(r.Context())
		if err != nil {
			jointoken.Refuse(w, model.Errorf(model.ErrUnavailable, "the members are not known now: %w", err))
			return
		}
		jointoken.Reply(w, http.StatusOK, jointoken.HostAnswer{Servers: doors})
	})
	m.serveAuthority(mux, clientsPath, m.authorities.exportClients)
	m.serveAuthority(mux, membersPath, func() ([]byte, error) { return m.peers.export() })
	mux.HandleFunc("GET "+jointoken.RootsPath, func(w http.ResponseWriter, _ *http.Request) {
		if auth := m.authorities.clients.Load(); auth != nil {
			jointoken.Reply(w, http.StatusOK, jointoken.Roots{Authorities: auth.Text(), Members: fingerprint(m.peers.auth.Load())})
			return
		}
		jointoken.Refuse(w, model.Errorf(model.ErrUnavailable, "this netmaster does not have the client authority yet"))
	})
}

// serveAuthority has the enrollment server answer members with an authority.
func (m *Enrolment) serveAuthority(mux *http.ServeMux, path string, read func() ([]byte, error)) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if !m.isMember(r) {
			jointoken.Refuse(w, model.Errorf(model.ErrInvalid, "only members may ask"))
			return
		}
		text, err := read()
		if err == nil && text == nil {
			err = model.Errorf(model.ErrUnavailable, "this netmaster does not have it yet")
		}
		if err != nil {
			jointoken.Refuse(w, err)
			return
		}
		jointoken.Reply(w, http.StatusOK, text)
	})
}

// isMember reports whether who asks shows a certificate of the members' authority: the
// enrollment server takes those of hosts too.
func (m *local) isMember(r *http.Request) bool {
	return slices.ContainsFunc(r.TLS.VerifiedChains, func(chain []*x509.Certificate) bool {
		root := chain[len(chain)-1]
		return slices.ContainsFunc(m.peers.auth.Load().Bundle(), root.Equal)
	})
}

// hasFingerprint reports whether an authority has the fingerprint, or had it before a renewal.
func hasFingerprint(a *pki.Authority, f Fingerprint) bool {
	return slices.ContainsFunc(a.Bundle(), func(c *x509.Certificate) bool { return sum(c) == f })
}

func sum(c *x509.Certificate) Fingerprint { return sha256.Sum256(c.Raw) }

func keySum(publicKey []byte) []byte {
	s := sha256.Sum256(publicKey)
	return s[:]
}

// readCSR refuses what no host of ours sends.
func readCSR(q jointoken.HostRequest) (*x509.CertificateRequest, error) {
	if _, err := model.ParseHostName(q.Name); err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(q.CSR)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, model.Errorf(model.ErrInvalid, "the request for a certificate cannot be read: is this host's Contiv of another version?")
	}
	if len(csr.IPAddresses) > maxAddresses {
		return nil, model.Errorf(model.ErrInvalid, "the request has %d addresses, more than %d", len(csr.IPAddresses), maxAddresses)
	}
	return csr, nil
}

// enrollHost spends a token on a host's key, and signs it. Who asks again with the same
// key is answered again.
func (m *Enrolment) enrollHost(ctx context.Context, q jointoken.HostRequest) (jointoken.HostAnswer, error) {
	var none jointoken.HostAnswer
	if !jointoken.IsText(q.ID, jointoken.IDLen) || !jointoken.IsText(q.Secret, jointoken.SecretLen) {
		return none, model.Errorf(model.ErrInvalid, "the request has no token")
	}
	csr, err := readCSR(q)
	if err != nil {
		return none, err
	}
	again := "make another with 'netctl cluster token --host " + q.Name + "'"
	key := keySum(csr.RawSubjectPublicKeyInfo)
	c := m.server.client
	for range attempts {
		tok, err := get[tokenRow](ctx, c, hostTokenRows+q.ID)
		if err != nil {
			return none, err
		}
		if tok.rev == 0 || subtle.ConstantTimeCompare(tok.value.Hash, jointoken.Hash(q.ID, q.Secret)) != 1 {
			if other, err := get[tokenRow](ctx, c, tokenRows+q.ID); err == nil && other.rev != 0 {
				return none, model.Errorf(model.ErrInvalid, "the token is for a netmaster: %s", again)
			}
			return none, model.Errorf(model.ErrInvalid, "the cluster does not know this token: %s", again)
		}
		if tok.value.Host != q.Name {
			return none, model.Errorf(model.ErrInvalid, "the token is for the host %s, and this is %s: %s, or give --host", tok.value.Host, q.Name, again)
		}
		had, err := get[hostRow](ctx, c, hostRows+store.Segment(q.Name))
		if err != nil {
			return none, err
		}
		mine := base64.RawStdEncoding.EncodeToString(key)
		switch t := tok.value; {
		case t.Dir == mine && bytes.Equal(had.value.Key, key):
			return m.sign(ctx, q, csr)
		case t.Dir != "":
			return none, model.Errorf(model.ErrConflict, "the token was used on %s, and a token works once: %s", date(t.At), again)
		case t.whyInvalid(time.Now()) != "":
			return none, model.Errorf(model.ErrInvalid, "%s: %s", t.whyInvalid(time.Now()), again)
		}
		now := time.Now().UTC()
		spent := tok.value
		spent.Dir, spent.Name, spent.At = mine, q.Name, now
		next := hostRow{Name: q.Name, Key: key, By: "token " + q.ID, At: now, End: now.AddDate(0, 0, pki.Days)}
		a, err := m.sign(ctx, q, csr)
		if err != nil {
			return none, err
		}
		ok, err := commit(ctx, c, []clientv3.Cmp{unchangedSince(hostTokenRows+q.ID, tok.rev), unchangedSince(hostRows+store.Segment(q.Name), had.rev)},
			clientv3.OpPut(hostTokenRows+q.ID, encode(spent)), clientv3.OpPut(hostRows+store.Segment(q.Name), encode(next)))
		if err != nil {
			return none, err
		}
		if ok {
			m.cfg.Logger.Info("a host got its certificate", "host", q.Name, "token", q.ID)
			return a, nil
		}
	}
	return none, model.Errorf(model.ErrUnavailable, "others change the same objects: try again")
}

// renewHost signs a host's next key if the request shows the host's newest certificate. The
// next certificate has the addresses of the one before, and the connection's.
func (m *Enrolment) renewHost(ctx context.Context, shown *x509.Certificate, q jointoken.HostRequest, from string) (jointoken.HostAnswer, error) {
	var none jointoken.HostAnswer
	role, err := pki.RoleOf(shown)
	if err != nil || role != pki.Host || shown.Subject.CommonName != q.Name {
		return none, model.Errorf(model.ErrInvalid, "a host renews its own certificate, and this one belongs to %q with the role %s", shown.Subject.CommonName, role)
	}
	csr, err := readCSR(q)
	if err != nil {
		return none, err
	}
	csr.IPAddresses = slices.DeleteFunc(csr.IPAddresses, func(ip net.IP) bool {
		host, _, err := net.SplitHostPort(from)
		return !slices.ContainsFunc(shown.IPAddresses, ip.Equal) && (err != nil || !ip.Equal(net.ParseIP(host)))
	})
	was, key := keySum(shown.RawSubjectPublicKeyInfo), keySum(csr.RawSubjectPublicKeyInfo)
	again := "if that was not this host, its certificate was stolen; 'netctl cluster token --host " + q.Name + "' makes a token for a new one; then the former ones cannot be renewed any more"
	for range attempts {
		had, err := get[hostRow](ctx, m.server.client, hostRows+store.Segment(q.Name))
		if err != nil {
			return none, err
		}
		older, err := m.rowIsOlder(ctx, had, shown)
		if err != nil {
			return none, err
		}
		switch h := had.value; {
		case older:
		case had.rev == 0:
			return none, model.Errorf(model.ErrNotFound, "the cluster has issued no certificate to %s: make a token with 'netctl cluster token --host %s'", q.Name, q.Name)
		case bytes.Equal(h.Was, was) && bytes.Equal(h.Key, key), bytes.Equal(h.Key, was) && bytes.Equal(h.Key, key):
			return m.sign(ctx, q, csr) // the answer was lost
		case !bytes.Equal(h.Key, was):
			return none, model.Errorf(model.ErrConflict, "the certificate presented for %s was replaced, on %s by %s: %s", q.Name, date(h.At), h.By, again)
		}
		now := time.Now().UTC()
		a, err := m.sign(ctx, q, csr)
		if err != nil {
			return none, err
		}
		next := hostRow{Name: q.Name, Key: key, Was: was, By: "renewal", At: now, End: now.AddDate(0, 0, pki.Days)}
		ok, err := commit(ctx, m.server.client, []clientv3.Cmp{unchangedSince(hostRows+store.Segment(q.Name), had.rev)}, clientv3.OpPut(hostRows+store.Segment(q.Name), encode(next)))
		if err != nil {
			return none, err
		}
		if ok {
			m.cfg.Logger.Info("a host's certificate was renewed", "host", q.Name)
			return a, nil
		}
	}
	return none, model.Errorf(model.ErrUnavailable, "others change the same objects: try again")
}

// rowIsOlder reports whether the row of a host's certificate comes from a backup and the
// certificate is newer: the host got it before the store was restored.
func (m *Enrolment) rowIsOlder(ctx context.Context, had row[hostRow], shown *x509.Certificate) (bool, error) {
	restored, err := get[time.Time](ctx, m.server.client, restoredRow)
	if err != nil || restored.rev == 0 || !had.value.At.Before(restored.value) {
		return false, err
	}
	last := restored.value.AddDate(0, 0, pki.Days)
	return shown.NotAfter.After(had.value.End.Add(clocksDiffer)) && shown.NotAfter.Before(last.Add(clocksDiffer)), nil
}

func (m *Enrolment) sign(ctx context.Context, q jointoken.HostRequest, csr *x509.CertificateRequest) (jointoken.HostAnswer, error) {
	var a jointoken.HostAnswer
	m.authorities.signing.Lock()
	defer m.authorities.signing.Unlock()
	auth := m.authorities.clients.Load()
	if auth == nil {
		return a, model.Errorf(model.ErrUnavailable, "this netmaster does not have the client authority yet: try again in a minute")
	}
	r := pki.Request{Name: q.Name, Role: pki.Host}
	for _, ip := range csr.IPAddresses {
		r.Addresses = append(r.Addresses, ip.String())
	}
	_, text, err := auth.Sign(r, csr.PublicKey)
	if err != nil {
		return a, model.Errorf(model.ErrInvalid, "%w", err)
	}
	doors, err := m.enrollmentAddresses(ctx)
	return jointoken.HostAnswer{Certificate: text, Authorities: auth.Text(), Servers: doors, Members: fingerprint(m.peers.auth.Load())}, err
}

// enrollmentAddresses are where members answer, this one first.
func (m *local) enrollmentAddresses(ctx context.Context) ([]string, error) {
	rows, err := list[memberRow](ctx, m.server.client, memberRows)
	if err != nil {
		return nil, err
	}
	out := []string{m.cfg.EnrollmentAddress}
	for _, r := range rows {
		if r.value.EnrollmentAddress != m.cfg.EnrollmentAddress && r.value.ID != 0 {
			out = append(out, r.value.EnrollmentAddress)
		}
	}
	return out, nil
}

// HostCertificate is what the cluster knows of a host's certificate.
type HostCertificate struct {
	Name string
	End  time.Time
	// Key is the SHA-256 of its public key, Was of the one before, which may be in use until
	// the host has got this one; nil = there is none such.
	Key, Was []byte
	By       string // a token, or renewal
	At       time.Time
}

// HostCertificates are those of all hosts that ever had one, the newest of each.
func (m *Enrolment) HostCertificates(ctx context.Context) ([]HostCertificate, error) {
	rows, err := list[hostRow](ctx, m.server.client, hostRows)
	if err != nil {
		return nil, err
	}
	var out []HostCertificate
	for _, r := range rows {
		out = append(out, HostCertificate{Name: r.value.Name, End: r.value.End, Key: r.value.Key, Was: r.value.Was, By: r.value.By, At: r.value.At})
	}
	return out, nil
}
