package netctl

import "github.com/contiv/netplugin/v2/api"

var volumeProfileList = listing[api.VolumeProfile, struct{}]{
	kind:   kind[api.VolumeProfile, struct{}]{noun: "volume profile", perTenant: true, collection: (*api.Client).VolumeProfiles},
	tenant: func(v api.VolumeProfile) string { return v.TenantName },
	name:   func(v api.VolumeProfile) string { return v.VolumeProfileName },
	header: []string{"Tenant", "Volume profile", "Datastore", "Pool", "Size", "Mount point"},
	row: func(v api.VolumeProfile) []string {
		return []string{v.TenantName, v.VolumeProfileName, v.DatastoreType, v.PoolName, v.Size, v.MountPoint}
	},
}

var _ = register(kindOf(volumeProfileList, objectKind{
	order: 140, name: "volumeProfile", aliases: []string{"volumeProfiles"},
	keyFields: []string{"tenantName", "volumeProfileName"},
}))
