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

// admitAccount signs the key of a host for which somebody vouches whom the cluster asks:
// for the host of that name alone. Who asks again with the same key is answered again;
// certificates of former keys renew nothing any more, as after a token.
func (m *Enrolment) admitAccount(ctx context.Context, q jointoken.HostRequest) (jointoken.HostAnswer, error) {
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
