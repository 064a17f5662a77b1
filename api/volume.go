package api

// Volume describes storage that a tenant's services may use.
type Volume struct {
	Key           string         `json:"key,omitempty"`
	DatastoreType string         `json:"datastoreType,omitempty"`
	MountPoint    string         `json:"mountPoint,omitempty"`
	PoolName      string         `json:"poolName,omitempty"`
	Size          string         `json:"size,omitempty"`
	TenantName    string         `json:"tenantName,omitempty"`
	VolumeName    string         `json:"volumeName,omitempty"`
	LinkSets      VolumeLinkSets `json:"link-sets"`
	Links         VolumeLinks    `json:"links"`
}

// VolumeLinkSets are what uses a volume.
type VolumeLinkSets struct {
	ServiceInstances LinkSet `json:"ServiceInstances,omitempty"`
}

// VolumeLinks are what a volume refers to.
type VolumeLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:volume".
func (o Volume) ObjectKey() string { return o.TenantName + ":" + o.VolumeName }

// Volumes is the collection of volumes; they have no operational state.
func (c *Client) Volumes() Resource[Volume, struct{}] {
	return Resource[Volume, struct{}]{c, "volumes"}
}
