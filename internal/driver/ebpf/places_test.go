package ebpf

import "testing"

func TestPairBits(t *testing.T) {
	const gb = 1 << 30
	for _, c := range []struct {
		memory uint64
		cpus   int
		want   uint32
	}{
		{gb / 2, 64, leastPairs}, {gb, 2, 13}, {24 * gb, 2, mostPairs}, {24 * gb, 8, 15}, {256 * gb, 64, 16}, {1 << 50, 1, mostPairs}, {gb, 0, 14},
	} {
		if got := pairBits(c.memory, c.cpus, 240); got != c.want {
			t.Errorf("pairBits(%d, %d) = %d, want %d", c.memory, c.cpus, got, c.want)
		}
	}
}
