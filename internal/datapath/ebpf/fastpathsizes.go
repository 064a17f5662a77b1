package ebpf

import (
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"
)

// The caches of the fast path are sets of entries, of which each processor has its own. They
// take a part of the machine's memory: a big machine has room for many flows, and a small one
// keeps its memory. The numbers are powers of two of sets of four connections.
const (
	minVerdictSets, maxVerdictSets = 11, 16
	verdictSetsShare               = 576 // of memory: with half as many sets of the other kinds that is a 256th
	setBytes                       = 256 // of four verdict entries, or two forward entries; two NAT entries take half as much again
)

// fastPathSizes returns how many sets of each kind a processor has, as powers of two, on
// a machine of some bytes of memory and some processors.
func fastPathSizes(memory uint64, cpus int) map[string]uint32 {
	sets := memory / verdictSetsShare / uint64(max(1, cpus)) / setBytes            //nolint:gosec // not negative
	passes := uint32(min(max(minVerdictSets, bits.Len64(sets)-1), maxVerdictSets)) //nolint:gosec // between the two
	return map[string]uint32{"forward_cache": passes - 1, "verdict_cache": passes, "nat_cache": passes - 1}
}

// The open connections that a host keeps: as many as a part of the machine's memory
// holds, since the kernel takes it at once, of some bytes each with the kernel's own.
const (
	minConnections, maxConnections = 1 << 17, 1 << 20
	connectionsShare, connBytes    = 512, 176
)

// connectionCapacity returns how many open connections a host keeps that has some bytes of
// memory: a power of two.
func connectionCapacity(memory uint64) uint32 {
	n := min(max(minConnections, memory/connectionsShare/connBytes), maxConnections)
	return 1 << (bits.Len64(n) - 1)
}

// fastPathLifetime is how long a cached decision about a connection's packets counts.
const fastPathLifetime = 10 * time.Second

// fastTicks returns that in the kernel's ticks, which are what its coarse clocks advance by.
func fastTicks() (uint32, error) {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return 0, fmt.Errorf("ebpf driver: ask for the kernel's tick: %w", err)
	}
	return uint32(fastPathLifetime.Nanoseconds() / max(tick.Nano(), int64(time.Millisecond))), nil //nolint:gosec // 10,000 at most
}

// machineMemory returns the machine's memory in bytes.
func machineMemory() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("ebpf driver: ask for the machine's memory: %w", err)
	}
	return info.Totalram * uint64(info.Unit), nil
}
