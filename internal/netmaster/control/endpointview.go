package control

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// EndpointView is the View's part with endpoints.
type EndpointView struct {
	networks   *NetworkView
	groups     *GroupView
	identities *IdentityView
	settings   *SettingsView

	mu                 *sync.RWMutex // the View's
	endpoints          map[model.EndpointKey]model.Endpoint
	listed             lists[model.Endpoint] // of networks, groups and hosts
	endpointsOfNetwork index[model.NetworkKey, model.EndpointKey]
	endpointsOfGroup   index[model.GroupKey, model.EndpointKey]
	endpointsOfHost    index[model.HostName, model.EndpointKey]
	endpointsByText    index[string, model.EndpointKey] // id, container and name
}

func newEndpointView(mu *sync.RWMutex, networks *NetworkView, groups *GroupView, identities *IdentityView, settings *SettingsView) *EndpointView {
	ev := &EndpointView{mu: mu, networks: networks, groups: groups, identities: identities, settings: settings}
	ev.reset()
	return ev
}

func (ev *EndpointView) reset() {
	ev.endpoints = map[model.EndpointKey]model.Endpoint{}
	ev.listed.of = nil
	ev.endpointsOfNetwork = index[model.NetworkKey, model.EndpointKey]{}
	ev.endpointsOfGroup = index[model.GroupKey, model.EndpointKey]{}
	ev.endpointsOfHost = index[model.HostName, model.EndpointKey]{}
	ev.endpointsByText = index[string, model.EndpointKey]{}
}

func lessEndpoint(a, b model.EndpointKey) int {
	return cmp.Or(lessNetwork(a.Network, b.Network), cmp.Compare(a.ID, b.ID))
}

// enterEndpoint enters a change of an endpoint, and returns what it was and is; nil = it is
// not there.
func (ev *EndpointView) enterEndpoint(ch tables.Change) (old, now *model.Endpoint) {
	k := ch.Key.(model.EndpointKey) //nolint:forcetypeassert // the caller knows it
	if e, had := ev.endpoints[k]; had {
		old = &e
		ev.indexEndpoint(e, false)
		delete(ev.endpoints, k)
	}
	if now = value[model.Endpoint](ch); now != nil {
		ev.endpoints[k] = *now
		ev.indexEndpoint(*now, true)
	}
	return old, now
}

func (ev *EndpointView) indexEndpoint(e model.Endpoint, in bool) {
	k, g := e.Key, model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}
	ev.listed.drop(k.Network, g, e.Host)
	ev.endpointsOfNetwork.put(k.Network, k, in)
	ev.endpointsOfHost.put(e.Host, k, in)
	if e.Group != "" {
		ev.endpointsOfGroup.put(g, k, in)
	}
	for _, s := range endpointTexts(e) {
		if s != "" {
			ev.endpointsByText.put(s, k, in)
		}
	}
}

func endpointTexts(e model.Endpoint) []string {
	return slices.Compact([]string{string(e.Key.ID), e.Container, e.Name})
}

// Endpoint finds an endpoint.
func (ev *EndpointView) Get(k model.EndpointKey) (model.Endpoint, bool) {
	ev.mu.RLock()
	defer ev.mu.RUnlock()
	e, ok := ev.endpoints[k]
	return e, ok
}

// NumEndpoints returns how many endpoints a network has.
func (ev *EndpointView) CountOfNetwork(k model.NetworkKey) int {
	return read(ev.mu, func() int { return len(ev.endpointsOfNetwork[k]) })
}

// NumEndpointsOfHost returns how many endpoints live on a host.
func (ev *EndpointView) CountOfHost(k model.HostName) int {
	return read(ev.mu, func() int { return len(ev.endpointsOfHost[k]) })
}

// NumAllEndpoints returns how many endpoints there are.
func (ev *EndpointView) Count() int { return read(ev.mu, func() int { return len(ev.endpoints) }) }

// Endpoints returns the endpoints of a tenant, "" = of all.
func (ev *EndpointView) List(t model.TenantName) []model.Endpoint {
	var out []model.Endpoint
	for _, n := range ev.networks.List(t) {
		out = append(out, ev.OfNetwork(n.Key)...)
	}
	return out
}

// EndpointsOfNetwork returns a network's endpoints.
func (ev *EndpointView) OfNetwork(k model.NetworkKey) []model.Endpoint {
	return ev.listEndpoints(k, func() map[model.EndpointKey]struct{} { return ev.endpointsOfNetwork[k] })
}

// EndpointsOfGroup returns a group's endpoints.
func (ev *EndpointView) OfGroup(k model.GroupKey) []model.Endpoint {
	return ev.listEndpoints(k, func() map[model.EndpointKey]struct{} { return ev.endpointsOfGroup[k] })
}

// EndpointsOfHost returns the endpoints that live on a host.
func (ev *EndpointView) OfHost(k model.HostName) []model.Endpoint {
	return ev.listEndpoints(k, func() map[model.EndpointKey]struct{} { return ev.endpointsOfHost[k] })
}

func (ev *EndpointView) listEndpoints(owner any, members func() map[model.EndpointKey]struct{}) []model.Endpoint {
	return read(ev.mu, func() []model.Endpoint {
		return ev.listed.get(owner, func() []model.Endpoint { return sorted(members(), ev.endpoints, lessEndpoint) })
	})
}

// FindEndpoints returns the endpoints whose id, container id or name equals
// the text (1.x took any that held it as a part, known fault 30).
func (ev *EndpointView) Find(text string) []model.Endpoint {
	return read(ev.mu, func() []model.Endpoint { return sorted(ev.endpointsByText[text], ev.endpoints, lessEndpoint) })
}

// Addresses returns the addresses of a network that endpoints and reservations
// hold, in order.
func (av *AddressView) Addresses(k model.NetworkKey) []netip.Addr {
	return read(av.mu, func() []netip.Addr {
		s := av.spaces[k]
		if s == nil {
			return nil
		}
		return slices.SortedFunc(maps.Keys(s.owners), netip.Addr.Compare)
	})
}
