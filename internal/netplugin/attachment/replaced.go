package attachment

import (
	"context"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// mirrorTimeout is for how long a network or group that the mirror lacks may be on its way
// from netmaster.
const mirrorTimeout = 2 * time.Second

// checkAdmitted reports whether netmaster would refuse an attachment for its network, group or
// MTU: a container that has an interface keeps it then. The tenant must have been
// acquired. What only netmaster knows, such as who has an address, is not looked at.
func (a *attacher) checkAdmitted(ctx context.Context, r attach.Request, t target) error {
	here, err := a.cluster.Lookup.HasTenant(ctx, t.tenant)
	if err == nil && !here {
		_, err = a.askNetwork(ctx, t)
	}
	if err != nil || !here {
		return err
	}
	network, err := a.cluster.Lookup.AwaitNetworkOf(ctx, mirrorTimeout, model.GroupKey{Tenant: t.tenant, Name: t.group}, t.network)
	if err != nil {
		return err
	}
	_, err = a.cfg.Underlay.Of(network, r.MTU)
	return err
}

// releaseReplaced releases what stands in the way of an attachment of the same name.
func (a *attacher) releaseReplaced(ctx context.Context, e Entry) error {
	a.facts.pending.addReplaced(e.Facts, time.Now())
	if err := a.releaser.releaseEntry(ctx, e); err != nil {
		return model.Errorf(model.ErrUnavailable, "its previous attachment as %s is not released yet: %w", e.Endpoint, err)
	}
	return nil
}

// reattach attaches a process again as it was before it asked for something that is refused,
// such as an address that another endpoint has: no runtime asks again for what it had. It returns
// the refusal.
func (a *attacher) reattach(ctx context.Context, was Entry, refusal error) error {
	r := was.Request
	r.Addresses = nil
	for _, addr := range was.Result.Addresses {
		r.Addresses = append(r.Addresses, addr.Prefix.Addr())
	}
	t, err := parseTarget(r)
	if err == nil {
		t.tenant, t.network, t.group = was.Endpoint.Network.Tenant, was.Endpoint.Network.Name, was.Group
		a.cluster.AcquireTenant(t.tenant) // it may be another one than what was asked for
		defer a.cluster.ReleaseTenant(t.tenant)
		_, err = a.attachNew(ctx, r, t)
	}
	if err != nil {
		return fmt.Errorf("%w; its previous attachment as %s is released, and could not be made again: %w", refusal, was.Endpoint, err)
	}
	return refusal
}
