package relay

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// warnings are the last warning of a log.
type warnings struct{ waiting.Value[string] }

func (w *warnings) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "level=WARN") {
		w.Set(string(p))
	}
	return len(p), nil
}

// TestLossOfHubsWarnsAfterPatience loses the only netmaster twice: one that restarts is back
// before a warning is due, and one that stays away is warned of.
func TestLossOfHubsWarnsAfterPatience(t *testing.T) {
	for _, stays := range []bool{false, true} {
		base := memory.New()
		identify(t, base)
		r, log := newReplica(t, base), &warnings{}
		a := newAgent(base.Client(), map[string]*replica{"r": r}, func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(log, nil))
			if stays {
				c.Patience = 300 * time.Millisecond
			}
		})
		t.Cleanup(func() { _ = a.Close() })
		until := func(ok func(From) bool) {
			if err := a.changes.Until(t.Context(), func() (bool, error) { return ok(a.From()), nil }); err != nil {
				t.Fatal(err)
			}
		}
		until(func(f From) bool { return f.Hub == "r" })
		r.cut(true)
		until(func(f From) bool { return f.Why != "" })
		if stays {
			if err := log.Until(t.Context(), func(w string) bool { return strings.Contains(w, "no netmaster passes") }); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r.cut(false)
		until(func(f From) bool { return f.Hub == "r" })
		if w, _ := log.Get(); w != "" {
			t.Errorf("a netmaster that restarted is warned of: %s", w)
		}
	}
}
