package membership

import (
	"context"
	"time"
)

// electionTime is for how long a member hears nothing of the one that leads the store
// before it stands itself, in milliseconds, up to twice as long by chance. etcd's own
// is 1000; with less, a netmaster that leads and dies with its store's leader is
// replaced within 5 s. A disk may still keep the leader waiting for that long.
const electionTime = 700

// transferTimeout bounds how long another member is asked to lead the store.
const transferTimeout = 500 * time.Millisecond

// TransferLeadership has another member lead the store if this one does and another answers. It
// is called before this member ends: what others write at the moment in which the
// store's leader changes is lost on its way there, and waits for an answer in vain for
// seconds; that shall not be the first that the next leader among netmasters does.
func (m *Member) TransferLeadership(ctx context.Context) {
	if m.cfg.Store != nil {
		return
	}
	e := m.Etcd()
	for _, other := range e.Cluster().Members() {
		if e.Leader() != e.MemberID() {
			return
		}
		if other.ID == e.MemberID() || other.IsLearner {
			continue
		}
		tctx, cancel := context.WithTimeout(ctx, transferTimeout)
		err := e.MoveLeader(tctx, uint64(e.MemberID()), uint64(other.ID))
		cancel()
		if err != nil {
			m.cfg.Logger.Debug("the store's leadership cannot be transferred", "to", other.Name, "error", err)
		}
	}
}
