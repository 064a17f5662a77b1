package control

import (
	"context"
	"fmt"
	"maps"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// checkGateways refuses a network that would lead hosts away from a gateway, a name server
// or a router of BGP: one to which hosts have a route, or, of a tenant administrator, one
// whose containers could take such an address on the physical network. What hosts report
// limits tenant administrators only.
func (ns *Networks) checkGateways(ctx context.Context, cl *allocator, tx store.Tx, n model.Network) error {
	routers, err := tables.Bgps.List(tx, tables.BgpsScope)
	if err != nil {
		return err
	}
	needed := model.Lifelines{}
	if !cl.actor.admin {
		around, err := cl.underlayNetworks(ctx)
		if err != nil {
			return err
		}
		maps.Copy(needed, around.needed)
	}
	if ns.surroundings != nil {
		masters, err := netmastersAt(tx)
		if err != nil {
			return err
		}
		maps.Copy(needed, ns.surroundings(masters))
	}
	why := "hosts get a route to the network"
	if n.Encap == model.EncapVLAN {
		why = "its containers could answer for it on the physical network"
	}
	if err := refuseLifelines(cl.actor.Scope(), n, needed, "and "+why); err != nil {
		return err
	}
	for _, p := range subnetsOf(n) {
		for _, b := range routers {
			for _, q := range b.Networks() {
				if q.Overlaps(p) {
					return cl.actor.Scope().describeCollision("subnet", p, fmt.Sprintf("overlaps %s, where host %q runs BGP, and %s: choose another subnet", q, b.Host, why))
				}
			}
		}
	}
	return nil
}

// refuseLifelines refuses a network in which one of the addresses would be that hosts need,
// and says what would come of it.
func refuseLifelines(s Scope, n model.Network, needed model.Lifelines, why string) error {
	at, subnet := needed.In(n, nil)
	if !at.IsValid() {
		return nil
	}
	return s.describeCollision("subnet", subnet, fmt.Sprintf("contains the address %s of %s, %s: choose another subnet", at, needed[at].Name, why))
}

// hostUnderlay is what hosts report of the networks around them.
type hostUnderlay struct {
	needed model.Lifelines           // gateways and name servers
	vlans  map[uint32]model.HostName // of which hosts have interfaces, and one such host
}

// underlayNetworks reads what hosts report, once for a claim.
func (cl *allocator) underlayNetworks(ctx context.Context) (*hostUnderlay, error) {
	if cl.around != nil {
		return cl.around, nil
	}
	kvs, _, err := cl.c.store.Range(ctx, tables.HostStatusScope)
	if err != nil {
		return nil, fmt.Errorf("read the hosts' status: %w", err)
	}
	out := &hostUnderlay{model.Lifelines{}, map[uint32]model.HostName{}}
	for _, kv := range kvs {
		row, err := tables.HostStatuses.Decode(kv)
		if err != nil || row.Value.Surroundings == nil {
			continue
		}
		for _, at := range row.Value.Surroundings.Addresses {
			out.needed[at] = model.Lifeline{Name: fmt.Sprintf("a gateway or name server of host %q", row.Value.Host)}
		}
		for _, tag := range row.Value.Surroundings.VLANs {
			out.vlans[uint32(tag)] = row.Value.Host
		}
	}
	cl.around = out
	return out, nil
}

// freeVLAN takes the next free VLAN of which no host has an interface: it may be the network
// by which hosts reach each other.
func (cl *allocator) freeVLAN(ctx context.Context, tx store.Tx, within model.TagRange, owner string) (uint32, error) {
	around, err := cl.underlayNetworks(ctx)
	if err != nil {
		return 0, err
	}
	for {
		tag, err := cl.freeNumber(ctx, tx, tables.NumberVLAN, within.Lo, within.Hi, owner)
		if err != nil || around.vlans[tag] == "" {
			return tag, err
		}
		tables.Numbers.Delete(tx, tables.NumberKey{Kind: tables.NumberVLAN, Number: tag})
	}
}

// checkVLAN refuses a tenant administrator a VLAN of which a host has an interface.
func (cl *allocator) checkVLAN(ctx context.Context, tag uint32) error {
	if cl.actor.admin {
		return nil
	}
	around, err := cl.underlayNetworks(ctx)
	if err != nil || around.vlans[tag] == "" {
		return err
	}
	return cl.actor.Scope().describeCollision("pktTag", tag, fmt.Sprintf("host %q has an interface of this VLAN: choose another, or have a cluster administrator create the network", around.vlans[tag]))
}
