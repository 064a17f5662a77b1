package waiting

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBackoffGrowsUntilRecovery walks one key through failures, an early failure and recovery.
func TestBackoffGrowsUntilRecovery(t *testing.T) {
	b := NewBackoff[string](BackoffConfig{Base: time.Second, Max: 5 * time.Second, Jitter: 0.5, Rand: func() float64 { return 0.5 }})
	t0 := time.Unix(1000, 0)
	at := func() time.Duration { return b.At("k").Sub(t0) }
	var got []time.Duration
	now := t0
	for range 4 {
		b.Settle(now, []string{"k"})
		got = append(got, b.At("k").Sub(now))
		b.Settle(now.Add(time.Millisecond), []string{"k", "other"}) // early: changes nothing for k
		now = b.At("k")
	}
	want := []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 3750 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	b.Settle(now, nil)
	if _, ok := b.Next(); ok {
		t.Error("a key waits after everything succeeded")
	}
	b.Settle(t0, []string{"k"})
	if got := at(); got != 750*time.Millisecond {
		t.Errorf("first delay after recovery = %v", got)
	}
}
