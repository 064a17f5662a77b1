package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// KubernetesView is the View's part with services and nodes of Kubernetes.
type KubernetesView struct {
	mu                 *sync.RWMutex // the View's
	clusterServiceRows *rows[model.ClusterServiceKey, model.Service]
	serviceSliceRows   *rows[model.ServiceSliceKey, model.ServiceSlice]
	clusterNodeRows    *rows[model.NodeName, model.ClusterNode]
	slicesOfService    index[model.ServiceKey, model.ServiceSliceKey]
	servicesAt         index[netip.Addr, model.ClusterServiceKey]
	frontendsAt        index[netip.Addr, model.ClusterServiceKey]
	nodesAt            index[netip.Addr, model.NodeName]
	frontendCount      int // of all services of the orchestrator
}

func newKubernetesView(mu *sync.RWMutex) *KubernetesView {
	kv := &KubernetesView{mu: mu}
	kv.clusterServiceRows = newRows[model.ClusterServiceKey, model.Service](mu, nil, func(a, b model.ClusterServiceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	kv.serviceSliceRows = newRows[model.ServiceSliceKey, model.ServiceSlice](mu, nil, func(a, b model.ServiceSliceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	kv.clusterNodeRows = newRows[model.NodeName, model.ClusterNode](mu, nil, cmp.Compare[model.NodeName])
	kv.reset()
	return kv
}

func (kv *KubernetesView) reset() {
	kv.clusterServiceRows.reset()
	kv.serviceSliceRows.reset()
	kv.clusterNodeRows.reset()
	kv.slicesOfService = index[model.ServiceKey, model.ServiceSliceKey]{}
	kv.servicesAt = index[netip.Addr, model.ClusterServiceKey]{}
	kv.frontendsAt = index[netip.Addr, model.ClusterServiceKey]{}
	kv.nodesAt = index[netip.Addr, model.NodeName]{}
	kv.frontendCount = 0
}

// describeFrontend says in words which other service leads from an address; empty = none.
func (kv *KubernetesView) describeFrontend(a netip.Addr, k model.ClusterServiceKey) string {
	return read(kv.mu, func() string {
		for other := range kv.frontendsAt[a] {
			if other != k {
				return fmt.Sprintf("is an external address of service %s", other)
			}
		}
		return ""
	})
}

// ClusterServices returns the services of the orchestrator.
func (kv *KubernetesView) ClusterServices() []model.Service {
	return kv.clusterServiceRows.list("")
}

// ClusterService finds a service of the orchestrator.
func (kv *KubernetesView) ClusterService(k model.ClusterServiceKey) (model.Service, bool) {
	return kv.clusterServiceRows.find(k)
}

// ServiceSlices returns the backends of all services of the orchestrator.
func (kv *KubernetesView) ServiceSlices() []model.ServiceSlice { return kv.serviceSliceRows.list("") }

// ServiceSlice finds some of a service's backends.
func (kv *KubernetesView) ServiceSlice(k model.ServiceSliceKey) (model.ServiceSlice, bool) {
	return kv.serviceSliceRows.find(k)
}

// SlicesOf returns the backends of a service of the orchestrator.
func (kv *KubernetesView) SlicesOf(k model.ServiceKey) []model.ServiceSlice {
	return kv.serviceSliceRows.byIndex(func() map[model.ServiceSliceKey]struct{} { return kv.slicesOfService[k] })
}

// ClusterNodes returns the nodes of the orchestrator.
func (kv *KubernetesView) ClusterNodes() []model.ClusterNode { return kv.clusterNodeRows.list("") }

// ClusterNode finds a node of the orchestrator.
func (kv *KubernetesView) ClusterNode(k model.NodeName) (model.ClusterNode, bool) {
	return kv.clusterNodeRows.find(k)
}

func (kv *KubernetesView) enterClusterService(ch tables.Change) (old, now *model.Service) {
	k, old, now := kv.clusterServiceRows.enter(ch)
	if old != nil {
		kv.frontendCount -= old.FrontendCount()
	}
	if now != nil {
		kv.frontendCount += now.FrontendCount()
	}
	for _, s := range []*model.Service{old, now} {
		if s == nil {
			continue
		}
		for _, a := range s.Addrs {
			kv.servicesAt.put(a, k, s == now)
		}
		for _, a := range slices.Concat(s.Balanced, s.External) {
			kv.frontendsAt.put(a, k, s == now)
		}
	}
	return old, now
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

// enterKubernetes enters a change of a service's backends or of a node.
func (kv *KubernetesView) enterKubernetes(ch tables.Change) {
	switch ch.Key.(type) {
	case model.ServiceSliceKey:
		kv.enterServiceSlice(ch)
	case model.NodeName:
		kv.enterClusterNode(ch)
	}
}
