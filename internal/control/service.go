package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func (c *Controller) putService(ctx context.Context, tx store.Tx, cl *claim, s model.Service) error {
	keys := []string{
		tables.Tenants.Key(s.Key.Tenant), tables.LoadBalancers.Key(s.Key), tables.Networks.Key(s.NetworkKey()),
		tables.GroupPools.Key(tables.PoolsKey{Network: s.NetworkKey()}),
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
		return immutable("networkName", old.Value.Network, s.Network)
	}
	if old.Exists() {
		s.VIP = old.Value.VIP
		if !s.ReqAddr.IsValid() {
			s.ReqAddr = old.Value.ReqAddr
		}
		if sameService(old.Value, s) {
			return nil
		}
	}
	if !s.VIP.IsValid() || s.ReqAddr.IsValid() && s.ReqAddr != s.VIP {
		if err := c.moveService(ctx, tx, cl, &s); err != nil {
			return err
		}
	}
	if !old.Exists() {
		if err := refer(tx, tables.TargetNetwork(s.NetworkKey()), "service", s.Key.String()); err != nil {
			return err
		}
	}
	return tables.LoadBalancers.Put(tx, s)
}

// moveService gives a service its address, instead of the one that it has, if any.
func (c *Controller) moveService(ctx context.Context, tx store.Tx, cl *claim, s *model.Service) error {
	n, pools, err := networkForAddress(tx, s.NetworkKey(), "")
	if err != nil {
		return err
	}
	former := s.VIP
	v6 := !n.Subnet.IsValid()
	subnet := n.Subnet
	if v6 {
		subnet = n.Subnet6
	}
	owner := tables.Address{Service: s.Key.Name}
	if s.VIP, err = c.takeAddr(ctx, tx, cl, n, pools, owner, "", "ipAddress", subnet, s.ReqAddr, v6); err != nil {
		return err
	}
	if former.IsValid() {
		tables.Addresses.Delete(tx, tables.AddressKey{Network: n.Key, Addr: former})
	}
	return nil
}

func sameService(a, b model.Service) bool {
	return a.ReqAddr == b.ReqAddr && a.VIP == b.VIP && slices.Equal(a.Selectors, b.Selectors) && slices.Equal(a.Ports, b.Ports)
}

// DeleteService deletes a load-balanced service and frees its address.
func (c *Controller) DeleteService(ctx context.Context, k model.ServiceKey) error {
	_, err := c.update(ctx, fmt.Sprintf("delete load-balanced service %q", k), func(tx store.Tx) error {
		s, err := tables.LoadBalancers.Get(tx, k)
		if err != nil {
			return err
		}
		tables.Addresses.Delete(tx, tables.AddressKey{Network: s.NetworkKey(), Addr: s.VIP})
		unrefer(tx, tables.TargetNetwork(s.NetworkKey()), "service", k.String())
		tables.LoadBalancers.Delete(tx, k)
		return nil
	})
	return err
}
