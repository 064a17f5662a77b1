package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(rest[api.Volume, model.VolumeKey, model.Volume]{
	collection: "volumes", name: "volume", access: ofTenants,
	key: model.ParseVolumeKey, list: listIn(ofTenantsIn, (*control.TenantView).Volumes), get: getIn(ofTenantsIn, (*control.TenantView).Volume),
	parse: volumeFromAPI, render: volumeToAPI,
	change: ofValue(control.ChangeVolume), delete: byAny(inTenants, (*control.Tenants).DeleteVolume),
})

func volumeFromAPI(o api.Volume) (model.Volume, error) {
	v := model.Volume{
		Key:     model.VolumeKey{Tenant: model.TenantName(o.TenantName), Name: o.VolumeName},
		Storage: model.Storage{DatastoreType: o.DatastoreType, MountPoint: o.MountPoint, PoolName: o.PoolName, Size: o.Size},
	}
	return v, nil
}

func volumeToAPI(v model.Volume) api.Volume {
	return api.Volume{
		Key: v.Key.String(), DatastoreType: v.DatastoreType, MountPoint: v.MountPoint, PoolName: v.PoolName, Size: v.Size,
		TenantName: string(v.Key.Tenant), VolumeName: v.Key.Name, Links: api.VolumeLinks{Tenant: tenantLink(v.Key.Tenant)},
	}
}
