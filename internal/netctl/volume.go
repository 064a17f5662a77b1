package netctl

import "github.com/contiv/netplugin/v2/api"

var volumeList = listing[api.Volume, struct{}]{
	kind:   kind[api.Volume, struct{}]{noun: "volume", perTenant: true, collection: (*api.Client).Volumes},
	tenant: func(v api.Volume) string { return v.TenantName },
	name:   func(v api.Volume) string { return v.VolumeName },
	header: []string{"Tenant", "Volume", "Datastore", "Pool", "Size", "Mount point"},
	row: func(v api.Volume) []string {
		return []string{v.TenantName, v.VolumeName, v.DatastoreType, v.PoolName, v.Size, v.MountPoint}
	},
}

var _ = register(kindOf(volumeList, objectKind{
	order: 130, name: "volume", aliases: []string{"volumes"},
	keyFields: []string{"tenantName", "volumeName"},
}))
