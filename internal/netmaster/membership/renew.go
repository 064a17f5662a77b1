package membership

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
)

const (
	// membersPath is asked by members.
	membersPath = "/join/v1/authority"
	// membersAuthorityRow is the members' authority once it was renewed.
	membersAuthorityRow = store.Root + "join/authority"
)

// errNoMember: no other member has what is wanted.
var errNoMember = errors.New("no other netmaster provides it: start the netmasters that have it")

// authority is one of the two that each member has all of. Its renewal is made by one
// member in its file, counts when its row says so, and is taken by the others from there.
// The next one is signed by the former too, so that it makes no difference who has heard
// of it: until the former's own end both are trusted.
type authority struct {
	name string // its directory, for people too
	row  string
	path string // where members hand it over
	is   *atomic.Pointer[pki.Authority]
}

func (m *Authorities) clientsAuthority() authority {
	return authority{clientsDir, clientsRow, clientsPath, &m.clients}
}

func (m *Authorities) membersAuthority() authority {
	return authority{authorityDir, membersAuthorityRow, membersPath, &m.peers.auth}
}

// RenewAuthorities makes the next authority of members, and of hosts and people, beside
// the former ones. Repeating it is no harm: what was renewed and still has a former one is
// left as it is, and refused with model.ErrConflict where that is all. All members have to
// answer and to be of a version that takes the next one.
func (m *Authorities) RenewAuthorities(ctx context.Context) error {
	all, err := m.roster.List(ctx)
	if err != nil {
		return err
	}
	for _, i := range all {
		switch {
		case i.Role != Voter:
			return model.Errorf(model.ErrConflict, "%s is %s: wait until it is a voter, or 'netctl cluster remove' it, then renew the authorities", i.Name, i.Role)
		case i.Err != nil:
			return model.Errorf(model.ErrConflict, "%s does not answer (%w): start it, or 'netctl cluster remove' it, then renew the authorities", i.Name, i.Err)
		case !i.Status.Renews:
			return model.Errorf(model.ErrConflict, "%s has a version that does not support renewed authorities: upgrade it first", i.Name)
		}
	}
	done := 0
	for _, a := range []authority{m.clientsAuthority(), m.membersAuthority()} {
		ok, err := m.renewAuthority(ctx, a)
		if err != nil {
			return err
		}
		if ok {
			done++
		}
	}
	if done == 0 {
		end := m.peers.auth.Load().Bundle()[1].NotAfter
		return model.Errorf(model.ErrConflict, "the authorities were renewed, and the former ones are trusted until %s: they can be renewed again after that", date(end))
	}
	return errors.Join(m.renewOwn(), m.renewPeer())
}

// renewAuthority renews one; false = it was, and has a former one still.
func (m *Authorities) renewAuthority(ctx context.Context, a authority) (bool, error) {
	m.signing.Lock()
	defer m.signing.Unlock()
	// All members answer: what none of them has is lost with the one that made it.
	if err := m.followLocked(ctx, a); err != nil && !errors.Is(err, errNoMember) {
		return false, err
	}
	if a.is.Load() == nil {
		return false, model.Errorf(model.ErrUnavailable, "this netmaster does not have the client authority yet: try again in a minute")
	}
	is, err := get[Fingerprint](ctx, m.server.client, a.row)
	if err != nil {
		return false, err
	}
	next, err := pki.Open(m.dir.own(a.name)) // others read the one that is in use
	if err != nil {
		return false, err
	}
	if b := next.Bundle(); len(b) > 1 && time.Now().Before(b[1].NotAfter) {
		return false, nil
	}
	if err := next.RenewAuthority(); err != nil {
		return false, model.Errorf(model.ErrConflict, "%w", err)
	}
	m.cfg.at("renewed")
	return true, m.publish(ctx, a, next, is.rev)
}

// publish has an authority that is in this member's file count for all.
func (m *Authorities) publish(ctx context.Context, a authority, next *pki.Authority, rev int64) error {
	ok, err := commit(ctx, m.server.client, []clientv3.Cmp{unchangedSince(a.row, rev)}, clientv3.OpPut(a.row, encode(fingerprint(next))))
	if err != nil {
		return err
	}
	if !ok {
		return model.Errorf(model.ErrUnavailable, "another netmaster is renewing the authority too: check 'netctl cluster members' in a minute")
	}
	a.is.Store(next)
	m.cfg.Logger.Warn("an authority was renewed", "which", a.name, "until", date(next.Bundle()[0].NotAfter))
	return nil
}

// followAll takes what other members renewed.
func (m *Authorities) followAll(ctx context.Context) {
	for _, a := range []authority{m.clientsAuthority(), m.membersAuthority()} {
		if err := m.follow(ctx, a); err != nil && ctx.Err() == nil {
			m.cfg.Logger.Warn("a renewed authority is not taken yet", "which", a.name, "error", err)
		}
	}
}

// follow makes this member's authority the one that counts, and publishes one that it had
// made when it was killed. model.ErrConflict: the cluster has another one.
func (m *Authorities) follow(ctx context.Context, a authority) error {
	m.signing.Lock()
	defer m.signing.Unlock()
	return m.followLocked(ctx, a)
}

// followLocked is follow for who has signing.
func (m *Authorities) followLocked(ctx context.Context, a authority) error {
	is, err := get[Fingerprint](ctx, m.server.client, a.row)
	if err != nil {
		return err
	}
	mine := a.is.Load()
	if mine == nil || is.rev == 0 && len(mine.Bundle()) == 1 || is.rev != 0 && fingerprint(mine) == is.value {
		return nil
	}
	if is.rev == 0 || hasFingerprint(mine, is.value) {
		return m.publish(ctx, a, mine, is.rev)
	}
	text, err := m.fetchFromOthers(ctx, a.path, func(text []byte) bool {
		got, err := m.parse(text)
		return err == nil && fingerprint(got) == is.value
	})
	if err != nil {
		return err
	}
	got, err := m.parse(text)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(mine.Bundle(), func(c *x509.Certificate) bool { return hasFingerprint(got, sum(c)) }) {
		return model.Errorf(model.ErrConflict, "the cluster has another authority (%s) than this data directory", a.name)
	}
	if err := durable.WriteFile(filepath.Join(m.dir.own(a.name), authorityFile), text); err != nil {
		return err
	}
	next, err := pki.Open(m.dir.own(a.name))
	if err == nil {
		err = next.DistributeBundle()
	}
	if err != nil {
		return err
	}
	a.is.Store(next)
	m.cfg.Logger.Info("a renewed authority was installed", "which", a.name)
	return nil
}

// parse reads an authority as members hand it over.
func (m *Authorities) parse(text []byte) (*pki.Authority, error) {
	tmp, err := os.MkdirTemp(m.dir.own(""), "handed-") // for this user only
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := durable.WriteFile(filepath.Join(tmp, authorityFile), text); err != nil {
		return nil, err
	}
	return pki.Open(tmp)
}

// fetchFromOthers asks the other members for an authority, until one answers with the
// wanted one.
func (m *Authorities) fetchFromOthers(ctx context.Context, path string, wanted func([]byte) bool) ([]byte, error) {
	rows, err := list[memberRow](ctx, m.server.client, memberRows)
	if err != nil {
		return nil, err
	}
	c, err := m.memberClient(askStatus)
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	var errs []error
	for _, r := range rows {
		if r.value.EnrollmentAddress == "" || r.value.Name == m.dir.Name {
			continue
		}
		var text []byte
		if err := jointoken.Call(ctx, c, http.MethodGet, transport.HTTPS+"://"+r.value.EnrollmentAddress+path, nil, &text); err != nil {
			errs = append(errs, err)
		} else if wanted(text) {
			return text, nil
		}
	}
	return nil, errors.Join(append(errs, errNoMember)...)
}

// renewPeer renews the certificate for other members where it is due.
func (m *Authorities) renewPeer() error {
	m.signing.Lock()
	defer m.signing.Unlock()
	return m.peers.renew()
}
