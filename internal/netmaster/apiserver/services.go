package apiserver

import (
	"iter"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// serviceHandlers answers for services of networks and of Kubernetes.
type serviceHandlers struct {
	*serverContext
}

// serviceInfo tells of a service in the words of /services.
func serviceInfo(v *control.View, s model.Service) api.ServiceInfo {
	o := api.ServiceInfo{
		ID: serviceID(s.Key), ServiceName: s.Key.Name, TenantName: string(s.Key.Tenant), Subnet: string(s.Network.Name),
		Ports: servicePorts(s), Selectors: map[string]string{}, IPAddress: serviceAddress(s, 0), Providers: map[string]api.ServiceProvider{},
	}
	for _, sel := range s.Selectors {
		o.Selectors[sel.Key] = sel.Value
	}
	for _, e := range v.Services.Providers(s) {
		a := addrText(e.IPv4)
		if a == "" {
			a = addrText(e.IPv6)
		}
		p := api.ServiceProvider{
			IPAddress: a, ContainerID: e.Container, Labels: e.Labels, Tenant: string(e.Key.Network.Tenant),
			Network: string(e.Key.Network.Name), EpIDKey: networkID(e.Key.Network) + "-" + string(e.Key.ID),
		}
		for _, other := range v.Services.ServicesOf(e) {
			p.Services = append(p.Services, serviceID(other.Key))
		}
		o.Providers[a+":"+p.Tenant] = p
	}
	return o
}

func (s *server) handleServices() {
	s.router.handle("GET", "/services", access.View|access.WithinScope, nil, s.services.services)
	s.router.handle("GET", "/service/{id}", access.View|access.OwnTenants, ofServiceID, s.services.service)
	s.router.handle("GET", "/api/v1/serviceLBs/{key}/counts", access.View|access.OwnTenants, namedResource("serviceLB", "key"), s.streams.serviceCounts)
}

// ofServiceID is about a service by its id, "service:tenant".
func ofServiceID(r *request) (access.Resource, error) {
	_, tenant, _ := strings.Cut(r.PathValue("id"), ":")
	return access.Resource{Tenants: []string{tenant}}, nil
}

// services lists the services that the client may read, with their providers.
func (s *serviceHandlers) services(_ http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	return iter.Seq[any](func(yield func(any) bool) {
		for _, x := range listWithin(v, r.scope(), listIn(viewServices, (*control.ServiceView).List)) {
			if !yield(serviceInfo(v, x)) {
				return
			}
		}
	}), nil
}

// service tells of one service by its id, "service:tenant", in a list of one.
func (s *serviceHandlers) service(_ http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	name, tenant, _ := strings.Cut(id, ":")
	x, ok := v.Services.Get(model.ServiceKey{Tenant: model.TenantName(tenant), Name: name})
	if !ok {
		return nil, model.Errorf(model.ErrNotFound, "service %q does not exist; an id is service:tenant", clip([]byte(id)))
	}
	return []api.ServiceInfo{serviceInfo(v, x)}, nil
}
