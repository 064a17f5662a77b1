package netctl

import "github.com/contiv/netplugin/v2/api"

var _ = register(kindOf((*api.Client).Volumes, columns[api.Volume]{
	header: []string{"Tenant", "Volume", "Datastore", "Pool", "Size", "Mount point"},
	row: func(v api.Volume) []string {
		return []string{v.TenantName, v.VolumeName, v.DatastoreType, v.PoolName, v.Size, v.MountPoint}
	},
}, objectKind{
	order: 130, name: "volume", aliases: []string{"volumes"},
	keyFields: []string{"tenantName", "volumeName"},
	perTenant: true,
}))

var _ = register(kindOf((*api.Client).VolumeProfiles, columns[api.VolumeProfile]{
	header: []string{"Tenant", "Volume profile", "Datastore", "Pool", "Size", "Mount point"},
	row: func(v api.VolumeProfile) []string {
		return []string{v.TenantName, v.VolumeProfileName, v.DatastoreType, v.PoolName, v.Size, v.MountPoint}
	},
}, objectKind{
	order: 140, name: "volumeProfile", aliases: []string{"volumeProfiles"},
	keyFields: []string{"tenantName", "volumeProfileName"},
	perTenant: true,
}))
