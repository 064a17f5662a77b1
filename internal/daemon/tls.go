package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// TLS are the directories of certificates that a program is given.
type TLS struct {
	dir, storeDir string

	Own   *transport.Directory // nil = the program's own connections are plain
	Store *transport.Directory // nil = the store's are as its addresses say
}

// Register binds the flags. own and store say what the store's directory is for.
func (t *TLS) Register(fs *flags.Set, own, store string) {
	check := func(v string) error {
		if strings.TrimSpace(v) == "" {
			return errors.New("must not be empty")
		}
		return nil
	}
	fs.String(&t.dir, "tls-dir", "directory", "directory of 'netctl pki issue' with ca.crt, tls.crt and tls.key: mutual TLS 1.3 for "+own+"; reloaded when it changes; empty = no TLS").Must(check)
	fs.String(&t.storeDir, "store-tls-dir", "directory", "directory as for --tls-dir, or the same, "+store+"; empty = the system's authorities for https addresses").Must(check)
}

// Use takes a directory that the program itself was given by its cluster, for all connections
// but the store's where a flag names a directory for them; no flag may name one for others.
func (t *TLS) Use(dir string) (err error) {
	own := t.storeDir == t.dir
	t.dir = dir
	if t.Own, err = transport.OpenDirectory(dir); own {
		t.storeDir, t.Store = dir, t.Own
	}
	return err
}

// Open reads the directories that were given, unless Use has read one.
func (t *TLS) Open(fs *flags.Set) (err error) {
	if t.Own != nil {
		return nil
	}
	if t.dir != "" {
		if t.Own, err = transport.OpenDirectory(t.dir); err != nil {
			return flags.Usagef("%s: %w", fs.Given("tls-dir"), err)
		}
	}
	if t.storeDir != "" {
		if t.Store, err = transport.OpenDirectory(t.storeDir); err != nil {
			return flags.Usagef("%s: %w", fs.Given("store-tls-dir"), err)
		}
	}
	return nil
}

// Config is what the program serves and asks with.
func (t *TLS) Config() transport.Config {
	var c transport.Config
	if t.Own != nil {
		c = t.Own.Config()
	}
	if t.Store != nil {
		c.StoreServer, c.StoreClient = t.Store.Files(), t.Store.Client()
	}
	return c
}

// SecureStore makes the store's addresses https where a directory is given for it.
// given are the addresses as somebody wrote them: one that says http:// is refused.
func (t *TLS) SecureStore(given, urls []string) ([]string, error) {
	if t.Store == nil {
		return urls, nil
	}
	for _, s := range given {
		if strings.HasPrefix(s, "http://") {
			return nil, flags.Usagef("the store's address %s has no TLS, and this program has certificates for the store (%s): write https://, or omit one", s, t.storeDir)
		}
	}
	secure := make([]string, len(urls))
	for i, s := range urls {
		if rest, plain := strings.CutPrefix(s, "http://"); plain {
			s = "https://" + rest
		}
		secure[i] = s
	}
	return secure, nil
}

// Watch logs what is wrong with the certificates until ctx ends.
func (t *TLS) Watch(ctx context.Context, log *slog.Logger) {
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, d := range []*transport.Directory{t.Own, t.Store} {
		if d != nil && (d != t.Store || t.storeDir != t.dir) {
			watching.Go(func() { d.Watch(ctx, log) })
		}
	}
}

// Unusable is why the files of the certificate of a use of Certificates cannot be used any
// more; nil = they can.
func (t *TLS) Unusable(use string) error {
	for _, d := range []*transport.Directory{t.Own, t.Store} {
		if d != nil && strings.HasSuffix(use, inDirectory(d)) {
			return d.Unusable()
		}
	}
	return nil
}

func inDirectory(d *transport.Directory) string { return " in " + filepath.Clean(d.Path()) }

// Certificates are those of the directories that were given, as they are read then, and
// the authorities beside them, each with a word for its use.
func (t *TLS) Certificates() iter.Seq2[string, *x509.Certificate] {
	return func(yield func(string, *x509.Certificate) bool) {
		each := func(use string, d *transport.Directory) bool {
			if d == nil {
				return true
			}
			leaf, authorities := d.All()
			for i, cert := range append([]*x509.Certificate{leaf}, authorities...) {
				what := use
				if i > 0 {
					what = "an authority of " + use
				}
				if !yield(what+inDirectory(d), cert) {
					return false
				}
			}
			return true
		}
		if each("its own certificate", t.Own) && t.Store != t.Own {
			each("its certificate for the store", t.Store)
		}
	}
}
