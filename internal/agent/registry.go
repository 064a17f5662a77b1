package agent

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// discover follows the registry's list of netmasters until ctx ends. A list
// that becomes empty keeps the last client: a netmaster whose lease was lost
// with the store may still answer.
func (a *Agent) discover(ctx context.Context) {
	if a.cfg.Netmasters != "" {
		return
	}
	err := store.WatchServices(ctx, a.cfg.Store, "netmaster", func(list []store.Service) error {
		var urls []string
		for _, s := range list {
			urls = append(urls, "http://"+net.JoinHostPort(s.HostAddr, strconv.Itoa(s.Port)))
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

// announce writes the host's record, which outlives the agent, and keeps
// netplugin.vtep registered while the agent lives. 9002 and 9003 of 1.x are not
// served, so they are not registered.
func (a *Agent) announce(ctx context.Context) {
	host := model.Host{Name: a.cfg.Host, Control: a.cfg.Control, VTEP: a.cfg.VTEP, Driver: a.cfg.DriverName}
	if !a.retry(ctx, "write the host's record to the store", func() error {
		_, err := a.cfg.Store.Update(ctx, func(tx store.Tx) error {
			row, err := store.Hosts.Find(tx, host.Name)
			if err != nil || row.Exists() && row.Value == host {
				return err
			}
			return store.Hosts.Put(tx, host)
		})
		return err
	}) {
		return
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		store.KeepListening(ctx, a.cfg.Store, store.Service{Role: "netplugin", Version: a.cfg.Version, Hostname: string(a.cfg.Host)}, a.listening(),
			func(err error) { a.log.Debug("other hosts do not hear where this netplugin listens", "error", err) })
	})
	defer listening.Wait()
	var reg *store.Registration
	if !a.retry(ctx, "register netplugin.vtep", func() (err error) {
		reg, err = store.Register(ctx, a.cfg.Store, store.Service{
			ServiceName: "netplugin.vtep", Version: a.cfg.Version, HostAddr: a.cfg.VTEP.String(),
			Port: a.cfg.VXLANPort, Hostname: string(a.cfg.Host),
		}, func(err error) { a.log.Debug("the registration of netplugin.vtep was lost", "error", err) })
		return err
	}) {
		return
	}
	<-ctx.Done()
	if err := reg.Close(); err != nil {
		a.log.Debug("the registration of netplugin.vtep ends with its lease", "error", err)
	}
}

// retry calls f until it succeeds, logging the first failure; false when ctx
// ended first.
func (a *Agent) retry(ctx context.Context, what string, f func() error) bool {
	wait := 100 * time.Millisecond
	for first := true; ; first = false {
		err := f()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if first {
			a.log.Warn("something is not done yet and will be tried again", "what", what, "error", err)
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, 5*time.Second)
		case <-ctx.Done():
			return false
		}
	}
}
