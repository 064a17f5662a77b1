package control

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// AddressOwnerView is the View's part that says what has an address outside of networks:
// the ranges of services' addresses, the load balancers' pool, and what is reserved.
type AddressOwnerView struct {
	kubernetes *KubernetesView
	hosts      *HostView
	networks   *NetworkView

	mu            *sync.RWMutex // the View's
	serviceRanges model.ServiceRanges
	balancedAddrs *balanced
	reserved      map[netip.Addr]string // by Reserve; of no store
}

func newAddressOwnerView(mu *sync.RWMutex, kubernetes *KubernetesView, hosts *HostView, networks *NetworkView) *AddressOwnerView {
	ov := &AddressOwnerView{mu: mu, kubernetes: kubernetes, hosts: hosts, networks: networks}
	ov.reset()
	return ov
}

func (ov *AddressOwnerView) reset() {
	ov.balancedAddrs = &balanced{by: map[netip.Addr]model.ClusterServiceKey{}, of: index[model.ClusterServiceKey, netip.Addr]{}}
	ov.serviceRanges = model.ServiceRanges{}
}

// BalancedAddrs returns the addresses of the load balancers' pool that a service has;
// sorted.
func (ov *AddressOwnerView) BalancedAddrs(k model.ClusterServiceKey) []netip.Addr {
	return read(ov.mu, func() []netip.Addr {
		var out []netip.Addr
		for a := range ov.balancedAddrs.of[k] {
			out = append(out, a)
		}
		slices.SortFunc(out, netip.Addr.Compare)
		return out
	})
}

// BalancedServices returns the services that have addresses of the pool, in no sequence.
func (ov *AddressOwnerView) BalancedServices() []model.ClusterServiceKey {
	return read(ov.mu, func() []model.ClusterServiceKey {
		var out []model.ClusterServiceKey
		for k := range ov.balancedAddrs.of {
			out = append(out, k)
		}
		return out
	})
}

// lastBalanced returns the address of a family that was tried last.
func (ov *AddressOwnerView) lastBalanced(v6 bool) netip.Addr {
	return read(ov.mu, func() netip.Addr { return ov.balancedAddrs.last[family(v6)] })
}

// tryBalanced notes an address as the last one that was tried, and reports whether a
// service has it.
func (ov *AddressOwnerView) tryBalanced(a netip.Addr) (taken bool) {
	ov.mu.Lock()
	defer ov.mu.Unlock()
	_, taken = ov.balancedAddrs.by[a]
	ov.balancedAddrs.last[family(a.Is6())] = a
	return taken
}

func (ov *AddressOwnerView) enterBalanced(k tables.BalancedKey, row *tables.Balanced) {
	b := ov.balancedAddrs
	if old, had := b.by[k.Addr]; had {
		b.of.remove(old, k.Addr)
		delete(b.by, k.Addr)
	}
	if row != nil {
		b.by[k.Addr] = row.Service
		b.of.add(row.Service, k.Addr)
	}
}

// ServiceRanges returns the ranges of the orchestrator's services' addresses.
func (ov *AddressOwnerView) ServiceRanges() model.ServiceRanges {
	return read(ov.mu, func() model.ServiceRanges { return ov.serviceRanges })
}

func (ov *AddressOwnerView) reserve(at map[netip.Addr]string) {
	ov.mu.Lock()
	defer ov.mu.Unlock()
	if ov.reserved == nil {
		ov.reserved = map[netip.Addr]string{}
	}
	maps.Copy(ov.reserved, at)
}

// reservation says in words what has an address by Reserve; empty = nothing.
func (ov *AddressOwnerView) reservation(a netip.Addr) string {
	return read(ov.mu, func() string { return ov.reserved[a] })
}

// reservedAddresses returns the addresses of Reserve.
func (ov *AddressOwnerView) reservedAddresses() map[netip.Addr]string {
	return read(ov.mu, func() map[netip.Addr]string { return maps.Clone(ov.reserved) })
}

// DescribeOwner says in words whose an address is, of networks, nodes of the
// orchestrator, hosts and what is reserved; empty = nothing has it.
func (ov *AddressOwnerView) DescribeOwner(a netip.Addr) string {
	return read(ov.mu, func() string {
		if whose := ov.reserved[a]; whose != "" && !slices.ContainsFunc(ov.serviceRanges.Ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return whose // not where a service stands before it
		}
		if members := ov.kubernetes.nodesAt[a]; len(members) > 0 {
			return fmt.Sprintf("is an address of node %s", slices.Min(slices.Collect(maps.Keys(members))))
		}
		for _, h := range ov.hosts.hostRows.listed("") {
			if h.VTEP == a || h.Control == a {
				return fmt.Sprintf("is the address of host %s", h.Name)
			}
		}
		for _, n := range ov.networks.networkRows.listed("") {
			if n.Subnet.Contains(a) || n.Subnet6.Contains(a) {
				return fmt.Sprintf("lies in network %s", n.Key)
			}
		}
		return ""
	})
}

// DescribeServiceOwner says in words which service of the orchestrator has an address as
// cluster address, or in which range of those it lies; empty = none.
func (ov *AddressOwnerView) DescribeServiceOwner(a netip.Addr) string {
	return read(ov.mu, func() string {
		if members := ov.kubernetes.servicesAt[a]; len(members) > 0 {
			return fmt.Sprintf("is the cluster address of service %s", sorted(members, ov.kubernetes.clusterServiceRows.all, ov.kubernetes.clusterServiceRows.less)[0].Key.Name)
		}
		for _, p := range ov.serviceRanges.Ranges {
			if p.Contains(a) {
				return fmt.Sprintf("lies in the services' range %s", p)
			}
		}
		return ""
	})
}

// DescribeFrontendOwner says in words which other service of the orchestrator than k has an address:
// from the load balancers' pool, or, unless k has it too, as one outside the cluster by one
// of k's ports; empty = none.
func (ov *AddressOwnerView) DescribeFrontendOwner(k model.ClusterServiceKey, a netip.Addr, ports []model.ServicePort) string {
	return read(ov.mu, func() string {
		if other, given := ov.balancedAddrs.by[a]; given && other != k {
			return fmt.Sprintf("is the load balancer's address of service %s", other)
		}
		rows := ov.kubernetes.clusterServiceRows
		members := ov.kubernetes.frontendsAt[a]
		if _, has := members[k]; has {
			return ""
		}
		for _, other := range sorted(members, rows.all, rows.less) {
			if whose := other.DescribeFrontend(ports); whose != "" {
				return whose
			}
		}
		return ""
	})
}

// balanced are the addresses of load balancers that services of the orchestrator have.
type balanced struct {
	by map[netip.Addr]model.ClusterServiceKey
	of index[model.ClusterServiceKey, netip.Addr]
	// last is the address of each family that was given out last: the next search begins
	// behind it, so that what was freed a moment ago is not given to another service.
	last [2]netip.Addr
}
