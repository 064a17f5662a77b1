package control

import (
	"cmp"
	"net/netip"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
)

// KubernetesView is the View's part with services and nodes of Kubernetes.
type KubernetesView struct {
	mu                 *sync.RWMutex // the View's
	clusterServiceRows *rows[model.ClusterServiceKey, model.ClusterService]
	serviceSliceRows   *rows[model.ServiceSliceKey, model.ServiceSlice]
	clusterNodeRows    *rows[model.NodeName, model.ClusterNode]
	slicesOfService    index[model.ClusterServiceKey, model.ServiceSliceKey]
	servicesAt         index[netip.Addr, model.ClusterServiceKey]
	frontedAt          index[netip.Addr, model.ClusterServiceKey]
	nodesAt            index[netip.Addr, model.NodeName]
	clusterFronts      int // of all services of the orchestrator
}

func newKubernetesView(mu *sync.RWMutex) *KubernetesView {
	kv := &KubernetesView{mu: mu}
	kv.clusterServiceRows = newRows[model.ClusterServiceKey, model.ClusterService](mu, nil, func(a, b model.ClusterServiceKey) int {
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
	kv.slicesOfService = index[model.ClusterServiceKey, model.ServiceSliceKey]{}
	kv.servicesAt = index[netip.Addr, model.ClusterServiceKey]{}
	kv.frontedAt = index[netip.Addr, model.ClusterServiceKey]{}
	kv.nodesAt = index[netip.Addr, model.NodeName]{}
	kv.clusterFronts = 0
}
