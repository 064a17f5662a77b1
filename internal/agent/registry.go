package agent

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// discover follows the registry's list of netmasters until ctx ends. A list
// that becomes empty keeps the last client: a netmaster whose lease was lost
// with the store may still answer.
func (a *Agent) discover(ctx context.Context) {
	if a.cfg.Netmasters != "" {
		return
	}
	err := cluster.WatchServices(ctx, a.cfg.Store, "netmaster", func(list []cluster.Service) error {
		var urls []string
		for _, s := range list {
			u, err := s.URL()
			if err != nil {
				a.log.Warn("a netmaster of the registry cannot be asked", "error", err)
				continue
			}
			urls = append(urls, u)
		}
		if err := a.masters.set(urls); err != nil {
			a.log.Warn("the registry's netmasters cannot be used", "error", err)
		}
		return nil
	})
	if ctx.Err() == nil {
		a.log.Error("netmasters are not followed any more", "error", err)
	}
}

// tellListening keeps in the store where this netplugin listens, until ctx ends:
// other hosts keep their containers from there.
func (a *Agent) tellListening(ctx context.Context) {
	cluster.KeepListening(ctx, a.cfg.Store, cluster.Service{Role: "netplugin", Version: a.cfg.Version, Hostname: string(a.cfg.Host)}, a.listening(),
		func(err error) { a.log.Debug("other hosts do not hear where this netplugin listens", "error", err) })
}
