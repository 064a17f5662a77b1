package control

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// mayChangeHosts refuses what changes routes, addresses or interfaces of hosts.
func (a Actor) mayChangeHosts(field, value, what string) error {
	if a.admin {
		return nil
	}
	return model.Errorf(model.ErrForbidden, "%s %q: %s needs a cluster-admin, since it changes routes of all hosts", field, value, what)
}

// mayWriteTier refuses a policy that is, or is to be, in the tier that holds whatever tenants
// write.
func (a Actor) mayWriteTier(tx store.Tx, k model.PolicyKey, tier model.Tier) error {
	if a.admin {
		return nil
	}
	old, err := tables.Policies.Peek(tx, k)
	if err != nil {
		return err
	}
	if tier == model.TierAdmin || old.Exists() && old.Value.Tier == model.TierAdmin {
		return model.Errorf(model.ErrForbidden, "policy %q: tier admin needs a cluster-admin, since it overrides tenants' policies", k)
	}
	return nil
}
