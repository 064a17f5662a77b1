package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
)

// ServiceView is the View's part with load-balanced services, and finds their providers.
type ServiceView struct {
	endpoints  *EndpointView
	networks   *NetworkView
	addresses  *AddressView
	kubernetes *KubernetesView

	mu                *sync.RWMutex // the View's
	serviceRows       *rows[model.ServiceKey, model.Service]
	serviceFronts     int // of all services
	servicesOfNetwork index[model.NetworkKey, model.ServiceKey]
	servicesByName    index[model.ServiceKey, model.ServiceKey]
	endpointsByLabel  index[labelKey, model.EndpointKey]
}

func newServiceView(mu *sync.RWMutex, endpoints *EndpointView, networks *NetworkView, addresses *AddressView, kubernetes *KubernetesView) *ServiceView {
	sv := &ServiceView{mu: mu, endpoints: endpoints, networks: networks, addresses: addresses, kubernetes: kubernetes}
	sv.serviceRows = newRows[model.ServiceKey, model.Service](mu, func(k model.ServiceKey) model.TenantName { return k.Tenant }, lessService)
	sv.reset()
	return sv
}

func (sv *ServiceView) reset() {
	sv.serviceRows.reset()
	sv.serviceFronts = 0
	sv.servicesOfNetwork = index[model.NetworkKey, model.ServiceKey]{}
	sv.servicesByName = index[model.ServiceKey, model.ServiceKey]{}
	sv.endpointsByLabel = index[labelKey, model.EndpointKey]{}
}
