package join

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// turns are requests that are looked at at a time, of all who ask and of one of them. Who
// gets none is to come again.
type turns struct {
	all, one int

	mu   sync.Mutex
	open int
	of   map[netip.Prefix]int
}

func newTurns(all, one int) *turns { return &turns{all: all, one: one, of: map[netip.Prefix]int{}} }

// take returns what ends the turn of a request, or false where it has none.
func (t *turns) take(r *http.Request) (end func(), ok bool) {
	who := asker(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open >= t.all || t.of[who] >= t.one {
		return nil, false
	}
	t.open++
	t.of[who]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.open--
		if t.of[who]--; t.of[who] == 0 {
			delete(t.of, who)
		}
	}, true
}

// asker is who counts as one: an IPv4 address, or 64 bits of an IPv6 one, which one machine
// has all addresses of.
func asker(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() && !a.IsLoopback() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // it has as many
	return p
}
