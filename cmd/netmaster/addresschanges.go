package main

import (
	"context"
	"log/slog"

	"github.com/vishvananda/netlink"
)

// addressChanges signals when an address of this machine comes or goes, until ctx ends:
// agents keep containers from netmaster's addresses. The channel is never closed.
func addressChanges(ctx context.Context, log *slog.Logger) <-chan struct{} {
	updates, changed := make(chan netlink.AddrUpdate), make(chan struct{}, 1)
	err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), netlink.AddrSubscribeOptions{
		ErrorCallback: func(err error) {
			if ctx.Err() == nil {
				log.Debug("changes of this machine's addresses cannot be watched; they are noticed later", "error", err)
			}
		},
	})
	if err != nil {
		log.Debug("changes of this machine's addresses cannot be watched; they are noticed later", "error", err)
		return nil
	}
	go func() {
		for range updates { // closed when ctx ends, or reading fails
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed
}
