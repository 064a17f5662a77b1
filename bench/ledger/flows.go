package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// What flows all the while.
const (
	packetEvery = 10 * time.Millisecond
	talkEvery   = 20 * time.Millisecond
	flowPort    = 7000
	// grace is how long after a component is back its absence may still cost packets.
	grace = 500 * time.Millisecond
)

// away is a time in which a component was not there.
type away struct{ killed, back time.Time }

// flows are established flows between containers of one host and of two: echo
// requests, datagrams of one UDP connection, and a TCP connection.
type flows struct {
	pings []*testcluster.Pinger
	names []string // of pings
	stops []func()
	ctx   context.Context
	end   context.CancelFunc
	wg    sync.WaitGroup

	mu     sync.Mutex
	broken int
}

// startFlows lets packets go from one namespace to the others, which send them back.
func startFlows(ctx context.Context, from *testcluster.Namespace, to map[netip.Addr]*testcluster.Namespace) (*flows, error) {
	f := &flows{}
	f.ctx, f.end = context.WithCancel(ctx)
	for addr, ns := range to {
		at := netip.AddrPortFrom(addr, flowPort)
		stop, err := ns.Reflect(f.ctx, at.String())
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f.stops = append(f.stops, stop)
		for _, start := range []func() (*testcluster.Pinger, error){
			func() (*testcluster.Pinger, error) { return from.StartPing(addr, packetEvery) },
			func() (*testcluster.Pinger, error) { return from.StartDatagrams(at, packetEvery) },
		} {
			p, err := start()
			if err != nil {
				return nil, errors.Join(err, f.stop())
			}
			f.pings = append(f.pings, p)
			f.names = append(f.names, []string{"icmp", "udp"}[len(f.pings)%2]+" to "+addr.String())
		}
		f.wg.Go(func() { f.converse(from, at) })
	}
	return f, nil
}

// established waits until every flow has had an answer.
func (f *flows) established(ctx context.Context) error {
	return testcluster.Until(ctx, "all flows to be answered", func(context.Context) error {
		for _, p := range f.pings {
			if s := p.Between(time.Time{}, time.Now()); s.Received < 20 {
				return fmt.Errorf("one has %s", s)
			}
		}
		return nil
	})
}

// converse keeps one TCP connection, and makes another when it breaks.
func (f *flows) converse(from *testcluster.Namespace, to netip.AddrPort) {
	for f.ctx.Err() == nil {
		err := f.connection(from, to)
		if f.ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		if err != nil {
			f.broken++
		}
		f.mu.Unlock()
		select {
		case <-f.ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *flows) connection(from *testcluster.Namespace, to netip.AddrPort) error {
	dialing, cancel := context.WithTimeout(f.ctx, 5*time.Second)
	c, err := from.Dial(dialing, "tcp", to.String())
	cancel()
	if err != nil {
		return err
	}
	defer context.AfterFunc(f.ctx, func() { _ = c.Close() })()
	tick := time.NewTicker(talkEvery)
	defer tick.Stop()
	buf := make([]byte, 4)
	for range tick.C {
		err := c.SetDeadline(time.Now().Add(30 * time.Second))
		if err == nil {
			_, err = c.Write([]byte("who\n"))
		}
		if err == nil {
			_, err = c.Read(buf)
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return nil
}

// judge writes down how the flows have fared since a time.
func (f *flows) judge(r *traffic, since, until time.Time, aways []away) {
	r.Outages = make([][2]int64, len(aways))
	for i, a := range aways {
		r.Outages[i][0] = a.back.Sub(a.killed).Milliseconds()
	}
	for n, p := range f.pings {
		r.trace(p, f.names[n], since, until, aways)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Broken = f.broken
}

// later is how many packets a report names that were lost while nothing was away.
const later = 50

// underway bounds how long before a kill a packet was sent that is lost with what was killed:
// a switch in user space has packets in its queues, and a busy machine leaves them there.
const underway = 100 * time.Millisecond

// series are packets of one flow, of which each is answered or lost.
type series interface {
	Between(from, to time.Time) testcluster.PingStats
	LostAt(from, to time.Time) []time.Time
}

// trace writes down how a flow fared, and to which kill each of its losses belongs: to that
// from which on it was sent, or before which, when it was on its way still: nothing of the
// flow that was sent after it was answered until the kill.
func (r *traffic) trace(p series, flow string, since, until time.Time, aways []away) {
	s := p.Between(since, until)
	r.Sent, r.Lost = r.Sent+s.Sent, r.Lost+s.Lost()
	r.Gap = max(r.Gap, s.Gap.Milliseconds())
	for _, at := range p.LostAt(since, until) {
		i := len(aways) - 1
		for i >= 0 && at.Before(aways[i].killed) {
			i--
		}
		if next := i + 1; next < len(aways) && aways[next].killed.Sub(at) < underway && p.Between(at, aways[next].killed).Received == 0 {
			r.During++
			continue
		}
		if i < 0 {
			r.note(flow + ", before the first kill")
			continue
		}
		after := at.Sub(aways[i].killed)
		r.Outages[i][1] = max(r.Outages[i][1], after.Milliseconds())
		if at.After(aways[i].back.Add(grace)) {
			r.note(fmt.Sprintf("%s, %d ms after kill %d", flow, after.Milliseconds(), i))
			continue
		}
		r.During++
	}
}

// note names a loss in the report.
func (r *traffic) note(what string) {
	if len(r.Later) < later {
		r.Later = append(r.Later, what)
	}
}

// stop ends the flows; replies are waited for.
func (f *flows) stop() (err error) {
	for _, p := range f.pings {
		err = errors.Join(err, p.Stop())
	}
	f.end()
	f.wg.Wait()
	for _, s := range f.stops {
		s()
	}
	return err
}
