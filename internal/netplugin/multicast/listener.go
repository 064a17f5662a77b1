package multicast

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// startupQueries is how long after its first desired state an endpoint is queried for the first
// time, which finds earlier joins. soon is the response time in that query; the endpoint
// receives nothing until it has answered. It is long enough for 64 messages of IGMPv2, one
// a group, of which 50 a second are accepted.
const (
	startupQueries = time.Second
	changeDelay    = 2 * time.Second
)

// question is the next one to an endpoint.
type question struct {
	at     time.Time
	within time.Duration // it is to be answered
}

// Config is what a Listener needs.
type Config struct {
	Plane   driver.Memberships
	Changed func() // called when the desired state is to have other groups
	File    string // where members outlast this process
	Log     *slog.Logger
	Now     func() time.Time // nil = time.Now
}

// Listener keeps who hears what on a host. Make it with New.
type Listener struct {
	cfg  Config
	bell waiting.Bell

	mu      sync.Mutex
	table   table
	ports   desired.Map[string, *desired.Port]
	vlans   map[model.NetworkID]bool // whose queries are the fabric's too
	queries map[string]question      // of each port
	groups  desired.Map[desired.GroupKey, *desired.Group]
	stale   bool // the file is not the table
	logged  bool // that the file cannot be written
}

// New returns a Listener that knows what the file says.
func New(cfg Config) *Listener {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Listener{cfg: cfg, bell: waiting.NewBell(), table: table{ports: map[string]map[netip.Addr]time.Time{}}, queries: map[string]question{}}
	l.load()
	return l
}

// Follow returns the groups that a desired state is to have, whose ports and networks are there.
func (l *Listener) Follow(want desired.Host) desired.Map[desired.GroupKey, *desired.Group] {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range want.Ports.Diff(l.ports) {
		switch {
		case !c.Has:
			l.forget(c.Key)
		case !c.Had:
			l.queries[c.Key] = question{l.cfg.Now().Add(startupQueries), changeDelay}
			l.bell.Ring()
		case c.Old.Network != c.New.Network || c.Old.Endpoint != c.New.Endpoint:
			l.forget(c.Key)
			l.queries[c.Key] = question{l.cfg.Now().Add(startupQueries), changeDelay}
			l.bell.Ring()
		}
	}
	l.ports = want.Ports
	l.vlans = map[model.NetworkID]bool{}
	for id, n := range want.Networks.All() {
		if n.Encap == model.EncapVLAN {
			l.vlans[id] = true
		}
	}
	l.groups = l.table.groups(l.ports, l.groups)
	return l.groups
}

func (l *Listener) forget(port string) {
	l.stale = l.stale || l.table.ports[port] != nil
	l.table.forget(port)
	delete(l.queries, port)
}

// Refused counts what found no room since the start: an endpoint's groups beyond
// MaxGroups, or a host's beyond MaxMembers.
func (l *Listener) Refused() (members int, refused uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.n, l.table.refused
}

// Run hears and asks until ctx ends.
func (l *Listener) Run(ctx context.Context) {
	wake := time.NewTimer(0)
	defer wake.Stop()
	heard := l.cfg.Plane.Reports()
	for {
		select {
		case <-ctx.Done():
			l.save()
			return
		case r, open := <-heard:
			if !open {
				heard = nil
				continue
			}
			if l.handleFrame(r) {
				l.cfg.Changed()
			}
			continue // the timer is set; what is to be saved waits for it
		case <-wake.C:
		case <-l.bell:
		}
		if l.tick() {
			l.cfg.Changed()
		}
		wake.Reset(time.Second)
	}
}

// handleFrame takes a frame.
func (l *Listener) handleFrame(r driver.MembershipReport) (changed bool) {
	m, ok := decode(r.Frame)
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Port == "" {
		if m.query && l.vlans[r.Network] {
			l.forwardQuery(r.Network, r.Frame)
		}
		return false
	}
	if _, here := l.ports.Get(r.Port); !here {
		return false
	}
	changed = l.table.handleReport(r.Port, m, l.cfg.Now())
	l.stale = l.stale || changed
	return changed
}

// forwardQuery asks the ports of a network what the fabric asks, which needs their answers.
func (l *Listener) forwardQuery(network model.NetworkID, frame []byte) {
	for name, p := range l.ports.All() {
		if p.Network == network {
			l.send(name, frame)
		}
	}
}

func (l *Listener) send(port string, frame []byte) {
	if err := l.cfg.Plane.Send(port, frame); err != nil {
		l.cfg.Log.Debug("a multicast query to an endpoint failed; it is sent again", "port", port, "error", err)
	}
}

// tick does what is due.
func (l *Listener) tick() (changed bool) {
	l.mu.Lock()
	now := l.cfg.Now()
	for name, q := range l.queries {
		if now.Before(q.at) {
			continue
		}
		l.queries[name] = question{now.Add(Interval), within}
		p, ok := l.ports.Get(name)
		if !ok {
			continue
		}
		if p.IPv4.IsValid() {
			l.send(name, query4(q.within))
		}
		l.send(name, query6(q.within)) // every endpoint may have a link-local address
	}
	changed = l.table.expire(now)
	l.stale = l.stale || changed
	l.mu.Unlock()
	l.save()
	return changed
}

// load reads the file. What is in it counts as just heard: who does not answer the first
// questions is taken out in time.
func (l *Listener) load() {
	b, err := os.ReadFile(l.cfg.File)
	kept := map[string][]netip.Addr{}
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.cfg.Log.Warn("the members of multicast groups are unknown until endpoints have answered", "error", err)
		return
	}
	now := l.cfg.Now()
	for port, groups := range kept {
		m := message{}
		for _, g := range groups {
			m.changes = append(m.changes, change{g, true})
		}
		l.table.handleReport(port, m, now)
	}
}

// save writes the file, if it is not as it was.
func (l *Listener) save() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stale {
		return
	}
	keep := map[string][]netip.Addr{}
	for port, of := range l.table.ports {
		for g := range of {
			keep[port] = append(keep[port], g)
		}
		slices.SortFunc(keep[port], netip.Addr.Compare)
	}
	if err := durable.WriteJSON(l.cfg.File, keep); err != nil {
		if !l.logged {
			l.cfg.Log.Warn("the members of multicast groups cannot be saved for a restart", "error", err)
		}
		l.logged = true
	}
	l.stale = false
}
