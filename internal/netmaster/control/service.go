package control

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Services changes load-balanced services. It has no state of its own.
type Services struct {
	commits     *Committer
	serviceView *ServiceView
}

var _ = register[model.ServiceKey](kind{
	name:      "serviceLB",
	empty:     none(tables.LoadBalancers, tables.LoadBalancersOf, "load-balanced services", func(x model.Service) string { return x.Key.Name }),
	reference: "service", usedBy: "it is used by load-balanced services",
})

func lessService(a, b model.ServiceKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) }

// ChangeService creates a load-balanced service, with the address that it asks
// for or a free one of its network, or changes the selectors, the ports and the
// addresses of one: one of each family that the network has. Addrs of s are ignored; where
// an existing service asks for no address, it has what it had. The network cannot change:
// model.ErrConflict, and nothing has changed (known fault 24).
func (ss *Services) ChangeService(valid model.Valid[model.Service]) Change {
	s := valid.Value()
	s.Addrs = nil
	ch := changeOf(rankMember, tables.LoadBalancers, s.Key, valid, func(ctx context.Context, tx store.Tx, cl *allocator) error {
		return ss.putService(ctx, tx, cl, s)
	})
	return ch
}

func (ss *Services) putService(ctx context.Context, tx store.Tx, cl *allocator, s model.Service) error {
	keys := []string{
		tables.Tenants.Key(s.Key.Tenant), tables.LoadBalancers.Key(s.Key), tables.Networks.Key(s.Network),
		tables.GroupPools.Key(tables.PoolsKey{Network: s.Network}),
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	if _, err := tables.Tenants.Get(tx, s.Key.Tenant); err != nil {
		return err
	}
	old, err := tables.LoadBalancers.Find(tx, s.Key)
	if err != nil {
		return err
	}
	if old.Exists() && s.Network != old.Value.Network {
		return immutable("networkName", old.Value.Network.Name, s.Network.Name)
	}
	if old.Exists() {
		s.Addrs = old.Value.Addrs
		if !s.ReqAddr.IsValid() && !s.ReqAddr6.IsValid() {
			s.ReqAddr, s.ReqAddr6 = old.Value.ReqAddr, old.Value.ReqAddr6
		}
	}
	if err := ss.allocateAddrs(ctx, tx, cl, &s); err != nil {
		return err
	}
	if old.Exists() && old.Value.Equal(s) {
		return nil
	}
	if err := ss.serviceView.checkServiceLimits(s, cl); err != nil {
		return err
	}
	if !old.Exists() {
		if err := ss.serviceView.checkNameFree(tx, s.Key, cl); err != nil {
			return err
		}
		if err := addReference(tx, tables.TargetNetwork(s.Network), "service", s.Key.String()); err != nil {
			return err
		}
	}
	return tables.LoadBalancers.Put(tx, s)
}

// allocateAddrs gives a service an address of each family that its network has: the
// one that it asks for instead of the one that it has, if any.
func (ss *Services) allocateAddrs(ctx context.Context, tx store.Tx, cl *allocator, s *model.Service) error {
	n, pools, err := networkForAddress(tx, s.Network, "")
	if err != nil {
		return err
	}
	v4, v6 := s.AddrsByFamily()
	want4, want6 := s.RequestedAddrs()
	for _, f := range []struct {
		field  string
		subnet netip.Prefix
		has    *netip.Addr
		want   netip.Addr
		v6     bool
	}{{"ipAddress", n.Subnet, &v4, want4, false}, {"ipv6Address", n.Subnet6, &v6, want6, true}} {
		former := *f.has
		if former.IsValid() && (!f.want.IsValid() || f.want == former) {
			continue
		}
		if f.v6 && s.ReqAddr.Is6() {
			f.field = "ipAddress"
		}
		if *f.has, err = cl.takeAddr(ctx, tx, n, pools, tables.Address{Service: s.Key.Name}, "", "", f.field, f.subnet, f.want, f.v6); err != nil {
			return err
		}
		if former.IsValid() {
			tables.Addresses.Delete(tx, tables.AddressKey{Network: n.Key, Addr: former})
		}
	}
	s.SetAddrs(v4, v6)
	return nil
}

// DeleteService deletes a load-balanced service and frees its addresses.
func DeleteService(k model.ServiceKey) Deletion {
	return inOne(fmt.Sprintf("delete load-balanced service %q", k), func(tx store.Tx, _ Actor) error {
		s, err := tables.LoadBalancers.Get(tx, k)
		if err != nil {
			return err
		}
		for _, a := range s.Addrs {
			tables.Addresses.Delete(tx, tables.AddressKey{Network: s.Network, Addr: a})
		}
		removeReference(tx, tables.TargetNetwork(s.Network), "service", k.String())
		tables.LoadBalancers.Delete(tx, k)
		return nil
	})
}
