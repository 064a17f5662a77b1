package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(rest[api.VolumeProfile, model.VolumeProfileKey, model.VolumeProfile]{
	collection: "volumeProfiles", name: "volumeProfile", access: ofTenants,
	key: model.ParseVolumeProfileKey, list: listIn(ofTenantsIn, (*control.TenantView).VolumeProfiles), get: getIn(ofTenantsIn, (*control.TenantView).VolumeProfile),
	parse: volumeProfileFromAPI, render: volumeProfileToAPI,
	change: ofValue(control.ChangeVolumeProfile), delete: byAny(inTenants, (*control.Tenants).DeleteVolumeProfile),
})

func volumeProfileFromAPI(o api.VolumeProfile) (model.VolumeProfile, error) {
	p := model.VolumeProfile{
		Key:     model.VolumeProfileKey{Tenant: model.TenantName(o.TenantName), Name: o.VolumeProfileName},
		Storage: model.Storage{DatastoreType: o.DatastoreType, MountPoint: o.MountPoint, PoolName: o.PoolName, Size: o.Size},
	}
	return p, nil
}

func volumeProfileToAPI(p model.VolumeProfile) api.VolumeProfile {
	return api.VolumeProfile{
		Key: p.Key.String(), DatastoreType: p.DatastoreType, MountPoint: p.MountPoint, PoolName: p.PoolName, Size: p.Size,
		TenantName: string(p.Key.Tenant), VolumeProfileName: p.Key.Name, Links: api.VolumeProfileLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
}
