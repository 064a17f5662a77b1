package ebpf

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// generations counts, by a place that domain and address give, the changes of what
// is at an address. A verdict bears the sum of the epoch and its ends' turns
// (make_key of bpf/conntrack.h), so that an endpoint's event has its own
// connections judged anew and leaves others' alone.
type generations struct {
	m  *ebpf.Map
	at map[uint32]bool // places that turn when all is written
}

// generationIndex is turn_place of bpf/conntrack.h.
func generationIndex(k hostKey) uint32 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio (Knuth 6.4)
	w := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(k.IP[4*i:])) }
	h := ((w(0)<<32 | w(1)) ^ uint64(k.Domain)) * odd
	h = (h ^ h>>29 ^ (w(2)<<32 | w(3))) * odd
	return uint32(h >> (64 - generationBits))
}

const generationBits = 16

// add notes that what is at addresses has changed.
func (t generations) add(at ...hostKey) {
	for _, k := range at {
		t.at[generationIndex(k)] = true
	}
}

// bumpGenerations notes that what is at addresses has changed, if anything has since
// changes were counted.
func (p *applyRun) bumpGenerations(at []hostKey, changes int) {
	if p.w.changes != changes {
		p.generations.add(at...)
	}
}

// bumpGeneration has the connections of what changed judged anew. It comes after all
// writes, as newEpoch does.
func (d *Driver) bumpGeneration() error {
	for place := range d.generations.at {
		var n uint32
		err := d.generations.m.Lookup(place, &n)
		if err == nil {
			err = d.generations.m.Put(place, n+1)
		}
		if err != nil {
			return fmt.Errorf("write map turns: %w", err)
		}
	}
	d.generations.at = map[uint32]bool{} // to look through an emptied one costs what it has held
	return nil
}

// newEpoch makes every cached verdict stale.
func (d *Driver) newEpoch() error {
	defer func(fault func() error) { d.w.fault = fault }(d.w.fault)
	d.w.fault = nil
	s := d.settings.have[0]
	s.Epoch++
	d.settings.quiet = true
	defer func() { d.settings.quiet = false }()
	return d.settings.put(0, s)
}

// putHost writes who is at an address. Connections of who was there before end
// with the number that their entries bear (same_ends of bpf/conntrack.h).
func (p *applyRun) putHost(k hostKey, v hostEntry) error {
	old, was := p.hosts.have[k]
	if was && old.MAC == v.MAC && (old.Ifindex == 0) == (v.Ifindex == 0) {
		v.Hand = old.Hand
		return p.hosts.put(k, v)
	}
	if was {
		p.gone[k] = true
	}
	now, err := monotonic()
	if err != nil {
		return writeError{err}
	}
	// By the clock, so that a number is used again, if at all, long after the
	// connections that bear it: it outlasts this process, and the entry.
	if p.hand = max(p.hand+1, uint32(now>>20)); p.hand == 0 {
		p.hand = 1
	}
	v.Hand = p.hand
	return p.hosts.put(k, v)
}

// leave notes that an address is to be nobody's.
func (p *applyRun) leave(k hostKey) {
	if _, ok := p.hosts.have[k]; ok {
		p.gone[k] = true
		p.generations.add(k)
	}
}

// movedAddresses are addresses that changed hands, with who has them now; 0 = nobody.
type movedAddresses map[hostKey]uint32

// movedAddresses takes the addresses that have changed hands since it was asked last.
func (d *Driver) movedAddresses() movedAddresses {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := movedAddresses{}
	for k := range d.gone {
		out[k] = d.hosts.have[k].Hand
	}
	d.gone = map[hostKey]bool{}
	return out
}

// ask gives them back, to be taken again.
func (d *Driver) ask(s movedAddresses) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range s {
		d.gone[k] = true
	}
}

// between tells whether a connection's ends are not who they were.
func (s movedAddresses) between(k connKey, c conn) bool {
	other := func(ip addr, hand uint32) bool {
		now, ok := s[hostKey{k.Domain, ip}]
		return ok && hand != 0 && hand != now
	}
	return other(k.Lo, c.LoHand) || other(k.Hi, c.HiHand)
}
