package control

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PodNetwork is the network that pods are on which name none.
var PodNetwork = model.NetworkKey{Tenant: model.DefaultTenant, Name: "default-net"}

// MakePodNetwork makes PodNetwork, native, with at most one subnet of each family,
// unless it is there; it is model.ErrConflict when that is another one.
func (c *Controller) MakePodNetwork(ctx context.Context, subnets []netip.Prefix) error {
	n := model.Network{Key: PodNetwork, Type: model.NetworkData, Encap: model.EncapVXLAN, Native: true}
	for _, p := range subnets {
		if p.Addr().Is4() {
			n.Subnet = p
		} else {
			n.Subnet6 = p
		}
	}
	valid, err := model.Check(n)
	if err == nil {
		_, err = c.Put(ctx, c.ChangeNetwork(valid))
	}
	if err != nil {
		return fmt.Errorf("make network %q: %w", n.Key, err)
	}
	return nil
}

// roomForNative refuses a native network in which an address of a host or of a service
// would be. Others of its kind are of the same tenant, whose subnets never overlap.
func (c *Controller) roomForNative(tx store.Tx, n model.Network) error {
	ranges, err := tables.ServiceRanges.Find(tx, tables.ServiceRangesKey{})
	if err != nil {
		return err
	}
	for _, p := range subnetsOf(n) {
		if r, overlaps := ranges.Value.Overlapping(p); overlaps {
			return model.Errorf(model.ErrConflict, "subnet %q: overlaps the range %s of service addresses; choose another subnet", p, r)
		}
	}
	return c.roomOnHosts(n, "a native network")
}

// roomOnHosts refuses a network to which hosts have a route, and in which an address of a
// host would be.
func (c *Controller) roomOnHosts(n model.Network, what string) error {
	for _, p := range subnetsOf(n) {
		for _, name := range c.view.HostNames() {
			h, _ := c.view.Host(name)
			for _, a := range []netip.Addr{h.Control, h.VTEP, h.IPv6} {
				if a.IsValid() && p.Contains(a.Unmap()) {
					return model.Errorf(model.ErrConflict, "subnet %q: holds the address %s of host %q, which %s must not: choose another subnet", p, a, name, what)
				}
			}
		}
	}
	return nil
}
