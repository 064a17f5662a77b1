package control

import (
	"cmp"
	"maps"
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

// Get finds an endpoint.
func (ev *EndpointView) Get(k model.EndpointKey) (model.Endpoint, bool) {
	ev.mu.RLock()
	defer ev.mu.RUnlock()
	e, ok := ev.endpoints[k]
	return e, ok
}

// CountOfHost returns how many endpoints live on a host.
func (ev *EndpointView) CountOfHost(k model.HostName) int {
	return read(ev.mu, func() int { return len(ev.endpointsOfHost[k]) })
}

// Count returns how many endpoints there are.
func (ev *EndpointView) Count() int { return read(ev.mu, func() int { return len(ev.endpoints) }) }

// List returns the endpoints of a tenant, "" = of all.
func (ev *EndpointView) List(t model.TenantName) []model.Endpoint {
	var out []model.Endpoint
	for _, n := range ev.networks.List(t) {
		out = append(out, ev.OfNetwork(n.Key)...)
	}
	return out
}

// OfNetwork returns a network's endpoints.
func (ev *EndpointView) OfNetwork(k model.NetworkKey) []model.Endpoint {
	return ev.listEndpoints(k, func() map[model.EndpointKey]struct{} { return ev.endpointsOfNetwork[k] })
}

// OfGroup returns a group's endpoints.
func (ev *EndpointView) OfGroup(k model.GroupKey) []model.Endpoint {
	return ev.listEndpoints(k, func() map[model.EndpointKey]struct{} { return ev.endpointsOfGroup[k] })
}

// OfHost returns the endpoints that live on a host.
func (ev *EndpointView) OfHost(k model.HostName) []model.Endpoint {
	return ev.listEndpoints(k, func() map[model.EndpointKey]struct{} { return ev.endpointsOfHost[k] })
}

func (ev *EndpointView) listEndpoints(owner any, members func() map[model.EndpointKey]struct{}) []model.Endpoint {
	return read(ev.mu, func() []model.Endpoint {
		return ev.listed.get(owner, func() []model.Endpoint { return sorted(members(), ev.endpoints, lessEndpoint) })
	})
}

// Find returns the endpoints whose id, container id or name equals
// the text (1.x took any that held it as a part, known fault 30).
func (ev *EndpointView) Find(text string) []model.Endpoint {
	return read(ev.mu, func() []model.Endpoint { return sorted(ev.endpointsByText[text], ev.endpoints, lessEndpoint) })
}

func (ev *EndpointView) hostOf(a tables.Address) model.HostName {
	if a.Reservation != nil {
		return a.Reservation.Host
	}
	return ev.endpoints[model.EndpointKey{Network: a.Network, ID: a.Endpoint}].Host
}

// withOldIdentity returns the endpoints whose identity is not the one that a label
// filter gives them.
func (ev *EndpointView) withOldIdentity(f model.LabelFilter) []model.EndpointKey {
	return read(ev.mu, func() (out []model.EndpointKey) {
		records := ev.identities.identityRecords.all
		for k, e := range ev.endpoints {
			has := records[tables.IdentityKey{Tenant: k.Network.Tenant, ID: e.Identity}].Labels
			if !e.LabelsLater && !maps.Equal(has, f.Identifying(e.Labels)) {
				out = append(out, k)
			}
		}
		return out
	})
}

// CountOldIdentities returns how many endpoints have not followed the last change
// of the label filter yet.
func (ev *EndpointView) CountOldIdentities() int {
	g, ok := ev.settings.Global()
	if !ok || len(g.FormerLabels) == 0 {
		return 0
	}
	return len(ev.withOldIdentity(g.Filter()))
}

// EndpointsSelected returns the endpoints that a selector selects.
func (ev *EndpointView) EndpointsSelected(s model.Selector) []model.Endpoint {
	var among []model.Endpoint
	switch {
	case s.Group != "":
		among = ev.OfGroup(model.GroupKey{Tenant: s.Tenant, Name: s.Group})
	case s.Network != "":
		among = ev.OfNetwork(model.NetworkKey{Tenant: s.Tenant, Name: s.Network})
	default:
		among = ev.List(s.Tenant)
	}
	return read(ev.mu, func() []model.Endpoint {
		var out []model.Endpoint
		for _, e := range among {
			if s.Selects(ev.identities.identity(s.Tenant, e.Identity)) {
				out = append(out, e)
			}
		}
		return out
	})
}

// EndpointsOf counts the endpoints of a tenant, network or group, or of the groups that
// have a policy.
func (ev *EndpointView) EndpointsOf(o model.Owned) (n int) {
	ev.mu.RLock()
	defer ev.mu.RUnlock()
	switch o.Kind {
	case "tenant":
		for _, x := range ev.networks.networkRows.listed(model.TenantName(o.Key)) {
			n += len(ev.endpointsOfNetwork[x.Key])
		}
	case "network":
		if k, err := model.ParseNetworkKey(o.Key); err == nil {
			n = len(ev.endpointsOfNetwork[k])
		}
	case "endpointGroup":
		if k, err := model.ParseGroupKey(o.Key); err == nil {
			n = len(ev.endpointsOfGroup[k])
		}
	case "policy":
		if k, err := model.ParsePolicyKey(o.Key); err == nil {
			for g := range ev.groups.groupsOfPolicy[k] {
				n += len(ev.endpointsOfGroup[g])
			}
		}
	}
	return n
}

// CountByHost counts the endpoints that a scope's tenants have on each host.
func (ev *EndpointView) CountByHost(s Scope) map[model.HostName]int {
	count := map[model.HostName]int{}
	for _, t := range s.tenants {
		for _, e := range ev.List(t) {
			count[e.Host]++
		}
	}
	return count
}
