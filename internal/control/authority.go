package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
)

type limited struct{}

// Limited returns a context for use-cases of somebody who is no cluster administrator:
// what they create changes nothing on hosts beside its containers, unless a cluster
// administrator allowed that prefix.
func Limited(ctx context.Context) context.Context { return context.WithValue(ctx, limited{}, true) }

func isLimited(ctx context.Context) bool { return ctx.Value(limited{}) != nil }

// mayChangeHosts refuses what changes routes, addresses or interfaces of hosts.
func mayChangeHosts(ctx context.Context, field, value, what string) error {
	if !isLimited(ctx) {
		return nil
	}
	return model.Errorf(model.ErrForbidden, "%s %q: %s needs a cluster-admin, since it changes routes of all hosts", field, value, what)
}
