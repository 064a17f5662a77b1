package control

import (
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/ipam"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// claim holds addresses and numbers in this process while a use-case tries to
// commit them, so that its neighbours choose others. Another process may still
// have chosen the same: then the row exists, and the next candidate is tried.
// When the transaction runs again it tries the candidates that it has first.
type claim struct {
	c       *Controller
	addrs   []store.AddressKey
	numbers []store.NumberKey
	tried   map[any]bool // in this run
}

// settling is a claim whose commit the view has to reach before it may go.
type settling struct {
	rev   store.Revision
	claim *claim
}

func (c *Controller) claim() *claim { return &claim{c: c, tried: map[any]bool{}} }

// rewind begins a run of the transaction.
func (cl *claim) rewind() { clear(cl.tried) }

// addr holds the next free address in allowed; false when there is none.
func (cl *claim) addr(n model.Network, v6 bool, cursor string, allowed ipam.Ranges) (netip.Addr, bool) {
	for _, k := range cl.addrs {
		if k.Network == n.Key && k.Addr.Is6() == v6 && !cl.tried[k] && allowed.Contains(k.Addr) {
			cl.tried[k] = true
			return k.Addr, true
		}
	}
	v := cl.c.view
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.space(n.Key)
	s.build(n)
	sp := s.family(v6)
	if sp == nil {
		return netip.Addr{}, false
	}
	a, ok := sp.Next(cursor, allowed)
	if !ok {
		return netip.Addr{}, false
	}
	s.held[a]++
	s.mark(a)
	k := store.AddressKey{Network: n.Key, Addr: a}
	cl.addrs = append(cl.addrs, k)
	cl.tried[k] = true
	return a, true
}

// number holds the next free number in [lo, hi]; false when there is none.
func (cl *claim) number(kind store.NumberKind, lo, hi uint32) (uint32, bool) {
	for _, k := range cl.numbers {
		if k.Kind == kind && lo <= k.Number && k.Number <= hi && !cl.tried[k] {
			cl.tried[k] = true
			return k.Number, true
		}
	}
	v := cl.c.view
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.numbers[kind]
	x, ok := n.Next(lo, hi)
	if !ok {
		return 0, false
	}
	n.held[x]++
	n.mark(x)
	k := store.NumberKey{Kind: kind, Number: x}
	cl.numbers = append(cl.numbers, k)
	cl.tried[k] = true
	return x, true
}

// freshAfter is how many candidates of others are skipped before the view is
// waited for.
const freshAfter = 8

// freeAddr finds an address in allowed that nobody has, by the store too, and
// leaves the look-up in the read set; model.ErrExhausted when there is none.
func (cl *claim) freeAddr(ctx context.Context, tx store.Tx, n model.Network, v6 bool, pools map[model.GroupName]model.AddrRange, group model.GroupName) (netip.Addr, error) {
	ranges, cursor := allowed(n, v6, pools, group)
	refreshed := false
	for skipped := 0; ; skipped++ {
		a, ok := cl.addr(n, v6, cursor, ranges)
		if !ok && refreshed {
			where := "network " + n.Key.String()
			if cursor != cursorAny {
				where = "the pool " + ranges.String() + " of endpoint group " + string(group)
			}
			return a, model.Errorf(model.ErrExhausted, "%s has no free address left", where)
		}
		if !ok || skipped >= freshAfter && !refreshed {
			// What was freed, or taken by others, may not have reached the view yet.
			if _, err := cl.c.follow.Fresh(ctx); err != nil {
				return a, err
			}
			refreshed = true
			if !ok {
				continue
			}
		}
		row, err := store.Addresses.Find(tx, store.AddressKey{Network: n.Key, Addr: a})
		if err != nil || !row.Exists() {
			return a, err
		}
	}
}

// freeNumber finds a number in [lo, hi] that nobody has and takes it for owner.
func (cl *claim) freeNumber(ctx context.Context, tx store.Tx, kind store.NumberKind, lo, hi uint32, owner string) (uint32, error) {
	refreshed := false
	for skipped := 0; ; skipped++ {
		x, ok := cl.number(kind, lo, hi)
		if !ok && refreshed {
			return 0, model.Errorf(model.ErrExhausted, "no %s between %d and %d is free", kind, lo, hi)
		}
		if !ok || skipped >= freshAfter && !refreshed {
			if _, err := cl.c.follow.Fresh(ctx); err != nil {
				return 0, err
			}
			refreshed = true
			if !ok {
				continue
			}
		}
		k := store.NumberKey{Kind: kind, Number: x}
		row, err := store.Numbers.Find(tx, k)
		if err != nil {
			return 0, err
		}
		if !row.Exists() {
			return x, store.Numbers.Create(tx, store.Number{NumberKey: k, Owner: owner})
		}
	}
}

// done gives everything back: at once when nothing was committed (rev 0), else
// when the view has reached the commit, which then says what is used.
func (cl *claim) done(rev store.Revision) {
	if len(cl.addrs)+len(cl.numbers) == 0 {
		return
	}
	v := cl.c.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if rev > v.rev {
		v.settling = append(v.settling, settling{rev, cl})
		return
	}
	v.free(cl)
}

func (v *View) free(cl *claim) {
	for _, k := range cl.addrs {
		s := v.space(k.Network)
		if s.held[k.Addr]--; s.held[k.Addr] <= 0 {
			delete(s.held, k.Addr)
		}
		s.mark(k.Addr)
		v.dropSpace(k.Network)
	}
	for _, k := range cl.numbers {
		n := v.numbers[k.Kind]
		if n.held[k.Number]--; n.held[k.Number] <= 0 {
			delete(n.held, k.Number)
		}
		n.mark(k.Number)
	}
	cl.addrs, cl.numbers = nil, nil
}

// settle frees the claims whose commits the view has reached.
func (v *View) settle() {
	rest := v.settling[:0]
	for _, s := range v.settling {
		if s.rev <= v.rev {
			v.free(s.claim)
		} else {
			rest = append(rest, s)
		}
	}
	clear(v.settling[len(rest):])
	v.settling = rest
}
