package agent

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// status writes what the agent observes to the store, at most every
// Config.StatusEvery, and only when it has changed.
type status struct {
	a     *Agent
	dirty chan struct{}
}

func newStatus(a *Agent) *status { return &status{a: a, dirty: make(chan struct{}, 1)} }

func (s *status) poke() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

func (s *status) run(ctx context.Context) {
	var last store.HostStatus
	var written bool
	for {
		select {
		case <-s.dirty:
		case <-ctx.Done():
			return
		}
		if s.a.named() != nil { // another's status is not ours to write; the claim pokes
			continue
		}
		now := s.a.observe()
		now.Updated = last.Updated
		if !written || !sameStatus(now, last) {
			now.Updated = time.Now().UTC().Format(time.RFC3339)
			_, err := s.a.cfg.Store.Update(ctx, func(tx store.Tx) error { return store.HostStatuses.Put(tx, now) })
			switch {
			case err == nil:
				last, written = now, true
			case ctx.Err() == nil:
				s.a.log.Debug("the status cannot be written to the store", "error", err)
				s.poke()
			}
		}
		select {
		case <-time.After(s.a.cfg.StatusEvery):
		case <-ctx.Done():
			return
		}
	}
}

// sameStatus leaves out the revision: every commit anywhere in the cluster
// would otherwise make every host write.
func sameStatus(x, y store.HostStatus) bool {
	if len(x.Problems) != len(y.Problems) {
		return false
	}
	for k, v := range x.Problems {
		if y.Problems[k] != v {
			return false
		}
	}
	return x.Ports == y.Ports && x.Pending == y.Pending && x.Error == y.Error
}

const maxProblems = 100

// observe draws up the status.
func (a *Agent) observe() store.HostStatus {
	o, _ := a.published.get()
	s := store.HostStatus{
		Host: a.cfg.Host, Driver: a.cfg.DriverName, DriverWhy: a.cfg.DriverWhy, Version: a.cfg.Version, Revision: o.report.Revision,
	}
	if o.err != nil {
		s.Error = o.err.Error()
	}
	for _, st := range o.report.Ports {
		if st.Err == nil {
			s.Ports++
		} else {
			s.Pending++
		}
	}
	texts := a.problemTexts(o)
	for _, k := range sortedKeys(texts) {
		if len(s.Problems) == maxProblems {
			break
		}
		if s.Problems == nil {
			s.Problems = map[string]string{}
		}
		s.Problems[k] = texts[k]
	}
	return s
}
