package observe

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// driftReportTime is how long a repair is reported.
const driftReportTime = time.Hour

// drifted is what the driver has put back lately, by its counters. Its methods may be
// called from several goroutines.
type drifted struct {
	mu    sync.Mutex
	seen  map[string]uint64
	found []driftedThen // oldest first, one a minute
}

type driftedThen struct {
	at time.Time // the minute's begin, by the monotonic clock too
	n  map[string]uint64
}

// note takes the counters of now.
func (d *drifted) note(now time.Time, counters map[string]uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what, n := range counters {
		more := n - d.seen[what]
		if n <= d.seen[what] {
			continue
		}
		if d.seen == nil {
			d.seen = map[string]uint64{}
		}
		d.seen[what] = n
		if last := len(d.found) - 1; last < 0 || now.Sub(d.found[last].at) >= time.Minute {
			d.found = append(d.found, driftedThen{now, map[string]uint64{}})
		}
		d.found[len(d.found)-1].n[what] += more
	}
	d.forget(now)
}

func (d *drifted) forget(now time.Time) {
	for len(d.found) > 0 && now.Sub(d.found[0].at) > driftReportTime {
		d.found = d.found[1:]
	}
}

// sentence says what was put back within driftReportTime before now; "" = nothing.
func (d *drifted) sentence(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now)
	sum, all := map[string]uint64{}, uint64(0)
	for _, f := range d.found {
		for what, n := range f.n {
			sum[what] += n
			all += n
		}
	}
	if all == 0 {
		return ""
	}
	var kinds []string
	for _, what := range sortedKeys(sum) {
		kinds = append(kinds, fmt.Sprintf("%s %d", what, sum[what]))
	}
	return fmt.Sprintf("objects of the data plane were restored %d times in the last hour (%s): another program changes this host's data plane", all, strings.Join(kinds, ", "))
}
