package httpguard

import (
	"net/http"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Limits are the limits of a Limiter; fields that are 0 have their default.
type Limits struct {
	Body       int64   // bytes of a body; default 16 MiB, the size of the largest list to apply
	Rate       float64 // requests a second of one client, for long; default 200
	Burst      int     // requests that it may have made less before; default 1000
	Running    int     // requests of one client answered at a time; default 64
	RunningAll int     // of all clients; default 1024
	Clients    int     // with an entry of their own; default 10000. All others share one
	// Streams tells of requests whose bodies have no end, and no limit; nil = there are
	// none.
	Streams func(*http.Request) bool
}

func (c Limits) defaults() Limits {
	set(&c.Body, 16<<20)
	set(&c.Rate, 200)
	set(&c.Burst, 1000)
	set(&c.Running, 64)
	set(&c.RunningAll, 1024)
	set(&c.Clients, 10_000)
	return c
}

func set[T comparable](at *T, value T) {
	var zero T
	if *at == zero {
		*at = value
	}
}

// Limiter limits the clients of one listener, or of several together.
type Limiter struct {
	cfg   Limits
	table *table
	now   func() time.Time
}

// NewLimiter returns a Limiter.
func NewLimiter(cfg Limits) *Limiter {
	cfg = cfg.defaults()
	return &Limiter{cfg: cfg, table: newTable(cfg), now: time.Now}
}

// Handler lets through to next what is within the limits.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, no := l.table.begin(transport.ClientAtRemote(r.RemoteAddr), l.now())
		if no != nil {
			no.Write(w, r)
			return
		}
		defer done()
		if l.cfg.Streams != nil && l.cfg.Streams(r) {
			next.ServeHTTP(w, r)
			return
		}
		if r.ContentLength > l.cfg.Body {
			TooLarge(l.cfg.Body).Write(w, r)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, l.cfg.Body)
		next.ServeHTTP(w, r)
	})
}
