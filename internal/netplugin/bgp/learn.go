package bgp

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

const (
	maxHops     = 16  // of one route: more share nothing better
	readAllFrom = 512 // from so many changed prefixes on, looking at all is cheaper
)

// NextHop is one of the equally good ways of a route.
type NextHop struct {
	Address  netip.Addr `json:"address"`
	Neighbor netip.Addr `json:"neighbor"`
	Stale    bool       `json:"stale,omitempty"` // the neighbor is restarting: what it last said
}

// Routes is all that is learned.
type Routes struct {
	Generation uint64 // grows with each change
	// Complete is false after a start until all neighbors have told all, or
	// Config.RestartTime has passed: routes that an earlier speaker learned
	// should stay until then.
	Complete bool
	Routes   map[netip.Prefix][]NextHop // by address; not to be changed
}

// Routes returns what is learned now.
func (s *Speaker) Routes() *Routes {
	p, _ := s.learner.routes.Get()
	return p
}

// Changed waits until what is learned is of another generation than seen, and
// returns it, or until ctx ends.
func (s *Speaker) Changed(ctx context.Context, seen uint64) (*Routes, error) {
	var now *Routes
	err := s.learner.routes.Until(ctx, func(p *Routes) bool {
		now = p
		return p.Generation != seen
	})
	return now, err
}

// learnedPath is a path that a neighbor told of.
type learnedPath struct {
	neighbor, hop netip.Addr
	stale         bool
	why           string // it is not accepted; "" = it is
	rank          rank
}

// rank orders paths to a prefix, the better one first (RFC 4271 9.1.2.2 until
// the steps that only pick one of equals).
type rank struct {
	internal  bool
	minusPref int64
	asPath    int
	origin    uint8
	med       uint32
}

func (r rank) before(o rank) bool {
	switch {
	case r.internal != o.internal:
		return !r.internal
	case r.minusPref != o.minusPref:
		return r.minusPref < o.minusPref
	case r.asPath != o.asPath:
		return r.asPath < o.asPath
	case r.origin != o.origin:
		return r.origin < o.origin
	}
	return r.med < o.med
}

// learner follows the library's table and makes a snapshot of it. What changed is
// only a hint to look there: no event's order or loss matters.
type learner struct {
	routes     waiting.Value[*Routes]
	bell       waiting.Bell
	sessionEnd waiting.Bell // a session has ended

	mu          sync.Mutex
	srv         *server.BgpServer
	accepts     acceptance
	neighbors   map[netip.Addr]map[bgp.Family]bool // families whose end was not heard yet
	beyond      map[netip.Addr]bool                // closed for their limit
	stopWaiting bool                               // no more waiting for them
	all         bool                               // everything may have changed
	dirty       map[netip.Prefix]bool
	paths       map[netip.Prefix][]learnedPath
}

// acceptance decides which paths of neighbors count.
type acceptance struct {
	as     uint32
	filter *filter
	own    map[netip.Addr]bool // this host's addresses: no next hops
}

func newLearner() *learner {
	l := &learner{bell: waiting.NewBell(), sessionEnd: waiting.NewBell(), dirty: map[netip.Prefix]bool{}}
	l.routes.Set(&Routes{Routes: map[netip.Prefix][]NextHop{}})
	return l
}

func (l *learner) begin(srv *server.BgpServer, cfg Config) {
	l.mu.Lock()
	l.srv, l.neighbors, l.stopWaiting = srv, map[netip.Addr]map[bgp.Family]bool{}, false
	l.beyond = map[netip.Addr]bool{}
	l.mu.Unlock()
	l.configure(cfg)
}

func (l *learner) configure(cfg Config) {
	f := newFilter(cfg.Protected, cfg.Links, cfg.Default)
	own := map[netip.Addr]bool{cfg.RouterID: true}
	for _, a := range cfg.Listen {
		own[a] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.neighbors
	l.neighbors = map[netip.Addr]map[bgp.Family]bool{}
	for _, n := range cfg.Neighbors {
		if n.Local.IsValid() {
			own[n.Local] = true
		}
		waits, known := old[n.Address]
		if !known {
			waits = map[bgp.Family]bool{}
			for _, f := range n.families() {
				waits[apiutil.ToFamily(f)] = true
			}
		}
		l.neighbors[n.Address] = waits
	}
	l.accepts.as, l.accepts.filter, l.accepts.own, l.all = cfg.AS, f, own, true
	l.bell.Ring()
}

// changed receives the paths that the library has changed.
func (l *learner) changed(paths []*apiutil.Path, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range paths {
		if nlri, ok := p.Nlri.(*bgp.IPAddrPrefix); ok {
			l.dirty[nlri.Prefix] = true
		}
	}
	if len(l.dirty) > readAllFrom {
		l.all = true
		clear(l.dirty)
	}
	l.bell.Ring()
}

// ended receives a neighbor's End-of-RIB for a family (RFC 4724, section 2).
func (l *learner) ended(p *apiutil.Path, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.neighbors[p.PeerAddress], p.Family)
	l.bell.Ring()
}

// session receives the beginning or end of a session. A neighbor that sends no End-of-RIB
// is not waited for. The routes of a neighbor beyond its limit do not count: the library
// takes the end of its session for a restart.
func (l *learner) session(neighbor netip.Addr, up, saysEnd, beyond bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.beyond, neighbor)
	if beyond {
		l.beyond[neighbor] = true
	}
	if up && !saysEnd {
		clear(l.neighbors[neighbor])
	}
	l.all = true
	if up {
		l.bell.Ring()
	} else {
		l.sessionEnd.Ring()
	}
}

// run looks when something has changed, as paced says, until ctx ends.
func (l *learner) run(ctx context.Context, patience time.Duration) {
	late := time.NewTimer(patience)
	defer late.Stop()
	paced(ctx, l.bell, l.sessionEnd, late.C, func(isLate bool) {
		if isLate {
			l.mu.Lock()
			l.stopWaiting = true
			l.mu.Unlock()
		}
		l.readTable()
	})
}

// readTable reads what changed from the library's table and publishes the snapshot if
// it differs.
func (l *learner) readTable() {
	l.mu.Lock()
	srv, all, dirty := l.srv, l.all, l.dirty
	l.all, l.dirty = false, map[netip.Prefix]bool{}
	l.mu.Unlock()

	found := map[netip.Prefix][]*apiutil.Path{}
	for _, f := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC} {
		req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: f}
		if !all {
			for p := range dirty {
				if p.Addr().Is4() == (f == bgp.RF_IPv4_UC) {
					req.Prefixes = append(req.Prefixes, &apiutil.LookupPrefix{Prefix: p.String()})
				}
			}
			if len(req.Prefixes) == 0 {
				continue
			}
		}
		err := srv.ListPath(req, func(nlri bgp.NLRI, paths []*apiutil.Path) {
			if n, ok := nlri.(*bgp.IPAddrPrefix); ok {
				found[n.Prefix] = paths
			}
		})
		if err != nil { // the server has stopped, or has no such table
			return
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	now, _ := l.routes.Get()
	routes := map[netip.Prefix][]NextHop{}
	if all {
		l.paths = map[netip.Prefix][]learnedPath{}
	} else {
		routes = maps.Clone(now.Routes)
		for p := range dirty {
			delete(l.paths, p)
			delete(routes, p)
		}
	}
	for p, paths := range found {
		if h := l.judge(p, paths); len(h) > 0 {
			l.paths[p] = h
			if hops := best(h); len(hops) > 0 {
				routes[p] = hops
			}
		}
	}
	complete := now.Complete || l.settled()
	if complete == now.Complete && maps.EqualFunc(routes, now.Routes, slices.Equal) {
		return
	}
	l.routes.Set(&Routes{Generation: now.Generation + 1, Complete: complete, Routes: routes})
}

// settled says whether nothing is waited for any more.
func (l *learner) settled() bool {
	for _, waits := range l.neighbors {
		if len(waits) > 0 {
			return l.stopWaiting
		}
	}
	return true
}

// judge says which of a prefix's paths are accepted.
func (l *learner) judge(p netip.Prefix, paths []*apiutil.Path) (out []learnedPath) {
	why := l.accepts.filter.whyRefused(p)
	if slices.ContainsFunc(paths, local) { // which is protected too, mostly, and says less
		why = ReasonOwn
	}
	for _, path := range paths {
		if local(path) || l.beyond[path.PeerAddress] {
			continue
		}
		h := learnedPath{neighbor: path.PeerAddress, stale: path.Stale, why: why}
		h.hop, h.rank = attributes(path, l.accepts.as)
		if h.why == "" && !usable(p, h.hop, l.accepts.own) {
			h.why = ReasonNextHop
		}
		out = append(out, h)
	}
	return out
}

// local reports whether a path is one that the host announces.
func local(p *apiutil.Path) bool { return !p.PeerAddress.IsValid() || p.PeerAddress.IsUnspecified() }

// attributes reads a path's next hop and rank.
func attributes(path *apiutil.Path, as uint32) (hop netip.Addr, r rank) {
	r = rank{internal: path.PeerASN == as, minusPref: -100}
	for _, a := range path.Attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeNextHop:
			hop = a.Value
		case *bgp.PathAttributeMpReachNLRI:
			hop = a.Nexthop
		case *bgp.PathAttributeLocalPref:
			r.minusPref = -int64(a.Value)
		case *bgp.PathAttributeAsPath:
			for _, segment := range a.Value {
				r.asPath += segment.ASLen()
			}
		case *bgp.PathAttributeOrigin:
			r.origin = a.Value
		case *bgp.PathAttributeMultiExitDisc:
			r.med = a.Value
		}
	}
	return hop.Unmap(), r
}

// best returns the next hops of the best of the accepted paths.
func best(paths []learnedPath) (hops []NextHop) {
	var top rank
	for _, h := range paths {
		if h.why != "" || len(hops) > 0 && top.before(h.rank) {
			continue
		}
		if len(hops) == 0 || h.rank.before(top) {
			hops, top = nil, h.rank
		}
		hops = append(hops, NextHop{Address: h.hop, Neighbor: h.neighbor, Stale: h.stale})
	}
	slices.SortFunc(hops, func(a, b NextHop) int {
		if c := a.Address.Compare(b.Address); c != 0 {
			return c
		}
		return a.Neighbor.Compare(b.Neighbor)
	})
	hops = slices.CompactFunc(hops, func(a, b NextHop) bool { return a.Address == b.Address })
	return hops[:min(len(hops), maxHops)]
}

// counts of the prefixes that a neighbor told of.
type counts struct {
	accepted int
	rejected map[string]int // by reason
}

func (l *learner) counts() map[netip.Addr]counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[netip.Addr]counts{}
	for _, paths := range l.paths {
		for _, h := range paths {
			c := out[h.neighbor]
			if c.rejected == nil {
				c.rejected = map[string]int{}
			}
			if h.why == "" {
				c.accepted++
			} else {
				c.rejected[h.why]++
			}
			out[h.neighbor] = c
		}
	}
	return out
}
