package daemon

import "testing"

// TestHeapGrowsBeforeItIsCollected looks at how much a heap may grow before it is collected.
func TestHeapGrowsBeforeItIsCollected(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 8 << 20: 200, 32 << 20: 50, 1 << 30: 50} {
		if got := percent(live, 16<<20); got != want {
			t.Errorf("percent(%d) = %d, want %d", live, got, want)
		}
	}
}
