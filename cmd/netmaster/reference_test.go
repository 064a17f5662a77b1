package main

import (
	"flag"
	"log/slog"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/base/pagetest"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/controller"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

var update = flag.Bool("update", false, "write docs/reference/netmaster.md and metrics-netmaster.md")

// TestReferencePageIsTheFlags: the page of the flags is what the flags say.
func TestReferencePageIsTheFlags(t *testing.T) {
	var o options
	pagetest.CheckFlags(t, "netmaster", newFlags(&o).Flags, *update)
}

// TestCommandsOfPagesParse: netmaster takes the flags and the files that pages show.
func TestCommandsOfPagesParse(t *testing.T) {
	pagetest.CheckProgram(t, "netmaster", func() *flags.Set {
		var o options
		return newFlags(&o)
	})
}

// TestReferenceOfMetricsIsWhatIsRegistered: the page of the metrics is what netmaster registers, with a store of
// its own, Kubernetes and an ACI fabric.
func TestReferenceOfMetricsIsWhatIsRegistered(t *testing.T) {
	member1, err := membership.Start(t.Context(), membership.Config{
		Dir: t.TempDir(), Client: storetest.FreePort(t), Backup: membership.Schedule{Dir: t.TempDir()}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = member1.Close() }()
	st := memory.New()
	m := &member{store: st}
	registry, err := m.metrics()
	if err != nil {
		t.Fatal(err)
	}
	ctrl := control.New(st, control.Options{})
	if _, err := apiserver.New(apiserver.Config{
		Control: ctrl, Cluster: clusterAPI{m, ctrl, nil, nil, nil, nil}, Watch: ctrl.Hosts.NewHostWatch(), Registry: registry,
	}); err != nil {
		t.Fatal(err)
	}
	all := append(member1.Collectors(), registry, &controller.Controller{}, &kubernetes{})
	p := &pagetest.Page{
		Name: "metrics-netmaster.md", Command: "go test ./cmd/netmaster -run TestReferenceOfMetricsIsWhatIsRegistered -update", Title: "Metrics of netmaster",
		Purpose: "On this page you look up what each metric of netmaster counts; [metrics](../how-to/metrics.md) explains how to scrape and read them.",
	}
	p.Metrics(t, append(all, store.NewRequests().Collectors()...)...)
	p.Check(t, *update)
}
