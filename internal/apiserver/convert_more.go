package apiserver

import (
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// aciGwName is the key of the only ACI gateway.
const aciGwName = "aciGw"

func netProfileFromAPI(o api.NetProfile) (p model.NetProfile, err error) {
	if p.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return p, err
	}
	if p.Bandwidth, err = model.ParseBandwidth(o.Bandwidth); err != nil {
		return p, err
	}
	p.Key.Name, p.DSCP, p.Burst = o.ProfileName, o.DSCP, o.Burst
	return p, p.Validate()
}

func netProfileToAPI(p model.NetProfile) api.NetProfile {
	return api.NetProfile{
		Key: p.Key.String(), DSCP: p.DSCP, Bandwidth: p.Bandwidth.Text, Burst: p.Burst,
		ProfileName: p.Key.Name, TenantName: string(p.Key.Tenant),
		Links: api.NetProfileLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
}

func appProfileFromAPI(o api.AppProfile) (p model.AppProfile, err error) {
	p.Key = model.AppProfileKey{Tenant: model.TenantName(o.TenantName), Name: o.AppProfileName}
	for _, g := range o.EndpointGroups {
		p.Groups = append(p.Groups, model.GroupName(g))
	}
	return p, p.Validate()
}

func appProfileToAPI(p model.AppProfile) api.AppProfile {
	o := api.AppProfile{
		Key: p.Key.String(), AppProfileName: p.Key.Name, TenantName: string(p.Key.Tenant),
		Links: api.AppProfileLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
	for _, g := range p.Groups {
		o.EndpointGroups = append(o.EndpointGroups, string(g))
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", model.GroupKey{Tenant: p.Key.Tenant, Name: g}.String())
	}
	return o
}

func serviceFromAPI(o api.ServiceLB) (s model.Service, err error) {
	s.Key = model.ServiceKey{Tenant: model.TenantName(o.TenantName), Name: o.ServiceName}
	s.Network = model.NetworkName(o.NetworkName)
	if s.ReqAddr, err = model.ParseServiceAddr(o.IPAddress); err != nil {
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
	return s, s.Validate()
}

func serviceToAPI(s model.Service) api.ServiceLB {
	o := api.ServiceLB{
		Key: s.Key.String(), IPAddress: addrText(s.ReqAddr), NetworkName: string(s.Network),
		Ports: servicePorts(s), ServiceName: s.Key.Name, TenantName: string(s.Key.Tenant),
		Links: api.ServiceLBLinks{
			Network: api.Link{Type: "network", Key: s.NetworkKey().String()},
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

// serviceID is a service's name in 1.x's runtime interface: service:tenant.
func serviceID(k model.ServiceKey) string { return k.Name + ":" + string(k.Tenant) }

func bgpFromAPI(o api.Bgp) (b model.Bgp, err error) {
	b.Host = model.HostName(o.Hostname)
	if b.RouterIP, err = model.ParseRouterIP(o.RouterIP); err != nil {
		return b, err
	}
	if b.AS, err = model.ParseAS("as", o.AS); err != nil {
		return b, err
	}
	if b.NeighborAS, err = model.ParseAS("neighbor-as", o.NeighborAS); err != nil {
		return b, err
	}
	if b.Neighbor, err = optional(o.Neighbor, model.ParseNeighbor); err != nil {
		return b, err
	}
	return b, b.Validate()
}

func bgpToAPI(b model.Bgp) api.Bgp {
	return api.Bgp{
		Key: string(b.Host), AS: strconv.FormatUint(uint64(b.AS), 10), Hostname: string(b.Host),
		Neighbor: addrText(b.Neighbor), NeighborAS: strconv.FormatUint(uint64(b.NeighborAS), 10), RouterIP: b.RouterIP.String(),
	}
}

func extContractsFromAPI(o api.ExtContractsGroup) (e model.ExtContracts, err error) {
	e.Key = model.ExtContractsKey{Tenant: model.TenantName(o.TenantName), Name: o.ContractsGroupName}
	e.Type, e.Contracts = model.ContractsType(o.ContractsType), o.Contracts
	if len(e.Contracts) == 0 {
		e.Contracts = nil
	}
	return e, e.Validate()
}

func extContractsToAPI(e model.ExtContracts) api.ExtContractsGroup {
	return api.ExtContractsGroup{
		Key: e.Key.String(), Contracts: e.Contracts, ContractsGroupName: e.Key.Name,
		ContractsType: string(e.Type), TenantName: string(e.Key.Tenant),
	}
}

func aciGwFromAPI(o api.AciGw) (g model.AciGw, err error) {
	if o.Name != aciGwName {
		return g, model.InvalidField("name", o.Name, "must be "+aciGwName)
	}
	if g.PathBindings, err = model.ParsePathBindings(o.PathBindings); err != nil {
		return g, err
	}
	if g.NodeBindings, err = model.ParseNodeBindings(o.NodeBindings); err != nil {
		return g, err
	}
	if g.EnforcePolicies, err = model.ParseYesNo("enforcePolicies", o.EnforcePolicies, true); err != nil {
		return g, err
	}
	if g.IncludeCommonTenant, err = model.ParseYesNo("includeCommonTenant", o.IncludeCommonTenant, false); err != nil {
		return g, err
	}
	g.PhysicalDomain = o.PhysicalDomain
	return g, g.Validate()
}

func aciGwToAPI(g model.AciGw) api.AciGw {
	return api.AciGw{
		Key: aciGwName, EnforcePolicies: yesNo(g.EnforcePolicies), IncludeCommonTenant: yesNo(g.IncludeCommonTenant),
		Name: aciGwName, NodeBindings: strings.Join(g.NodeBindings, ","), PathBindings: strings.Join(g.PathBindings, ","),
		PhysicalDomain: g.PhysicalDomain,
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func volumeFromAPI(o api.Volume) (model.Volume, error) {
	v := model.Volume{
		Key:     model.VolumeKey{Tenant: model.TenantName(o.TenantName), Name: o.VolumeName},
		Storage: model.Storage{DatastoreType: o.DatastoreType, MountPoint: o.MountPoint, PoolName: o.PoolName, Size: o.Size},
	}
	return v, v.Validate()
}

func volumeToAPI(v model.Volume) api.Volume {
	return api.Volume{
		Key: v.Key.String(), DatastoreType: v.DatastoreType, MountPoint: v.MountPoint, PoolName: v.PoolName, Size: v.Size,
		TenantName: string(v.Key.Tenant), VolumeName: v.Key.Name, Links: api.VolumeLinks{Tenant: tenantLink(v.Key.Tenant)},
	}
}

func volumeProfileFromAPI(o api.VolumeProfile) (model.VolumeProfile, error) {
	p := model.VolumeProfile{
		Key:     model.VolumeProfileKey{Tenant: model.TenantName(o.TenantName), Name: o.VolumeProfileName},
		Storage: model.Storage{DatastoreType: o.DatastoreType, MountPoint: o.MountPoint, PoolName: o.PoolName, Size: o.Size},
	}
	return p, p.Validate()
}

func volumeProfileToAPI(p model.VolumeProfile) api.VolumeProfile {
	return api.VolumeProfile{
		Key: p.Key.String(), DatastoreType: p.DatastoreType, MountPoint: p.MountPoint, PoolName: p.PoolName, Size: p.Size,
		TenantName: string(p.Key.Tenant), VolumeProfileName: p.Key.Name, Links: api.VolumeProfileLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
}
