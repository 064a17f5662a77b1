package control

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Pool tells how much of what is given out is taken.
type Pool struct {
	Used, Size uint64
}

// Share returns the part that is taken, 0 to 1.
func (p Pool) Share() float64 {
	if p.Size == 0 {
		return 0
	}
	return float64(p.Used) / float64(p.Size)
}

// NetworkPool is the pool of a network's IPv4 addresses.
type NetworkPool struct {
	Network model.NetworkKey
	Pool
}

// TagPools returns the pools of VLAN ids and of VNIs.
func (av *AddressView) TagPools() (vlans, vnis Pool) {
	av.mu.RLock()
	defer av.mu.RUnlock()
	in := func(kind tables.NumberKind, r model.TagRange) Pool {
		return Pool{Used: uint64(av.numbers[kind].used.Len()), Size: uint64(r.Hi-r.Lo) + 1} //nolint:gosec // a length is not negative
	}
	g := av.settings.globalRows.all[tables.GlobalKey{}]
	return in(tables.NumberVLAN, g.VLANs), in(tables.NumberVNI, g.VXLANs)
}

// AddressPools returns the pools of all networks that have an IPv4 subnet, the
// fullest first. The gateway is not in them. IPv6 subnets are too large to fill.
func (av *AddressView) AddressPools() []NetworkPool {
	av.mu.RLock()
	defer av.mu.RUnlock()
	var out []NetworkPool
	for k, n := range av.networks.networkRows.all {
		if !n.Subnet.IsValid() {
			continue
		}
		usable := n.Range
		if !usable.IsValid() {
			usable = model.HostRange(n.Subnet)
		}
		within := func(a netip.Addr) bool {
			return a.Is4() && !a.Less(usable.First) && !usable.Last.Less(a) && a != n.Gateway
		}
		p := NetworkPool{Network: k}
		p.Size = uint64(number4(usable.Last)-number4(usable.First)) + 1
		if n.Gateway.IsValid() && !n.Gateway.Less(usable.First) && !usable.Last.Less(n.Gateway) {
			p.Size--
		}
		if s := av.spaces[k]; s != nil {
			for a := range s.owners {
				if within(a) {
					p.Used++
				}
			}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b NetworkPool) int {
		return cmp.Or(cmp.Compare(b.Share(), a.Share()), lessNetwork(a.Network, b.Network))
	})
	return out
}

func number4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}
