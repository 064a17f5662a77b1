package attachment

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
)

// waitProgrammed waits until the data plane holds the port of an endpoint, with its policy
// as of the endpoint's commit or later. It returns the revision as of which all policies
// are in force for sure.
func (a *Interfaces) waitProgrammed(ctx context.Context, n model.NetworkKey, hostIf string, at masterclient.EndpointRevisions) (policies store.Revision, err error) {
	var why error
	err = a.reached.Until(ctx, func(o statemirror.SyncStatus) (bool, error) {
		policies, why = policiesOf(at, o.Revs[statemirror.TenantScope(n.Tenant)]), unprogrammed(o, n, hostIf, at)
		return why == nil, nil
	})
	if err != nil {
		return 0, model.Errorf(model.ErrUnavailable, "wait until port %s is programmed: %w", hostIf, why)
	}
	return policies, nil
}

// unprogrammed returns why a port does not count as programmed yet, nil = it does. The
// desired state that was applied has to have, of each mirror that the endpoint depends on,
// the commit that netmaster named. Each mirror delivers it, or lists later: netmaster names
// only commits that touched the mirror's own rows.
func unprogrammed(o statemirror.SyncStatus, n model.NetworkKey, hostIf string, at masterclient.EndpointRevisions) error {
	if o.Err != nil {
		return o.Err
	}
	if rev, ok := o.Revs.Endpoints(n); !ok || rev < at.Endpoint {
		return fmt.Errorf("the desired state has reached revision %d of the endpoints of network %s, not %d", rev, n, at.Endpoint)
	}
	if rev, ok := o.Revs[statemirror.TenantScope(n.Tenant)]; !ok || rev < at.Tenant {
		return fmt.Errorf("the desired state has reached revision %d of tenant %s, not %d", rev, n.Tenant, at.Tenant)
	}
	if rev := o.Revs[statemirror.Scope{}]; rev < at.Global {
		return fmt.Errorf("the desired state has reached revision %d of namespaces and settings, not %d", rev, at.Global)
	}
	st, ok := o.Report.Ports.Get(hostIf)
	if !ok {
		return errors.New("the port is not in the desired state")
	}
	return st.Err
}

// policiesOf returns as of which revision all policies are in force for sure, where a
// tenant is known up to tenant: as of the endpoint's own, since nothing of the tenant has
// changed between that and what netmaster named.
func policiesOf(at masterclient.EndpointRevisions, tenant store.Revision) store.Revision {
	if at.Tenant == 0 {
		return min(at.Endpoint, tenant)
	}
	return at.Endpoint
}
