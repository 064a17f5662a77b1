package attachment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
)

// fallback is how long waitProgrammed waits for mirrors to reach revisions that
// netmaster named and that they may never hear of: asked again for an endpoint that
// exists, netmaster may name one that did not touch its network; and of what was deleted
// a mirror that lists later is not told. Then an endpoint is accepted that looks as
// netmaster answered.
const fallback = 2 * time.Second

// waitProgrammed waits until the data plane holds the port of an endpoint, with
// its policy as of where the endpoint was committed or later, and returns up to where
// that is so for sure.
func (a *Interfaces) waitProgrammed(ctx context.Context, ep model.Endpoint, hostIf string, at masterclient.Committed) (store.Revision, error) {
	started := time.Now()
	timer := time.NewTimer(fallback)
	defer timer.Stop()
	for {
		o, changed := a.reached.Get()
		why := a.missing(o, ep, hostIf, at, time.Since(started) >= fallback)
		if why == nil {
			return upTo(at, o.Revs[statemirror.TenantScope(ep.Key.Network.Tenant)]), nil
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return 0, model.Errorf(model.ErrUnavailable, "wait until port %s is programmed: %w", hostIf, why)
		}
	}
}

// missing says why a port does not count as programmed yet.
func (a *Interfaces) missing(o statemirror.SyncStatus, ep model.Endpoint, hostIf string, at masterclient.Committed, late bool) error {
	if o.Err != nil {
		return o.Err
	}
	n := ep.Key.Network
	seen, ok := o.Revs.Endpoints(n)
	if !ok || seen < at.Revision && (!late || !a.cluster.Endpoints.Knows(ep)) {
		return fmt.Errorf("the desired state has reached revision %d of the endpoints of network %s, not %d", seen, n, at.Revision)
	}
	rest, ok := o.Revs[statemirror.TenantScope(n.Tenant)]
	if !ok || rest < at.Written || rest < at.Deleted && !late {
		return fmt.Errorf("the desired state has reached revision %d of tenant %s, not %d", rest, n.Tenant, max(at.Written, at.Deleted))
	}
	if global := o.Revs[statemirror.Scope{}]; global < at.Global {
		return fmt.Errorf("the desired state has reached revision %d of namespaces and settings, not %d", global, at.Global)
	}
	st, ok := o.Report.Ports.Get(hostIf)
	if !ok {
		return errors.New("the port is not in the desired state")
	}
	return st.Err
}

// upTo is up to which revision all policies are in force for sure, when the rows of the
// tenant are known up to rest: nothing of them has changed between what netmaster named
// and the endpoint itself.
func upTo(at masterclient.Committed, rest store.Revision) store.Revision {
	if named := max(at.Written, at.Deleted); named != 0 && rest >= named {
		return at.Revision
	}
	return min(at.Revision, rest)
}
