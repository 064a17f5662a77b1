package fabric

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestDamagedAddressFileCountsForNothing: of a file of addresses that cannot be read as a whole nothing counts: what it
// names stays on its interfaces.
func TestDamagedAddressFileCountsForNothing(t *testing.T) {
	r := New(Config{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	for text, want := range map[string]int{
		`[{"Device":"lo","Prefix":"10.0.0.1/32"}]`: 1, `[{"Device":"lo","Prefix":"10.0.0.1/32"},{"Device":7}]`: 0, `[{"Device":"lo","Prefix":"x"}]`: 0, `{}`: 0, ``: 0,
	} {
		if err := os.WriteFile(filepath.Join(r.cfg.StateDir, StateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := r.readAssigned(); len(got) != want {
			t.Errorf("%q has %v", text, got)
		}
	}
}
