package masterclient

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// Discover follows the registry's list of netmasters until ctx ends. A list
// that becomes empty keeps the last client: a netmaster whose lease was lost
// with the store may still answer.
func (m *Client) Discover(ctx context.Context, st store.Mirrorer, log *slog.Logger) {
	if m.fixed {
		return
	}
	err := cluster.WatchServices(ctx, st, cluster.ServiceMaster, func(list []cluster.Service) error {
		if err := m.set(m.reachableURLs(list, log)); err != nil {
			log.Warn("the registry's netmasters cannot be used", "error", err)
		}
		return nil
	})
	if ctx.Err() == nil {
		log.Error("the list of netmasters is not updated any more", "error", err)
	}
}

// reachableURLs are the URLs of the netmasters that may be asked.
func (m *Client) reachableURLs(list []cluster.Service, log *slog.Logger) (urls []string) {
	for _, s := range list {
		u, err := s.URLFor(m.tls != nil)
		if err == nil && m.joined && !strings.HasPrefix(u, "https://") {
			err = model.Errorf(model.ErrInvalid, "%s: has no TLS, and this host has joined a secure cluster", u)
		}
		if err != nil {
			log.Warn("a netmaster of the registry cannot be asked", "error", err)
			continue
		}
		urls = append(urls, u)
	}
	return urls
}

// LogWaiting tells people whom the agent waits for: at once, then every 10 s. away says why the
// registry cannot be read; nil = it can.
func (m *Client) LogWaiting(ctx context.Context, log *slog.Logger, away func() error) {
	waiting := false
	for {
		bases, changed := m.Known()
		if bases != "" {
			log.Info("netmaster found", "urls", bases)
			waiting = false
		} else {
			if !waiting {
				select { // the registry's first answer is on its way
				case <-changed:
					continue
				case <-time.After(time.Second):
				case <-ctx.Done():
					return
				}
			}
			waiting = true
			if err := away(); err != nil {
				log.Info("waiting for the cluster's store, which lists the netmasters", "error", err)
			} else {
				log.Info("waiting for a netmaster: none is registered in the store; start one, or give --netmaster URL")
			}
		}
		var again <-chan time.Time
		if waiting {
			again = time.After(10 * time.Second)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}
