package control

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// AddressView is the View's part with allocated addresses and numbers, and with the ones
// that use-cases of this process are about to allocate.
type AddressView struct {
	networks *NetworkView
	groups   *GroupView
	settings *SettingsView
	now      func() time.Time

	mu                  *sync.RWMutex // the View's
	spaces              map[model.NetworkKey]*space
	pools               map[model.NetworkKey]tables.Pools
	numbers             map[tables.NumberKind]*numbers
	settling            []pendingRelease
	expiredReservations reservationTimes // lists do not reset it
}

func newAddressView(mu *sync.RWMutex, networks *NetworkView, groups *GroupView, settings *SettingsView) *AddressView {
	began := time.Now()
	av := &AddressView{mu: mu, networks: networks, groups: groups, settings: settings, now: time.Now, expiredReservations: newReservationTimes(0, func() time.Duration { return time.Since(began) })}
	av.reset()
	return av
}

func (av *AddressView) reset() {
	av.pools = map[model.NetworkKey]tables.Pools{}
	av.spaces = map[model.NetworkKey]*space{}
	av.numbers = map[tables.NumberKind]*numbers{}
	for _, kind := range []tables.NumberKind{tables.NumberVLAN, tables.NumberVNI, tables.NumberNetwork, tables.NumberIdentity, tables.NumberRouter} {
		av.numbers[kind] = newNumbers()
	}
}

// reservedFor returns of the addresses that a request can get how many its host has reserved,
// how many are free, and how many there are. Without reservations of the host the free ones
// are not counted, and are 0.
func (av *AddressView) reservedFor(r AddressRequest, n model.Network) (has, free, size uint64) {
	av.mu.Lock()
	defer av.mu.Unlock()
	ranges, _ := allowed(n, r.IPv6, av.pools[n.Key].Groups, r.Group)
	size = ranges.Size()
	s := av.space(n.Key)
	for a := range s.reserved[r.Host] {
		if a.Is6() == r.IPv6 && ranges.Contains(a) {
			has++
		}
	}
	if s.build(n); has == 0 || s.family(r.IPv6) == nil {
		return has, 0, size
	}
	free = size
	for _, x := range ranges {
		free -= min(free, s.family(r.IPv6).Used(x).Size())
	}
	return has, free, size
}

// expired reports whether an address is kept by a reservation that has run out.
func (av *AddressView) expired(a tables.Address) bool {
	return read(av.mu, func() bool { return av.expiredLocked(a) })
}

func (av *AddressView) expiredLocked(a tables.Address) bool {
	if a.Reservation == nil {
		return false
	}
	if over, known := av.expiredReservations.isExpired(a); known {
		return over
	}
	return !av.now().Before(a.Reservation.Expires)
}

func (av *AddressView) ownerOf(k tables.AddressKey) (tables.Address, error) {
	if s := av.spaces[k.Network]; s != nil {
		if o, there := s.owners[k.Addr]; there {
			return o.Address, nil
		}
	}
	return tables.Address{}, model.Errorf(model.ErrNotFound, "address %s of network %q is not allocated", k.Addr, k.Network)
}

// poolsOf returns the pools of a network's groups; they must not be changed.
func (av *AddressView) poolsOf(k model.NetworkKey) map[model.GroupName]model.AddrRange {
	return read(av.mu, func() map[model.GroupName]model.AddrRange { return av.pools[k].Groups })
}

// Addresses returns the addresses of a network that endpoints and reservations
// hold, in order.
func (av *AddressView) Addresses(k model.NetworkKey) []netip.Addr {
	return read(av.mu, func() []netip.Addr {
		s := av.spaces[k]
		if s == nil {
			return nil
		}
		return slices.SortedFunc(maps.Keys(s.owners), netip.Addr.Compare)
	})
}

func (av *AddressView) space(k model.NetworkKey) *space {
	s := av.spaces[k]
	if s == nil {
		s = &space{owners: map[netip.Addr]owned{}, pending: map[netip.Addr]int{}, reserved: map[model.HostName]map[netip.Addr]struct{}{}}
		av.spaces[k] = s
	}
	return s
}

// dropSpace forgets the space of a network that has neither rows nor holds.
func (av *AddressView) dropSpace(k model.NetworkKey) {
	s := av.spaces[k]
	if _, exists := av.networks.networkRows.all[k]; !exists && s != nil && len(s.owners) == 0 && len(s.pending) == 0 {
		delete(av.spaces, k)
	}
}

// enterAddress enters who has an address; nil = nothing has it.
func (av *AddressView) enterAddress(ch tables.Change) {
	k := ch.Key.(tables.AddressKey) //nolint:forcetypeassert // the caller knows it
	a := value[tables.Address](ch)
	av.space(k.Network).enter(k.Addr, a, ch.Create)
	av.expiredReservations.note(k, a, av.now())
	if a == nil {
		av.dropSpace(k.Network)
	}
}

func (av *AddressView) enterPools(k tables.PoolsKey, p *tables.Pools) {
	if p != nil {
		av.pools[k.Network] = *p
	} else {
		delete(av.pools, k.Network)
	}
}

func (av *AddressView) enterNumber(k tables.NumberKey, used bool) {
	if n := av.numbers[k.Kind]; n != nil {
		n.enter(k.Number, used)
	}
}

func (av *AddressView) enterCursor(k tables.CursorKey, c *tables.Cursor) {
	if n := av.numbers[k.Kind]; c != nil && n != nil {
		n.SetCursor(c.Last)
	}
}

// enterAddresses enters a change of an address, of a network's pools, of a number or of where
// the search for one goes on.
func (av *AddressView) enterAddresses(ch tables.Change) {
	switch k := ch.Key.(type) {
	case tables.AddressKey:
		av.enterAddress(ch)
	case tables.PoolsKey:
		av.enterPools(k, value[tables.Pools](ch))
	case tables.NumberKey:
		av.enterNumber(k, !ch.Deleted())
	case tables.CursorKey:
		av.enterCursor(k, value[tables.Cursor](ch))
	}
}
