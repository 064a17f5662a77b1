package membership

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// The authority of who is no member (hosts, people, netmasters at REST and at the
// store's port for clients) is another than the members': who has a certificate of
// that is a member. Each member has all of it, as of the members' own.

const (
	clientsDir = "clients"
	// ownName is the subject of a netmaster's certificate for clients, at every member.
	ownName = "netmaster"
	// adminName is the subject of the administrator's certificate in a member's data
	// directory.
	adminName = "local-admin"
	// clientsPath is asked by members.
	clientsPath = "/join/v1/clients"
	// shareEvery is between two tries to have the same authority as the others.
	shareEvery = 2 * time.Second
)

// ClientsDir is where a member with Config.Secure has its certificate for clients, as
// --tls-dir takes it, below its data directory.
func ClientsDir(data string) string {
	return filepath.Join(AuthorityDir(data), "issued", ownName)
}

// AdminDir is where a member with Config.Secure keeps a certificate of a cluster-admin for
// the user that it runs as, as netctl's --tls-dir takes it, and renews it.
func AdminDir(data string) string { return filepath.Join(AuthorityDir(data), "issued", adminName) }

// AuthorityDir is where a member has the authority of clients, as 'netctl pki' takes it.
func AuthorityDir(data string) string { return filepath.Join(data, "join", clientsDir) }

// MembersBundle is the file of the authority that a member's enrollment server shows, below its data
// directory, with the former one while that is trusted.
func MembersBundle(data string) string {
	return filepath.Join(data, "join", authorityDir, pki.BundleFile)
}

// openClients opens the authority of clients and this member's certificate for clients. It
// makes the authority where no other member can have one.
func (m *Authorities) openClients(i initial) error {
	m.signing.Lock()
	defer m.signing.Unlock()
	a, err := m.haveClients(i)
	if err != nil {
		return err
	}
	if a == nil {
		if m.cfg.Secure != nil {
			return model.Errorf(model.ErrConflict, "this netmaster does not have the client authority yet, and is not the only member: start it once without --secure, so that it gets it from the others, which must have this version, and when its log says so start it with --secure")
		}
		return nil
	}
	if err := a.DistributeBundle(); err != nil {
		return err
	}
	m.clients.Store(a)
	if m.cfg.Secure == nil {
		return nil
	}
	if err := m.certifyOwn(a); err != nil {
		return err
	}
	d, err := transport.OpenDirectory(a.Dir(ownName))
	if err != nil {
		return err
	}
	m.cfg.TLS = d.Files()
	return nil
}

// hasClients reports whether the authority of clients is there.
func (d *directory) hasClients() bool {
	_, err := os.Stat(d.own(clientsDir))
	return err == nil
}

func (m *Authorities) haveClients(i initial) (*pki.Authority, error) {
	if m.dir.hasClients() {
		return pki.Open(m.dir.own(clientsDir))
	}
	if len(i.members) > 0 {
		return nil, nil
	}
	if !m.dir.empty() {
		if r, err := ReachOf(m.dir.path); err != nil || r.Members > 1 {
			return nil, err
		}
	}
	return putAuthority(m.dir, clientsDir, initAuthority)
}

// renewOwn renews the certificates for clients.
func (m *Authorities) renewOwn() error {
	m.signing.Lock()
	defer m.signing.Unlock()
	if m.cfg.Secure == nil {
		return nil
	}
	return m.certifyOwn(m.clients.Load())
}

// certifyOwn makes this member's certificates for clients: the server's, and the local
// administrator's. The latter adds no risk: anyone who can read it can read the authority's
// key beside it.
func (m *Authorities) certifyOwn(a *pki.Authority) error {
	if _, err := certify(a, ownName, pki.Netmaster, m.cfg.Secure); err != nil {
		return err
	}
	_, err := certify(a, adminName, pki.ClusterAdmin, nil)
	return err
}

// share has all members have one authority of clients, until this one has: it makes it
// where none is known, and else gets it from another member.
func (m *Authorities) share(ctx context.Context) {
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	told := ""
	for {
		done, err := m.shareOnce(ctx)
		if done || ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != told {
			told = err.Error()
			m.cfg.Logger.Warn("this netmaster's client authority is not on all netmasters", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Authorities) shareOnce(ctx context.Context) (bool, error) {
	m.signing.Lock()
	defer m.signing.Unlock()
	c := m.server.client
	is, err := get[Fingerprint](ctx, c, clientsRow)
	if err != nil {
		return false, err
	}
	mine := m.clients.Load()
	if mine != nil && is.rev != 0 && hasFingerprint(mine, is.value) {
		return true, nil
	}
	all, err := m.etcdMembers(ctx)
	if err != nil {
		return false, err
	}
	if mine != nil && is.rev != 0 && len(all) > 1 {
		if err := m.followLocked(ctx, m.clientsAuthority()); err == nil || !errors.Is(err, model.ErrConflict) {
			return err == nil, err
		}
		return false, errors.New("this data directory has another client authority than the cluster: its certificates are not valid elsewhere; remove this member and join with an empty directory")
	}
	if mine == nil && is.rev != 0 {
		return m.fetch(ctx, is.value)
	}
	// No member has one yet, or this is the only member. A new one counts once it is known.
	const made = clientsDir + ".made"
	if mine == nil {
		if mine, err = putAuthority(m.dir, made, initAuthority); err != nil {
			return false, err
		}
	}
	ok, err := commit(ctx, c, []clientv3.Cmp{unchangedSince(clientsRow, is.rev)}, clientv3.OpPut(clientsRow, encode(fingerprint(mine))))
	if err != nil || !ok || m.clients.Load() != nil {
		return false, err
	}
	text, err := os.ReadFile(filepath.Join(m.dir.own(made), authorityFile))
	if err != nil {
		return false, err
	}
	return m.keepClients(text)
}

// fetch gets the authority from a member that has it.
func (m *Authorities) fetch(ctx context.Context, want Fingerprint) (bool, error) {
	if text, err := os.ReadFile(filepath.Join(m.dir.own(clientsDir+".made"), authorityFile)); err == nil {
		if a, err := pki.Open(m.dir.own(clientsDir + ".made")); err == nil && fingerprint(a) == want {
			return m.keepClients(text) // it was killed before it kept its own
		}
	}
	text, err := m.fetchFromOthers(ctx, clientsPath, func([]byte) bool { return true })
	if err != nil {
		return false, err
	}
	return m.keepClients(text)
}

// keepClients makes an authority that the cluster knows this member's.
func (m *Authorities) keepClients(text []byte) (bool, error) {
	a, err := putAuthority(m.dir, clientsDir, func(tmp string) error { return durable.WriteFile(filepath.Join(tmp, authorityFile), text) })
	if err != nil {
		return false, err
	}
	m.clients.Store(a)
	m.cfg.Logger.Info("this netmaster has the cluster's client authority, and can be started with --secure")
	return true, os.RemoveAll(m.dir.own(clientsDir + ".made"))
}

// exportClients is the authority as another member needs it; nil = there is none here.
func (m *Authorities) exportClients() ([]byte, error) {
	if m.clients.Load() == nil {
		return nil, nil
	}
	b, err := os.ReadFile(filepath.Join(m.dir.own(clientsDir), authorityFile))
	if err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "read the client authority: %w", err)
	}
	return b, nil
}

// FirstAdmin calls mint for the cluster's first administrator, until one call of any
// member's has succeeded.
func (m *Authorities) FirstAdmin(ctx context.Context, mint func() error) error {
	had, err := get[string](ctx, m.server.client, adminRow)
	if err != nil || had.rev != 0 {
		return err
	}
	if err := mint(); err != nil {
		return err
	}
	_, err = commit(ctx, m.server.client, []clientv3.Cmp{unchangedSince(adminRow, had.rev)}, clientv3.OpPut(adminRow, encode(m.dir.Name)))
	return err
}
