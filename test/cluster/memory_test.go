package cluster

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// inMemory is the store in memory, each participant with a connection of its own.
type inMemory struct{ *memory.Store }

func (s inMemory) connect(*testing.T, bool) (store.Store, wire) {
	c := s.Client()
	return c, memoryWire{c}
}

func (s inMemory) direct(*testing.T) store.Store { return s.Client() }

func (s inMemory) faults() []fault {
	at := func(name string, do func()) fault {
		return fault{name, func(context.Context, *rand.Rand) func() { do(); return func() {} }}
	}
	return []fault{at("revisions are compacted", s.Compact), at("all leases end", s.ExpireSessions)}
}

// memoryWire breaks a connection to the store in memory. It can delay events to mirrors,
// but not requests.
type memoryWire struct{ *memory.Store }

func (w memoryWire) cut() { w.Unavailable(true) }

func (w memoryWire) stall(answersOnly bool) {
	w.Pause(true)
	if !answersOnly {
		w.Conflict(2)
		w.DropWatches()
	}
}

func (w memoryWire) heal() {
	w.Unavailable(false)
	w.Pause(false)
}

// TestMemory: three netmasters on the store in memory.
func TestMemory(t *testing.T) {
	w := newWorld(t, inMemory{memory.New()})
	w.start(false)
	for _, wrong := range w.run(*seed, 1600) {
		t.Error(wrong)
	}
}
