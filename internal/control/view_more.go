package control

import (
	"cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// moreRows are the part of the View that holds the kinds that 1.x knows beside
// networks, groups, policies and endpoints. The view's lock guards it.
type moreRows struct {
	netProfiles    *rows[model.NetProfileKey, model.NetProfile]
	appProfiles    *rows[model.AppProfileKey, model.AppProfile]
	services       *rows[model.ServiceKey, model.Service]
	extContracts   *rows[model.ExtContractsKey, model.ExtContracts]
	volumes        *rows[model.VolumeKey, model.Volume]
	volumeProfiles *rows[model.VolumeProfileKey, model.VolumeProfile]
	bgps           *rows[model.HostName, model.Bgp]
	aciGw          *model.AciGw

	groupsOfNetProfile   index[model.NetProfileKey, model.GroupKey]
	groupsOfExtContracts index[model.ExtContractsKey, model.GroupKey]
	appProfilesOfGroup   index[model.GroupKey, model.AppProfileKey]
	servicesOfNetwork    index[model.NetworkKey, model.ServiceKey]
	endpointsByLabel     index[labelKey, model.EndpointKey]
	appProfileMod        map[model.AppProfileKey]store.Revision // of the last write
}

// labelKey is a label that an endpoint of a network has.
type labelKey struct {
	network model.NetworkKey
	label   model.ServiceSelector
}

func newMoreRows() moreRows {
	return moreRows{
		netProfiles: newRows[model.NetProfileKey, model.NetProfile](func(k model.NetProfileKey) model.TenantName { return k.Tenant },
			func(a, b model.NetProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) }),
		appProfiles: newRows[model.AppProfileKey, model.AppProfile](func(k model.AppProfileKey) model.TenantName { return k.Tenant },
			func(a, b model.AppProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) }),
		services: newRows[model.ServiceKey, model.Service](func(k model.ServiceKey) model.TenantName { return k.Tenant }, lessService),
		extContracts: newRows[model.ExtContractsKey, model.ExtContracts](func(k model.ExtContractsKey) model.TenantName { return k.Tenant },
			func(a, b model.ExtContractsKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) }),
		volumes: newRows[model.VolumeKey, model.Volume](func(k model.VolumeKey) model.TenantName { return k.Tenant },
			func(a, b model.VolumeKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) }),
		volumeProfiles: newRows[model.VolumeProfileKey, model.VolumeProfile](func(k model.VolumeProfileKey) model.TenantName { return k.Tenant },
			func(a, b model.VolumeProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) }),
		bgps: newRows[model.HostName, model.Bgp](func(model.HostName) model.TenantName { return "" }, cmp.Compare[model.HostName]),

		groupsOfNetProfile:   index[model.NetProfileKey, model.GroupKey]{},
		groupsOfExtContracts: index[model.ExtContractsKey, model.GroupKey]{},
		appProfilesOfGroup:   index[model.GroupKey, model.AppProfileKey]{},
		servicesOfNetwork:    index[model.NetworkKey, model.ServiceKey]{},
		endpointsByLabel:     index[labelKey, model.EndpointKey]{},
		appProfileMod:        map[model.AppProfileKey]store.Revision{},
	}
}

func less(t1, t2 model.TenantName, n1, n2 string) int {
	return cmp.Or(cmp.Compare(t1, t2), cmp.Compare(n1, n2))
}

func lessService(a, b model.ServiceKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) }

// enter records a change of one of these kinds; others are left alone.
func (m *moreRows) enter(ch tables.Change) {
	switch k := ch.Key.(type) {
	case model.NetProfileKey:
		m.netProfiles.set(k, value[model.NetProfile](ch))
	case model.AppProfileKey:
		m.enterAppProfile(k, value[model.AppProfile](ch), ch.Mod)
	case model.ServiceKey:
		s := value[model.Service](ch)
		if old, had := m.services.set(k, s); had {
			m.servicesOfNetwork.remove(old.NetworkKey(), k)
		}
		if s != nil {
			m.servicesOfNetwork.add(s.NetworkKey(), k)
		}
	case model.ExtContractsKey:
		m.extContracts.set(k, value[model.ExtContracts](ch))
	case model.VolumeKey:
		m.volumes.set(k, value[model.Volume](ch))
	case model.VolumeProfileKey:
		m.volumeProfiles.set(k, value[model.VolumeProfile](ch))
	case tables.BgpKey:
		m.bgps.set(k.Host, value[model.Bgp](ch))
	case tables.AciGwKey:
		m.aciGw = value[model.AciGw](ch)
	}
}

func (m *moreRows) enterAppProfile(k model.AppProfileKey, p *model.AppProfile, mod store.Revision) {
	if old, had := m.appProfiles.set(k, p); had {
		for _, g := range old.Groups {
			m.appProfilesOfGroup.remove(model.GroupKey{Tenant: k.Tenant, Name: g}, k)
		}
		delete(m.appProfileMod, k)
	}
	if p == nil {
		return
	}
	m.appProfileMod[k] = mod
	for _, g := range p.Groups {
		m.appProfilesOfGroup.add(model.GroupKey{Tenant: k.Tenant, Name: g}, k)
	}
}

// indexGroup enters (or takes out) what a group names.
func (m *moreRows) indexGroup(g model.Group, in bool) {
	np := model.NetProfileKey{Tenant: g.Key.Tenant, Name: g.NetProfile}
	if in && g.NetProfile != "" {
		m.groupsOfNetProfile.add(np, g.Key)
	} else {
		m.groupsOfNetProfile.remove(np, g.Key)
	}
	for _, name := range g.ExtContracts {
		ec := model.ExtContractsKey{Tenant: g.Key.Tenant, Name: name}
		if in {
			m.groupsOfExtContracts.add(ec, g.Key)
		} else {
			m.groupsOfExtContracts.remove(ec, g.Key)
		}
	}
}

// indexLabels enters (or takes out) an endpoint's labels.
func (m *moreRows) indexLabels(e model.Endpoint, in bool) {
	for k, v := range e.Labels {
		lk := labelKey{e.Key.Network, model.ServiceSelector{Key: k, Value: v}}
		if in {
			m.endpointsByLabel.add(lk, e.Key)
		} else {
			m.endpointsByLabel.remove(lk, e.Key)
		}
	}
}

// NetProfiles returns the net profiles of a tenant, "" = of all; likewise the
// methods below.
func (v *View) NetProfiles(t model.TenantName) []model.NetProfile {
	return read(v, func() []model.NetProfile { return v.more.netProfiles.list(t) })
}

// NetProfile finds a net profile.
func (v *View) NetProfile(k model.NetProfileKey) (model.NetProfile, bool) {
	return find(v, func() map[model.NetProfileKey]model.NetProfile { return v.more.netProfiles.all }, k)
}

// GroupsOfNetProfile returns the groups that name a net profile.
func (v *View) GroupsOfNetProfile(k model.NetProfileKey) []model.Group {
	return read(v, func() []model.Group { return sorted(v.more.groupsOfNetProfile[k], v.groups.all, lessGroup) })
}

// AppProfiles returns app profiles.
func (v *View) AppProfiles(t model.TenantName) []model.AppProfile {
	return read(v, func() []model.AppProfile { return v.more.appProfiles.list(t) })
}

// AppProfile finds an app profile.
func (v *View) AppProfile(k model.AppProfileKey) (model.AppProfile, bool) {
	return find(v, func() map[model.AppProfileKey]model.AppProfile { return v.more.appProfiles.all }, k)
}

// AppProfileOf returns the app profile of a group: the one written last, if it
// is in several.
func (v *View) AppProfileOf(g model.GroupKey) (k model.AppProfileKey, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for p := range v.more.appProfilesOfGroup[g] {
		a, b := v.more.appProfileMod[p], v.more.appProfileMod[k]
		if !ok || a > b || a == b && p.Name < k.Name {
			k, ok = p, true
		}
	}
	return k, ok
}

// ExtContracts returns groups of external contracts.
func (v *View) ExtContracts(t model.TenantName) []model.ExtContracts {
	return read(v, func() []model.ExtContracts { return v.more.extContracts.list(t) })
}

// ExtContractsGroup finds a group of external contracts.
func (v *View) ExtContractsGroup(k model.ExtContractsKey) (model.ExtContracts, bool) {
	return find(v, func() map[model.ExtContractsKey]model.ExtContracts { return v.more.extContracts.all }, k)
}

// GroupsOfExtContracts returns the endpoint groups that name a group of
// external contracts.
func (v *View) GroupsOfExtContracts(k model.ExtContractsKey) []model.Group {
	return read(v, func() []model.Group { return sorted(v.more.groupsOfExtContracts[k], v.groups.all, lessGroup) })
}

// Volumes returns volumes.
func (v *View) Volumes(t model.TenantName) []model.Volume {
	return read(v, func() []model.Volume { return v.more.volumes.list(t) })
}

// Volume finds a volume.
func (v *View) Volume(k model.VolumeKey) (model.Volume, bool) {
	return find(v, func() map[model.VolumeKey]model.Volume { return v.more.volumes.all }, k)
}

// VolumeProfiles returns volume profiles.
func (v *View) VolumeProfiles(t model.TenantName) []model.VolumeProfile {
	return read(v, func() []model.VolumeProfile { return v.more.volumeProfiles.list(t) })
}

// VolumeProfile finds a volume profile.
func (v *View) VolumeProfile(k model.VolumeProfileKey) (model.VolumeProfile, bool) {
	return find(v, func() map[model.VolumeProfileKey]model.VolumeProfile { return v.more.volumeProfiles.all }, k)
}

// Bgps returns the BGP settings of all hosts.
func (v *View) Bgps() []model.Bgp {
	return read(v, func() []model.Bgp { return v.more.bgps.list("") })
}

// Bgp finds a host's BGP settings.
func (v *View) Bgp(h model.HostName) (model.Bgp, bool) {
	return find(v, func() map[model.HostName]model.Bgp { return v.more.bgps.all }, h)
}

// AciGw returns the settings of the ACI fabric.
func (v *View) AciGw() (model.AciGw, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.more.aciGw == nil {
		return model.AciGw{}, false
	}
	return *v.more.aciGw, true
}

// Services returns load-balanced services.
func (v *View) Services(t model.TenantName) []model.Service {
	return read(v, func() []model.Service { return v.more.services.list(t) })
}

// Service finds a load-balanced service.
func (v *View) Service(k model.ServiceKey) (model.Service, bool) {
	return find(v, func() map[model.ServiceKey]model.Service { return v.more.services.all }, k)
}

// ServicesOfNetwork returns the load-balanced services of a network.
func (v *View) ServicesOfNetwork(k model.NetworkKey) []model.Service {
	return read(v, func() []model.Service {
		return sorted(v.more.servicesOfNetwork[k], v.more.services.all, lessService)
	})
}

// Providers returns the endpoints that provide a service: those of its network
// that have all its labels now. As labels are part of the endpoints, a netmaster
// that has just started knows as much as one that saw the containers start.
func (v *View) Providers(s model.Service) []model.Endpoint {
	return read(v, func() []model.Endpoint {
		var fewest map[model.EndpointKey]struct{}
		for i, sel := range s.Selectors {
			have := v.more.endpointsByLabel[labelKey{s.NetworkKey(), sel}]
			if i == 0 || len(have) < len(fewest) {
				fewest = have
			}
		}
		out := make([]model.Endpoint, 0, len(fewest))
		for _, e := range sorted(fewest, v.endpoints, lessEndpoint) {
			if s.Selects(e.Labels) {
				out = append(out, e)
			}
		}
		return out
	})
}

// ServicesOf returns the services that an endpoint provides.
func (v *View) ServicesOf(e model.Endpoint) []model.Service {
	var out []model.Service
	for _, s := range v.ServicesOfNetwork(e.Key.Network) {
		if s.Selects(e.Labels) {
			out = append(out, s)
		}
	}
	return out
}

// HostNames returns the hosts that agents have told of or that endpoints live
// on, in no particular order; a name may be there twice.
func (v *View) HostNames() []model.HostName {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []model.HostName
	for h := range v.hosts.all {
		out = append(out, h)
	}
	for h := range v.endpointsOfHost {
		if h != "" {
			out = append(out, h)
		}
	}
	return out
}
