package controller

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// networkOf returns the network in whose domain a service is asked: where its own namespace's
// pods are that its slices name. Of several networks it is the cluster's, else the one that it
// has, else the first by name. A service without such pods stays where it is (have) while that
// network exists.
func (p *serviceSync) networkOf(k model.ClusterServiceKey, have model.NetworkKey) model.NetworkKey {
	found := map[model.NetworkKey]bool{}
	for _, x := range p.view.Kubernetes.SlicesOf(k.ServiceKey()) {
		p.addNetworks(found, x)
	}
	if len(found) == 0 {
		if _, ok := p.view.Networks.Get(have); ok {
			return have
		}
		return model.ClusterNetworkKey
	}
	for _, preferred := range []model.NetworkKey{model.ClusterNetworkKey, have} {
		if found[preferred] {
			return preferred
		}
	}
	return slices.MinFunc(slices.Collect(maps.Keys(found)), func(a, b model.NetworkKey) int { return strings.Compare(a.String(), b.String()) })
}

// addNetworks adds the networks of the pods that a slice names. Pods of other namespaces do not
// count, or the author of slices in one namespace could move its services to another's tenant.
func (p *serviceSync) addNetworks(found map[model.NetworkKey]bool, x model.ServiceSlice) {
	for _, b := range x.Backends {
		e, ok := p.view.Pods.PodEndpoint(b.Pod)
		if ok && e.Namespace == x.Key.Namespace && (e.IPv4 == b.Addr || e.IPv6 == b.Addr) {
			found[e.Key.Network] = true
		}
	}
}

// movesService reports whether a slice names pods on another network than its service's.
func (p *serviceSync) movesService(of model.ClusterServiceKey, x model.ServiceSlice) bool {
	at := model.ClusterNetworkKey
	if s, there := p.view.Kubernetes.ClusterService(of); there {
		at = s.Network
	}
	found := map[model.NetworkKey]bool{}
	p.addNetworks(found, x)
	delete(found, at)
	return len(found) > 0
}
