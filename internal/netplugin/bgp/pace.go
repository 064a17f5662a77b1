package bgp

import (
	"context"
	"time"
)

const (
	// readInterval is the least time between two looks at what neighbors say: each change of
	// the snapshot costs its readers a pass over all routes, and a neighbor may change its
	// mind as fast as it can send.
	readInterval = 100 * time.Millisecond
	// immediateFor is for how long after the end of a session each change is looked at as it
	// comes: that end, or a failure that BFD has seen, reaches the table in pieces, and
	// must not wait.
	immediateFor = time.Second
)

// paced looks when something has changed, at most once each readInterval, and at once when a
// session has ended or late comes, until ctx ends. What changed after a look began is
// looked at again.
func paced(ctx context.Context, changed, ended <-chan struct{}, late <-chan time.Time, look func(late bool)) {
	soon := time.NewTimer(0)
	soon.Stop()
	defer soon.Stop()
	var last, hurried time.Time // when the last look ended, and until when there is haste
	for {
		isLate := false
		select {
		case <-ctx.Done():
			return
		case <-changed:
			if wait := time.Until(last.Add(readInterval)); wait > 0 && time.Now().After(hurried) {
				soon.Reset(wait)
				continue
			}
		case <-ended:
			hurried = time.Now().Add(immediateFor)
		case <-soon.C:
		case <-late:
			isLate = true
		}
		soon.Stop()
		look(isLate)
		last = time.Now()
	}
}
