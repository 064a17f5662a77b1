package attachment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/agent/picture"
	"github.com/contiv/netplugin/v2/internal/model"
)

// What an agent knows for certain it writes again whenever it is missing: an
// attachment that stands and has no endpoint in the store any more, because
// somebody has deleted that, or the store was restored from a backup that is
// older, gets it back with the same addresses and MAC.

const (
	// custodyEvery is how often it is looked for what is missing without a reason
	// to, custodyRetry how soon what could not be put back is tried again.
	custodyEvery = 30 * time.Second
	custodyRetry = time.Second
	// custodyParallel is how many endpoints are put back at a time.
	custodyParallel = 8
)

// keepAttachments puts back what the store lacks of this host's attachments,
// until ctx ends.
func (a *Service) keepAttachments(ctx context.Context) {
	tick := time.NewTicker(custodyEvery)
	defer tick.Stop()
	for {
		if a.putBack(ctx) {
			tick.Reset(custodyEvery)
		} else {
			tick.Reset(custodyRetry)
		}
		select {
		case <-a.custody:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// putBack tries once, and tells whether there is nothing more to do.
func (a *Service) putBack(ctx context.Context) bool {
	lost := a.cluster.Lost()
	if len(lost) == 0 {
		a.cfg.Tell("")
		return true
	}
	if a.cfg.Mine() != nil || a.masters.API() == nil {
		return false // said elsewhere
	}
	var mu sync.Mutex
	refused, first := 0, ""
	var g errgroup.Group
	g.SetLimit(custodyParallel)
	for _, o := range lost {
		g.Go(func() error {
			err := a.putBackOne(ctx, o)
			if err == nil || errors.Is(err, model.ErrUnavailable) || ctx.Err() != nil || a.cluster.Patient() {
				return err
			}
			a.cluster.Refuse(o.Endpoint, true)
			mu.Lock()
			defer mu.Unlock()
			if refused++; first == "" {
				first = fmt.Sprintf("endpoint %s: %v", o.Endpoint, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		a.log.Debug("attachments are not put back into the store yet", "error", err)
	}
	if refused > 0 {
		a.cfg.Tell(fmt.Sprintf(
			"%d attachments of this host are not in the store and cannot be put back: their containers are cut off; %s; remove and add such containers again", refused, first))
	}
	return false // until the mirror shows them
}

// putBackOne creates an attachment's endpoint as it was.
func (a *Service) putBackOne(ctx context.Context, o picture.Owned) error {
	unlock, err := a.turns.Take(ctx, o.Key)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := a.journal.get(o.Key)
	if !ok || e.State != StateDone || e.Endpoint != o.Endpoint {
		return nil // it has gone meanwhile
	}
	if e.Result == nil {
		return model.Errorf(model.ErrNotFound, "its addresses are not known, since its journal entry was lost")
	}
	t := target{tenant: e.Endpoint.Network.Tenant, network: e.Endpoint.Network.Name, group: e.Group}
	for _, ad := range e.Result.Addresses {
		if ip := ad.Prefix.Addr(); ip.Is4() {
			t.v4 = ip
		} else {
			t.v6 = ip
		}
	}
	if a.cluster.Former(o) {
		if err := a.masters.Delete(ctx, e.Endpoint, e.Group); err != nil {
			return err
		}
	}
	ep, _, err := a.masters.Create(ctx, a.createRequest(e, t), e.Endpoint)
	if err != nil {
		return err
	}
	if ep.MAC != e.Result.MAC || ep.IPv4 != t.v4 || ep.IPv6 != t.v6 {
		return model.Errorf(model.ErrConflict, "netmaster has it as %s %s %s, the container as %s %s %s",
			ep.MAC, ep.IPv4, ep.IPv6, e.Result.MAC, t.v4, t.v6)
	}
	a.cluster.Refuse(o.Endpoint, false)
	a.log.Warn("an endpoint of this host was not in the store and is put back", "endpoint", o.Endpoint.String())
	return nil
}
