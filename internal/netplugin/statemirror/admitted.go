package statemirror

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// AwaitAdmitted returns the network that an attachment to a group, or to none, and to the
// network asked for, if any, is to be on, once the mirror of the tenant has both, and the
// group is on that network. The mirror must have been waited for; what it lacks is waited
// for until patience ends. The error is then what netmaster would refuse it with: of kind
// model.ErrNotFound or model.ErrConflict.
func (c *State) AwaitAdmitted(ctx context.Context, patience time.Duration, g model.GroupKey, asked model.NetworkName) (n model.Network, err error) {
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var why error
	err = c.wait(waiting, func() (bool, error) {
		n, why = c.admittedLocked(g, asked)
		return why == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		return n, why
	}
	return n, err
}

func (c *State) admittedLocked(g model.GroupKey, asked model.NetworkName) (n model.Network, err error) {
	name, n, known := c.resolveLocked(g, asked)
	if m := c.mirrors[TenantScope(g.Tenant)]; g.Name != "" && m != nil {
		switch group, there := m.groups[g]; {
		case !there:
			return n, model.Errorf(model.ErrNotFound, "endpoint group %q does not exist", g)
		case group.Network != name:
			return n, model.Errorf(model.ErrConflict, "endpoint group %q is on network %q, not on %q", g, group.Network, name)
		}
	}
	if !known {
		return n, model.Errorf(model.ErrNotFound, "network %q does not exist", model.NetworkKey{Tenant: g.Tenant, Name: name})
	}
	return n, nil
}
