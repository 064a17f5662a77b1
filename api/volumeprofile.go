package api

// VolumeProfile describes volumes to be made.
type VolumeProfile struct {
	Key               string                `json:"key,omitempty"`
	DatastoreType     string                `json:"datastoreType,omitempty"`
	MountPoint        string                `json:"mountPoint,omitempty"`
	PoolName          string                `json:"poolName,omitempty"`
	Size              string                `json:"size,omitempty"`
	TenantName        string                `json:"tenantName,omitempty"`
	VolumeProfileName string                `json:"volumeProfileName,omitempty"`
	LinkSets          VolumeProfileLinkSets `json:"link-sets"`
	Links             VolumeProfileLinks    `json:"links"`
}

// VolumeProfileLinkSets are what uses a profile.
type VolumeProfileLinkSets struct {
	Services LinkSet `json:"Services,omitempty"`
}

// VolumeProfileLinks are what a profile refers to.
type VolumeProfileLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:profile".
func (o VolumeProfile) ObjectKey() string { return o.TenantName + ":" + o.VolumeProfileName }

// VolumeProfiles is the collection of volume profiles; they have no operational
// state.
func (c *Client) VolumeProfiles() Resource[VolumeProfile, struct{}] {
	return Resource[VolumeProfile, struct{}]{c, "volumeProfiles"}
}
