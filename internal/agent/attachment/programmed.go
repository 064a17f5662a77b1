package attachment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/agent/netmaster"
	"github.com/contiv/netplugin/v2/internal/agent/picture"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// fallback is how long waitProgrammed waits for the tenant's mirror to reach
// the revision that netmaster named before it accepts an endpoint that looks as
// netmaster answered: asked again for an endpoint that exists, netmaster may
// name a revision that never touched the tenant.
const fallback = 2 * time.Second

// waitProgrammed waits until the data plane holds the port of an endpoint, with
// its policy as of where the endpoint was committed or later, and returns up to where
// that is so for sure.
func (a *Service) waitProgrammed(ctx context.Context, ep model.Endpoint, hostIf string, at netmaster.Committed) (store.Revision, error) {
	started := time.Now()
	timer := time.NewTimer(fallback)
	defer timer.Stop()
	for {
		o, changed := a.reached.Get()
		why := a.missing(o, ep, hostIf, at, time.Since(started) >= fallback)
		if why == nil {
			return min(at.Revision, o.Revs[ep.Key.Network.Tenant]), nil
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
func (a *Service) missing(o picture.Outcome, ep model.Endpoint, hostIf string, at netmaster.Committed, late bool) error {
	if o.Err != nil {
		return o.Err
	}
	seen, ok := o.Revs[ep.Key.Network.Tenant]
	if !ok || seen < at.Revision && (!late || !a.cluster.Knows(ep)) {
		return fmt.Errorf("the picture has reached revision %d of tenant %s, not %d", seen, ep.Key.Network.Tenant, at.Revision)
	}
	if global := o.Revs[""]; global < at.Global {
		return fmt.Errorf("the picture has reached revision %d of namespaces and settings, not %d", global, at.Global)
	}
	st, ok := o.Report.Ports.Get(hostIf)
	if !ok {
		return errors.New("the port is not in the picture")
	}
	return st.Err
}
