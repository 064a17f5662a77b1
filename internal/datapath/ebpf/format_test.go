package ebpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestPinsOfANewerVersionAreRefused: pins of a newer netplugin are refused, those of this one, of older
// ones and none are not.
func TestPinsOfANewerVersionAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		made    string
		refused bool
	}{{"", false}, {"format-0", false}, {"format-1", false}, {"format-x", false}, {"format-2", true}} {
		if err := os.MkdirAll(filepath.Join(dir, tt.made), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := checkFormat(dir); errors.Is(err, model.ErrConflict) != tt.refused || !tt.refused && err != nil {
			t.Errorf("with %q: %v", tt.made, err)
		}
	}
	if err := checkFormat(filepath.Join(dir, "nowhere")); err != nil {
		t.Error(err)
	}
}
