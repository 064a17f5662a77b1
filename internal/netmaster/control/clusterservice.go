package control

import (
	"cmp"
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

var (
	clusterServiceRows = newRowsPart[model.ClusterServiceKey, model.ClusterService](nil, func(a, b model.ClusterServiceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	serviceSliceRows = newRowsPart[model.ServiceSliceKey, model.ServiceSlice](nil, func(a, b model.ServiceSliceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	clusterNodeRows = newRowsPart[model.NodeName, model.ClusterNode](nil, cmp.Compare[model.NodeName])

	slicesOfService = newPart(func() index[model.ClusterServiceKey, model.ServiceSliceKey] {
		return index[model.ClusterServiceKey, model.ServiceSliceKey]{}
	})
	servicesAt    = newPart(func() index[netip.Addr, model.ClusterServiceKey] { return index[netip.Addr, model.ClusterServiceKey]{} })
	frontedAt     = newPart(func() index[netip.Addr, model.ClusterServiceKey] { return index[netip.Addr, model.ClusterServiceKey]{} })
	nodesAt       = newPart(func() index[netip.Addr, model.NodeName] { return index[netip.Addr, model.NodeName]{} })
	clusterFronts = newPart(func() *int { return new(int) }) // of all services of the orchestrator
	serviceRanges = newPart(func() *model.ServiceRanges { return new(model.ServiceRanges) })

	_ = register(clusterServiceRows, func(v *View, k model.ClusterServiceKey, old, now *model.ClusterService, _ store.Revision) {
		if old != nil {
			*clusterFronts.in(v) -= old.Fronts()
		}
		if now != nil {
			*clusterFronts.in(v) += now.Fronts()
		}
		for _, s := range []*model.ClusterService{old, now} {
			if s == nil {
				continue
			}
			for _, a := range s.Addrs {
				servicesAt.in(v).put(a, k, s == now)
			}
			for _, a := range slices.Concat(s.Balanced, s.External) {
				frontedAt.in(v).put(a, k, s == now)
			}
		}
	}, kind{})
	_ = register(serviceSliceRows, func(v *View, k model.ServiceSliceKey, old, now *model.ServiceSlice, _ store.Revision) {
		if old != nil {
			slicesOfService.in(v).put(old.ServiceKey(), k, false)
		}
		if now != nil {
			slicesOfService.in(v).put(now.ServiceKey(), k, true)
		}
	}, kind{})
	_ = register(clusterNodeRows, func(v *View, k model.NodeName, old, now *model.ClusterNode, _ store.Revision) {
		for _, n := range []*model.ClusterNode{old, now} {
			for i := 0; n != nil && i < len(n.Addrs); i++ {
				nodesAt.in(v).put(n.Addrs[i], k, n == now)
			}
		}
	}, kind{})
	_ = enter(tables.ServiceRangesKey{}, func(v *View, ch tables.Change) {
		*serviceRanges.in(v) = model.ServiceRanges{}
		if r := value[model.ServiceRanges](ch); r != nil {
			*serviceRanges.in(v) = *r
		}
	}, kind{})
)

// ClusterServices returns the services of the orchestrator.
func (v *View) ClusterServices() []model.ClusterService { return clusterServiceRows.list(v, "") }

// ClusterService finds a service of the orchestrator.
func (v *View) ClusterService(k model.ClusterServiceKey) (model.ClusterService, bool) {
	return clusterServiceRows.find(v, k)
}

// ServiceSlices returns the backends of all services of the orchestrator.
func (v *View) ServiceSlices() []model.ServiceSlice { return serviceSliceRows.list(v, "") }

// ServiceSlice finds some of a service's backends.
func (v *View) ServiceSlice(k model.ServiceSliceKey) (model.ServiceSlice, bool) {
	return serviceSliceRows.find(v, k)
}

// SlicesOf returns the backends of a service of the orchestrator.
func (v *View) SlicesOf(k model.ClusterServiceKey) []model.ServiceSlice {
	return serviceSliceRows.of(v, func() map[model.ServiceSliceKey]struct{} { return slicesOfService.in(v)[k] })
}

// ClusterNodes returns the nodes of the orchestrator.
func (v *View) ClusterNodes() []model.ClusterNode { return clusterNodeRows.list(v, "") }

// ClusterNode finds a node of the orchestrator.
func (v *View) ClusterNode(k model.NodeName) (model.ClusterNode, bool) {
	return clusterNodeRows.find(v, k)
}

// ServiceRanges returns the ranges of the orchestrator's services' addresses.
func (v *View) ServiceRanges() model.ServiceRanges {
	return read(v, func() model.ServiceRanges { return *serviceRanges.in(v) })
}

// Reserve has WhoseAddress say of addresses whose they are, which no row of the store
// tells, as "is the address of ...".
func (ks *Kubernetes) Reserve(at map[netip.Addr]string) {
	ks.commits.view.mu.Lock()
	defer ks.commits.view.mu.Unlock()
	if ks.commits.view.reserved == nil {
		ks.commits.view.reserved = map[netip.Addr]string{}
	}
	maps.Copy(ks.commits.view.reserved, at)
}

// reservedAddresses are those of Reserve.
func (v *View) reservedAddresses() map[netip.Addr]string {
	return read(v, func() map[netip.Addr]string { return maps.Clone(v.reserved) })
}

// WhoseAddress says in words whose an address is, of networks, nodes of the
// orchestrator, hosts and what is reserved; empty = nobody's.
func (v *View) WhoseAddress(a netip.Addr) string {
	return read(v, func() string {
		if whose := v.reserved[a]; whose != "" && !slices.ContainsFunc(serviceRanges.in(v).Ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return whose // not where a service stands before it
		}
		if members := nodesAt.in(v)[a]; len(members) > 0 {
			return fmt.Sprintf("is an address of node %s", slices.Min(slices.Collect(maps.Keys(members))))
		}
		for _, h := range hostRows.in(v).list("") {
			if h.VTEP == a || h.Control == a {
				return fmt.Sprintf("is the address of host %s", h.Name)
			}
		}
		for _, n := range networkRows.in(v).list("") {
			if n.Subnet.Contains(a) || n.Subnet6.Contains(a) {
				return fmt.Sprintf("lies in network %s", n.Key)
			}
		}
		return ""
	})
}

// WhoseServiceAddress says in words which service of the orchestrator has an address as
// cluster address, or in which range of those it lies; empty = none.
func (v *View) WhoseServiceAddress(a netip.Addr) string {
	return read(v, func() string {
		if members := servicesAt.in(v)[a]; len(members) > 0 {
			return fmt.Sprintf("is the cluster address of service %s", sorted(members, clusterServiceRows.in(v).all, clusterServiceRows.in(v).less)[0].Key)
		}
		for _, p := range serviceRanges.in(v).Ranges {
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
func (v *View) WhoseFront(k model.ClusterServiceKey, a netip.Addr, ports []model.ClusterPort) string {
	return read(v, func() string {
		if other, given := balancedAddrs.in(v).by[a]; given && other != k {
			return fmt.Sprintf("is the load balancer's address of service %s", other)
		}
		rows := clusterServiceRows.in(v)
		members := frontedAt.in(v)[a]
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
func (v *View) CountServices() (services, fronts int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(serviceRows.in(v).all) + len(clusterServiceRows.in(v).all), *serviceFronts.in(v) + *clusterFronts.in(v)
}

// NetworksChanged returns what is closed when the next network comes or goes.
func (ns *Networks) NetworksChanged() <-chan struct{} { return ns.commits.view.networksCame.Next() }

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
