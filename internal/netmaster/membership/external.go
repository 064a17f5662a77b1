package membership

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// elsewhere is the leader that a member names whose store runs elsewhere.
const elsewhere = 1

// id is this member's among the members.
func (m *local) id() uint64 {
	if m.cfg.Store != nil {
		return idOf(m.dir.ID)
	}
	return uint64(m.server.etcd.Server.MemberID())
}

// idOf is the id of the member of a directory whose store runs elsewhere.
func idOf(dir string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(dir)) // it cannot fail
	return max(h.Sum64(), 1)
}

// rowMembers are the members where the store runs elsewhere: their rows, once they were
// admitted.
func (m *local) rowMembers(ctx context.Context) (all []*etcdserverpb.Member, err error) {
	rows, err := list[memberRow](ctx, m.cfg.Store, memberRows)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if r.value.ID != 0 {
			all = append(all, &etcdserverpb.Member{ID: r.value.ID, Name: r.value.Name, PeerURLs: []string{transport.HTTPS + "://" + r.value.Peer}})
		}
	}
	return all, nil
}

// awaitStore waits until the store answers.
func (m *Member) awaitStore(ctx context.Context) error {
	for told := (time.Time{}); ; {
		_, err := get[Fingerprint](ctx, m.cfg.Store, clientsRow)
		if !errors.Is(err, model.ErrUnavailable) {
			return err
		}
		if time.Since(told) >= time.Minute {
			told = time.Now()
			m.cfg.Logger.Warn("this netmaster waits for the store", "error", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return err
		}
	}
}

// checkStore refuses to found a cluster in a store of the user's own that has an authority of
// hosts which this directory lacks: other netmasters have it.
func (m *Member) checkStore(ctx context.Context) error {
	is, err := get[Fingerprint](ctx, m.cfg.Store, clientsRow)
	if err != nil || is.rev == 0 || m.dir.hasClients() { // recordAuthority compares it
		return err
	}
	return m.otherNetmasters()
}

// recordAuthority has the store name this founder's authority of hosts, unless it names another.
func (m *Member) recordAuthority(ctx context.Context) error {
	mine := m.Authorities.clients.Load()
	if mine == nil {
		return nil
	}
	is, err := get[Fingerprint](ctx, m.cfg.Store, clientsRow)
	if err != nil || is.rev != 0 && hasFingerprint(mine, is.value) {
		return err
	}
	ok := false
	if is.rev == 0 {
		ok, err = commit(ctx, m.cfg.Store, []clientv3.Cmp{unchangedSince(clientsRow, 0)}, clientv3.OpPut(clientsRow, encode(fingerprint(mine))))
	}
	if err == nil && !ok {
		err = m.otherNetmasters()
	}
	return err
}

func (m *Member) otherNetmasters() error {
	return model.Errorf(model.ErrConflict, "the store belongs to netmasters with another authority than %s has: join them ('netctl cluster token' on one of them says how), or put back a copy of the join directory of one; if all are lost for good, delete %s from the store with etcdctl, and hosts have to join again", m.dir.path, clientsRow)
}
