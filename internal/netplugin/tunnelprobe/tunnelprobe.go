package tunnelprobe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// lostInRow is how many rounds in a row must lose their small or their big packet until a
	// host is reported, and how many must be answered whole to end that.
	lostInRow = 3
	// rememberedRounds is how many rounds the finding about a host looks back.
	rememberedRounds = 10
	// probeTimeout is how long an answer is waited for.
	probeTimeout = 1500 * time.Millisecond
	// probeInterval is the least time between two rounds of probes of a host, plus or minus a
	// quarter; reportedInterval is the same for a host that is reported.
	probeInterval    = 4 * time.Second
	reportedInterval = 2 * time.Second
	// forgetAfter is how long a finding about a host that is away is kept.
	forgetAfter = 15 * time.Minute
	// firstProbeWithin is how long a host may take to answer for the first time: it may not know
	// this one yet.
	firstProbeWithin = 10 * time.Second
	// minSpacing is the mean time between two packets.
	minSpacing = 5 * time.Millisecond
)

// smallProbeLess are the sizes that are tried where those of full size are lost, in bytes of IP.
var smallProbeLess = []int{8930, 4000, 1450, 1430, 1400, 1350, 1300, 1250, 1200, 1000, 500}

// Peer is another host.
type Peer struct {
	Name model.HostName
	Addr netip.Addr // where its tunnels end
}

// Config is what a Prober needs; all of it.
type Config struct {
	Host   model.HostName // this one
	VTEP   netip.Addr     // where its tunnels end
	Port   int            // UDP port of tunnels
	Driver driver.TunnelProber
	Size   func() int // of the biggest packet of IP that the tunnel carries
	// Peers returns the other hosts whose data planes answer and whose agents are heard
	// of; changed is closed when that is another answer.
	Peers func() (peers []Peer, changed <-chan struct{})
	// Changed is called when Err has changed.
	Changed func()
	Log     *slog.Logger
}

// Prober tests tunnels. Make it with New and let it Run once; other methods may be called
// from any goroutine, of a nil Prober too.
type Prober struct {
	Config
	follow waiting.Bell

	mu    sync.Mutex
	topo  topology
	peers map[netip.Addr]*peer
	away  map[netip.Addr]*peer // reported once they are back
	sent  map[uint64]*request
	queue []*request // the sent ones, the oldest first
	free  time.Time  // when the next packet may be sent
}

// topology is the part of the desired state that decides which hosts are probed.
type topology struct {
	used     map[netip.Addr]int // endpoints that are reached by a tunnel endpoint
	remotes  desired.Map[desired.RemoteKey, *desired.Remote]
	vxlans   int // networks that have tunnels
	networks desired.Map[model.NetworkID, *desired.Network]
}

// state is what probes have found of a host.
type state string

const (
	untested    state = "untested"
	healthy     state = "answering"
	smallOnly   state = "small-only"
	lossy       state = "lossy"
	unreachable state = "silent"
)

// peer is what is known of a host.
type peer struct {
	Peer
	due      time.Time // of the next round
	since    time.Time // of the first round
	size     int       // of full packets
	passes   int       // the biggest of the smaller sizes that was answered
	state    state
	rounds   []round // the last ones, since packets were lost; none = three in a row were answered
	lost, of int     // packets, where the state is lossy
	judged   int     // rounds since these were counted
	left     time.Time
	back     bool // it has been away, and no round has been answered since
}

// round is a small probe and one of full size.
type round struct {
	small, full bool // answered
	open        int  // probes whose fate is not known
}

// request is a probe under way.
type request struct {
	nonce uint64
	peer  *peer
	round *round // nil = of a smaller size
	size  int
	at    time.Time
}

// New returns a Prober that tests nothing until Run and Follow.
func New(cfg Config) *Prober {
	return &Prober{Config: cfg, follow: waiting.NewBell(), topo: topology{used: map[netip.Addr]int{}}, peers: map[netip.Addr]*peer{}, away: map[netip.Addr]*peer{}, sent: map[uint64]*request{}}
}

// Follow takes the desired state, which has the endpoints on other hosts to which packets
// go. Its cost depends on what has changed since the last call. Without a VXLAN network
// there are no tunnels, and no host is probed.
func (p *Prober) Follow(want desired.Host) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	count := func(r *desired.Remote, n int) {
		if !r.VTEP.IsValid() {
			return
		}
		was := p.topo.used[r.VTEP]
		if p.topo.used[r.VTEP] += n; p.topo.used[r.VTEP] == 0 {
			delete(p.topo.used, r.VTEP)
		}
		if was == 0 || was+n == 0 {
			p.follow.Ring()
		}
	}
	was := p.topo.vxlans
	for ch := range want.Networks.Diff(p.topo.networks) {
		if ch.Has && ch.New.Encap == model.EncapVXLAN {
			p.topo.vxlans++
		}
		if ch.Had && ch.Old.Encap == model.EncapVXLAN {
			p.topo.vxlans--
		}
	}
	if (was == 0) != (p.topo.vxlans == 0) {
		p.follow.Ring()
	}
	for ch := range want.Remotes.Diff(p.topo.remotes) {
		if ch.Has {
			count(ch.New, 1)
		}
		if ch.Had {
			count(ch.Old, -1)
		}
	}
	p.topo.remotes, p.topo.networks = want.Remotes, want.Networks
}

// Run tests until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	answers := p.Driver.ProbeAnswers()
	changed := p.updatePeers()
	told := fmt.Sprint(nil)
	for {
		timer.Reset(time.Until(p.step(time.Now())))
		if text := fmt.Sprint(p.Err()); text != told {
			told = text
			p.Changed()
		}
		select {
		case <-timer.C:
		case <-changed:
			changed = p.updatePeers()
		case <-p.follow:
			changed = p.updatePeers()
		case nonce, open := <-answers:
			if !open {
				return // the driver has been closed
			}
			p.take(nonce)
		case <-ctx.Done():
			return
		}
		for more := true; more; { // before anything counts as lost
			select {
			case nonce := <-answers:
				p.take(nonce)
			default:
				more = false
			}
		}
	}
}

// step counts what is lost, sends what is due, and returns when to do so again.
func (p *Prober) step(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && !p.queue[0].at.Add(probeTimeout).After(now) {
		r := p.queue[0]
		p.queue = p.queue[1:]
		if p.sent[r.nonce] == nil {
			continue // it was answered
		}
		delete(p.sent, r.nonce)
		p.endLocked(r, false, now)
	}
	for !p.free.After(now) {
		var first *peer
		for _, of := range p.peers {
			if first == nil || of.due.Before(first.due) {
				first = of
			}
		}
		if first == nil || first.due.After(now) {
			break
		}
		p.askLocked(first, now)
	}
	next := now.Add(time.Minute)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if len(p.queue) > 0 {
		sooner(p.queue[0].at.Add(probeTimeout))
	}
	for _, of := range p.peers {
		if of.due.Before(p.free) {
			sooner(p.free)
		} else {
			sooner(of.due)
		}
	}
	return next
}

// updatePeers takes the present hosts. It keeps the findings about hosts that left: an interrupted
// tunnel outlasts the restart of a netplugin behind it.
func (p *Prober) updatePeers() (changed <-chan struct{}) {
	list, changed := p.Peers()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	there := make(map[netip.Addr]bool, len(list))
	for _, is := range list {
		if p.topo.vxlans == 0 || p.topo.used[is.Addr] == 0 {
			continue
		}
		there[is.Addr] = true
		if of := p.peers[is.Addr]; of != nil && of.Name == is.Name {
			continue
		}
		of := p.away[is.Addr]
		if of != nil && of.Name == is.Name && now.Sub(of.left) < forgetAfter {
			of.due, of.back = now, true
		} else {
			of = &peer{Peer: is, state: untested, due: now.Add(rand.N(probeInterval))}
		}
		delete(p.away, is.Addr)
		p.peers[is.Addr] = of
	}
	for at, of := range p.peers {
		if there[at] {
			continue
		}
		delete(p.peers, at)
		if of.left = now; of.state.reported() {
			p.away[at] = of
		}
	}
	for at, of := range p.away {
		if now.Sub(of.left) >= forgetAfter {
			delete(p.away, at)
		}
	}
	return changed
}

// askLocked sends a round of probes to a host.
func (p *Prober) askLocked(of *peer, now time.Time) {
	again := probeInterval
	if of.state.reported() {
		again = reportedInterval
	}
	of.due = now.Add(again*3/4 + rand.N(again/2))
	if size := p.Size(); size != of.size {
		of.size, of.passes = size, 0
		if !of.state.reported() {
			of.state, of.since = untested, time.Time{}
		}
	}
	p.free = now
	r := &round{open: 2}
	p.sendLocked(of, r, driver.ProbeSize, now)
	p.sendLocked(of, r, of.size, now)
	if of.state == smallOnly {
		for _, size := range smallProbeLess {
			if size < of.size {
				p.sendLocked(of, nil, size, now)
			}
		}
	}
}

func (p *Prober) sendLocked(of *peer, in *round, size int, now time.Time) {
	r := &request{nonce: rand.Uint64(), peer: of, round: in, size: size, at: now}
	p.free = p.free.Add(minSpacing)
	switch err := p.Driver.Probe(of.Addr, r.nonce, size); {
	case errors.Is(err, model.ErrUnavailable):
		return // nothing follows, the round stays open: the driver says so itself
	case err != nil: // containers' packets get no further
		p.Log.Debug("a tunnel probe cannot be sent", "host", string(of.Name), "at", of.Addr, "error", err)
	}
	if of.since.IsZero() {
		of.since = now
	}
	p.sent[r.nonce] = r
	p.queue = append(p.queue, r)
}

// take notes an answer.
func (p *Prober) take(nonce uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.sent[nonce]; r != nil {
		delete(p.sent, nonce)
		p.endLocked(r, true, time.Now())
	}
}

// endLocked notes what became of a probe, and judges its host once the round is over.
func (p *Prober) endLocked(r *request, answered bool, now time.Time) {
	of, in := r.peer, r.round
	switch {
	case in == nil && answered:
		of.passes = max(of.passes, r.size)
	case in == nil && of.passes == r.size:
		of.passes = 0
	}
	if in == nil {
		return
	}
	if r.size == driver.ProbeSize {
		in.small = answered
	} else {
		in.full = answered
	}
	if in.open--; in.open > 0 {
		return
	}
	was := of.state
	of.note(*in, now)
	switch is := of.state; {
	case p.peers[of.Addr] != of:
	case !was.reported() && is.reported():
		p.Log.Warn("test packets through the tunnel to a host are lost: containers here and there may be cut off from each other",
			"host", string(of.Name), "at", of.Addr, "state", string(is), "bytes", of.size)
	case was.reported() && !is.reported():
		p.Log.Info("test packets through the tunnel to a host are answered again", "host", string(of.Name), "at", of.Addr)
	}
}
