package desired

import (
	"iter"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Pool is whom is chosen among for new connections of one family: those in the best
// state that anybody there is in and, as the traffic policy says, the nearest ones.
type Pool struct {
	v6, local bool
	state     BackendState
	near      Nearness // at least
}

// Pools are all pools of a service as its backends are, so that each is made without
// looking at them again.
type Pools [2]poolFacts // by family

type poolFacts struct {
	all, here stateFacts
	near      Nearness // the highest of an active one
	unknown   bool     // the nearness of some active one is unknown
}

// stateFacts are in which of the states that are chosen among anybody is.
type stateFacts struct{ active, leaving bool }

func (f *stateFacts) note(s BackendState) {
	f.active = f.active || s == BackendActive
	f.leaving = f.leaving || s == BackendLeaving
}

// best is the state that is chosen among.
func (f stateFacts) best() BackendState {
	if !f.active && f.leaving {
		return BackendLeaving
	}
	return BackendActive
}

// Pools looks at each backend of the service once.
func (s *Service) Pools() (out Pools) {
	for _, b := range s.Backends.All() {
		for i := range out {
			if f, s := &out[i], b.Serving(i == 1); b.Addr(i == 1).IsValid() {
				f.all.note(s.State)
				if b.Local {
					f.here.note(s.State)
				}
				if s.State == BackendActive {
					f.near, f.unknown = max(f.near, s.Nearness), f.unknown || s.Nearness == NearUnknown
				}
			}
		}
	}
	return out
}

// Of returns whom a traffic policy chooses among.
func (p Pools) Of(v6 bool, among TrafficPolicy) Pool {
	f := p[0]
	if v6 {
		f = p[1]
	}
	out := Pool{v6: v6, state: f.all.best()}
	switch among {
	case TrafficCluster:
	case TrafficLocal, TrafficLocalDrop:
		out.local, out.state = true, f.here.best()
	case TrafficNearest:
		if f.all.active && !f.unknown && f.near > NearFar {
			out.near = f.near
		}
	}
	return out
}

// HasBackends reports whether the service has somebody to choose, wherever.
func (p Pools) HasBackends(v6 bool) bool {
	f := p[0]
	if v6 {
		f = p[1]
	}
	return f.all.active || f.all.leaving
}

// Has reports whether a backend is chosen among.
func (p Pool) Has(b *Backend) bool {
	s := b.Serving(p.v6)
	return s.State == p.state && b.Addr(p.v6).IsValid() && (b.Local || !p.local) && s.Nearness >= p.near
}

// Pool returns the backends that new connections of a family are spread over.
func (s *Service) Pool(v6 bool, among TrafficPolicy) iter.Seq2[model.EndpointKey, *Backend] {
	p := s.Pools().Of(v6, among)
	return func(yield func(model.EndpointKey, *Backend) bool) {
		for k, b := range s.Backends.All() {
			if p.Has(b) && !yield(k, b) {
				return
			}
		}
	}
}
