package apiserver

import (
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.ServiceLB, model.ServiceKey, model.Service]{
	collection: "serviceLBs", name: "serviceLB", access: ofTenants,
	key: model.ParseServiceKey, list: listIn(viewServices, (*control.ServiceView).List), get: getIn(viewServices, (*control.ServiceView).Get),
	parse: serviceFromAPI, render: serviceToAPI,
	change: changeAsIs(serviceUseCases, (*control.Services).ChangeService), delete: byKey(control.DeleteService),
	oper: api.ServiceLBOper{}, inspect: func(_ *serverContext, v *control.View, s model.Service) any { return serviceOper(v, s) },
})

func serviceFromAPI(o api.ServiceLB) (s model.Service, err error) {
	s.Key = model.ServiceKey{Tenant: model.TenantName(o.TenantName), Name: o.ServiceName}
	s.Network = model.NetworkKey{Tenant: s.Key.Tenant, Name: model.NetworkName(o.NetworkName)}
	if s.ReqAddr, err = model.ParseServiceAddr(o.IPAddress); err != nil {
		return s, err
	}
	if o.IPv6Address != "" {
		if s.ReqAddr6, err = model.ParseAddr6("ipv6Address", o.IPv6Address); err != nil {
			return s, err
		}
	}
	if s.Affinity, err = model.ParseAffinity(o.Affinity); err != nil {
		return s, err
	}
	for _, text := range o.Selectors {
		sel, err := model.ParseServiceSelector(text)
		if err != nil {
			return s, err
		}
		s.Selectors = append(s.Selectors, sel)
	}
	for _, text := range o.Ports {
		p, err := model.ParseServicePort(text)
		if err != nil {
			return s, err
		}
		s.Ports = append(s.Ports, p)
	}
	return s, nil
}

func serviceToAPI(s model.Service) api.ServiceLB {
	o := api.ServiceLB{
		Key: s.Key.String(), Affinity: s.Affinity.String(), IPAddress: addrText(s.ReqAddr), IPv6Address: addrText(s.ReqAddr6), NetworkName: string(s.Network.Name),
		Ports: servicePorts(s), ServiceName: s.Key.Name, TenantName: string(s.Key.Tenant),
		Links: api.ServiceLBLinks{
			Network: api.Link{Type: "network", Key: s.Network.String()},
			Tenant:  tenantLink(s.Key.Tenant),
		},
	}
	for _, sel := range s.Selectors {
		o.Selectors = append(o.Selectors, sel.String())
	}
	return o
}

func servicePorts(s model.Service) []string {
	var out []string
	for _, p := range s.Ports {
		out = append(out, p.Text)
	}
	return out
}

// serviceAddress is a service's first address, or its second one, in 1.x's words; empty = it has none.
func serviceAddress(s model.Service, i int) string {
	if i >= len(s.Addrs) {
		return ""
	}
	return s.Addrs[i].String()
}

// serviceID is a service's name in 1.x's runtime interface: service:tenant.
func serviceID(k model.ServiceKey) string { return k.Name + ":" + string(k.Tenant) }

// serviceOper builds the operational state of a load-balanced service; its
// providers carry its name instead of their group's, as in 1.x.
func serviceOper(v *control.View, s model.Service) api.ServiceLBOper {
	providers := endpointOpers(v, v.Services.Providers(s))
	for i := range providers {
		providers[i].ServiceName = s.Key.Name
	}
	o := api.ServiceLBOper{NumProviders: len(providers), Providers: providers, ServiceVip: serviceAddress(s, 0), ServiceVip6: serviceAddress(s, 1)}
	if len(providers) == 0 {
		o.Problem = fmt.Sprintf("it has no provider: no endpoint of network %s has all of its labels", s.Network)
	} else if !slices.ContainsFunc(providers, func(p api.EndpointOper) bool { return p.Health != api.Unhealthy && !p.Draining }) {
		o.Problem = "new connections are refused: all of its providers are unhealthy or drain"
	}
	return o
}
