package attachment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// What an agent knows for certain it writes again whenever it is missing: an
// attachment that stands and has no endpoint in the store any more, because
// somebody has deleted that, or the store was restored from a backup that is
// older, gets it back with the same addresses and MAC.

const (
	// restoreEvery is how often it is looked for what is missing without a reason
	// to, restoreRetry how soon what could not be put back is tried again.
	restoreEvery = 30 * time.Second
	restoreRetry = time.Second
	// restoreParallel is how many endpoints are put back at a time.
	restoreParallel = 8
)

// restorer puts endpoints back that the store lacks. It owns the bell that calls it.
type restorer struct {
	*deps
	restore waiting.Bell // calls restoreMissing
}

// restoreMissing puts back what the store lacks of this host's attachments,
// until ctx ends.
func (a *restorer) restoreMissing(ctx context.Context) {
	tick := time.NewTicker(restoreEvery)
	defer tick.Stop()
	for {
		known := a.readEndpoints(ctx)
		if a.restoreOnce(ctx) && known {
			tick.Reset(restoreEvery)
		} else {
			tick.Reset(restoreRetry)
		}
		select {
		case <-a.restore:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// readEndpoints notes of adopted attachments what the store has of their endpoints, so that
// these can be put back too, and tells whether it has all of them.
func (a *restorer) readEndpoints(ctx context.Context) bool {
	all := true
	for _, e := range a.journal.all() {
		if e.State == StateDone && e.Result == nil && e.Seen == nil {
			all = a.readEndpoint(ctx, e) && all
		}
	}
	return all
}

func (a *restorer) readEndpoint(ctx context.Context, e Entry) bool {
	ep := a.cluster.Endpoints.Get([]model.EndpointKey{e.Endpoint})[e.Endpoint]
	if ep.Host != a.cfg.Host || ep.MAC == (model.MAC{}) {
		return false // not known here yet, or not there
	}
	unlock, err := a.journal.turns.Lock(ctx, e.Key())
	if err != nil {
		return false
	}
	defer unlock()
	now, ok := a.journal.get(e.Key())
	if !ok || now.State != StateDone || now.Result != nil || now.Endpoint != e.Endpoint {
		return true // it has changed meanwhile
	}
	now.Seen = &ep
	a.recordEntry(now)
	return true
}

// restoreOnce tries once, and tells whether there is nothing more to do.
func (a *restorer) restoreOnce(ctx context.Context) bool {
	lost := a.cluster.Endpoints.Lost()
	if len(lost) == 0 {
		a.agent.SetAttachmentsProblem("")
		return true
	}
	if a.agent.Owns() != nil || a.masters.API() == nil {
		return false // said elsewhere
	}
	var mu sync.Mutex
	refused, first := 0, ""
	var g errgroup.Group
	g.SetLimit(restoreParallel)
	for _, o := range lost {
		g.Go(func() error {
			err := a.restoreOne(ctx, o)
			if err == nil || errors.Is(err, model.ErrUnavailable) || ctx.Err() != nil || a.cluster.Guard.AllowsRefusal() {
				return err
			}
			a.cluster.Refuse(o.Endpoint, true)
			mu.Lock()
			defer mu.Unlock()
			if text := fmt.Sprintf("endpoint %s: %v", o.Endpoint, err); refused == 0 || text < first {
				first = text // in a fixed order: the same sentence each time
			}
			refused++
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		a.log.Debug("attachments are not restored to the store yet", "error", err)
	}
	if refused > 0 {
		a.agent.SetAttachmentsProblem(fmt.Sprintf(
			"%d attachments of this host are not in the store and cannot be put back: their containers are cut off; %s; remove and add such containers again", refused, first))
	}
	return false // until the mirror shows them
}

// restoreOne creates an attachment's endpoint as it was.
func (a *restorer) restoreOne(ctx context.Context, o statemirror.Attachment) error {
	unlock, err := a.journal.turns.Lock(ctx, o.Key)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := a.journal.get(o.Key)
	if !ok || e.State != StateDone || e.Endpoint != o.Endpoint {
		return nil // it has gone meanwhile
	}
	if e.Request.OnHost {
		if wanted, err := a.wantsInfra(e.Endpoint.Network); err != nil || !wanted {
			return err // it goes, with the network
		}
	}
	t := target{tenant: e.Endpoint.Network.Tenant, network: e.Endpoint.Network.Name, group: e.Group}
	var mac model.MAC
	switch was := e.Seen; {
	case e.Result != nil:
		mac = e.Result.MAC
		for _, ad := range e.Result.Addresses {
			if ip := ad.Prefix.Addr(); ip.Is4() {
				t.v4 = ip
			} else {
				t.v6 = ip
			}
		}
	case was != nil:
		mac, t.v4, t.v6, t.group, e.Group = was.MAC, was.IPv4, was.IPv6, was.Group, was.Group
		e.Request.Name, e.Request.Labels = was.Name, was.Labels
		if was.Pod.UID != "" { // else no policy of Kubernetes would select it
			e.Pod, e.Request.Pod = true, attach.Pod{Namespace: string(was.Namespace), Name: was.Pod.Name, UID: was.Pod.UID}
		}
		if mac != model.EndpointMAC(was.Key.Network, was.IPv4, was.IPv6) { // somebody had asked for it
			e.Request.MAC = mac
		}
	default:
		return model.Errorf(model.ErrNotFound, "its addresses are not known, since its journal entry was lost")
	}
	if a.cluster.Endpoints.HasStale(o) {
		if err := a.masters.Delete(ctx, e.Endpoint, e.Group); err != nil {
			return err
		}
	}
	ep, _, err := a.masters.Create(ctx, a.createRequest(e, t), e.Endpoint)
	if e.Request.OnHost && errors.Is(err, model.ErrNotFound) {
		return nil // its network was deleted a moment ago: it goes, too
	}
	if err != nil {
		return err
	}
	if ep.MAC != mac || ep.IPv4 != t.v4 || ep.IPv6 != t.v6 {
		return model.Errorf(model.ErrConflict, "netmaster has it as %s %s %s, the container as %s %s %s",
			ep.MAC, ep.IPv4, ep.IPv6, mac, t.v4, t.v6)
	}
	a.cluster.Refuse(o.Endpoint, false)
	a.log.Warn("an endpoint of this host was missing from the store and is restored", "endpoint", o.Endpoint.String())
	return nil
}
