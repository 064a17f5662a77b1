package ebpf

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// The pairs of places that a processor has for short ways, as powers of two: a part
// of the machine's memory, so that a big machine's many flows find room and a small
// one's memory is not theirs.
const (
	leastPairs, mostPairs = 12, 17
	memoryPart            = 256
)

// pairBits returns the power for a machine of some bytes of memory and some
// processors, when a pair takes size bytes.
func pairBits(memory uint64, cpus int, size uint32) uint32 {
	pairs := memory / memoryPart / uint64(max(1, cpus)) / uint64(size)  //nolint:gosec // not negative
	return uint32(min(max(leastPairs, bits.Len64(pairs)-1), mostPairs)) //nolint:gosec // between the two
}

// The open connections that a host keeps: as many as a part of the machine's memory
// holds, since the kernel takes it at once, of some bytes each with the kernel's own.
const (
	leastConns, mostConns = 1 << 17, 1 << 20
	connsPart, connBytes  = 512, 176
)

// connsRoom returns how many open connections a host keeps that has some bytes of
// memory: a power of two.
func connsRoom(memory uint64) uint32 {
	n := min(max(leastConns, memory/connsPart/connBytes), mostConns)
	return 1 << (bits.Len64(n) - 1)
}

// machineMemory returns the machine's memory in bytes.
func machineMemory() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("ebpf driver: ask for the machine's memory: %w", err)
	}
	return info.Totalram * uint64(info.Unit), nil
}
