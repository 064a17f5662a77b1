package membership

import (
	"bytes"
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/store"
)

// enrollAccount signs the key of a host for which somebody vouches whom the cluster asks:
// for the host of that name alone. Who asks again with the same key is answered again;
// certificates of former keys renew nothing any more, as after a token.
func (m *Enrolment) enrollAccount(ctx context.Context, q jointoken.HostRequest) (jointoken.HostAnswer, error) {
	var none jointoken.HostAnswer
	if m.cfg.TokenReviewer == nil {
		return none, model.Errorf(model.ErrInvalid, "this netmaster does not accept tokens of service accounts: start it with --enroll-service-account, or make a token with 'netctl cluster token --host %s'", q.Name)
	}
	csr, err := readCSR(q)
	if err != nil {
		return none, err
	}
	host, by, err := m.cfg.TokenReviewer(ctx, q.Account)
	if err != nil {
		return none, err
	}
	if host != q.Name {
		return none, model.Errorf(model.ErrInvalid, "the token belongs to %s on the node %s, and this is the host %s: give netplugin --host %s", by, host, q.Name, host)
	}
	key := keySum(csr.RawSubjectPublicKeyInfo)
	row := hostRows + store.Segment(q.Name)
	for range attempts {
		had, err := get[hostRow](ctx, m.server.client, row)
		if err != nil {
			return none, err
		}
		a, err := m.sign(ctx, q, csr)
		if err != nil || bytes.Equal(had.value.Key, key) { // the answer was lost
			return a, err
		}
		now := time.Now().UTC()
		next := hostRow{Name: q.Name, Key: key, By: by, At: now, End: now.AddDate(0, 0, pki.Days)}
		ok, err := commit(ctx, m.server.client, []clientv3.Cmp{unchangedSince(row, had.rev)}, clientv3.OpPut(row, encode(next)))
		if err != nil {
			return none, err
		}
		if ok {
			m.cfg.Logger.Info("a host got its certificate", "host", q.Name, "by", by)
			return a, nil
		}
	}
	return none, model.Errorf(model.ErrUnavailable, "others change the same objects: try again")
}

// review refuses a new member unless its service account's token is of a pod on the node
// of its name.
func (m *Enrolment) review(ctx context.Context, q request) error {
	if m.cfg.Forming == nil {
		return model.Errorf(model.ErrInvalid, "this netmaster does not accept tokens of service accounts from netmasters: start it with --member-service-account, or make a token with 'netctl cluster token'")
	}
	node, by, err := m.cfg.Forming.Review(ctx, q.Account)
	if err != nil {
		return err
	}
	if node != q.Name {
		return model.Errorf(model.ErrInvalid, "the token belongs to %s on the node %s, and this is the member %s: start netmaster with --member-name %s", by, node, q.Name, node)
	}
	return nil
}

// replaceMember makes the row of a new member that was reviewed. A member of the same node in
// another directory is removed, as Roster.Remove does it: not while it is alive, and not
// where too few others would answer. A zero row says that the members have changed.
func (m *Enrolment) replaceMember(ctx context.Context, q request) (row[memberRow], error) {
	var none row[memberRow]
	had, err := get[memberRow](ctx, m.server.client, memberRows+q.Name)
	switch {
	case err != nil:
		return none, err
	case had.rev != 0 && had.value.Dir == q.Dir && had.value.Peer != q.Peer:
		return none, model.Errorf(model.ErrConflict, "%s was admitted at the address %s and asks again with %s: repeat the former command line", q.Name, had.value.Peer, q.Peer)
	case had.rev != 0 && had.value.Dir == q.Dir:
		return had, nil
	case had.rev != 0:
		m.cfg.Logger.Warn("the node of a member comes with an empty directory: the member is replaced", "name", q.Name, "address", q.Peer)
		return none, m.roster.Remove(ctx, q.Name, false)
	}
	if err := m.unused(ctx, had, q); err != nil {
		return none, err
	}
	mine := memberRow{Name: q.Name, Dir: q.Dir, Peer: q.Peer, EnrollmentAddress: q.EnrollmentAddress, At: time.Now().UTC()}
	ok, err := commit(ctx, m.server.client, []clientv3.Cmp{unchangedSince(memberRows+q.Name, 0)}, clientv3.OpPut(memberRows+q.Name, encode(mine)))
	if err != nil || !ok {
		return none, err
	}
	m.cfg.at("spent")
	return get[memberRow](ctx, m.server.client, memberRows+q.Name)
}
