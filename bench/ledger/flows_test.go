package main

import (
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// sends are a flow that sends every 10 ms; those named by their place are lost.
type sends struct {
	start time.Time
	n     int
	lost  []int
}

func (s sends) at(i int) time.Time { return s.start.Add(time.Duration(i) * 10 * time.Millisecond) }

func (s sends) Between(from, to time.Time) (out testcluster.PingStats) {
	for i := range s.n {
		if at := s.at(i); !at.Before(from) && !at.After(to) {
			out.Sent++
			if !slices.Contains(s.lost, i) {
				out.Received++
			}
		}
	}
	return out
}

func (s sends) LostAt(from, to time.Time) (out []time.Time) {
	for _, i := range s.lost {
		if at := s.at(i); !at.Before(from) && !at.After(to) {
			out = append(out, at)
		}
	}
	return out
}

// TestLossesCountForTheKillThatCausedThem: a loss counts for a kill from which on it was sent until half a second after
// the component is back, and before which it was on its way; any other is named.
func TestLossesCountForTheKillThatCausedThem(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	p := sends{start: start, n: 1000}
	aways := []away{
		{p.at(100).Add(time.Millisecond), p.at(110)},
		{p.at(600).Add(time.Millisecond), p.at(610)},
	}
	for _, c := range []struct {
		name   string
		lost   []int
		during int
		outage [2]int64
		later  []string
	}{
		{name: "none"},
		{name: "while it is away", lost: []int{101, 150, 160}, during: 3, outage: [2]int64{599}},
		{name: "later than half a second", lost: []int{161}, outage: [2]int64{609}, later: []string{"udp, 609 ms after kill 0"}},
		{name: "on their way at the second kill", lost: []int{599, 600}, during: 2},
		{name: "one of which was overtaken", lost: []int{598, 600}, during: 1, outage: [2]int64{4979}, later: []string{"udp, 4979 ms after kill 0"}},
		{name: "before the first kill", lost: []int{50}, later: []string{"udp, before the first kill"}},
		{name: "cut off long before a kill", lost: []int{590, 591, 592, 593, 594, 595, 596, 597, 598, 599, 600}, during: 10, outage: [2]int64{4899}, later: []string{"udp, 4899 ms after kill 0"}},
	} {
		p.lost = c.lost
		r := traffic{Outages: make([][2]int64, len(aways))}
		r.trace(p, "udp", start, p.at(999), aways)
		got := [2]int64{r.Outages[0][1], r.Outages[1][1]}
		if r.Sent != 1000 || r.Lost != len(c.lost) || r.During != c.during || got != c.outage || !slices.Equal(r.Later, c.later) {
			t.Errorf("%s: %d of %d lost, %d of them while away, outages %v, later %v; want %d, %v, %v", c.name, r.Lost, r.Sent, r.During, got, r.Later, c.during, c.outage, c.later)
		}
	}
}
