package agent

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// tellListening keeps in the store where this netplugin listens, until ctx ends:
// other hosts keep their containers from there.
func (a *Agent) tellListening(ctx context.Context) {
	cluster.KeepListening(ctx, a.cfg.Store, cluster.Service{Role: "netplugin", Version: a.cfg.Version, Hostname: string(a.cfg.Host)}, a.listening(),
		func(err error) { a.log.Debug("other hosts do not hear where this netplugin listens", "error", err) })
}
