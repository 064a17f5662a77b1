package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A host's picture stays, so that little is garbage for long, and the memory
// belongs to the containers: the heap may grow by half before it is collected
// (Go's own: by all), which bench/datapath measures. But by spare at least:
// collecting the small heap of a host with few endpoints at each half took a
// seventh of netplugin's processor time while containers start.
const (
	collect = 50       // percent
	spare   = 16 << 20 // bytes
)

// cycle is one cycle of the collector; it holds a pointer, for objects without
// may share their memory with others that stay.
type cycle struct{ _ *byte }

// paceCollector sets the collector's percentage by what the last cycle left, and
// again after the next one.
func paceCollector() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(percent(live[0].Value.Uint64()))
	runtime.AddCleanup(&cycle{}, func(struct{}) { paceCollector() }, struct{}{})
}

// percent of live bytes that are half of them, or spare if that is more. Below
// smallest, the percentage would raise Go's own lower limit of 4 MB for the heap
// by more than spare.
func percent(live uint64) int {
	const smallest = 4 << 20
	return max(collect, int(spare*100/max(live, smallest)))
}
