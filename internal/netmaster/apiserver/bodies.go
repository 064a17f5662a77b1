package apiserver

import (
	"net/http"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// How many bytes of bodies are seen at a time. A list that is read takes some ten times
// its size, and keeps it until it is answered.
const (
	smallBody       = 64 << 10 // what is smaller counts as nothing: how many requests run has its own limit
	maxClientBodies = 2 * MaxApplyBody
	maxAllBodies    = 4 * MaxApplyBody
)

// bodyBudget counts the bytes of bodies that are in memory, by whom they are.
type bodyBudget struct {
	mu  sync.Mutex
	all int64
	of  map[string]int64
}

// take counts the body of a request before any of it is read, or says that there are
// too many. Without a length it counts as limit, in bytes. done is called once the
// request is answered.
func (b *bodyBudget) take(id access.Identity, r *http.Request, limit int64) (done func(), err error) {
	n := r.ContentLength
	switch {
	case n > limit:
		return nil, httpguard.TooLarge(limit)
	case n < 0:
		n = limit
	}
	if n <= smallBody {
		return func() {}, nil
	}
	who := id.How + " " + id.ID + " " + id.Name
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[who]+n > maxClientBodies {
		return nil, httpguard.TooMany(time.Second, "body: large requests of yours are being answered: %d bytes of them are taken at a time; try again", maxClientBodies)
	}
	if b.all+n > maxAllBodies {
		return nil, httpguard.TooMany(time.Second, "body: large requests are being answered: %d bytes of them are taken at a time; try again", maxAllBodies)
	}
	if b.of == nil {
		b.of = map[string]int64{}
	}
	b.of[who] += n
	b.all += n
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.all -= n
		if b.of[who] -= n; b.of[who] == 0 {
			delete(b.of, who)
		}
	}, nil
}
