package main

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// now is the machine's monotonic clock, which all processes share.
func now() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0 // the kernel has this clock
	}
	return time.Duration(t.Nano())
}

// event is that an address has come, or gone. No address comes twice.
type event struct {
	addr netip.Addr
	gone bool
}

// change is what is known of an event.
type change struct {
	asked    time.Duration   // when the API was asked
	answered time.Duration   // when the API had answered; 0 = not yet
	wanted   int             // how many drivers are to have it
	at       []time.Duration // when one had it
}

// news brings the API's answers and the drivers' passes together.
type news struct {
	mu      sync.Mutex
	on      bool
	changes map[event]*change
}

func newNews() *news { return &news{changes: map[event]*change{}} }

// begin has arrivals written down from now on.
func (n *news) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on = true
}

// arrived writes down that a driver has events.
func (n *news) arrived(events []event, at time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.on {
		return
	}
	for _, e := range events {
		c := n.of(e)
		c.at = append(c.at, at)
	}
}

func (n *news) of(e event) *change {
	c := n.changes[e]
	if c == nil {
		c = &change{}
		n.changes[e] = c
	}
	return c
}

// answered writes down when the API was asked, when it had answered, and how many
// drivers are concerned.
func (n *news) answered(e event, asked, at time.Duration, wanted int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.of(e)
	c.asked, c.answered, c.wanted = asked, at, wanted
}

// missing is how many arrivals are still to come.
func (n *news) missing() (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e, c := range n.changes {
		count += c.lacks() - n.skipped(e)
	}
	return count
}

// lacks is how many drivers have not had what was answered.
func (c *change) lacks() int {
	if c.answered == 0 {
		return 0
	}
	return max(c.wanted-len(c.at), 0)
}

// skipped is how many drivers never had an address that has come and gone: to an agent
// that was away meanwhile, or whose passes are far apart, nothing has happened.
func (n *news) skipped(e event) int {
	came, gone := n.changes[event{addr: e.addr}], n.changes[event{addr: e.addr, gone: true}]
	if came == nil || gone == nil {
		return 0
	}
	return min(came.lacks(), gone.lacks())
}

// arrivals are the times from the API's answers to drivers.
type arrivals struct {
	Changes int     `json:"changes"`
	Each    figures `json:"everyAgent"` // of every change to every agent
	Last    figures `json:"lastAgent"`  // of every change to the last of its agents
	Asked   figures `json:"fromAsked"`  // likewise, from when the API was asked
	Missing int     `json:"missing"`    // arrivals that were still to come at the end
	Skipped int     `json:"skipped"`    // arrivals, and departures, of what had gone before an agent knew of it
}

// result tells of all that was answered. A driver may have a change before the API's
// answer has arrived: then it took no time.
func (n *news) result() (a arrivals) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var each, last, asked []time.Duration
	for e, c := range n.changes {
		if c.answered == 0 {
			continue
		}
		a.Changes++
		skipped := n.skipped(e)
		a.Skipped += skipped
		a.Missing += c.lacks() - skipped
		for _, at := range c.at {
			each = append(each, max(at-c.answered, 0))
		}
		if len(c.at) > 0 && c.lacks() == skipped {
			longest := slices.Max(c.at)
			last, asked = append(last, max(longest-c.answered, 0)), append(asked, longest-c.asked)
		}
	}
	a.Each, a.Last, a.Asked = summary(each), summary(last), summary(asked)
	return a
}

// figures summarise times, in milliseconds.
type figures struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50Ms"`
	P99  float64 `json:"p99Ms"`
	Most float64 `json:"mostMs"`
}

// summary takes nearest ranks; zeroes of none. It sorts d.
func summary(d []time.Duration) (f figures) {
	if f.N = len(d); f.N == 0 {
		return f
	}
	slices.Sort(d)
	at := func(q float64) float64 {
		return float64(d[min(int(q*float64(len(d))), len(d)-1)].Microseconds()) / 1000
	}
	return figures{N: len(d), P50: at(.5), P99: at(.99), Most: at(1)}
}

// forget ends the writing down, and drops what was.
func (n *news) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on, n.changes = false, map[event]*change{}
}
