package model

var _ = register(Kind{
	Collection: "volumeProfiles", Name: "volumeProfile", Order: 140,
	NoEffects: []NoEffect{
		{
			Text: "volume profiles are stored and have no effect",
			set:  in(every[VolumeProfile]),
		},
	},
})

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
