package control

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PodNetwork is the network that pods are on which name none.
var PodNetwork = model.NetworkKey{Tenant: model.DefaultTenant, Name: "default-net"}

// MakePodNetwork makes PodNetwork, native, with at most one subnet of each family,
// unless it is there; it is model.ErrConflict when that is another one.
func (ns *Networks) MakePodNetwork(ctx context.Context, a Actor, subnets []netip.Prefix) error {
	n := model.Network{Key: PodNetwork, Type: model.NetworkData, Encap: model.EncapVXLAN, Routed: true}
	for _, p := range subnets {
		if p.Addr().Is4() {
			n.Subnet = p
		} else {
			n.Subnet6 = p
		}
	}
	valid, err := model.Check(n)
	if err == nil {
		_, err = ns.commits.Put(ctx, a, ns.ChangeNetwork(valid))
	}
	if err != nil {
		return fmt.Errorf("make network %q: %w", n.Key, err)
	}
	return nil
}

// checkRoutedSubnet refuses a native network in which an address of a host or of a service
// would be. Others of its kind are of the same tenant, whose subnets never overlap.
func (ns *Networks) checkRoutedSubnet(ctx context.Context, cl *allocator, tx store.Tx, n model.Network) error {
	ranges, err := tables.ServiceRanges.Find(tx, tables.ServiceRangesKey{})
	if err != nil {
		return err
	}
	for _, p := range subnetsOf(n) {
		if r, overlaps := ranges.Value.Overlapping(p); overlaps {
			return model.Errorf(model.ErrConflict, "subnet %q: overlaps the range %s of service addresses; choose another subnet", p, r)
		}
	}
	return ns.checkGateways(ctx, cl, tx, n)
}

// checkHostAddresses refuses a network in which an address of the cluster's machines would be:
// its containers would not reach them, and hosts would not where they have a route to it.
func (ns *Networks) checkHostAddresses(s Scope, tx store.Tx, n model.Network) error {
	masters, err := netmastersAt(tx)
	if err != nil {
		return err
	}
	needed := model.Lifelines{}
	for a, whose := range ns.ownerView.reservedAddresses() {
		needed[a] = model.Lifeline{Name: strings.TrimPrefix(whose, "is the address of ")}
	}
	for _, a := range masters {
		needed[a] = model.Lifeline{Name: "a netmaster"}
	}
	for _, h := range ns.hostView.hostAddressRows.list("") {
		for _, a := range h.Added {
			needed[a.Unmap()] = model.Lifeline{Name: fmt.Sprintf("host %q", h.Host)}
		}
	}
	for _, h := range ns.hostView.List() {
		for _, a := range []netip.Addr{h.Control, h.VTEP, h.IPv6} {
			needed[a.Unmap()] = model.Lifeline{Name: fmt.Sprintf("host %q", h.Name)}
		}
	}
	return refuseLifelines(s, n, needed, "which its containers could not reach")
}
