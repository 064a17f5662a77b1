package tables

import (
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// LoadBalancersOf is the scope of a tenant's load-balanced services.
func LoadBalancersOf(t model.TenantName) string { return TenantPrefix(t) + "services/" }

// LoadBalancers holds the services that users write, by tenant. Records of version 1 are
// in 1.x's words.
var LoadBalancers = declare(TableSpec[model.ServiceKey, model.Service]{
	Kinds: []string{"serviceLB"},
	Noun:  "load-balanced service", Version: 2,
	Path: "state/tenant/*/services/*",
	Parse: func(n []string) (model.ServiceKey, bool) {
		return model.ServiceKey{Tenant: model.TenantName(n[0]), Name: n[1]}, !strings.Contains(n[1], "/")
	},
	KeyOf: func(v model.Service) model.ServiceKey { return v.Key },
	Show:  model.ServiceKey.String,
	Scope: func(k model.ServiceKey) string { return LoadBalancersOf(k.Tenant) },
	Name:  func(k model.ServiceKey) string { return store.Segment(k.Name) },
	Old: func(b []byte) (model.Service, error) {
		v, _, err := store.DecodeRecord[loadBalancerV1](b)
		return v.general(), err
	},
})

// loadBalancerV1 is a record of version 1 of LoadBalancers: what it has beside, or in place
// of, the same fields as today.
type loadBalancerV1 struct {
	model.Service
	Network model.NetworkName `json:"network"`
	VIP     netip.Addr        `json:"vip"`
	VIP6    netip.Addr        `json:"vip6"`
	Ports   []struct {
		model.ServicePort
		Provider uint16 `json:"provider"`
	} `json:"ports"`
}

func (v loadBalancerV1) general() model.Service {
	s := v.Service
	s.Network = model.NetworkKey{Tenant: s.Key.Tenant, Name: v.Network}
	s.SetAddrs(v.VIP, v.VIP6)
	for _, p := range v.Ports {
		p.Target = p.Provider
		s.Ports = append(s.Ports, p.ServicePort)
	}
	return s
}
