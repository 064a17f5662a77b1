package apiserver

var _ = tested("volumeProfiles", kindCases{
	object: `{"tenantName":"blue","volumeProfileName":"x"}`, key: []string{"tenantName", "volumeProfileName"}, fields: storageCases("volumeProfileName"),
})
