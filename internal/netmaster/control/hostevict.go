package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// DrainHost says that services send the providers on a host no new connections, those
// that begin there later included, or (not drain) that they do again. It holds until
// it is taken back or the host is removed, whatever becomes of the host's agent.
func (hs *Hosts) DrainHost(ctx context.Context, a Actor, k model.HostName, drain bool) (HostState, store.Revision, error) {
	if _, err := hs.Get(ctx, a, k); err != nil {
		return HostState{}, 0, err
	}
	verb, d := "drain", tables.HostDrain{Host: k}
	if !drain {
		verb = "undrain"
	}
	rev, err := hs.commits.update(ctx, a, fmt.Sprintf("%s host %q", verb, k), func(tx store.Tx) error {
		row, err := tables.HostDrains.Find(tx, tables.HostDrainKey{Host: k})
		switch {
		case err != nil || row.Exists() == drain:
			return err
		case drain:
			return tables.HostDrains.Put(tx, d)
		}
		tables.HostDrains.Delete(tx, tables.HostDrainKey{Host: k})
		return nil
	})
	if err != nil {
		return HostState{}, 0, err
	}
	h, err := hs.Get(ctx, a, k)
	h.Draining = drain
	return h, rev, err
}

// EvictHost gives up the endpoints of a host that is away, and tells how many those
// were: other hosts forget them, and their addresses are free. The host stays known.
// It refuses a host that is alive (ErrInUse), and, unless force is set, one that has
// endpoints. One that comes back in between keeps what was not given up yet.
func (hs *Hosts) EvictHost(ctx context.Context, a Actor, k model.HostName, force bool) (int, store.Revision, error) {
	eps, err := hs.endpointsToRelease(ctx, a, k, force, "evict")
	if err != nil {
		return 0, 0, err
	}
	u := hs.commits.as(a)
	released, err := hs.evict(ctx, u, k, eps, checkStillAway(k))
	return released, u.rev, err
}

// evict gives up endpoints of a host as long as that may be.
func (hs *Hosts) evict(ctx context.Context, u *usecase, k model.HostName, eps []model.Endpoint, may func(store.Tx) error) (int, error) {
	released, err := hs.endpoints.deleteEndpoints(ctx, u, eps, may)
	if err != nil {
		return released, partlyReleased("evict", k, released, len(eps), err)
	}
	_, err = u.update(ctx, fmt.Sprintf("evict host %q", k), func(tx store.Tx) error {
		if err := may(tx); err != nil {
			return err
		}
		row, err := tables.AwayTimes.Find(tx, tables.AwayTimeKey{Host: k})
		if err != nil || !row.Exists() || row.Value.Evicted {
			return err
		}
		row.Value.Evicted = true
		return tables.AwayTimes.Put(tx, row.Value)
	})
	return released, err
}

// partlyReleased says how far the release of a host's endpoints came. Of many it may take longer than
// one request: what is released stays so, and the next request goes on.
func partlyReleased(verb string, k model.HostName, released, of int, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return model.Errorf(model.ErrUnavailable, "%s host %q: %d of its %d endpoints are released, and the time of one request is up: repeat it", verb, k, released, of)
	}
	return fmt.Errorf("%s host %q: %d of its endpoints are released: %w", verb, k, released, err)
}

// checkStillAway refuses a host that has come back, in the transaction that would take
// something from it.
func checkStillAway(k model.HostName) func(store.Tx) error {
	return func(tx store.Tx) error {
		claim, err := tables.HostLeases.Find(tx, k)
		if err == nil && claim.Exists() {
			err = isAlive(k)
		}
		return err
	}
}
