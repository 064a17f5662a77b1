package control

import (
	"context"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/ipam"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// allocator holds addresses and numbers in this process while a use-case tries to
// commit them, so that its neighbours choose others. Another process may still
// have chosen the same: then the row exists, and the next candidate is tried.
// When the transaction runs again it tries the candidates that it has first.
type allocator struct {
	c       *Committer
	actor   Actor // of the use-case
	commits bool  // the transaction is to be committed, and not only tried
	addrs   allocatedSet[tables.AddressKey]
	numbers allocatedSet[tables.NumberKey]
	around  *hostUnderlay // nil = not read yet
	// What this run adds of services.
	services, frontends int
	named               map[model.ServiceKey][]model.ServiceKey // new ones, by asAsked
}

// allocatedSet is what an allocator has taken: a long list's may be tens of thousands.
type allocatedSet[K any] struct {
	all  []K
	left []K // to be tried in this run before others, the next one last
}

func (h *allocatedSet[K]) rewind() {
	h.left = append(h.left[:0], h.all...)
	slices.Reverse(h.left)
}

// next returns the first that is left and matches.
func (h *allocatedSet[K]) next(matches func(K) bool) (k K, ok bool) {
	for i, k := range slices.Backward(h.left) {
		if matches(k) { // the last one always, when this run asks as the one before did
			h.left = slices.Delete(h.left, i, i+1)
			return k, true
		}
	}
	return k, false
}

// pendingRelease is an allocator whose commit the view has to reach before it may go.
type pendingRelease struct {
	rev       store.Revision
	allocator *allocator
}

func (c *Committer) newAllocator(a Actor) *allocator { return &allocator{c: c, actor: a} }

// rewind begins a run of the transaction.
func (cl *allocator) rewind() {
	cl.addrs.rewind()
	cl.numbers.rewind()
	cl.services, cl.frontends, cl.named = 0, 0, nil
}

// addr holds the next free address in allowed; false when there is none.
func (cl *allocator) addr(n model.Network, v6 bool, cursor string, allowed ipam.Ranges) (netip.Addr, bool) {
	if k, ok := cl.addrs.next(func(k tables.AddressKey) bool {
		return k.Network == n.Key && k.Addr.Is6() == v6 && allowed.Contains(k.Addr)
	}); ok {
		return k.Addr, true
	}
	v := cl.c.view
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.Addresses.space(n.Key)
	s.build(n)
	sp := s.family(v6)
	if sp == nil {
		return netip.Addr{}, false
	}
	a, ok := sp.Next(cursor, allowed)
	if !ok {
		return netip.Addr{}, false
	}
	s.pending[a]++
	s.mark(a)
	cl.addrs.all = append(cl.addrs.all, tables.AddressKey{Network: n.Key, Addr: a})
	return a, true
}

// retryAddress makes an address the next candidate again.
func (cl *allocator) retryAddress(k tables.AddressKey) { cl.addrs.left = append(cl.addrs.left, k) }

// number holds the next free number in [lo, hi]; false when there is none.
func (cl *allocator) number(kind tables.NumberKind, lo, hi uint32) (uint32, bool) {
	if k, ok := cl.numbers.next(func(k tables.NumberKey) bool {
		return k.Kind == kind && lo <= k.Number && k.Number <= hi
	}); ok {
		return k.Number, true
	}
	v := cl.c.view
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.Addresses.numbers[kind]
	x, ok := n.Next(lo, hi)
	if !ok {
		return 0, false
	}
	n.pending[x]++
	n.mark(x)
	cl.numbers.all = append(cl.numbers.all, tables.NumberKey{Kind: kind, Number: x})
	return x, true
}

// When the view lags behind other replicas, candidates turn out to be taken.
const (
	freshAfter = 8              // how many are skipped before the view is waited for
	maxSkipped = 8 * freshAfter // how many before the request gives up
)

// nextCandidate decides, after so many skipped candidates and with or without a next
// one, whether to look at it; it waits for the view where that may help.
// exhausted is the error when there is no next one.
func (cl *allocator) nextCandidate(ctx context.Context, skipped int, ok bool, refreshed *bool, exhausted func() error) (bool, error) {
	switch {
	case !ok && *refreshed:
		return false, exhausted()
	case skipped >= maxSkipped:
		return false, model.Errorf(model.ErrConflict, "others allocated %d candidates first; try again", skipped)
	case ok && (skipped == 0 || skipped%freshAfter != 0):
		return true, nil
	}
	// What was freed, or taken by others, may not have reached the view yet.
	_, err := cl.c.follow.Fresh(ctx)
	*refreshed = true
	return ok, err
}

// freeAddr finds an unused address in allowed, by the store too. If the address is taken
// before the commit, the transaction conflicts. model.ErrExhausted when there is none.
func (cl *allocator) freeAddr(ctx context.Context, tx store.Tx, n model.Network, v6 bool, pools map[model.GroupName]model.AddrRange, group model.GroupName) (netip.Addr, error) {
	ranges, cursor := allowed(n, v6, pools, group)
	exhausted := func() error {
		where := "network " + n.Key.String()
		if cursor != cursorAny {
			where = "the pool " + ranges.String() + " of endpoint group " + string(group)
		}
		return model.Errorf(model.ErrExhausted, "%s has no free address left", where)
	}
	refreshed := false
	for skipped := 0; ; {
		a, ok := cl.addr(n, v6, cursor, ranges)
		look, err := cl.nextCandidate(ctx, skipped, ok, &refreshed, exhausted)
		if err != nil {
			return netip.Addr{}, err
		}
		if !look {
			continue
		}
		row, err := tables.Addresses.Peek(tx, tables.AddressKey{Network: n.Key, Addr: a})
		if err != nil || !row.Exists() {
			return a, err
		}
		skipped++
	}
}

// freeNumber finds an unused number in [lo, hi] and takes it for owner.
func (cl *allocator) freeNumber(ctx context.Context, tx store.Tx, kind tables.NumberKind, lo, hi uint32, owner string) (uint32, error) {
	exhausted := func() error {
		return model.Errorf(model.ErrExhausted, "no %s between %d and %d is free", kind, lo, hi)
	}
	refreshed := false
	for skipped := 0; ; {
		x, ok := cl.number(kind, lo, hi)
		look, err := cl.nextCandidate(ctx, skipped, ok, &refreshed, exhausted)
		if err != nil {
			return 0, err
		}
		if !look {
			continue
		}
		k := tables.NumberKey{Kind: kind, Number: x}
		row, err := tables.Numbers.Peek(tx, k)
		if err != nil {
			return 0, err
		}
		if !row.Exists() {
			return x, tables.Numbers.Create(tx, tables.Number{NumberKey: k, Owner: owner})
		}
		skipped++
	}
}

// releaseAll gives everything back: at once when nothing was committed (rev 0), else
// when the view has reached the commit, which then says what is used.
func (cl *allocator) releaseAll(rev store.Revision) {
	if len(cl.addrs.all)+len(cl.numbers.all) == 0 {
		return
	}
	v := cl.c.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if rev > v.rev {
		v.Addresses.settling = append(v.Addresses.settling, pendingRelease{rev, cl})
		return
	}
	v.Addresses.free(cl)
}

func (av *AddressView) free(cl *allocator) {
	for _, k := range cl.addrs.all {
		s := av.space(k.Network)
		if s.pending[k.Addr]--; s.pending[k.Addr] <= 0 {
			delete(s.pending, k.Addr)
		}
		s.mark(k.Addr)
		av.dropSpace(k.Network)
	}
	for _, k := range cl.numbers.all {
		n := av.numbers[k.Kind]
		if n.pending[k.Number]--; n.pending[k.Number] <= 0 {
			delete(n.pending, k.Number)
		}
		n.mark(k.Number)
	}
	cl.addrs, cl.numbers = allocatedSet[tables.AddressKey]{}, allocatedSet[tables.NumberKey]{}
}

// settle frees the allocations whose commits the view has reached, which is at rev.
func (av *AddressView) settle(rev store.Revision) {
	rest := av.settling[:0]
	for _, s := range av.settling {
		if s.rev <= rev {
			av.free(s.allocator)
		} else {
			rest = append(rest, s)
		}
	}
	clear(av.settling[len(rest):])
	av.settling = rest
}
