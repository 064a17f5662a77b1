package conformance

import (
	"fmt"
	"testing"
)

// TestSeedFollowsCommit: the environment wins, and two commits try different samples: each
// driver of two comes in turn for a test.
func TestSeedFollowsCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env, commit string
		want        uint64
	}{
		{"", "da2c429e0000\n", 0xda2c429},
		{"12", "da2c429e0000\n", 12},
		{"0", "da2c429e0000\n", 0xda2c429},
		{"twelve", "", 1},
		{"", "", 1},
		{"", "0000000000\n", 1},
	} {
		if got := seedOf(c.env, func() string { return c.commit }); got != c.want {
			t.Errorf("seed by %q and commit %q: %d, want %d", c.env, c.commit, got, c.want)
		}
	}
	chosen := map[int]int{}
	for i := range 40 {
		chosen[choose("TestServices", seedOf("", func() string { return fmt.Sprintf("%07x", 0xda2c429+7919*i) }), 2)]++
	}
	if chosen[0] < 10 || chosen[1] < 10 {
		t.Errorf("of 40 commits the drivers have %v", chosen)
	}
}
