package control

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Addresses reserves addresses of networks for endpoints that do not exist yet.
type Addresses struct {
	commits        *Committer
	networkView    *NetworkView
	addressView    *AddressView
	overQuota      atomic.Uint64 // requests of hosts that have reserved too many addresses
	reservationTTL time.Duration
}

// AddressRequest asks for an address before its endpoint exists, as Docker's
// IPAM and Mesos do.
type AddressRequest struct {
	Network   model.NetworkKey
	Group     model.GroupName // empty = none; its pool is used if it has one
	IPv6      bool            // otherwise IPv4
	Preferred netip.Addr      // invalid = any
	Host      model.HostName  // only an endpoint there may take the address; empty = any
	AnyHost   bool            // an endpoint of any host may take what Host has reserved
	Requester string          // for people
}

// AllocAddress reserves an address for Options.ReservationTTL. An endpoint
// created with it takes it over. A preferred address that somebody has is
// model.ErrConflict, one that cannot be used model.ErrInvalid.
func (as *Addresses) AllocAddress(ctx context.Context, a Actor, r AddressRequest) (netip.Addr, store.Revision, error) {
	if r.Preferred.IsValid() {
		r.IPv6 = r.Preferred.Is6()
	}
	if len(r.Requester) > model.MaxEndpointText {
		return netip.Addr{}, 0, model.InvalidField("Requester", r.Requester, fmt.Sprintf("must be at most %d characters", model.MaxEndpointText))
	}
	if n, known := as.networkView.Get(r.Network); known {
		if err := as.mayReserve(r, n); err != nil {
			return netip.Addr{}, 0, err
		}
	}
	var got netip.Addr
	cl := as.commits.newAllocator(a)
	rev, err := as.commits.update(ctx, a, fmt.Sprintf("allocate address on network %q", r.Network), func(tx store.Tx) error {
		cl.rewind()
		n, pools, err := networkForAddress(tx, r.Network, r.Group)
		if err != nil {
			return err
		}
		if got = r.Preferred; got.IsValid() {
			row, err := wantAddr(tx, n, pools, r.Group, "PreferredIPv4Address", got)
			if err != nil {
				return err
			}
			if row.Exists() && !as.addressView.expired(row.Value) {
				return model.Errorf(model.ErrConflict, "PreferredIPv4Address %q: %s", got, ownerText(row.Value))
			}
		} else if got, err = cl.freeAddr(ctx, tx, n, r.IPv6, pools, r.Group); err != nil {
			return err
		}
		return tables.Addresses.Put(tx, tables.Address{
			AddressKey: tables.AddressKey{Network: n.Key, Addr: got},
			Group:      r.Group,
			Reservation: &tables.Reservation{
				Host: r.Host, AnyHost: r.AnyHost, Requester: r.Requester,
				Expires: as.commits.now().Add(as.reservationTTL).UTC().Round(0),
			},
		})
	})
	cl.releaseAll(rev)
	return got, rev, err
}

// A host may reserve some addresses of a network, or of a group's pool, for endpoints that do
// not exist yet: an eighth, within these bounds. With AnyHost, as the manager of a swarm
// reserves, only the last bound counts. Any agent can claim to be a manager, so each host
// leaves at least as many addresses free as it has reserved.
const (
	minReserved    = 16
	maxReserved    = 256
	maxReservedAny = 4096
)

// mayReserve refuses another address to a host that has reserved its share. It looks at the
// view, so requests at the same moment may get a few more.
func (as *Addresses) mayReserve(r AddressRequest, n model.Network) error {
	if r.Host == "" {
		return nil
	}
	has, free, size := as.addressView.reservedFor(r, n)
	most := uint64(maxReservedAny)
	if !r.AnyHost {
		most = min(max(minReserved, size/8+1), maxReserved)
	}
	if has < min(most, max(free, 1)) {
		return nil
	}
	as.overQuota.Add(1)
	as.commits.log.Warn("a host gets no more addresses of a network: it has reserved its share without attaching endpoints", "host", string(r.Host), "network", n.Key.String(), "reserved", has)
	return model.Errorf(model.ErrExhausted, "host %q has %d addresses of network %q reserved without an endpoint, the limit, and %d are free: attach its containers, or release the addresses", r.Host, has, n.Key, free)
}

// OverQuota is how many addresses mayReserve has refused.
func (as *Addresses) OverQuota() uint64 { return as.overQuota.Load() }

// networkForAddress reads what decides about addresses into the read set: the
// network, its pools, and the group, if any, which must be on the network.
func networkForAddress(tx store.Tx, k model.NetworkKey, group model.GroupName) (n model.Network, pools map[model.GroupName]model.AddrRange, err error) {
	if n, err = tables.Networks.Get(tx, k); err != nil {
		return n, nil, err
	}
	if group != "" {
		g, err := tables.Groups.Get(tx, model.GroupKey{Tenant: k.Tenant, Name: group})
		if err != nil {
			return n, nil, err
		}
		if g.Network != k.Name {
			return n, nil, model.Errorf(model.ErrConflict, "endpoint group %q is on network %q, not on %q", g.Key, g.Network, k.Name)
		}
	}
	row, err := tables.GroupPools.Find(tx, tables.PoolsKey{Network: k})
	return n, row.Value.Groups, err
}

// wantAddr checks that an endpoint of a group may have an address, and reads
// who has it.
func wantAddr(tx store.Tx, n model.Network, pools map[model.GroupName]model.AddrRange, group model.GroupName, field string, a netip.Addr) (tables.Row[tables.Address], error) {
	subnet, gateway := n.Subnet, n.Gateway
	if a.Is6() {
		subnet, gateway = n.Subnet6, n.Gateway6
	}
	none := tables.Row[tables.Address]{}
	switch {
	case !subnet.IsValid():
		return none, model.InvalidField(field, a, fmt.Sprintf("must be empty: network %s has no such subnet", n.Key))
	case !subnet.Contains(a):
		return none, model.InvalidField(field, a, fmt.Sprintf("must lie inside the subnet %s", subnet))
	case a == gateway:
		return none, model.InvalidField(field, a, "must not be the gateway")
	case !model.HostRange(subnet).Contains(a):
		return none, model.InvalidField(field, a, fmt.Sprintf("must not be the network or broadcast address of %s", subnet))
	case a.Is4() && n.Range.IsValid() && !n.Range.Contains(a):
		return none, model.InvalidField(field, a, fmt.Sprintf("must lie inside the network's range %s", n.Range))
	}
	if pool, ok := pools[group]; ok && a.Is4() && !pool.Contains(a) {
		return none, model.InvalidField(field, a, fmt.Sprintf("must lie inside the pool %s of endpoint group %q", pool, group))
	}
	if other, ok := inOtherPool(pools, group, a); ok {
		return none, model.Errorf(model.ErrConflict, "%s %q: belongs to the pool of endpoint group %q", field, a, other)
	}
	return tables.Addresses.Find(tx, tables.AddressKey{Network: n.Key, Addr: a})
}

// ReleaseAddress gives a reserved address back. An address without
// a reservation is model.ErrNotFound, the address of an endpoint or a service model.ErrInUse.
func (as *Addresses) ReleaseAddress(ctx context.Context, by Actor, k model.NetworkKey, a netip.Addr) (store.Revision, error) {
	return as.commits.update(ctx, by, fmt.Sprintf("release address %s of network %q", a, k), func(tx store.Tx) error {
		ak := tables.AddressKey{Network: k, Addr: a}
		if err := tx.Prefetch(tables.Networks.Key(k), tables.Addresses.Key(ak)); err != nil {
			return err
		}
		if _, err := tables.Networks.Get(tx, k); err != nil {
			return err
		}
		row, err := tables.Addresses.Find(tx, ak)
		switch {
		case err != nil:
			return err
		case !row.Exists():
			return model.Errorf(model.ErrNotFound, "it is not allocated")
		case row.Value.Reservation == nil:
			return model.Errorf(model.ErrInUse, "%s", ownerText(row.Value))
		}
		if err := by.checkOwnHost("the reservation", row.Value.Reservation.Host); err != nil {
			return err
		}
		tables.Addresses.Delete(tx, ak)
		return nil
	})
}

// AddressHost returns the host for which an address is reserved, or that has its
// endpoint; "" = it is no host's own. A free one is model.ErrNotFound.
func (as *Addresses) AddressHost(ctx context.Context, k model.NetworkKey, a netip.Addr) (h model.HostName, err error) {
	v, err := as.commits.View(ctx)
	if err != nil {
		return "", err
	}
	return read(&v.mu, func() model.HostName {
		var owner tables.Address
		owner, err = v.Addresses.ownerOf(tables.AddressKey{Network: k, Addr: a})
		return v.Endpoints.hostOf(owner)
	}), err
}
