package agent

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestUnconfirmedChangesAndRollbacksAreReported: that a change is unconfirmed here, and that this host has gone back from one
// by itself, are notices of its health and metrics.
func TestUnconfirmedChangesAndRollbacksAreReported(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	row, err := tables.Encode(tables.GlobalKey{}, model.DefaultGlobal())
	if err != nil {
		t.Fatal(err)
	}
	tr := tables.Trial{ID: "k7q2", Within: time.Hour, Rows: []tables.TrialRow{{Key: row.Key, Value: row.Value}}}
	b.put(func(tx store.Tx) error { return tables.TrialsOf("").Create(tx, tr) })
	b.says(http.StatusOK, "unconfirmed")
	scraped := func(want ...string) {
		t.Helper()
		_, text := do(t, http.DefaultClient, http.MethodGet, "http://"+b.agent.RESTAddr().String()+"/metrics", "")
		for _, line := range want {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("no %s", line)
			}
		}
	}
	scraped(`contiv_netplugin_unconfirmed_changes{state="on"} 1`, `contiv_netplugin_unconfirmed_changes{state="off"} 0`, `contiv_netplugin_rollbacks_total 0`,
		`contiv_netplugin_problems{kind="change"} 1`, `contiv_netplugin_condition{condition="unconfirmed",severity="notice"} 0`)
	b.put(func(tx store.Tx) error {
		tables.TrialsOf("").Delete(tx, tables.TrialKey{ID: tr.ID})
		return nil
	})
	b.says(http.StatusOK)

	b.stop()
	file, err := json.Marshal(map[string]any{"version": 1, "back": []statemirror.Rollback{{ID: "k7q2", At: time.Now(), EndedAt: time.Now(), OnlyHere: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.cfg.StateDir, statemirror.UnconfirmedFile), file, 0o600); err != nil {
		t.Fatal(err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
	b.says(http.StatusOK, "rolled-back")
	scraped(`contiv_netplugin_condition{condition="rolled-back",severity="warning"} 0`, `contiv_netplugin_condition{condition="unconfirmed",severity="notice"} 1`)
}
