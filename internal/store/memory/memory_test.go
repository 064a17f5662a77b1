package memory_test

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The in-memory store passes the suite.
func TestMemoryConformance(t *testing.T) { conforms(t, memory.New, 0) }

// So it does with no more than Consul can.
func TestConsulConformance(t *testing.T) {
	conforms(t, func() *memory.Store { return memory.NewWith(memory.Consul) }, 1000)
}

// bump is how far revisions go on when a backup is put back.
func conforms(t *testing.T, fresh func() *memory.Store, bump store.Revision) {
	t.Helper()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		base := fresh()
		var mu sync.Mutex
		var clients []*memory.Store
		away := func(b bool) {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range clients {
				c.Unavailable(b)
			}
		}
		return storetest.Harness{
			Open: func(*testing.T) store.Store {
				mu.Lock()
				defer mu.Unlock()
				clients = append(clients, base.Client())
				return clients[len(clients)-1]
			},
			Direct:  func(*testing.T) store.Store { return base.Client() },
			Break:   func(*testing.T) { away(true) },
			Heal:    func(*testing.T) { away(false) },
			Compact: func(*testing.T) { base.Compact() },
			Backup: func(*testing.T) func() {
				data := base.Data()
				return func() { base.Replace(data, bump) }
			},
			Can:      base.Capabilities(),
			TTL:      200 * time.Millisecond,
			Patience: 30 * time.Second,
		}
	})
}
