package model

var _ = register(Kind{
	Collection: "volumes", Name: "volume", Order: 130,
	NoEffects: []NoEffect{
		{
			Text: "volumes are stored and have no effect",
			set:  in(every[Volume]),
		},
	},
})

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
