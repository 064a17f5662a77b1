package enrollment

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const (
	stateFile = "joined.json"
	// nextFile is the key of the requested certificate, which becomes the certificate's.
	nextFile = "next.key"

	dialTime = 5 * time.Second
	askTime  = 40 * time.Second
	// retryAfter is the pause between two requests while no server answers.
	retryAfter = time.Second
	// logInterval is the pause between two calls of Waits.
	logInterval = time.Minute
)

// state is what a directory says of itself.
type state struct {
	Name    string                `json:"name"`    // of the host
	Token   string                `json:"token"`   // id of the one that was spent
	Servers []string              `json:"doors"`   // host:port
	Members jointoken.Fingerprint `json:"members"` // of the authority that enrollment servers show
}

// Config is a host that wants a certificate.
type Config struct {
	Dir       string   // made when missing; what --tls-dir takes
	Name      string   // of the host
	Addresses []net.IP // by which others connect to it
	Servers   []string // host:port of members, beside those of the token or the directory
	Token     string   // "" = the directory is to have a certificate
	Account   Account  // in place of Token

	// Waits is called at once, and then once a minute, with the reason why Join with an
	// Account tries again; nil = no call.
	Waits func(why error)
	// Netmasters returns the URLs of netmasters that the host knows in another way. Keep asks
	// their machines too, at the ports of the known servers; nil = none is known.
	Netmasters func() []string
}

// Joined reports whether a directory has a certificate that Join got.
func Joined(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, stateFile))
	return err == nil
}

// ByAccount reports whether a directory has a certificate that was got with an Account.
func ByAccount(dir string) bool {
	s, err := read(dir)
	return err == nil && s.Token == ""
}

// Forget removes what Join and Keep have made of a directory, and the directory if nothing
// else is in it; it tells whether there was anything.
func Forget(dir string) (was bool, err error) {
	if !Joined(dir) {
		return false, nil // whatever is there is somebody else's
	}
	var errs []error
	for _, name := range []string{pki.KeyFile, pki.CertFile, pki.BundleFile, nextFile, stateFile} { // the last says whose they are
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove the host's certificate: %w", err))
		}
	}
	_ = os.Remove(dir) // it stays with what is somebody else's
	return true, errors.Join(errs...)
}

// Join gets a host's certificate, unless the directory has the token's. While no server
// answers it tries again, until ctx ends. Errors are of model's kinds: ErrInvalid and
// ErrConflict are permanent.
func Join(ctx context.Context, cfg Config) error {
	if cfg.Account != (Account{}) {
		return joinByAccount(ctx, cfg)
	}
	t, err := jointoken.Parse(cfg.Token)
	if err != nil {
		return err
	}
	how := "make one with 'netctl cluster token --host " + cfg.Name + "'"
	switch {
	case t.Host == "":
		return model.Errorf(model.ErrInvalid, "the token is for a netmaster: %s", how)
	case t.Host != cfg.Name:
		return model.Errorf(model.ErrInvalid, "the token is for the host %s, and this is %s: %s, or give --host %s", t.Host, cfg.Name, how, t.Host)
	}
	if had, _ := read(cfg.Dir); had.Token == t.ID {
		return nil // a unit's file has it still
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("save the host's certificate: %w", err)
	}
	key, csr, err := nextKey(cfg.Dir, cfg.Name, cfg.Addresses)
	if err != nil {
		return err
	}
	doors := append(append([]string(nil), cfg.Servers...), t.Addresses...)
	q := jointoken.HostRequest{ID: t.ID, Secret: t.Secret, Name: cfg.Name, CSR: csr}
	for {
		a, err := ask(ctx, jointoken.Pinned(t.Authority), doors, len(cfg.Servers), jointoken.HostPath, q)
		if err == nil {
			return saveAnswer(cfg.Dir, key, state{Name: cfg.Name, Token: t.ID, Servers: a.Servers, Members: a.Members}, a)
		}
		if !errors.Is(err, model.ErrUnavailable) {
			return err
		}
		if waitRetry(ctx) != nil {
			return err
		}
	}
}

// waitRetry waits until it is asked again, unless ctx ends.
func waitRetry(ctx context.Context) error {
	select {
	case <-time.After(retryAfter):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Renew asks for the next certificate with the one that there is.
func Renew(ctx context.Context, dir string, addresses []net.IP) error {
	had, err := read(dir)
	if err != nil {
		return err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, pki.CertFile), filepath.Join(dir, pki.KeyFile))
	if err != nil {
		return fmt.Errorf("read the host's certificate: %w", err)
	}
	key, csr, err := nextKey(dir, had.Name, addresses)
	if err != nil {
		return err
	}
	pinned := jointoken.Pinned(had.Members)
	pinned.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	a, err := ask(ctx, pinned, had.Servers, 0, jointoken.RenewPath, jointoken.HostRequest{Name: had.Name, CSR: csr})
	if err != nil {
		return err
	}
	had.Servers, had.Members = a.Servers, a.Members
	return saveAnswer(dir, key, had, a)
}

// Name is the host's of a directory that has a certificate.
func Name(dir string) (string, error) {
	s, err := read(dir)
	return s.Name, err
}

// Servers are where a host that has joined asks for its next certificate, host:port.
func Servers(dir string) ([]string, error) {
	s, err := read(dir)
	return s.Servers, err
}

func read(dir string) (state, error) {
	var s state
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return state{}, fmt.Errorf("read how this host joined: %w", err)
	}
	return s, nil
}

// nextKey returns the key that is to be certified, which is kept before it is asked
// for, so that who is killed asks for the same again.
func nextKey(dir, name string, addresses []net.IP) (text, csr []byte, err error) {
	path := filepath.Join(dir, nextFile)
	text, err = os.ReadFile(path)
	var key crypto.Signer
	if err == nil {
		key, err = parseKey(text)
	}
	if err != nil { // there is none, or half of one
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, fmt.Errorf("make the host's key: %w", err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(own)
		if err != nil {
			return nil, nil, err
		}
		key, text = own, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		if err := durable.WriteFile(path, text); err != nil {
			return nil, nil, fmt.Errorf("save the host's key: %w", err)
		}
	}
	csr, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}, IPAddresses: addresses}, key)
	return text, csr, err
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("another kind of key")
	}
	return own, nil
}

// saveAnswer writes what was answered. Who reads meanwhile finds files that do not fit
// together, and goes on with what it has; who is killed asks again with the key.
func saveAnswer(dir string, key []byte, s state, a jointoken.HostAnswer) error {
	if _, err := tls.X509KeyPair(a.Certificate, key); err != nil {
		return model.Errorf(model.ErrInvalid, "the received certificate does not match this host's key: %w", err)
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{pki.BundleFile, a.Authorities}, {pki.CertFile, a.Certificate}, {pki.KeyFile, key}} {
		if err := durable.WriteFile(filepath.Join(dir, f.name), f.text); err != nil {
			return fmt.Errorf("save the host's certificate: %w", err)
		}
	}
	if err := durable.WriteJSON(filepath.Join(dir, stateFile), s); err != nil {
		return fmt.Errorf("save the host's certificate: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, nextFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("save the host's certificate: %w", err)
	}
	return nil
}

// ask sends the request to one server after the other. A server of another cluster gets
// nothing. If it is one of the servers that the user named, the rest is not asked.
func ask(ctx context.Context, with *tls.Config, doors []string, named int, path string, q jointoken.HostRequest) (a jointoken.HostAnswer, err error) {
	pool := transport.Pool(with, 1, dialTime)
	defer pool.CloseIdleConnections()
	c := &http.Client{Transport: pool, Timeout: askTime}
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	var why []string
	foreign := 0
	for i, door := range doors {
		err := jointoken.Call(ctx, c, http.MethodPost, transport.HTTPS+"://"+door+path, bytes.NewReader(body), &a)
		remedy := ""
		if err != nil {
			remedy = transport.Remedy(err)
		}
		switch {
		case err == nil:
			return a, nil
		case errors.Is(err, jointoken.ErrOtherCluster):
			foreign++
			why = append(why, door+" belongs to another cluster than the token (its authority differs), so the token was not sent: give an address of the token's cluster, or make a token there")
			if i < named {
				return a, model.Errorf(model.ErrConflict, "%s", strings.Join(why, "; "))
			}
		case errors.Is(err, model.ErrUnavailable):
			why = append(why, door+" says: "+err.Error())
		case jointoken.IsKind(err):
			return a, fmt.Errorf("%s refuses: %w", door, err)
		case remedy != "":
			return a, model.Errorf(model.ErrConflict, "%s refuses this host's certificate (%w): make a token with 'netctl cluster token --host %s' and start netplugin with --join and --token", door, err, q.Name)
		default:
			why = append(why, fmt.Sprintf("%s does not answer (%v): see that netmaster runs there, and that nothing is between", door, err))
		}
	}
	if foreign == len(doors) {
		return a, model.Errorf(model.ErrConflict, "%s", strings.Join(why, "; "))
	}
	return a, model.Errorf(model.ErrUnavailable, "no netmaster issues a certificate to this host: %s", strings.Join(why, "; "))
}
