package main

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestNewAddressIsReportedAtOnce: agents hear at once of an address that netmaster's machine
// gets, and keep containers from it.
func TestNewAddressIsReportedAtOnce(t *testing.T) {
	testenv.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	st := memory.New()
	heard, done := make(chan []cluster.Service, 100), make(chan struct{}, 2)
	go func() {
		_ = cluster.WatchServices(ctx, st, cluster.ListenService, func(all []cluster.Service) error { heard <- all; return nil })
		done <- struct{}{}
	}()
	go func() {
		cluster.KeepListening(ctx, st, cluster.Service{Role: "netmaster"}, []string{"198.51.100.1:9998", "0.0.0.0:9999"}, addressChanges(ctx, slog.New(slog.DiscardHandler)), func(err error) { t.Log(err) })
		done <- struct{}{}
	}()
	defer func() { cancel(); <-done; <-done }()
	until := func(what, addr string) {
		t.Helper()
		for {
			select {
			case all := <-heard:
				if slices.ContainsFunc(all, func(s cluster.Service) bool { return s.HostAddr == addr }) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("%s: agents do not hear of %s", what, addr)
			}
		}
	}
	until("at first", "198.51.100.1")
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	at, err := netlink.ParseAddr("198.51.100.77/32")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := netlink.AddrAdd(lo, at); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.AddrDel(lo, at) }()
	until("a new address", "198.51.100.77")
	if took := time.Since(began); took > 5*time.Second { // they are looked at every 10 s anyway
		t.Errorf("agents hear of a new address after %s", took)
	}
}
