package ebpf

import (
	"maps"
	"testing"
)

func TestFastPathSizesFollowMemoryAndProcessors(t *testing.T) {
	const gb = 1 << 30
	for _, c := range []struct {
		memory uint64
		cpus   int
		want   uint32
	}{
		{gb / 2, 64, minVerdictSets}, {gb, 2, 11}, {24 * gb, 2, maxVerdictSets}, {24 * gb, 8, 14}, {256 * gb, 64, 14}, {1 << 50, 1, maxVerdictSets}, {gb, 0, 12},
	} {
		got := fastPathSizes(c.memory, c.cpus)
		if want := map[string]uint32{"forward_cache": c.want - 1, "verdict_cache": c.want, "nat_cache": c.want - 1}; !maps.Equal(got, want) {
			t.Errorf("shortPlaces(%d, %d) = %v, want %v", c.memory, c.cpus, got, want)
		}
		if takes := uint64(max(1, c.cpus)) * 256 * (1<<got["forward_cache"] + 1<<got["verdict_cache"] + 3*1<<got["nat_cache"]/2); got["verdict_cache"] > minVerdictSets && takes > c.memory/256 {
			t.Errorf("shortPlaces(%d, %d) takes %d bytes", c.memory, c.cpus, takes)
		}
	}
}

func TestConnectionCapacityFollowsMemory(t *testing.T) {
	const gb = 1 << 30
	for memory, want := range map[uint64]uint32{0: 131072, 8 * gb: 131072, 24 * gb: 262144, 64 * gb: 524288, 1 << 50: 1048576} {
		if got := connectionCapacity(memory); got != want {
			t.Errorf("connsRoom(%d) = %d, want %d", memory, got, want)
		}
	}
}
