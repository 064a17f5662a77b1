package membership

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// Forming is how netmasters in pods form a cluster: a record outside of the store says whose
// cluster it is, and new members show the token of their pod's service account.
type Forming interface {
	// Node is this pod's node. A new directory's member has its name.
	Node() string
	// Await returns the recorded authorities in PEM, or nil when there is no record and this
	// process may found the cluster. It waits for either of the two. It fails only with ctx.
	Await(ctx context.Context) ([]byte, error)
	// Record records the authority of the cluster that this process is about to found. Where
	// another one is recorded, it fails with model.ErrExists, and else only with ctx.
	Record(ctx context.Context, authority []byte) error
	// Token reads the service account's token, which is shown at Config.Addresses.
	Token() (string, error)
	// Review tells on which node, and by whom, a service account's token is that a new member
	// shows: errors as those of Config.TokenReviewer.
	Review(ctx context.Context, token string) (node, by string, err error)
}

// formInterval is between two tries to join, each of which begins with the record.
const formInterval = 5 * time.Second

// form founds the cluster, or joins the one that is recorded, in a directory in which etcd
// has never run. While a cluster is recorded it never founds one: it waits, as long as ctx
// lasts, until a member admits it.
func (m *Member) form(ctx context.Context) error {
	told, at := "", time.Time{}
	for {
		recorded, err := m.cfg.Forming.Await(ctx)
		if err != nil {
			return err
		}
		known := fingerprints(recorded)
		t, err := m.prepare(known)
		switch {
		case err != nil:
			return err
		case t == nil:
			if err = m.found(ctx); !errors.Is(err, model.ErrExists) {
				return err
			}
			continue // another was faster
		}
		if err = m.join(ctx, *t); err == nil || ctx.Err() != nil || !m.dir.empty() {
			return err
		}
		if err.Error() != told || time.Since(at) >= time.Minute {
			told, at = err.Error(), time.Now()
			m.cfg.Logger.Warn("a cluster is recorded, and this netmaster is not a member yet: it waits, and founds no other one; if all data of that cluster are lost for good, restore a snapshot or delete the record (docs/how-to/kubernetes-netmasters.md)", "error", err)
		}
		select {
		case <-time.After(formInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// prepare has the directory begin again unless it began what it is to do now: to found a cluster
// (t is nil), or to join the one with a known authority.
func (m *Member) prepare(known []Fingerprint) (t *Token, err error) {
	d := m.dir
	joins := (d.Step == requested || d.Step == admitted) && d.Peer == m.cfg.Peer
	i := slices.IndexFunc(known, func(f Fingerprint) bool { return d.Authority == f.String() })
	switch {
	case d.Step == founding && (len(known) == 0 || d.isFounderOf(known)):
		return nil, nil
	case joins && i >= 0:
		return &Token{Addresses: m.cfg.Addresses, Authority: known[i]}, nil
	case d.Step != "":
		if err := d.discard(); err != nil {
			return nil, err
		}
	}
	if len(known) == 0 {
		return nil, nil
	}
	return &Token{Addresses: m.cfg.Addresses, Authority: known[0]}, nil
}

// isFounderOf reports whether the directory's authority is one of those.
func (d *directory) isFounderOf(known []Fingerprint) bool {
	a, err := pki.Open(d.own(authorityDir))
	return err == nil && slices.ContainsFunc(known, func(f Fingerprint) bool { return hasFingerprint(a, f) })
}

// discard sets aside what a directory without a store says of itself and of a cluster. What
// was set aside before is deleted.
func (d *directory) discard() error {
	was := d.own("") + ".discarded"
	err := os.RemoveAll(was)
	if err == nil {
		err = os.Rename(d.own(""), was)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(d.own(""), 0o700)
	}
	if err == nil {
		err = durable.SyncDir(d.path)
	}
	if err != nil {
		return fmt.Errorf("begin again in %s: %w", d.path, err)
	}
	d.state = state{}
	return nil
}

// fingerprints are those of certificates in PEM.
func fingerprints(text []byte) (all []Fingerprint) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, sha256.Sum256(block.Bytes))
		}
	}
	return all
}
