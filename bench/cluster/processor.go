package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// processorColumns name the processes whose processor time is reported separately.
var processorColumns = []string{"the plugin's processes", "netplugin", "ovs-vswitchd", "ovsdb-server", "netmaster", "etcd", "the bench (libcni)"}

// processor is processor time used so far, user and system, by column.
type processor [7]time.Duration

// processorTimes reads what a lab's daemons, this process and its ended
// children have used.
func processorTimes(l *testcluster.Lab) (p processor) {
	for name, proc := range l.Processes() {
		for i, column := range processorColumns {
			if i > 0 && strings.HasSuffix(name, column) {
				p[i] += stats.UsedBy(proc.PID)
			}
		}
	}
	p[0] = stats.ProcessorTime(syscall.RUSAGE_CHILDREN)
	p[6] = stats.ProcessorTime(syscall.RUSAGE_SELF)
	return p
}

// add adds what was used between two readings.
func (p *processor) add(after, before processor) {
	for i := range p {
		p[i] += after[i] - before[i]
	}
}

// each returns the time of one of n operations, in ms.
func (p processor) each(n int) []any {
	var out []any
	for i := range p {
		out = append(out, fmt.Sprintf("%.1f", float64(p[i].Microseconds())/1000/float64(n)))
	}
	return out
}
