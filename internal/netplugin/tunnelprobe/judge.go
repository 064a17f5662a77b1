package tunnelprobe

import "time"

// reported reports whether a host in this state is named by Err.
func (s state) reported() bool { return s == unreachable || s == smallOnly || s == lossy }

// note takes the next round and judges the host by it and those before.
func (of *peer) note(r round, now time.Time) {
	if r.full {
		of.passes = 0
	}
	whole := r.small && r.full
	if whole && of.state == untested {
		of.state = healthy
	}
	if !whole && !of.state.reported() {
		of.due = now
	}
	if whole && (len(of.rounds) == 0 || of.back && of.state != lossy) {
		of.clearFinding()
		return
	}
	of.rounds = append(of.rounds, r)
	of.rounds = of.rounds[max(0, len(of.rounds)-rememberedRounds):]
	last := of.rounds[max(0, len(of.rounds)-lostInRow):]
	small, full := lost(last)
	switch {
	case len(last) == lostInRow && small+full == 0:
		of.clearFinding()
	case of.state.reported():
		of.judge()
	case of.state == untested && now.Sub(of.since) < firstProbeWithin:
	case small == lostInRow || full == lostInRow:
		of.judge()
	}
}

func (of *peer) clearFinding() {
	of.rounds, of.back = nil, false
	of.state = healthy
}

// judge updates the finding. It counts again only once in a while, since each new number is
// written to the store.
func (of *peer) judge() {
	n := len(of.rounds)
	small, full := lost(of.rounds)
	is := lossy
	switch {
	case small == n && full == n:
		is = unreachable
	case small == 0 && full == n:
		is = smallOnly
	}
	if of.judged++; is != of.state || of.judged >= rememberedRounds {
		of.state, of.judged, of.lost, of.of = is, 0, small+full, 2*n
	}
}

// lost counts the small packets and those of full size that were not answered.
func lost(rounds []round) (small, full int) {
	for _, r := range rounds {
		if !r.small {
			small++
		}
		if !r.full {
			full++
		}
	}
	return small, full
}
