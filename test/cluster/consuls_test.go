//go:build integration

package cluster

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
)

// consuls is a cluster's store on a Consul of three servers, each participant behind a
// link to each of them.
type consuls struct {
	t    *testing.T
	all  []consulServer
	turn sync.Mutex // held by the fault that is made of it
}

// threeConsuls have a leader when they are returned.
func threeConsuls(t *testing.T) *consuls {
	t.Helper()
	s := &consuls{t: t, all: newConsuls(t, 3)}
	s.start()
	return s
}

func (s *consuls) start() {
	for _, c := range s.all { // none leads before the others are there
		c.process.start()
	}
	for _, c := range s.all {
		c.until("it has a leader", func(leader string) bool { return leader != "" })
	}
}

func (s *consuls) addresses() (out []string) {
	for _, c := range s.all {
		out = append(out, c.address())
	}
	return out
}

func (s *consuls) connect(t *testing.T, netmaster bool) (store.Store, wire) {
	t.Helper()
	var ways wires
	var addresses []string
	for _, c := range s.all {
		l := newLink(t, c.address)
		ways, addresses = append(ways, l), append(addresses, l.address)
	}
	return openConsuls(t, addresses, netmaster), ways
}

func (s *consuls) direct(t *testing.T) store.Store {
	t.Helper()
	return openConsuls(t, s.addresses(), false)
}

func (s *consuls) faults() []fault {
	return []fault{
		s.alone("a server of the store is killed", func(chance *rand.Rand) func() {
			c := s.all[chance.IntN(len(s.all))]
			c.end()
			return c.start
		}),
		s.alone("the server that leads is killed", func(*rand.Rand) func() {
			c, other := s.leads()
			c.end()
			other.until("another leads", func(l string) bool { return l != "" && l != c.raft })
			return c.start
		}),
		s.alone("the server that leads stands still", func(*rand.Rand) func() {
			c, other := s.leads()
			goOn := c.pause()
			other.until("another leads", func(l string) bool { return l != "" && l != c.raft })
			return goOn
		}),
		s.alone("all servers are killed", func(*rand.Rand) func() {
			for _, c := range s.all {
				c.end()
			}
			return s.start
		}),
		s.alone("revisions are compacted", func(chance *rand.Rand) func() {
			forgetJournal(s.t, s.all[chance.IntN(len(s.all))].address())
			return func() {}
		}),
	}
}

// alone is a fault of the store, of which there is one at a time.
func (s *consuls) alone(name string, do func(chance *rand.Rand) (undo func())) fault {
	return fault{name, func(_ context.Context, chance *rand.Rand) func() {
		if !s.turn.TryLock() {
			return nil
		}
		undo := do(chance)
		return func() {
			undo()
			s.turn.Unlock()
		}
	}}
}

// leads is the server that leads, and one that does not.
func (s *consuls) leads() (leader, other consulServer) {
	at := ""
	s.all[0].until("it has a leader", func(l string) bool { at = l; return l != "" })
	for i, c := range s.all {
		if c.raft == at {
			return c, s.all[(i+1)%len(s.all)]
		}
	}
	s.t.Errorf("%s leads, which none is", at)
	return s.all[0], s.all[1]
}
