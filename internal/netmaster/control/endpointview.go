package control

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func lessEndpoint(a, b model.EndpointKey) int {
	return cmp.Or(lessNetwork(a.Network, b.Network), cmp.Compare(a.ID, b.ID))
}

func enterEndpoint(v *View, ch tables.Change) {
	k := ch.Key.(model.EndpointKey) //nolint:forcetypeassert // it is registered for that
	if old, had := v.endpoints[k]; had {
		indexEndpoint(v, old, false)
		if v.podEndpoints[old.Pod.UID] == k {
			delete(v.podEndpoints, old.Pod.UID)
		}
		delete(v.endpoints, k)
	}
	if e := value[model.Endpoint](ch); e != nil {
		v.endpoints[k] = *e
		indexEndpoint(v, *e, true)
	}
	indexPod(v, k)
}

func indexEndpoint(v *View, e model.Endpoint, in bool) {
	k, g := e.Key, model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}
	v.listed.drop(k.Network, g, e.Host)
	v.endpointsOfNetwork.put(k.Network, k, in)
	v.endpointsOfHost.put(e.Host, k, in)
	if e.Group != "" {
		v.endpointsOfGroup.put(g, k, in)
	}
	indexLabels(v, e, in)
	for _, s := range endpointTexts(e) {
		if s != "" {
			v.endpointsByText.put(s, k, in)
		}
	}
	if e.Pod.UID != "" {
		countPod(v, e, in)
	}
	if in {
		v.identityUsers[e.Identity]++
	} else if v.identityUsers[e.Identity]--; v.identityUsers[e.Identity] == 0 {
		delete(v.identityUsers, e.Identity)
	}
}

func endpointTexts(e model.Endpoint) []string {
	return slices.Compact([]string{string(e.Key.ID), e.Container, e.Name})
}

// Endpoint finds an endpoint.
func (v *View) Endpoint(k model.EndpointKey) (model.Endpoint, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.endpoints[k]
	return e, ok
}

// NumEndpoints returns how many endpoints a network has.
func (v *View) NumEndpoints(k model.NetworkKey) int {
	return read(v, func() int { return len(v.endpointsOfNetwork[k]) })
}

// NumEndpointsOfHost returns how many endpoints live on a host.
func (v *View) NumEndpointsOfHost(k model.HostName) int {
	return read(v, func() int { return len(v.endpointsOfHost[k]) })
}

// NumAllEndpoints returns how many endpoints there are.
func (v *View) NumAllEndpoints() int { return read(v, func() int { return len(v.endpoints) }) }

// Endpoints returns the endpoints of a tenant, "" = of all.
func (v *View) Endpoints(t model.TenantName) []model.Endpoint {
	var out []model.Endpoint
	for _, n := range v.Networks(t) {
		out = append(out, v.EndpointsOfNetwork(n.Key)...)
	}
	return out
}

// EndpointsOfNetwork returns a network's endpoints.
func (v *View) EndpointsOfNetwork(k model.NetworkKey) []model.Endpoint {
	return v.listEndpoints(k, func() map[model.EndpointKey]struct{} { return v.endpointsOfNetwork[k] })
}

// EndpointsOfGroup returns a group's endpoints.
func (v *View) EndpointsOfGroup(k model.GroupKey) []model.Endpoint {
	return v.listEndpoints(k, func() map[model.EndpointKey]struct{} { return v.endpointsOfGroup[k] })
}

// EndpointsOfHost returns the endpoints that live on a host.
func (v *View) EndpointsOfHost(k model.HostName) []model.Endpoint {
	return v.listEndpoints(k, func() map[model.EndpointKey]struct{} { return v.endpointsOfHost[k] })
}

func (v *View) listEndpoints(owner any, members func() map[model.EndpointKey]struct{}) []model.Endpoint {
	return read(v, func() []model.Endpoint {
		return v.listed.get(owner, func() []model.Endpoint { return sorted(members(), v.endpoints, lessEndpoint) })
	})
}

// FindEndpoints returns the endpoints whose id, container id or name equals
// the text (1.x took any that held it as a part, known fault 30).
func (v *View) FindEndpoints(text string) []model.Endpoint {
	return read(v, func() []model.Endpoint { return sorted(v.endpointsByText[text], v.endpoints, lessEndpoint) })
}

// Addresses returns the addresses of a network that endpoints and reservations
// hold, in order.
func (v *View) Addresses(k model.NetworkKey) []netip.Addr {
	return read(v, func() []netip.Addr {
		s := v.spaces[k]
		if s == nil {
			return nil
		}
		return slices.SortedFunc(maps.Keys(s.owners), netip.Addr.Compare)
	})
}
