package tables

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// ClusterServices holds services of an orchestrator, by namespace.
var ClusterServices = declare(TableSpec[model.ClusterServiceKey, model.Service]{
	Noun: "cluster service", Version: 2,
	Path: "state/global/clusterservices/*/*",
	Parse: func(n []string) (model.ClusterServiceKey, bool) {
		return model.ClusterServiceKey{Namespace: model.NamespaceName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(s model.Service) model.ClusterServiceKey {
		k, _ := s.Key.Cluster()
		return k
	},
	Show: model.ClusterServiceKey.String,
	Scope: func(k model.ClusterServiceKey) string {
		return GlobalPrefix + "clusterservices/" + store.Segment(string(k.Namespace)) + "/"
	},
	Name: func(k model.ClusterServiceKey) string { return store.Segment(k.Name) },
	Old: func(b []byte) (model.Service, error) {
		v, _, err := store.DecodeRecord[clusterServiceV1](b)
		return v.general(), err
	},
})

// clusterServiceV1 is a record of version 1 of ClusterServices: what it has in place of the
// same fields as today.
type clusterServiceV1 struct {
	model.Service
	Key model.ClusterServiceKey `json:"key"`
}

func (v clusterServiceV1) general() model.Service {
	s := v.Service
	s.Key, s.Owner, s.Network = v.Key.ServiceKey(), model.OwnerKubernetes, model.ClusterNetworkKey
	if s.Affinity == 0 {
		s.Affinity = model.NoAffinity
	}
	return s
}

// ServiceSlices holds the backends of cluster services, by namespace.
var ServiceSlices = declare(TableSpec[model.ServiceSliceKey, model.ServiceSlice]{
	Noun: "slice of a cluster service", Version: 1,
	Path: "state/global/serviceslices/*/*",
	Parse: func(n []string) (model.ServiceSliceKey, bool) {
		return model.ServiceSliceKey{Namespace: model.NamespaceName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(s model.ServiceSlice) model.ServiceSliceKey { return s.Key },
	Show:  model.ServiceSliceKey.String,
	Scope: func(k model.ServiceSliceKey) string {
		return GlobalPrefix + "serviceslices/" + store.Segment(string(k.Namespace)) + "/"
	},
	Name: func(k model.ServiceSliceKey) string { return store.Segment(k.Name) },
})

// ClusterNodes holds what services ask of an orchestrator's nodes.
var ClusterNodes = declare(TableSpec[model.NodeName, model.ClusterNode]{
	Noun: "cluster node", Version: 1,
	Path:  "state/global/nodes/*",
	Parse: func(n []string) (model.NodeName, bool) { return model.NodeName(n[0]), true },
	KeyOf: func(n model.ClusterNode) model.NodeName { return n.Name },
	Scope: func(model.NodeName) string { return GlobalPrefix + "nodes/" },
	Name:  func(k model.NodeName) string { return store.Segment(string(k)) },
})

// ServiceRangesKey is the key of the only row of ServiceRanges.
type ServiceRangesKey struct{}

// ServiceRanges holds the ranges of cluster services' addresses.
var ServiceRanges = declare(TableSpec[ServiceRangesKey, model.ServiceRanges]{
	Noun: "service ranges", Version: 1, Unlisted: true,
	Path:  "state/global/config/serviceranges",
	Parse: func([]string) (ServiceRangesKey, bool) { return ServiceRangesKey{}, true },
	KeyOf: func(model.ServiceRanges) ServiceRangesKey { return ServiceRangesKey{} },
	Show:  func(ServiceRangesKey) string { return "service ranges" },
	Scope: func(ServiceRangesKey) string { return configScope },
	Name:  func(ServiceRangesKey) string { return "serviceranges" },
})

// BalancedKey is the key of a row of BalancedAddrs.
type BalancedKey struct{ Addr netip.Addr }

// Balanced says which cluster service has an address of the load balancers' pool.
type Balanced struct {
	Addr    netip.Addr              `json:"addr"`
	Service model.ClusterServiceKey `json:"service"`
}

// BalancedAddrs holds who has the addresses of the load balancers' pool.
var BalancedAddrs = declare(TableSpec[BalancedKey, Balanced]{
	Noun: "load balancer address", Version: 1, Unlisted: true,
	Path: "state/alloc/balanced/*",
	Parse: func(n []string) (BalancedKey, bool) {
		a, ok := parseAddrName(n[0])
		return BalancedKey{a}, ok
	},
	KeyOf: func(b Balanced) BalancedKey { return BalancedKey{b.Addr} },
	Show:  func(k BalancedKey) string { return k.Addr.String() },
	Scope: func(BalancedKey) string { return AllocPrefix + "balanced/" },
	Name:  func(k BalancedKey) string { return AddrName(k.Addr) },
})
