package driver

import (
	"iter"
	"maps"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// PortStatus is the state of one local port: programmed, with its policy, at
// the report's revision when Err is nil.
type PortStatus struct {
	Err error // model.ErrNotFound when the interface does not exist (yet)
}

// PortStatuses are the states of a desired state's ports, by Port.IfName. The zero value is
// none. A driver fills a new one with Set for each report, or keeps and shares it; readers
// of a report must not change it.
type PortStatuses struct {
	own    map[string]PortStatus
	shared desired.Map[string, *PortStatus]
}

// SharePorts returns statuses that the driver goes on keeping: a change costs
// the change, not a copy of all.
func SharePorts(m desired.Map[string, *PortStatus]) PortStatuses { return PortStatuses{shared: m} }

// Set says what became of a port; not of statuses that are shared.
func (s *PortStatuses) Set(name string, st PortStatus) {
	if s.own == nil {
		s.own = map[string]PortStatus{}
	}
	s.own[name] = st
}

// With returns the statuses with others of some ports.
func (s PortStatuses) With(other map[string]PortStatus) PortStatuses {
	if len(other) == 0 {
		return s
	}
	s.own = maps.Clone(s.own)
	for name, st := range other {
		if _, ok := s.shared.Get(name); ok {
			s.shared = s.shared.Set(name, &st)
		} else {
			s.Set(name, st)
		}
	}
	return s
}

// Len returns the number of ports.
func (s PortStatuses) Len() int { return len(s.own) + s.shared.Len() }

// Get returns a port's status, false when the report does not tell of it.
func (s PortStatuses) Get(name string) (PortStatus, bool) {
	if st, ok := s.own[name]; ok {
		return st, true
	}
	if st, ok := s.shared.Get(name); ok {
		return *st, true
	}
	return PortStatus{}, false
}

// Err is why a port is not programmed; nil also for one that the report does
// not tell of.
func (s PortStatuses) Err(name string) error {
	st, _ := s.Get(name)
	return st.Err
}

// All iterates over the ports in no particular order.
func (s PortStatuses) All() iter.Seq2[string, PortStatus] {
	return func(yield func(string, PortStatus) bool) {
		for name, st := range s.own {
			if !yield(name, st) {
				return
			}
		}
		for name, st := range s.shared.All() {
			if !yield(name, *st) {
				return
			}
		}
	}
}
