package control

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Services of an orchestrator: their rows belong to it, and its keeper alone writes
// them, as the leader who has the fence.

// ClusterServices returns the services of the orchestrator.
func (kv *KubernetesView) ClusterServices() []model.ClusterService {
	return kv.clusterServiceRows.list("")
}

// ClusterService finds a service of the orchestrator.
func (kv *KubernetesView) ClusterService(k model.ClusterServiceKey) (model.ClusterService, bool) {
	return kv.clusterServiceRows.find(k)
}

// ServiceSlices returns the backends of all services of the orchestrator.
func (kv *KubernetesView) ServiceSlices() []model.ServiceSlice { return kv.serviceSliceRows.list("") }

// ServiceSlice finds some of a service's backends.
func (kv *KubernetesView) ServiceSlice(k model.ServiceSliceKey) (model.ServiceSlice, bool) {
	return kv.serviceSliceRows.find(k)
}

// SlicesOf returns the backends of a service of the orchestrator.
func (kv *KubernetesView) SlicesOf(k model.ClusterServiceKey) []model.ServiceSlice {
	return kv.serviceSliceRows.those(func() map[model.ServiceSliceKey]struct{} { return kv.slicesOfService[k] })
}

// ClusterNodes returns the nodes of the orchestrator.
func (kv *KubernetesView) ClusterNodes() []model.ClusterNode { return kv.clusterNodeRows.list("") }

// ClusterNode finds a node of the orchestrator.
func (kv *KubernetesView) ClusterNode(k model.NodeName) (model.ClusterNode, bool) {
	return kv.clusterNodeRows.find(k)
}

// ServiceRanges returns the ranges of the orchestrator's services' addresses.
func (ov *AddressOwnerView) ServiceRanges() model.ServiceRanges {
	return read(ov.mu, func() model.ServiceRanges { return ov.serviceRanges })
}

// Reserve has WhoseAddress say of addresses whose they are, which no row of the store
// tells, as "is the address of ...".
func (ks *Kubernetes) Reserve(at map[netip.Addr]string) {
	ks.ownerView.reserve(at)
}

func (ov *AddressOwnerView) reserve(at map[netip.Addr]string) {
	ov.mu.Lock()
	defer ov.mu.Unlock()
	if ov.reserved == nil {
		ov.reserved = map[netip.Addr]string{}
	}
	maps.Copy(ov.reserved, at)
}

// reservation says whose an address is by Reserve; empty = nobody's.
func (ov *AddressOwnerView) reservation(a netip.Addr) string {
	return read(ov.mu, func() string { return ov.reserved[a] })
}

// reservedAddresses returns the addresses of Reserve.
func (ov *AddressOwnerView) reservedAddresses() map[netip.Addr]string {
	return read(ov.mu, func() map[netip.Addr]string { return maps.Clone(ov.reserved) })
}

// WhoseAddress says in words whose an address is, of networks, nodes of the
// orchestrator, hosts and what is reserved; empty = nobody's.
func (ov *AddressOwnerView) WhoseAddress(a netip.Addr) string {
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

// WhoseServiceAddress says in words which service of the orchestrator has an address as
// cluster address, or in which range of those it lies; empty = none.
func (ov *AddressOwnerView) WhoseServiceAddress(a netip.Addr) string {
	return read(ov.mu, func() string {
		if members := ov.kubernetes.servicesAt[a]; len(members) > 0 {
			return fmt.Sprintf("is the cluster address of service %s", sorted(members, ov.kubernetes.clusterServiceRows.all, ov.kubernetes.clusterServiceRows.less)[0].Key)
		}
		for _, p := range ov.serviceRanges.Ranges {
			if p.Contains(a) {
				return fmt.Sprintf("lies in the services' range %s", p)
			}
		}
		return ""
	})
}

// WhoseFront says in words which other service of the orchestrator than k has an address:
// from the load balancers' pool, or, unless k has it too, as one outside the cluster by one
// of k's ports; empty = none.
func (ov *AddressOwnerView) WhoseFront(k model.ClusterServiceKey, a netip.Addr, ports []model.ClusterPort) string {
	return read(ov.mu, func() string {
		if other, given := ov.balancedAddrs.by[a]; given && other != k {
			return fmt.Sprintf("is the load balancer's address of service %s", other)
		}
		rows := ov.kubernetes.clusterServiceRows
		members := ov.kubernetes.frontedAt[a]
		if _, has := members[k]; has {
			return ""
		}
		for _, other := range sorted(members, rows.all, rows.less) {
			if whose := other.WhoseFront(ports); whose != "" {
				return whose
			}
		}
		return ""
	})
}

// CountServices returns how many services there are, the orchestrator's and
// load-balanced ones, and how many pairs of address and port these have.
func (sv *ServiceView) CountServices() (services, fronts int) {
	sv.mu.RLock()
	defer sv.mu.RUnlock()
	return len(sv.serviceRows.all) + len(sv.kubernetes.clusterServiceRows.all), sv.serviceFronts + sv.kubernetes.clusterFronts
}

// NetworksChanged returns what is closed when the next network comes or goes.
func (ns *Networks) NetworksChanged() <-chan struct{} {
	return ns.networkView.networksCame.Next()
}

// outsideServices refuses a subnet that overlaps a range of the orchestrator's services.
func outsideServices(tx store.Tx, field string, p netip.Prefix) error {
	row, err := tables.ServiceRanges.Find(tx, tables.ServiceRangesKey{})
	if err != nil {
		return err
	}
	if r, overlaps := row.Value.Overlapping(p); overlaps {
		return model.Errorf(model.ErrConflict, "%s %q: overlaps %s, from which Kubernetes gives addresses to services; choose another subnet", field, p, r)
	}
	return nil
}

// ClusterRows are rows of an orchestrator's services to be written, and to be deleted.
type ClusterRows struct {
	Services []model.Valid[model.ClusterService]
	Slices   []model.Valid[model.ServiceSlice]
	Nodes    []model.Valid[model.ClusterNode]

	NoServices []model.ClusterServiceKey
	NoSlices   []model.ServiceSliceKey
	NoNodes    []model.NodeName
}

// PutClusterRows writes and deletes rows of an orchestrator's services in one commit,
// for the leader, who has the fence. What is there as it is to be is not written.
func (ks *Kubernetes) PutClusterRows(ctx context.Context, fence store.Fence, rows ClusterRows) error {
	_, err := ks.commits.update(ctx, "record services of Kubernetes", func(tx store.Tx) error {
		fence.Require(tx)
		if err := tx.Prefetch(rows.keys()...); err != nil {
			return err
		}
		for _, valid := range rows.Services {
			if err := putUnless(tx, tables.ClusterServices, valid, model.ClusterService.Equal); err != nil {
				return err
			}
		}
		for _, valid := range rows.Slices {
			if err := putUnless(tx, tables.ServiceSlices, valid, model.ServiceSlice.Equal); err != nil {
				return err
			}
		}
		for _, valid := range rows.Nodes {
			if err := putUnless(tx, tables.ClusterNodes, valid, model.ClusterNode.Equal); err != nil {
				return err
			}
		}
		for _, k := range rows.NoServices {
			tables.ClusterServices.Delete(tx, k)
		}
		for _, k := range rows.NoSlices {
			tables.ServiceSlices.Delete(tx, k)
		}
		for _, k := range rows.NoNodes {
			tables.ClusterNodes.Delete(tx, k)
		}
		return nil
	})
	return err
}

func (r ClusterRows) keys() (keys []string) {
	for _, s := range r.Services {
		keys = append(keys, tables.ClusterServices.Key(s.Value().Key))
	}
	for _, s := range r.Slices {
		keys = append(keys, tables.ServiceSlices.Key(s.Value().Key))
	}
	for _, n := range r.Nodes {
		keys = append(keys, tables.ClusterNodes.Key(n.Value().Name))
	}
	return keys
}

// putUnless writes a row, unless there is an equal one.
func putUnless[K comparable, V model.Validator](tx store.Tx, t *tables.Table[K, V], valid model.Valid[V], equal func(a, b V) bool) error {
	if err := valid.Err(); err != nil {
		return err
	}
	old, err := t.Find(tx, t.KeyOf(valid.Value()))
	if err != nil || old.Exists() && equal(old.Value, valid.Value()) {
		return err
	}
	return t.Put(tx, valid.Value())
}

// PutServiceRanges records the ranges of the orchestrator's services' addresses, for
// the leader, who has the fence. Networks that overlap one stay.
func (ks *Kubernetes) PutServiceRanges(ctx context.Context, fence store.Fence, valid model.Valid[model.ServiceRanges]) error {
	_, err := ks.commits.update(ctx, "record the ranges of services' addresses", func(tx store.Tx) error {
		fence.Require(tx)
		return putUnless(tx, tables.ServiceRanges, valid, func(a, b model.ServiceRanges) bool { return slices.Equal(a.Ranges, b.Ranges) })
	})
	return err
}

func (kv *KubernetesView) enterClusterService(ch tables.Change) {
	k, old, now := kv.clusterServiceRows.enter(ch)
	if old != nil {
		kv.clusterFronts -= old.Fronts()
	}
	if now != nil {
		kv.clusterFronts += now.Fronts()
	}
	for _, s := range []*model.ClusterService{old, now} {
		if s == nil {
			continue
		}
		for _, a := range s.Addrs {
			kv.servicesAt.put(a, k, s == now)
		}
		for _, a := range slices.Concat(s.Balanced, s.External) {
			kv.frontedAt.put(a, k, s == now)
		}
	}
}

func (kv *KubernetesView) enterServiceSlice(ch tables.Change) {
	k, old, now := kv.serviceSliceRows.enter(ch)
	if old != nil {
		kv.slicesOfService.put(old.ServiceKey(), k, false)
	}
	if now != nil {
		kv.slicesOfService.put(now.ServiceKey(), k, true)
	}
}

func (kv *KubernetesView) enterClusterNode(ch tables.Change) {
	k, old, now := kv.clusterNodeRows.enter(ch)
	for _, n := range []*model.ClusterNode{old, now} {
		for i := 0; n != nil && i < len(n.Addrs); i++ {
			kv.nodesAt.put(n.Addrs[i], k, n == now)
		}
	}
}

// enterKubernetes enters a change of a service, of its backends or of a node.
func (kv *KubernetesView) enterKubernetes(ch tables.Change) {
	switch ch.Key.(type) {
	case model.ClusterServiceKey:
		kv.enterClusterService(ch)
	case model.ServiceSliceKey:
		kv.enterServiceSlice(ch)
	case model.NodeName:
		kv.enterClusterNode(ch)
	}
}
