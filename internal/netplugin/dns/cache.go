package dns

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The bounds of the cache.
const (
	cacheBytes     = 4 << 20 // of messages as on the wire, with entryCost for each
	entryCost      = 300     // what an entry takes beside its message
	maxCacheTime   = time.Hour
	negativeLimit  = 5 * time.Minute // RFC 2308 section 5 recommends hours at most
	maxTTL         = uint32(maxCacheTime / time.Second)
	maxNegativeTTL = uint32(negativeLimit / time.Second)
)

// question is the key of a cached answer.
type question struct {
	server netip.AddrPort // to ask before the host's resolvers; zero = none
	name   string         // in lower case
	qtype  uint16
	dnssec bool // the DO bit: signatures are wanted
	cd     bool // unchecked answers are wanted
}

// cache remembers forwarded answers for as long as they allow, the least
// recently used ones giving way.
type cache struct {
	now func() time.Time
	max int

	mu    sync.Mutex
	bytes int
	lru   *list.List // of *cached, the most recently used in front
	by    map[question]*list.Element
}

type cached struct {
	q               question
	wire            []byte
	stored, expires time.Time
}

func newCache(limit int, now func() time.Time) *cache {
	return &cache{now: now, max: limit, lru: list.New(), by: map[question]*list.Element{}}
}

// get returns a copy of the answer with the time that has passed taken off its
// TTLs; nil when the cache has none.
func (c *cache) get(q question) *dns.Msg {
	now := c.now()
	c.mu.Lock()
	el := c.by[q]
	if el == nil {
		c.mu.Unlock()
		return nil
	}
	e := el.Value.(*cached)
	if !now.Before(e.expires) {
		c.removeLocked(el)
		c.mu.Unlock()
		return nil
	}
	c.lru.MoveToFront(el)
	c.mu.Unlock()
	m := new(dns.Msg)
	if m.Unpack(e.wire) != nil {
		return nil // it was packed here
	}
	passed := uint32(now.Sub(e.stored) / time.Second)
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			rr.Header().Ttl -= min(passed, rr.Header().Ttl)
		}
	}
	return m
}

// put caches an answer if its TTLs allow that.
func (c *cache) put(q question, m *dns.Msg) {
	ttl := lifetime(m, q.qtype)
	if ttl == 0 {
		return
	}
	wire, err := m.Pack()
	if err != nil {
		return // a message that cannot be packed could not be sent as an answer either
	}
	now := c.now()
	e := &cached{q: q, wire: wire, stored: now, expires: now.Add(time.Duration(ttl) * time.Second)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.by[q]; old != nil {
		c.removeLocked(old)
	}
	c.by[q] = c.lru.PushFront(e)
	c.bytes += len(wire) + entryCost
	for c.bytes > c.max {
		c.removeLocked(c.lru.Back())
	}
}

func (c *cache) removeLocked(el *list.Element) {
	e := c.lru.Remove(el).(*cached)
	delete(c.by, e.q)
	c.bytes -= len(e.wire) + entryCost
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Init()
	clear(c.by)
	c.bytes = 0
}

func (c *cache) size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.by), c.bytes
}

// lifetime is how many seconds an answer may be cached: the least of its TTLs;
// for a name or type that does not exist, what its SOA record says (RFC 2308
// section 5). Zero = not at all.
func lifetime(m *dns.Msg, qtype uint16) uint32 {
	positive := false
	ttl := maxTTL
	for _, rr := range m.Answer {
		positive = positive || rr.Header().Rrtype == qtype || qtype == dns.TypeANY
		ttl = min(ttl, rr.Header().Ttl)
	}
	if positive && m.Rcode == dns.RcodeSuccess {
		return ttl
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(ttl, maxNegativeTTL, soa.Hdr.Ttl, soa.Minttl)
		}
	}
	return 0
}
