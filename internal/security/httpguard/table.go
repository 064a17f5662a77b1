package httpguard

import (
	"container/list"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// table has what clients have used, the one that asked last in front.
type table struct {
	cfg Limits

	mu      sync.Mutex
	clients map[netip.Prefix]*list.Element // of *client
	order   list.List
	others  *client // those for whom there was no place
	running int
}

type client struct {
	key     netip.Prefix
	bucket  *rate.Limiter
	running int
}

func newTable(cfg Limits) *table {
	t := &table{cfg: cfg, clients: map[netip.Prefix]*list.Element{}}
	t.others = t.newClient(netip.Prefix{})
	return t
}

func (t *table) newClient(key netip.Prefix) *client {
	return &client{key: key, bucket: rate.NewLimiter(rate.Limit(t.cfg.Rate), t.cfg.Burst)}
}

// begin counts a request, which done ends, or says why it is not to be answered.
func (t *table) begin(key netip.Prefix, now time.Time) (done func(), no *Refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.find(key, now)
	if c.running >= t.cfg.Running {
		return nil, TooMany(time.Second, "%d requests from this address are being answered, and no more are at a time", c.running)
	}
	if t.running >= t.cfg.RunningAll {
		return nil, Unavailable(time.Second, nil, "%d requests are being answered, and no more are at a time", t.running)
	}
	if !c.bucket.AllowN(now, 1) {
		r := c.bucket.ReserveN(now, 1)
		wait := r.DelayFrom(now)
		r.CancelAt(now)
		return nil, TooMany(wait, "too many requests from this address: %g a second are answered, and %d at once", t.cfg.Rate, t.cfg.Burst)
	}
	c.running++
	t.running++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		c.running--
		t.running--
	}, nil
}

// find returns a client's place, or the one of those who have none.
func (t *table) find(key netip.Prefix, now time.Time) *client {
	if e, ok := t.clients[key]; ok {
		t.order.MoveToFront(e)
		return e.Value.(*client) //nolint:forcetypeassert // the list has no others
	}
	if len(t.clients) >= t.cfg.Clients && !t.forget(now) {
		return t.others
	}
	// It may have used the shared entry before, and must not get a full bucket.
	c := t.newClient(key)
	c.bucket.AllowN(now, int(math.Ceil(float64(t.cfg.Burst)-t.others.bucket.TokensAt(now))))
	t.clients[key] = t.order.PushFront(c)
	return c
}

// forget takes the place of the client that asked longest ago, if it is as one that
// never asked.
func (t *table) forget(now time.Time) bool {
	// Streams may keep the last place for long, so a few are looked at.
	const look = 16
	e := t.order.Back()
	for range look {
		if e == nil {
			return false
		}
		c := e.Value.(*client) //nolint:forcetypeassert // the list has no others
		if c.running == 0 && c.bucket.TokensAt(now) >= float64(t.cfg.Burst) {
			t.order.Remove(e)
			delete(t.clients, c.key)
			return true
		}
		e = e.Prev()
	}
	return false
}
