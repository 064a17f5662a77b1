package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// alarmed is a store whose server has raised alarms.
type alarmed struct {
	store.Store
	alarms []string
}

func (a *alarmed) Servers(context.Context) []store.Server {
	return []store.Server{{Address: "e1", Alarms: a.alarms}}
}

// TestReadyKnowsAlarms: a store that can be read and takes no writes is not
// ready, and the answer says why.
func TestReadyKnowsAlarms(t *testing.T) {
	st := &alarmed{Store: memory.New()}
	ctrl := control.New(st, control.Options{Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = ctrl.Run(ctx) }) // it ends with ctx
	c := clusterAPI{&member{store: st}, ctrl, nil, nil, nil}
	space := func() string {
		for _, x := range c.Health(t.Context()).Conditions {
			if x.Name == "space" {
				return x.Message
			}
		}
		return "no such condition"
	}
	if got := space(); got != "" {
		t.Errorf("without alarms: %q", got)
	}
	st.alarms = []string{"NOSPACE"}
	if got := space(); !strings.Contains(got, "NOSPACE") || c.Health(t.Context()).Ready {
		t.Errorf("with an alarm: %q", got)
	}
}
