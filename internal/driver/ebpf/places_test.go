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

func TestConnsRoom(t *testing.T) {
	const gb = 1 << 30
	for memory, want := range map[uint64]uint32{0: 131072, 8 * gb: 131072, 24 * gb: 262144, 64 * gb: 524288, 1 << 50: 1048576} {
		if got := connsRoom(memory); got != want {
			t.Errorf("connsRoom(%d) = %d, want %d", memory, got, want)
		}
	}
}
