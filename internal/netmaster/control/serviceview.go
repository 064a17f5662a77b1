package control

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// ServiceView is the View's part with load-balanced services, and finds their providers.
type ServiceView struct {
	endpoints  *EndpointView
	networks   *NetworkView
	addresses  *AddressView
	kubernetes *KubernetesView

	mu                *sync.RWMutex // the View's
	serviceRows       *rows[model.ServiceKey, model.Service]
	serviceFrontends  int // of all services
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
	sv.serviceFrontends = 0
	sv.servicesOfNetwork = index[model.NetworkKey, model.ServiceKey]{}
	sv.servicesByName = index[model.ServiceKey, model.ServiceKey]{}
	sv.endpointsByLabel = index[labelKey, model.EndpointKey]{}
}

// CountServices returns how many services there are, the orchestrator's and
// load-balanced ones, and how many pairs of address and port these have.
func (sv *ServiceView) CountServices() (services, frontends int) {
	sv.mu.RLock()
	defer sv.mu.RUnlock()
	return len(sv.serviceRows.all) + len(sv.kubernetes.clusterServiceRows.all), sv.serviceFrontends + sv.kubernetes.frontendCount
}

func (sv *ServiceView) enterService(ch tables.Change) {
	k, old, now := sv.serviceRows.enter(ch)
	if old != nil {
		sv.servicesOfNetwork.put(old.Network, k, false)
		sv.servicesByName.put(queryName(k), k, false)
		sv.serviceFrontends -= old.FrontendCount()
	}
	if now != nil {
		sv.servicesOfNetwork.put(now.Network, k, true)
		sv.servicesByName.put(queryName(k), k, true)
		sv.serviceFrontends += now.FrontendCount()
	}
}

// checkNameFree refuses, with model.ErrConflict, a new service whose name another one of
// its tenant has but for capitals: containers that ask for either would get the
// addresses of one. Like checkServiceLimits it goes by what the mirror knows and what this
// transaction has put: two that come at the same moment may both stay, as those of
// before this was refused do.
func (sv *ServiceView) checkNameFree(tx store.Tx, k model.ServiceKey, cl *allocator) error {
	sv.mu.RLock()
	others := slices.Collect(maps.Keys(sv.servicesByName[queryName(k)]))
	sv.mu.RUnlock()
	slices.SortFunc(others, lessService)
	for _, o := range append(others, cl.named[queryName(k)]...) {
		if o == k {
			continue
		}
		there, err := tables.LoadBalancers.Find(tx, o)
		if err != nil {
			return err
		}
		if there.Exists() {
			return model.Errorf(model.ErrConflict, "serviceName %q: service %q has the same name in other letter case, and DNS ignores case: choose another name", k.Name, o.Name)
		}
	}
	if cl.named == nil {
		cl.named = map[model.ServiceKey][]model.ServiceKey{}
	}
	cl.named[queryName(k)] = append(cl.named[queryName(k)], k)
	return nil
}

// indexLabels enters (or takes out) an endpoint's labels.
func (sv *ServiceView) indexLabels(e model.Endpoint, in bool) {
	for k, value := range e.Labels {
		sv.endpointsByLabel.put(labelKey{e.Key.Network, model.ServiceSelector{Key: k, Value: value}}, e.Key, in)
	}
}

// List returns load-balanced services.
func (sv *ServiceView) List(t model.TenantName) []model.Service { return sv.serviceRows.list(t) }

// Get finds a load-balanced service.
func (sv *ServiceView) Get(k model.ServiceKey) (model.Service, bool) { return sv.serviceRows.find(k) }

// LostServices returns the addresses of services that are not there, or cannot be read: a
// service that is deleted gives its address back in the same transaction, so somebody else
// has deleted its row.
func (sv *ServiceView) LostServices() (out []tables.Address) {
	sv.mu.RLock()
	defer sv.mu.RUnlock()
	for k, s := range sv.addresses.spaces {
		for _, o := range s.owners {
			if _, there := sv.serviceRows.all[model.ServiceKey{Tenant: k.Tenant, Name: o.Service}]; o.Service != "" && !there {
				out = append(out, o.Address)
			}
		}
	}
	slices.SortFunc(out, func(a, b tables.Address) int { return a.Addr.Compare(b.Addr) })
	return out
}

// OfNetwork returns the load-balanced services of a network.
func (sv *ServiceView) OfNetwork(k model.NetworkKey) []model.Service {
	return sv.serviceRows.byIndex(func() map[model.ServiceKey]struct{} { return sv.servicesOfNetwork[k] })
}

// withLabel returns the endpoints that have the label of a service's which the fewest
// have.
func (sv *ServiceView) withLabel(s model.Service) (fewest map[model.EndpointKey]struct{}) {
	for i, sel := range s.Selectors {
		have := sv.endpointsByLabel[labelKey{s.Network, sel}]
		if i == 0 || len(have) < len(fewest) {
			fewest = have
		}
	}
	return fewest
}

// Providers returns the endpoints that provide a service: those of its network
// that have all its labels now. As labels are part of the endpoints, a netmaster
// that has just started knows as much as one that saw the containers start.
func (sv *ServiceView) Providers(s model.Service) []model.Endpoint {
	return read(sv.mu, func() []model.Endpoint {
		fewest := sv.withLabel(s)
		out := make([]model.Endpoint, 0, len(fewest))
		for _, e := range sorted(fewest, sv.endpoints.endpoints, lessEndpoint) {
			if s.Selects(e.Labels) {
				out = append(out, e)
			}
		}
		return out
	})
}

// ServicesOf returns the services that an endpoint provides.
func (sv *ServiceView) ServicesOf(e model.Endpoint) []model.Service {
	var out []model.Service
	for _, s := range sv.OfNetwork(e.Key.Network) {
		if s.Selects(e.Labels) {
			out = append(out, s)
		}
	}
	return out
}

// missesFamily reports whether a service has no address of a family that its network
// has: it was made before services had one of each.
func (sv *ServiceView) missesFamily(s model.Service) bool {
	n, ok := sv.networks.Get(s.Network)
	v4, v6 := s.AddrsByFamily()
	return ok && (n.Subnet.IsValid() && !v4.IsValid() || n.Subnet6.IsValid() && !v6.IsValid())
}

// checkServiceLimits refuses, with model.ErrExhausted, a service that hosts could not hold
// beside the others, or whose providers of now are more than are chosen among. It
// goes by what the mirror knows, and what this transaction has put already: what is
// committed at the same moment may pass beside it, and containers that come later are
// more providers. There the host's status tells. What takes no more than it did is
// not refused.
func (sv *ServiceView) checkServiceLimits(s model.Service, cl *allocator) error {
	sv.mu.RLock()
	defer sv.mu.RUnlock()
	old, there := sv.serviceRows.all[s.Key]
	all := len(sv.serviceRows.all) + len(sv.kubernetes.clusterServiceRows.all) + cl.services
	frontends := sv.serviceFrontends + sv.kubernetes.frontendCount + cl.frontends
	if err := s.CheckCapacity(old, there, all, frontends); err != nil {
		return err
	}
	if n := sv.countProviders(s); n > model.MaxProviders && (!there || !slices.Equal(old.Selectors, s.Selectors)) {
		return model.Errorf(model.ErrExhausted, "selectors: %d endpoints of network %q have all of these labels, and connections are spread over at most %d: select fewer by another label",
			n, s.Network, model.MaxProviders)
	}
	if !there {
		cl.services++
	}
	cl.frontends += s.FrontendCount() - old.FrontendCount()
	return nil
}

// countProviders counts the providers of a service, if they may be more than
// model.MaxProviders.
func (sv *ServiceView) countProviders(s model.Service) (n int) {
	some := sv.withLabel(s)
	if len(some) <= model.MaxProviders {
		return len(some)
	}
	for k := range some {
		if s.Selects(sv.endpoints.endpoints[k].Labels) {
			n++
		}
	}
	return n
}

// labelKey is a label that an endpoint of a network has.
type labelKey struct {
	network model.NetworkKey
	label   model.ServiceSelector
}

// queryName is a service's key with its name as the name server is asked for it: without
// capitals (RFC 4343).
func queryName(k model.ServiceKey) model.ServiceKey {
	return model.ServiceKey{Tenant: k.Tenant, Name: strings.ToLower(k.Name)}
}
