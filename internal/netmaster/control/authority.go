package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

type limited struct{}

// Limited returns a context for use-cases of somebody who is no cluster administrator:
// what they create changes nothing on hosts beside its containers, unless a cluster
// administrator allowed that prefix. tenants are those of which they are administrators.
func Limited(ctx context.Context, tenants ...string) context.Context {
	return context.WithValue(ctx, limited{}, tenants)
}

func isLimited(ctx context.Context) bool { return ctx.Value(limited{}) != nil }

// mayChangeHosts refuses what changes routes, addresses or interfaces of hosts.
func mayChangeHosts(ctx context.Context, field, value, what string) error {
	if !isLimited(ctx) {
		return nil
	}
	return model.Errorf(model.ErrForbidden, "%s %q: %s needs a cluster-admin, since it changes routes of all hosts", field, value, what)
}

// mayWriteTier refuses a policy that is, or is to be, in the tier that holds whatever tenants
// write.
func mayWriteTier(ctx context.Context, tx store.Tx, k model.PolicyKey, tier model.Tier) error {
	if !isLimited(ctx) {
		return nil
	}
	old, err := tables.Policies.Peek(tx, k)
	if err != nil {
		return err
	}
	if tier == model.TierAdmin || old.Exists() && old.Value.Tier == model.TierAdmin {
		return model.Errorf(model.ErrForbidden, "policy %q: tier admin needs a cluster-admin, since it holds whatever tenants write", k)
	}
	return nil
}
