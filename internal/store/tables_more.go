package store

import "github.com/contiv/netplugin/v2/internal/model"

// What 1.x knows beside networks, groups, policies and endpoints:
//
//	state/global/config/aciGw              model.AciGw
//	state/global/bgp/H                     model.Bgp
//	state/tenant/T/netprofiles/NAME        model.NetProfile
//	state/tenant/T/appprofiles/NAME        model.AppProfile
//	state/tenant/T/services/NAME           model.Service
//	state/tenant/T/extcontracts/NAME       model.ExtContracts
//	state/tenant/T/volumes/NAME            model.Volume
//	state/tenant/T/volumeprofiles/NAME     model.VolumeProfile
const bgpScope = GlobalPrefix + "bgp/"

// BgpsScope is the scope of all hosts' BGP settings.
const BgpsScope = bgpScope

// BgpKey names a host's BGP settings.
type BgpKey struct{ Host model.HostName }

// AciGwKey is the key of the only row of AciGws.
type AciGwKey struct{}

// NetProfilesOf is the scope of a tenant's net profiles; likewise the functions below.
func NetProfilesOf(t model.TenantName) string { return TenantPrefix(t) + "netprofiles/" }

// AppProfilesOf is the scope of a tenant's app profiles.
func AppProfilesOf(t model.TenantName) string { return TenantPrefix(t) + "appprofiles/" }

// LoadBalancersOf is the scope of a tenant's load-balanced services.
func LoadBalancersOf(t model.TenantName) string { return TenantPrefix(t) + "services/" }

// ExtContractsOf is the scope of a tenant's groups of external contracts.
func ExtContractsOf(t model.TenantName) string { return TenantPrefix(t) + "extcontracts/" }

// VolumesOf is the scope of a tenant's volumes.
func VolumesOf(t model.TenantName) string { return TenantPrefix(t) + "volumes/" }

// VolumeProfilesOf is the scope of a tenant's volume profiles.
func VolumeProfilesOf(t model.TenantName) string { return TenantPrefix(t) + "volumeprofiles/" }

// NetProfiles holds net profiles by tenant.
var NetProfiles = NewTable(TableSpec[model.NetProfileKey, model.NetProfile]{
	Noun: "net profile", Version: 1,
	KeyOf: func(v model.NetProfile) model.NetProfileKey { return v.Key },
	Show:  model.NetProfileKey.String,
	Scope: func(k model.NetProfileKey) string { return NetProfilesOf(k.Tenant) },
	Name:  func(k model.NetProfileKey) string { return Segment(k.Name) },
})

// AppProfiles holds app profiles by tenant.
var AppProfiles = NewTable(TableSpec[model.AppProfileKey, model.AppProfile]{
	Noun: "app profile", Version: 1,
	KeyOf: func(v model.AppProfile) model.AppProfileKey { return v.Key },
	Show:  model.AppProfileKey.String,
	Scope: func(k model.AppProfileKey) string { return AppProfilesOf(k.Tenant) },
	Name:  func(k model.AppProfileKey) string { return Segment(k.Name) },
})

// LoadBalancers holds load-balanced services by tenant.
var LoadBalancers = NewTable(TableSpec[model.ServiceKey, model.Service]{
	Noun: "load-balanced service", Version: 1,
	KeyOf: func(v model.Service) model.ServiceKey { return v.Key },
	Show:  model.ServiceKey.String,
	Scope: func(k model.ServiceKey) string { return LoadBalancersOf(k.Tenant) },
	Name:  func(k model.ServiceKey) string { return Segment(k.Name) },
})

// ExtContracts holds groups of external contracts by tenant.
var ExtContracts = NewTable(TableSpec[model.ExtContractsKey, model.ExtContracts]{
	Noun: "group of external contracts", Version: 1,
	KeyOf: func(v model.ExtContracts) model.ExtContractsKey { return v.Key },
	Show:  model.ExtContractsKey.String,
	Scope: func(k model.ExtContractsKey) string { return ExtContractsOf(k.Tenant) },
	Name:  func(k model.ExtContractsKey) string { return Segment(k.Name) },
})

// Volumes holds volumes by tenant.
var Volumes = NewTable(TableSpec[model.VolumeKey, model.Volume]{
	Noun: "volume", Version: 1,
	KeyOf: func(v model.Volume) model.VolumeKey { return v.Key },
	Show:  model.VolumeKey.String,
	Scope: func(k model.VolumeKey) string { return VolumesOf(k.Tenant) },
	Name:  func(k model.VolumeKey) string { return Segment(k.Name) },
})

// VolumeProfiles holds volume profiles by tenant.
var VolumeProfiles = NewTable(TableSpec[model.VolumeProfileKey, model.VolumeProfile]{
	Noun: "volume profile", Version: 1,
	KeyOf: func(v model.VolumeProfile) model.VolumeProfileKey { return v.Key },
	Show:  model.VolumeProfileKey.String,
	Scope: func(k model.VolumeProfileKey) string { return VolumeProfilesOf(k.Tenant) },
	Name:  func(k model.VolumeProfileKey) string { return Segment(k.Name) },
})

// Bgps holds BGP settings by host.
var Bgps = NewTable(TableSpec[BgpKey, model.Bgp]{
	Noun: "Bgp", Version: 1,
	KeyOf: func(b model.Bgp) BgpKey { return BgpKey{b.Host} },
	Show:  func(k BgpKey) string { return string(k.Host) },
	Scope: func(BgpKey) string { return bgpScope },
	Name:  func(k BgpKey) string { return Segment(string(k.Host)) },
})

// AciGws holds the settings of the ACI fabric.
var AciGws = NewTable(TableSpec[AciGwKey, model.AciGw]{
	Noun: "aciGw", Version: 1, Unlisted: true,
	KeyOf: func(model.AciGw) AciGwKey { return AciGwKey{} },
	Show:  func(AciGwKey) string { return "aciGw" },
	Scope: func(AciGwKey) string { return configScope },
	Name:  func(AciGwKey) string { return "aciGw" },
})

// TargetNetProfile is a net profile as the target of references.
func TargetNetProfile(k model.NetProfileKey) Target { return Target{"netprofile", k.Tenant, k.Name} }

// TargetExtContracts is a group of external contracts as the target of references.
func TargetExtContracts(k model.ExtContractsKey) Target {
	return Target{"extcontracts", k.Tenant, k.Name}
}

// decodeNamed decodes the kinds above that belong to a tenant.
func decodeNamed(ev Event, t model.TenantName, kind, name string) (Change, error) {
	switch kind {
	case "netprofiles":
		return decodeRow(NetProfiles, model.NetProfileKey{Tenant: t, Name: name}, ev)
	case "appprofiles":
		return decodeRow(AppProfiles, model.AppProfileKey{Tenant: t, Name: name}, ev)
	case "services":
		return decodeRow(LoadBalancers, model.ServiceKey{Tenant: t, Name: name}, ev)
	case "extcontracts":
		return decodeRow(ExtContracts, model.ExtContractsKey{Tenant: t, Name: name}, ev)
	case "volumes":
		return decodeRow(Volumes, model.VolumeKey{Tenant: t, Name: name}, ev)
	case "volumeprofiles":
		return decodeRow(VolumeProfiles, model.VolumeProfileKey{Tenant: t, Name: name}, ev)
	}
	return Change{}, nil
}
