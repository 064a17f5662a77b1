package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Hosts that are away have a grace time, after which their endpoints are released. The
// leader adds up, in the store, how long it has listened in vain itself, and compares no
// clocks. So a clock that is set changes nothing, and a new leader continues where the last
// one was. Time in which no leader could receive heartbeats (no netmaster, no store, a
// suspended process) does not count.

const (
	// awayStep is how much a leader adds at once; what it has not added is lost
	// with its term.
	awayStep = time.Minute
	// awayInterval is how often hosts are looked at.
	awayInterval = time.Second
)

// CountAwayTime records, for the leader, which hosts are away and for how long already, and
// releases the endpoints of hosts that are away for grace (0 = never), until ctx ends or
// another leads; then it returns store.ErrFenced. It begins after twice cluster.ServiceTTL,
// when all agents could have sent a heartbeat. While more than half of the hosts are away
// no time is counted and nothing is released.
func (hs *Hosts) CountAwayTime(ctx context.Context, l Leader, w *liveness.Watch, grace time.Duration) error {
	a := awayCounter{hosts: hs, leader: l, w: w, grace: grace, waited: map[model.HostName]time.Duration{}}
	tick := time.NewTicker(awayInterval)
	defer tick.Stop()
	began := time.Now()
	for last := began; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		gap := now.Sub(last)
		last = now
		if gap > expiryPause { // nothing may have been heard meanwhile
			began = now
			clear(a.waited)
		}
		if now.Sub(began) < 2*cluster.ServiceTTL {
			continue
		}
		err := a.addElapsed(ctx, gap)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrFenced):
			return err
		case err != nil:
			clear(a.waited) // the store was away, and so were agents that had to be kept there
			hs.commits.log.Debug("how long hosts are away is not measured now", "error", err)
		}
	}
}

// awayCounter is what a leader knows of hosts that are away.
type awayCounter struct {
	hosts  *Hosts
	leader Leader
	w      *liveness.Watch
	grace  time.Duration
	waited map[model.HostName]time.Duration // not in the store yet
	many   bool                             // too many were away at the last look
}

// addElapsed counts the time since the last one.
func (a *awayCounter) addElapsed(ctx context.Context, gap time.Duration) error {
	alive, _ := a.w.Seen()
	away, known := map[model.HostName]tables.AwayTime{}, 0
	for _, h := range a.hosts.hostView.List() {
		row, _ := a.hosts.hostView.AwayTime(h.Name)
		switch {
		case alive[h.Name]:
			known++
			if row.Host != "" { // kept by a netmaster of before, which leaves it
				if err := a.remove(ctx, h.Name); err != nil {
					return err
				}
			}
			delete(a.waited, h.Name)
		case !row.Evicted:
			known++
			away[h.Name] = row
		}
	}
	many := tables.TooManyAway(len(away), known)
	if many && !a.many {
		a.hosts.commits.log.Warn("more than half of the hosts are away: the network or netmasters are likelier at fault; no time counts towards --evict-after, and no endpoints are released", "away", len(away), "known", known)
	}
	a.many = many
	for name := range a.waited {
		if _, still := away[name]; !still || many {
			delete(a.waited, name)
		}
	}
	for name, row := range away {
		if !many && row.Host != "" {
			a.waited[name] += gap
		}
		step := awayStep
		if a.grace > 0 {
			step = min(step, max(a.grace/10, awayInterval))
		}
		if row.Host == "" || a.waited[name] >= step {
			var err error
			if row, err = a.add(ctx, name, a.waited[name]); err != nil {
				return err
			}
			delete(a.waited, name)
		}
		if a.grace > 0 && !many && time.Duration(row.Seconds)*time.Second >= a.grace {
			if err := a.release(ctx, name, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// add notes that a host was away for longer; none when it has come back.
func (a *awayCounter) add(ctx context.Context, name model.HostName, more time.Duration) (row tables.AwayTime, err error) {
	_, err = a.hosts.commits.update(ctx, a.leader.Actor(), fmt.Sprintf("note that host %q is away", name), func(tx store.Tx) error {
		if err := checkStillAway(name)(tx); err != nil {
			return err
		}
		old, err := tables.AwayTimes.Find(tx, tables.AwayTimeKey{Host: name})
		if err != nil {
			return err
		}
		if row = old.Value; !old.Exists() {
			row = tables.AwayTime{Host: name, Since: time.Now().UTC().Format(time.RFC3339)}
		}
		row.Seconds += int64(more / time.Second)
		return tables.AwayTimes.Put(tx, row)
	})
	if errors.Is(err, model.ErrInUse) {
		return tables.AwayTime{}, nil
	}
	return row, err
}

// remove forgets that a host was away.
func (a *awayCounter) remove(ctx context.Context, name model.HostName) error {
	_, err := a.hosts.commits.update(ctx, a.leader.Actor(), fmt.Sprintf("note that host %q is back", name), func(tx store.Tx) error {
		tables.AwayTimes.Delete(tx, tables.AwayTimeKey{Host: name})
		return nil
	})
	return err
}

// release gives up what is on a host whose grace time is over.
func (a *awayCounter) release(ctx context.Context, name model.HostName, row tables.AwayTime) error {
	n, err := a.hosts.evict(ctx, a.hosts.commits.as(a.leader.Actor()), name, a.hosts.endpointView.OfHost(name), checkStillAway(name))
	if n > 0 || err == nil {
		a.hosts.commits.log.Warn("a host was away for the whole grace time: its endpoints are released", "host", string(name), "endpointsReleased", n,
			"since", row.Since, "heardInVain", (time.Duration(row.Seconds) * time.Second).String(), "grace", a.grace.String(), "error", err)
		a.w.Report(liveness.Event{Host: name, Reason: "EndpointsGivenUp", Warning: true, Note: fmt.Sprintf("Contiv's netplugin sent no heartbeat since %s, for the whole grace time of %s: %d endpoints there were released, and their addresses are free.", row.Since, a.grace, n)})
	}
	if errors.Is(err, model.ErrInUse) { // it is back
		return nil
	}
	return err
}
