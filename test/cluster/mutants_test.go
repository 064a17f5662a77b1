package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestMutantsAreFound: what these tests are for is found, each time: netmasters that answer
// from a cache, that acknowledge what they have not done, and that give twice.
func TestMutantsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		mutant  func(http.Handler) http.Handler
		between func(store.Store) store.Store
		found   string // in what is wrong
	}{
		"reads from a cache":                    {answersStale, nil, "not linearizable"},
		"a write is acknowledged, and not done": {forgets, nil, "not linearizable"},
		"an address is released twice":          {nil, losing(tables.AllocPrefix + "address/"), "is given to"},
		"a number is released twice":            {nil, losing(tables.AllocPrefix+"number/", tables.AllocPrefix+"cursor/"), "is given to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			for round := range uint64(10) {
				w := newWorld(t, inMemory{memory.New()})
				w.mutant, w.between = c.mutant, c.between
				w.start(false)
				if strings.Contains(strings.Join(w.run(*seed+round, 480), "\n"), c.found) {
					t.Logf("found in round %d", round)
					return
				}
			}
			t.Errorf("nothing that says %q is found in ten rounds", c.found)
		})
	}
}

// answersStale answers a GET as the one before it was.
func answersStale(h http.Handler) http.Handler {
	var mu sync.Mutex
	last := map[string]*httptest.ResponseRecorder{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path == "/readyz" {
			h.ServeHTTP(w, r)
			return
		}
		now := httptest.NewRecorder()
		h.ServeHTTP(now, r)
		mu.Lock()
		was := last[r.URL.Path]
		if now.Code == http.StatusOK || now.Code == http.StatusNotFound {
			last[r.URL.Path] = now
		}
		mu.Unlock()
		if was == nil {
			was = now
		}
		w.WriteHeader(was.Code)
		_, _ = w.Write(was.Body.Bytes())
	})
}

// forgets answers every tenth DELETE as if it were done.
func forgets(h http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && n.Add(1)%10 == 0 {
			w.Header().Set(revisionHeader, "1000000000")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// losing puts between a netmaster and the store what loses the rows under prefixes, as
// a release of what somebody else has by now would.
func losing(prefixes ...string) func(store.Store) store.Store {
	return func(st store.Store) store.Store { return losingStore{st, prefixes} }
}

type losingStore struct {
	store.Store
	prefixes []string
}

func (s losingStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(losingTx{tx, s.prefixes}) })
}

type losingTx struct {
	store.Tx
	prefixes []string
}

func (tx losingTx) loses(key string) bool {
	return slices.ContainsFunc(tx.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

func (tx losingTx) Create(key string, value []byte, lease store.Session) error {
	if tx.loses(key) {
		return nil
	}
	return tx.Tx.Create(key, value, lease)
}

func (tx losingTx) Put(key string, value []byte, lease store.Session) {
	if !tx.loses(key) {
		tx.Tx.Put(key, value, lease)
	}
}
