package membership

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// backedUp writes a backup of a member to a file.
func backedUp(t *testing.T, m *Member) string {
	t.Helper()
	c := m.Client()
	_, err := c.Update(t.Context(), func(tx store.Tx) error { return tables.Globals.Put(tx, model.DefaultGlobal()) })
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// certified is a host's certificate of now, signed by a member's authority.
func certified(t *testing.T, m *Member, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := m.Authorities.clients.Load().Sign(pki.Request{Name: name, Role: pki.Host}, &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// renews tries to renew a host's certificate.
func renews(t *testing.T, m *Member, shown *x509.Certificate) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Enrolment.renewHost(t.Context(), shown, jointoken.HostRequest{Name: shown.Subject.CommonName, CSR: csr}, "127.0.0.1:1")
	return err
}

// TestRestoreKeepsAuthorities: a restore into a directory that has the authorities keeps them,
// and hosts renew what they got before it, also since the backup; a former certificate of
// theirs is still refused. All files belong to the directory's owner.
func TestRestoreKeepsAuthorities(t *testing.T) {
	t.Parallel()
	cfg := secured(t, 137, "a")
	m := start(t, cfg)
	members, clients := fingerprint(m.peers.auth.Load()), fingerprint(m.Authorities.clients.Load())
	put := func(name string, key []byte, given time.Time) {
		t.Helper()
		_, err := m.server.client.Put(t.Context(), hostRows+store.Segment(name), encode(hostRow{Name: name, Key: key, At: given, End: given.AddDate(0, 0, pki.Days)}))
		if err != nil {
			t.Fatal(err)
		}
	}
	was := certified(t, m, "stolen") // and replaced before the backup
	put("stolen", []byte("newer"), time.Now().Add(time.Minute))
	put("renewed", []byte("older"), time.Now().Add(-time.Hour))
	renewed, joined := certified(t, m, "renewed"), certified(t, m, "joined") // since the backup
	file := backedUp(t, m)
	if err := renews(t, m, renewed); !errors.Is(err, model.ErrConflict) {
		t.Errorf("without a restore: %v", err)
	}
	closed(t, m)
	root := os.Geteuid() == 0
	const user = 65534
	if root {
		chown(t, cfg.Dir, user)
	}
	restore := func(anew bool, now time.Time) {
		t.Helper()
		r, err := Restore(t.Context(), RestoreConfig{File: file, DataDir: cfg.Dir, Logger: cfg.Logger, Now: now, NewAuthorities: anew})
		if err != nil || r.Authorities == anew {
			t.Fatalf("%+v %v", r, err)
		}
		if root {
			ownedBy(t, cfg.Dir, user)
		}
		m = start(t, cfg)
	}
	restore(false, time.Now().Add(2*time.Minute))
	if fingerprint(m.peers.auth.Load()) != members || fingerprint(m.Authorities.clients.Load()) != clients {
		t.Error("the authorities are others")
	}
	for _, c := range []*x509.Certificate{renewed, joined} {
		if err := renews(t, m, c); err != nil {
			t.Errorf("%s: %v", c.Subject.CommonName, err)
		}
	}
	for _, c := range []*x509.Certificate{was, renewed} {
		is(t, "a former certificate of "+c.Subject.CommonName, renews(t, m, c), model.ErrConflict, "was replaced")
	}
	closed(t, m)
	restore(true, time.Now().Add(3*time.Minute))
	if fingerprint(m.peers.auth.Load()) == members || fingerprint(m.Authorities.clients.Load()) == clients {
		t.Error("the authorities are those of before")
	}
	is(t, "a host of before", renews(t, m, joined), model.ErrNotFound, "cluster token")
	if got, err := m.server.client.Get(t.Context(), joinRows, clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil {
		t.Error(err)
	} else {
		for _, kv := range got.Kvs {
			if string(kv.Key) == restoredRow {
				t.Error("certificates of before the restore are believed")
			}
		}
	}
}

// chown gives a directory with all that is in it to a user.
func chown(t *testing.T, dir string, user int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, user, user))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func ownedBy(t *testing.T, dir string, user uint32) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != user {
			t.Errorf("%s belongs to %d", path, st.Uid)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNoSecondBelievedClusterIsRestored: no cluster that hosts believe is made beside one that they
// believe too; with authorities of its own it is.
func TestNoSecondBelievedClusterIsRestored(t *testing.T) {
	t.Parallel()
	a := start(t, config(t, 114, "a"))
	bCfg, cCfg := config(t, 115, "b"), config(t, 116, "c")
	bCfg.Token, _ = tokenOf(t, a)
	start(t, bCfg)
	cCfg.Token, _ = tokenOf(t, a)
	c := start(t, cCfg)
	file := backedUp(t, a)
	closed(t, c)
	cfg := RestoreConfig{File: file, DataDir: cCfg.Dir, Logger: cCfg.Logger, Now: time.Now()}
	_, err := Restore(t.Context(), cfg)
	is(t, "a restore while two of three write", err, model.ErrConflict, "a ("+a.cfg.EnrollmentAddress+")", "stop its netmasters first")
	cfg.NewAuthorities = true
	if _, err := Restore(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}
