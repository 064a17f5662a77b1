package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
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
	mem := memory.New()
	st := &alarmed{Store: mem}
	ctrl := control.New(st, control.Options{Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = ctrl.Run(ctx) }) // it ends with ctx
	c := clusterAPI{&member{store: st}, ctrl, nil, nil, nil, nil}
	condition := func(name string) string {
		for _, x := range c.Health(t.Context()).Conditions {
			if x.Name == name {
				return x.Message
			}
		}
		return "no such condition"
	}
	space := func() string { return condition("space") }
	if got := space(); got != "" {
		t.Errorf("without alarms: %q", got)
	}
	for alarm, want := range map[string]string{
		model.AlarmFull:         "the store at e1 has raised an alarm: NOSPACE: its space is used up, so it takes no writes; compact and defragment it",
		model.AlarmEmbeddedFull: "'netctl cluster relieve'",
		model.AlarmCorrupt:      "restore a backup",
		model.AlarmDenied:       "write what is below contiv.io again",
		model.AlarmNoLeader:     "a majority of its servers",
	} {
		st.alarms = []string{alarm}
		if got := space(); !strings.Contains(got, want) || c.Health(t.Context()).Ready || strings.Contains(got, "quota") != (alarm == model.AlarmFull) {
			t.Errorf("with the alarm %q: %q", alarm, got)
		}
	}
	st.alarms = nil
	if got := condition("fabric"); got != "no such condition" {
		t.Errorf("without an ACI fabric: %q", got)
	}
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		return tables.AciFabrics.Put(tx, tables.AciFabric{Kept: true, Trouble: "503 away"})
	}); err != nil {
		t.Fatal(err)
	}
	if got := condition("fabric"); !strings.Contains(got, "503 away") {
		t.Errorf("a fabric that does not answer: %q", got)
	}
	for _, x := range c.Health(t.Context()).Conditions {
		if x.Name == "fabric" && x.Severity != api.SeverityError {
			t.Error("it makes a netmaster unready, though what is in the fabric stays")
		}
	}
	mem.Replace(memory.New().Data(), 0)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(condition("same-store"), "was empty"); {
		if time.Now().After(deadline) {
			t.Fatalf("an empty store: %q", condition("same-store"))
		}
	}
}
