package peerhealth

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// failures is how many probes in a row must fail until a host is silent.
	failures = 3
	// every is the least time between two probes of a host that is away.
	every = 2 * time.Second
	// probeShare is what each host of the cluster adds to that: who is away is asked by all,
	// a hundred times a second at most.
	probeShare = 10 * time.Millisecond
	// firstShare is what each host adds to the time over which a host that begins
	// asks all others once.
	firstShare = 100 * time.Millisecond
	// firstRetry is when those are asked again that did not answer then.
	firstRetry = 10 * time.Minute
	// rememberEvery is the least time between two calls of Cluster.Remember.
	rememberEvery = 5 * time.Second
)

// Peer is another host.
type Peer struct {
	Name model.HostName
	Addr netip.Addr // where it is asked
	Away bool       // no netmaster hears of it
}

// Cluster is what a Prober is asked about, and whom it tells.
type Cluster interface {
	// Peers returns all other hosts, and whether so many are away that nothing is
	// concluded; changed is closed when that is another answer.
	Peers() (peers []Peer, many bool, changed <-chan struct{})
	// SetUnreachable is called when a host falls silent, and when it no longer is.
	SetUnreachable(name model.HostName, yes bool)
	// Remember gets the hosts that have answered, for the next run, some time after the set
	// has changed.
	Remember(answered map[model.HostName]netip.Addr)
}

// Config is what a Prober needs.
type Config struct {
	Cluster Cluster
	// Ask reports whether a host answers. With an error this host could not ask.
	Ask func(context.Context, netip.Addr) (bool, error)
	Log *slog.Logger
	// Answered are the hosts that have answered a former run, where they were asked.
	Answered map[model.HostName]netip.Addr
}

// Prober asks other hosts. Make it with New and let it Run once.
type Prober struct {
	Config

	mu       sync.Mutex
	peers    map[model.HostName]*peer
	many     bool
	asked    chan struct{} // holds something when a probe has ended
	fresh    bool          // who has answered is not what Cluster.Remember was told last
	reported time.Time     // when that was
	running  sync.WaitGroup
}

// peer is what is known of a host.
type peer struct {
	Peer
	answered    bool      // a probe, at this address
	failed      int       // probes in a row
	unreachable bool      // as Cluster.SetUnreachable was told
	asking      bool      // a probe is under way
	due         time.Time // of the next one; zero = not chosen yet
}

// New returns a Prober that sends nothing until Run.
func New(cfg Config) *Prober {
	return &Prober{Config: cfg, peers: map[model.HostName]*peer{}, asked: make(chan struct{}, 1)}
}

// Run asks until ctx ends; who is silent then stays so.
func (p *Prober) Run(ctx context.Context) {
	defer p.running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := p.update()
		if next := sooner(p.ask(ctx, time.Now()), p.remember(time.Now())); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-timer.C:
		case <-changed:
		case <-p.asked:
		case <-ctx.Done():
			return
		}
	}
}

// remember tells Cluster.Remember who has answered, and returns when it is to be told; zero =
// it knows.
func (p *Prober) remember(now time.Time) time.Time {
	p.mu.Lock()
	due := p.reported.Add(rememberEvery)
	if !p.fresh || due.After(now) {
		defer p.mu.Unlock()
		if !p.fresh {
			return time.Time{}
		}
		return due
	}
	p.fresh, p.reported = false, now
	answered := map[model.HostName]netip.Addr{}
	for name, of := range p.peers {
		if of.answered {
			answered[name] = of.Addr
		}
	}
	p.mu.Unlock()
	p.Cluster.Remember(answered)
	return time.Time{}
}

// sooner is the earlier of two times; zero = none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// update takes what Cluster.Peers says now, and concludes from what probes have found.
func (p *Prober) update() <-chan struct{} {
	list, many, changed := p.Cluster.Peers()
	p.mu.Lock()
	defer p.mu.Unlock()
	if many && !p.many {
		p.Log.Warn("more than half of the hosts are away: the network or netmasters are likelier at fault; services stop using no further hosts' providers")
	}
	p.many = many
	now := make(map[model.HostName]bool, len(list))
	for _, is := range list {
		now[is.Name] = true
		old := p.peers[is.Name]
		if old == nil || old.Addr != is.Addr {
			p.clearUnreachableLocked(old, "it has another address")
			old = &peer{Peer: is, answered: p.Answered[is.Name] == is.Addr}
			p.peers[is.Name] = old
		}
		if old.Away != is.Away {
			old.Away, old.due = is.Away, time.Time{}
		}
		if !is.Away || many && !old.unreachable {
			old.failed = 0
		}
		switch {
		case !is.Away:
			p.clearUnreachableLocked(old, "netmasters hear of it")
		case old.failed == 0:
			p.clearUnreachableLocked(old, "it answers")
		case old.failed >= failures && !old.unreachable:
			old.unreachable = true
			p.Cluster.SetUnreachable(old.Name, true)
			p.Log.Warn("a host that is away answers no probes either: services send its providers no new connections from here", "host", string(old.Name), "at", old.Addr)
		}
	}
	for name, old := range p.peers {
		if !now[name] {
			p.clearUnreachableLocked(old, "it is not known any more")
			delete(p.peers, name)
		}
	}
	return changed
}

// clearUnreachableLocked says that a host is not silent any more, if it was.
func (p *Prober) clearUnreachableLocked(of *peer, why string) {
	if of == nil || !of.unreachable {
		return
	}
	of.unreachable = false
	p.Cluster.SetUnreachable(of.Name, false)
	p.Log.Info("a host answers again: services send its providers new connections again", "host", string(of.Name), "why", why)
}

// ask asks the hosts that are due, and returns when the next one is; zero = none will be.
func (p *Prober) ask(ctx context.Context, now time.Time) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	spread := time.Duration(len(p.peers)+1) * firstShare
	again := max(every, time.Duration(len(p.peers)+1)*probeShare)
	for _, of := range p.peers {
		switch {
		case of.asking:
			continue
		case of.answered && (!of.Away || p.many && !of.unreachable): // nothing would follow
			of.due = time.Time{}
			continue
		case of.due.IsZero() && of.answered:
			of.due = now.Add(rand.N(again))
		case of.due.IsZero():
			of.due = now.Add(rand.N(spread))
		}
		if of.due.After(now) {
			if next.IsZero() || of.due.Before(next) {
				next = of.due
			}
			continue
		}
		of.due = now.Add(again*3/4 + rand.N(again/2))
		if !of.answered {
			of.due = now.Add(firstRetry + rand.N(spread))
		}
		of.asking = true
		p.running.Go(func() { p.probe(ctx, of, of.Addr) })
	}
	return next
}

// probe asks one host and notes what came of it.
func (p *Prober) probe(ctx context.Context, of *peer, at netip.Addr) {
	yes, err := p.Ask(ctx, at)
	p.mu.Lock()
	defer p.mu.Unlock()
	of.asking = false
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		p.Log.Debug("a host cannot be probed from here", "host", string(of.Name), "at", at, "error", err)
	case yes:
		if !of.answered { // it was not to be asked again soon
			of.answered, of.due, p.fresh = true, time.Time{}, true
		}
		of.failed = 0
	case of.answered:
		of.failed++
	}
	select {
	case p.asked <- struct{}{}:
	default:
	}
}

// States counts the other hosts: that have answered this one, that have not (so that
// their silence would mean nothing), and that are silent.
func (p *Prober) States() (answering, unanswered, silent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.peers {
		switch {
		case of.unreachable:
			silent++
		case of.answered:
			answering++
		default:
			unanswered++
		}
	}
	return answering, unanswered, silent
}
