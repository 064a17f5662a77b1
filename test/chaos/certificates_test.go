//go:build integration

package chaos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// What a secure cluster may be (-secure).
const (
	bySecure = "secure" // netmaster --secure, whose authority gives and renews certificates
	byPKI    = "pki"    // certificates of 'netctl pki'
)

// whoAsks is the administrator whose certificate a lab makes.
const whoAsks = "admin"

// authority is the directory of the authority that hosts and people trust.
func (w *world) authority() string {
	if w.secure == byPKI {
		return filepath.Join(w.Config().Dir, "pki")
	}
	return filepath.Join(w.Config().Dir, "master", "data", "join", "clients")
}

// certificate is the directory of a certificate of a secure cluster.
func (w *world) certificate(name string) string {
	if h, err := w.Host(name); err == nil && w.secure == bySecure {
		return filepath.Join(h.StateDir(), "tls")
	}
	return filepath.Join(w.authority(), "issued", name)
}

// client is what asks a secure cluster; nil where the cluster is plain. The netmaster alone
// may write to the store.
func (w *world) client(as string) (*tls.Config, error) {
	if w.secure == "" {
		return nil, nil //nolint:nilnil // without TLS
	}
	d, err := transport.OpenDirectory(w.certificate(as))
	if err != nil {
		return nil, err
	}
	return d.Client(), nil
}

// spoiled are what may become of a certificate's files.
var spoiled = []struct {
	name string
	do   func(w *world, dir, name string, role pki.Role) error
	gone bool   // a daemon cannot read them again
	says string // of a daemon that goes on with what it has read before
}{
	{"has ended", func(w *world, dir, _ string, _ pki.Role) error {
		testenv.ExpireCertificate(w.t, w.authority(), dir)
		return nil
	}, false, "ended on"},
	{"is of another authority", foreignCertificate, false, ""},
	{"has lost its key", func(_ *world, dir, _ string, _ pki.Role) error { return os.Remove(filepath.Join(dir, pki.KeyFile)) }, true, "cannot be read again"},
	{"is cut in half", func(_ *world, dir, _ string, _ pki.Role) error {
		at := filepath.Join(dir, pki.CertFile)
		text, err := os.ReadFile(at)
		return errors.Join(err, os.WriteFile(at, text[:len(text)/2], 0o600))
	}, true, "cannot be read again"},
}

// foreignCertificate puts a certificate of the same name there that another authority made.
func foreignCertificate(w *world, dir, name string, role pki.Role) error {
	a, err := pki.Init(filepath.Join(w.t.TempDir(), "pki"))
	if err != nil {
		return err
	}
	addresses := []string{"10.0.0.1"} // never looked at
	if _, err := a.Issue(pki.Request{Name: name, Role: role, Addresses: addresses}); err != nil {
		return err
	}
	for _, file := range []string{pki.BundleFile, pki.CertFile, pki.KeyFile} {
		text, err := os.ReadFile(filepath.Join(a.Dir(name), file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// certificateDamages spoil the certificates of hosts and of netmaster, while these run, and
// before they are started again.
func (w *world) certificateDamages() (all []*mistake) {
	if w.secure == "" {
		return nil
	}
	for _, how := range spoiled {
		host := &mistake{name: "a host's certificate " + how.name, needs: []string{"agent@", "plane@"}}
		host.do = spoilHost(how.do, false)
		if how.says != "" {
			host.noticed = []string{"certificate", how.says} // its connections go on
		}
		again := &mistake{name: host.name + ", and netplugin is restarted", needs: host.needs, statusWords: []string{"is away"}, do: spoilHost(how.do, true)}
		master := &mistake{name: "netmaster's certificate " + how.name, needs: []string{"master", "store"}}
		master.do = spoilMaster(how.do, false)
		switch {
		case how.gone:
			master.noticed = []string{"certificate", how.says}
		case w.secure == byPKI: // else netmaster renews it by itself
			master.statusWords = []string{"certificate"}
		}
		restarted := &mistake{name: master.name + ", and it is restarted", needs: master.needs, do: spoilMaster(how.do, true)}
		if w.secure == byPKI {
			restarted.statusWords = []string{"netmaster"}
		}
		all = append(all, host, again, master, restarted)
	}
	return all
}

// spoilFiles does something to a certificate's files; undo puts them back.
func (w *world) spoilFiles(name string, role pki.Role, do func(w *world, dir, name string, role pki.Role) error) (undo, error) {
	dir, had := w.certificate(name), map[string][]byte{}
	for _, file := range []string{pki.BundleFile, pki.CertFile, pki.KeyFile} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("read the certificate of %s: %w", name, err)
		}
		had[file] = text
	}
	return func(context.Context) (err error) {
		for file, text := range had {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), text, 0o600))
		}
		return err
	}, do(w, dir, name, role)
}

func spoilHost(do func(w *world, dir, name string, role pki.Role) error, restart bool) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		files, err := w.spoilFiles(h.Name, pki.Host, do)
		if !restart || err != nil {
			return files, err
		}
		again, err := w.endDaemon(h.Name+"-netplugin", func(ctx context.Context) error { return errors.Join(files(ctx), w.restartAgent(ctx, h)) })
		if err == nil {
			_, err = h.LaunchAgent()
		}
		return again, err
	}
}

func spoilMaster(do func(w *world, dir, name string, role pki.Role) error, restart bool) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
		files, err := w.spoilFiles("netmaster", pki.Netmaster, do)
		if err != nil {
			return files, err
		}
		start := func(ctx context.Context) error {
			return errors.Join(files(ctx), w.Process("netmaster").Kill(), w.startMaster(ctx))
		}
		if !restart { // its store's clients may have to connect again
			return start, nil
		}
		again, err := w.endDaemon("netmaster", start)
		if err == nil {
			_, err = w.Masters.LaunchMaster(nil)
		}
		return again, err
	}
}
