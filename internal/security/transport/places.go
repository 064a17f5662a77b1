package transport

import (
	"net/netip"
	"sync"
)

// Slots are places of which each of those who ask has a share.
type Slots struct {
	all, one int

	mu   sync.Mutex
	open int
	of   map[netip.Prefix]int
}

// NewSlots returns Places: so many of all, and of one who asks.
func NewSlots(all, one int) *Slots {
	return &Slots{all: all, one: one, of: map[netip.Prefix]int{}}
}

// Acquire takes a place; give gives it back. Where there is none, ok is false.
func (p *Slots) Acquire(who netip.Prefix) (give func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open >= p.all || p.of[who] >= p.one {
		return nil, false
	}
	p.open++
	p.of[who]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open--
		if p.of[who]--; p.of[who] == 0 {
			delete(p.of, who)
		}
	}), true
}

// Limits are how many places there are of all, and of one.
func (p *Slots) Limits() (all, one int) { return p.all, p.one }

// InUse are how many places are taken, and by one who asks.
func (p *Slots) InUse(who netip.Prefix) (all, one int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.of[who]
}

// ClientAt is who counts as one client: an IPv4 address, or 64 bits of an IPv6 one, which one machine
// has all addresses of. What is no address is one as well, all of them.
func ClientAt(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() && !a.IsLoopback() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // it has as many, or is none
	return p
}

// ClientAtRemote is ClientAt for an address with a port, as http.Request has it.
func ClientAtRemote(addr string) netip.Prefix {
	at, _ := netip.ParseAddrPort(addr) // what is none is one with all that are none
	return ClientAt(at.Addr())
}
