package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// collect is how much a heap may grow before it is collected: what our programs hold stays,
// so that little of it is garbage for long, and Go's default of 100 % would waste memory.
const collect = 50 // percent

// cycle is one cycle of the collector; it holds a pointer, for objects without
// may share their memory with others that stay.
type cycle struct{ _ *byte }

// PaceCollector has the heap collected when it has grown by half, but by spare bytes at
// least, unless the environment says otherwise by GOGC. A small spare is paid for in
// processor time while the heap is small.
func PaceCollector(spare uint64) {
	if os.Getenv("GOGC") == "" {
		paceCollector(spare)
	}
}

// paceCollector sets the collector's percentage by what the last cycle left, and
// again after the next one.
func paceCollector(spare uint64) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(percent(live[0].Value.Uint64(), spare))
	runtime.AddCleanup(&cycle{}, func(struct{}) { paceCollector(spare) }, struct{}{})
}

// percent of live bytes that are half of them, or spare if that is more. Below
// smallest, the percentage would raise Go's own lower limit of 4 MB for the heap
// by more than spare.
func percent(live, spare uint64) int {
	const smallest = 4 << 20
	return max(collect, int(spare*100/max(live, smallest)))
}
