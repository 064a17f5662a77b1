package model

// MaxStorageText is the length limit of a volume's properties, in bytes.
const MaxStorageText = 256

// VolumeKey names a volume within the cluster.
type VolumeKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k VolumeKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseVolumeKey parses "tenant:volume". The error is of kind ErrInvalid.
func ParseVolumeKey(s string) (VolumeKey, error) {
	t, n, err := parseKey("volumeName", s, MaxName)
	return VolumeKey{t, n}, err
}

// VolumeProfileKey names a volume profile within the cluster.
type VolumeProfileKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k VolumeProfileKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseVolumeProfileKey parses "tenant:profile". The error is of kind ErrInvalid.
func ParseVolumeProfileKey(s string) (VolumeProfileKey, error) {
	t, n, err := parseKey("volumeProfileName", s, MaxName)
	return VolumeProfileKey{t, n}, err
}

// Storage is what 1.x says of a volume. It is kept for clients; nothing here
// makes volumes.
type Storage struct {
	DatastoreType string `json:"datastoreType,omitempty"`
	MountPoint    string `json:"mountPoint,omitempty"`
	PoolName      string `json:"poolName,omitempty"`
	Size          string `json:"size,omitempty"`
}

func (s Storage) validate() error {
	for _, f := range []struct{ name, value string }{
		{"datastoreType", s.DatastoreType}, {"mountPoint", s.MountPoint}, {"poolName", s.PoolName}, {"size", s.Size},
	} {
		if err := validText(f.name, f.value, MaxStorageText); err != nil {
			return err
		}
	}
	return nil
}

// Volume describes storage of a tenant.
type Volume struct {
	Key VolumeKey `json:"key"`
	Storage
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (v Volume) Validate() error {
	if _, err := ParseTenantName(string(v.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("volumeName", v.Key.Name, MaxName); err != nil {
		return err
	}
	return v.validate()
}

// VolumeProfile describes volumes to be made.
type VolumeProfile struct {
	Key VolumeProfileKey `json:"key"`
	Storage
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (v VolumeProfile) Validate() error {
	if _, err := ParseTenantName(string(v.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("volumeProfileName", v.Key.Name, MaxName); err != nil {
		return err
	}
	return v.validate()
}
